"""One run of a streaming join to a file sink. The recovery tests start, kill and restart it.

join.json in its directory defines the join: the arguments of dovetail.join, with the window separately; or those of
dovetail.multijoin, with the names of the inputs. `watermarks` has the time column and the delay of each stream, and
`table` names the input that is not a stream.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import dovetail
from dovetail.spark.session.session import local_session

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.files.maxPartitionBytes": "1m",  # one partition per file
    "spark.sql.streaming.minBatchesToRetain": "1000",  # tests read the offsets of all micro-batches
}


def main(place: Path, master: str) -> None:
    spark = local_session("recovery", master, conf=CONF)
    run(spark, place)
    spark.stop()
    say("finished")


def run(spark: SparkSession, place: Path) -> None:
    options = json.loads((place / "join.json").read_text())
    if "window" in options:
        options["window"] = dovetail.window(**options["window"])
    options.setdefault("state_dir", str(place / "state"))
    several = options.pop("inputs", None)
    table, watermarks = options.pop("table", None), options.pop("watermarks", {})
    streams = {}
    for name in several or ("left", "right"):
        read = spark.read.parquet(str(place / name))
        if name != table:
            reader = spark.readStream.schema(read.schema).option("maxFilesPerTrigger", 1)
            read = reader.parquet(str(place / name))
        streams[name] = read.withWatermark(*watermarks[name]) if name in watermarks else read
    if several:
        joined = dovetail.multijoin(streams, **options)
    else:
        joined = dovetail.join(streams["left"], streams["right"], **options)
    writer = (
        joined.writeStream.format("parquet")
        .option("path", str(place / "results"))
        .option("checkpointLocation", str(place / "checkpoint"))
    )
    ends = "end" in options  # with timers it does not end on its own
    query = (writer if ends else writer.trigger(availableNow=True)).start()
    ended = threading.Event()
    reporter = threading.Thread(target=report, args=(query, spark.sparkContext, ended))
    reporter.start()
    try:
        if ends:
            dovetail.finish(query)
        else:
            query.awaitTermination()
    finally:
        ended.set()
        reporter.join()


def report(query: Any, context: Any, ended: threading.Event) -> None:
    """Print which micro-batches are done and how many tasks have failed, so that the test can time its kills."""
    said = ""
    going_on = True
    while going_on:
        going_on = not ended.wait(0.05)
        progress = query.lastProgress
        failed = context._jsc.sc().statusStore().executorList(True).head().failedTasks()
        number, rows = (-1, 0) if progress is None else (progress.batchId, progress.numInputRows)
        line = f"batch {number} rows {rows} failed {failed}"
        if line != said:
            said = line
            say(line)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
