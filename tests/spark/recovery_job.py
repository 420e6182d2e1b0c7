"""One run of a streaming join to a file sink; the recovery test starts it, kills it and starts it again."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import dovetail
from dovetail.spark.session import local_session

WINDOW = 2000  # rows

JOINS: dict[str, dict[str, Any]] = {
    "equality": {"on": "l.k = r.k"},
    "window": {"on": "l.k < r.k AND l.v > r.v", "window": dovetail.window(rows=WINDOW)},
    "window, left": {"on": "l.k < r.k AND l.v > r.v", "how": "left", "window": dovetail.window(rows=WINDOW)},
}


def main(place: Path, master: str, kind: str) -> None:
    spark = local_session("recovery", master, conf={"spark.sql.shuffle.partitions": "2"})
    sides = [
        spark.readStream.schema(f"k bigint, v bigint, {side} bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(place / side))
        for side in ("left", "right")
    ]
    joined = dovetail.join(sides[0], sides[1], state_dir=str(place / "state"), **JOINS[kind])
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(place / "results"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    ended = threading.Event()
    reporter = threading.Thread(target=report, args=(query, spark.sparkContext, ended))
    reporter.start()
    try:
        query.awaitTermination()
    finally:
        ended.set()
        reporter.join()
    spark.stop()
    say("finished")


def report(query: Any, context: Any, ended: threading.Event) -> None:
    """Say which micro-batches are done and how many tasks have failed, so that the test can choose its moment."""
    said = ""
    going_on = True
    while going_on:
        going_on = not ended.wait(0.05)
        progress = query.lastProgress
        failed = context._jsc.sc().statusStore().executorList(True).head().failedTasks()
        line = f"batch {-1 if progress is None else progress.batchId} failed {failed}"
        if line != said:
            said = line
            say(line)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
