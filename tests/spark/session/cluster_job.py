"""Joins on a cluster of two workers with disks of their own, through kills (see separate_disks.py).

A script: each part has a session, and is killed or kills. Exact results.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from tests.effort import some
from tests.patience import wait_until
from tests.spark.join_cases import CONDITIONS, random_rows, rows_by_type, rows_of
from tests.spark.session.separate_disks import HOST, WORKER, cluster
from tests.spark.session.separate_disks_job import stopping

import dovetail
from dovetail.spark.session.session import local_session

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "8",
}


def processes(place: Path, kind: str) -> list[int]:
    """Those of this cluster, which have its directory in their command or as their own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            command = (process / "cmdline").read_text()
            home = os.readlink(process / "cwd")
            if f"\0{kind}\0" in command and (str(place) in command or home.startswith(str(place))):
                found.append(int(process.name))
    return sorted(found)


def kill_one(place: Path, kind: str) -> None:
    victim = processes(place, kind)[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: victim not in processes(place, kind), f"the end of {victim}")


def every_class_and_type(place: Path) -> None:
    with cluster(place) as master, stopping(local_session("classes", master, SETTINGS)) as spark:
        left, right = (spark.createDataFrame(random_rows(rows, seed)) for rows, seed in ((150, 1), (130, 2)))
        contents = [{row.id: tuple(row) for row in frame.collect()} for frame in (left, right)]
        for number, (name, on) in enumerate(CONDITIONS.items()):
            met: Any = left.alias("l").join(right.alias("r"), F.expr(on)).select("l.id", "r.id").collect()
            expected = rows_by_type([tuple(pair) for pair in met], contents)
            for how in some(HOWS, number, of=3):
                assert rows_of(dovetail.join(left, right, on, how)) == expected[how], (name, how)


def kill_an_executor_and_a_worker(place: Path) -> None:
    """First an executor while tables are joined and while streams are; then a worker, and the other does the rest."""
    with cluster(place) as master, stopping(local_session("kills", master, SETTINGS)) as spark:
        wait_until(lambda: len(processes(place, EXECUTOR)) == 2, "two executors")
        files = place / "shared"
        for name in ("left", "right"):
            write_side(files / name, name)
        frames = spark.read.parquet(str(files / "left")), spark.read.parquet(str(files / "right"))
        expected = counted(frames[0].alias("l").join(frames[1].alias("r"), F.expr(ON)))
        assert_survives(spark, place, EXECUTOR, lambda: counted(dovetail.join(*frames, ON)), expected)
        for number, kind in enumerate((EXECUTOR, WORKER)):
            window = {"window": dovetail.window(rows=1_000_000)} if number else {}
            assert run_stream(frames, files, number, partial(kill_one, place, kind), **window) == expected
        # One worker is left.
        assert dovetail.write(dovetail.join(*frames, ON), files / "written").rows == expected.total()
        assert counted(spark.read.parquet(str(files / "written"))) == expected
        steps = dovetail.progressive(*frames, ON, cells=8, work_dir=str(files / "work"))
        assert sum((pairs_of(step.batch) for step in steps), Counter()) == expected


def run_stream(
    frames: tuple[DataFrame, DataFrame], files: Path, number: int, harm: Callable[[], None], **options: Any
) -> Counter[Any]:
    """What a query writes that is harmed after its first micro-batches."""
    spark, out = frames[0].sparkSession, files / f"joined-{number}"
    left, right = (
        spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(files / name))
        for frame, name in zip(frames, ("left", "right"), strict=True)
    )
    joined = dovetail.join(left, right, ON, state_dir=str(files / f"state-{number}"), **options)
    sink = joined.writeStream.format("parquet").option("checkpointLocation", f"{out}-checkpoint")
    query = sink.trigger(availableNow=True).start(str(out))
    wait_until(lambda: query.lastProgress is not None and query.lastProgress.batchId >= 1, "a micro-batch")
    harm()
    query.awaitTermination()
    return counted(spark.read.parquet(str(out)))


ON = "l.k = r.k AND l.x < r.x"


def write_side(directory: Path, name: str, files: int = 6, rows: int = 4000) -> pa.Table:
    """Files of one side, in order."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(len(name))
    count = files * rows
    table = pa.table({"k": rng.integers(0, count // 2, count), "x": rng.random(count), name: np.arange(count)})
    for number in range(files):
        path = directory / f"{number}.parquet"
        pq.write_table(table.slice(number * rows, rows), path)
        os.utime(path, (number, number))
    return table


def pairs_of(table: pa.Table | pa.RecordBatch) -> Counter[Any]:
    return Counter(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True))


def counted(frame: DataFrame) -> Counter[Any]:
    return pairs_of(frame.select("left", "right").toArrow())


def assert_survives(
    spark: SparkSession, place: Path, kind: str, work: Callable[[], Counter[Any]], expected: Counter[Any]
) -> None:
    """Work that a kill interrupts gives what it would have given."""
    found: list[Counter[Any]] = []
    worker = threading.Thread(target=lambda: found.append(work()))
    worker.start()
    wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds() or not worker.is_alive(), "a job")
    kill_one(place, kind)
    worker.join()
    assert found == [expected]


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    parts = {"classes": every_class_and_type, "kills": kill_an_executor_and_a_worker}
    parts[sys.argv[1]](Path(sys.argv[2]))
