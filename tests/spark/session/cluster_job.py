"""Joins on a cluster of two workers with separate disks, while processes are killed (see separate_disks.py).

A script: each part has its own session, and is killed or kills. Results must be exact.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.effort import some
from tests.patience import wait_until
from tests.spark.join_cases import CONDITIONS, random_rows, rows_by_type, rows_of
from tests.spark.session.separate_disks import HOST, WORKER, cluster
from tests.spark.session.separate_disks_job import stopping
from tests.spark.streaming.killing import kill, parent, stored_segments

import dovetail
from dovetail.monitoring.spark_streams import known_figures
from dovetail.sources.flight_server import TableServer
from dovetail.spark.session.session import local_session

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "8",
    "spark.ui.liveUpdate.period": "0",  # shows immediately which executors are busy
}
ON = "l.k = r.k AND l.x < r.x"
SIDES = ("left", "right")
FILES, ROWS = 6, 4000  # per side; a file is a micro-batch


def processes(place: Path, kind: str) -> list[int]:
    """The processes of this cluster: its directory is in their command, or is their working directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            command = (process / "cmdline").read_text()
            home = os.readlink(process / "cwd")
            if f"\0{kind}\0" in command and (str(place) in command or home.startswith(str(place))):
                found.append(int(process.name))
    return sorted(found)


def kill_one(spark: SparkSession, place: Path, kind: str, is_going_on: Callable[[], bool]) -> None:
    """Kill a busy executor, or its worker."""
    victims: list[int] = []

    def find() -> bool:
        busy = at_work(spark)
        assert is_going_on(), "nothing is left to be killed at work"
        victims.extend(pid for pid in processes(place, EXECUTOR) if executor_id(pid) in busy)
        return bool(victims)

    wait_until(find, "an executor at work")
    victim = victims[0] if kind == EXECUTOR else parent(victims[0])
    assert victim in processes(place, kind)
    kill(victim)
    wait_until(lambda: victim not in processes(place, kind), f"the end of {victim}")


def at_work(spark: SparkSession) -> set[str]:
    """The ids of executors that are running a task."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return {found.apply(i).id() for i in range(found.size()) if found.apply(i).activeTasks()}


def executor_id(pid: int) -> str:
    with suppress(OSError):  # it ended while we looked
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return words[words.index("--executor-id") + 1]
    return ""


def failed_tasks(spark: SparkSession) -> int:
    """Counted over all jobs, because tasks of a lost executor may not be counted with the executor."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    return sum(jobs.apply(i).numFailedTasks() for i in range(jobs.size()))


@contextmanager
def session(place: Path, workers: int = 2) -> Iterator[SparkSession]:
    """A session on a cluster with this many executors."""
    with cluster(place, workers) as master, stopping(local_session("kills", master, SETTINGS)) as spark:
        wait_until(lambda: len(processes(place, EXECUTOR)) == workers, "all executors")
        yield spark


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
    """Kill an executor during a join of tables and one of streams, then a worker; the other worker does the rest."""
    files = place / "shared"
    with session(place) as spark:
        left, right = frames = written(spark, files, SIDES)
        expected = counted(left.alias("l").join(right.alias("r"), F.expr(ON)))
        assert_survives(spark, place, EXECUTOR, lambda: counted(dovetail.join(left, right, ON)), expected)
        for number, kind in enumerate((EXECUTOR, WORKER)):
            window: dict[str, Any] = {"window": dovetail.window(rows=1_000_000)} if number else {}
            state = files / f"state-{number}"
            one, other = streamed(files, frames, SIDES)
            joined = dovetail.join(one, other, ON, state_dir=str(state), **window)
            harm = partial(kill_one, spark, place, kind)
            assert run_stream(joined, files / f"joined-{number}", state, harm) == expected
        # One worker is left.
        assert dovetail.write(dovetail.join(left, right, ON), files / "written").rows == expected.total()
        assert counted(spark.read.parquet(str(files / "written"))) == expected
        steps = dovetail.progressive(left, right, ON, cells=8, work_dir=str(files / "work"))
        assert sum((pairs_of(step.batch) for step in steps), Counter()) == expected


def kill_while_streams_spill(place: Path, kind: str) -> None:
    """Streams read by tasks, whose ends the server announces. Kills happen while rows arrive, and in the last
    micro-batch, in which spilled rows are joined."""
    files = place / "shared"
    state = files / "state"
    with session(place, workers=3) as spark:
        left, right = frames = written(spark, files, SIDES)
        expected = counted(left.alias("l").join(right.alias("r"), F.expr(ON)))
        tables = {name: frame.toArrow() for name, frame in zip(SIDES, frames, strict=True)}
        with TableServer(tables) as server:
            options: dict[str, Any] = {
                "location": f"grpc://{HOST}:{server.port}",
                "maxRowsPerTrigger": ROWS,
                "numPartitions": 2,
            }
            reader = spark.readStream.format("dovetail-flight").options(**options, end="true")
            one, other = (reader.option("dataset", name).load() for name in SIDES)
            kept: dict[str, Any] = {"state_dir": str(state), "cells": 4}
            joined = dovetail.join(one, other, ON, algorithm="diner", memory="1MB", end="source", **kept)
            harm = partial(kill_one, spark, place, kind)
            assert run_stream(joined, files / "joined", state, harm, after=(1, FILES - 2), ends=True) == expected


def kill_in_multijoins(place: Path, kind: str) -> None:
    """Kill during multijoins of tables, and of streams that end."""
    files, names = place / "shared", ("left", "right", "another")
    on, state = f"{ON} AND r.k = a.k", files / "state"
    with session(place, workers=3) as spark:
        frames = written(spark, files, names)
        left, right, another = (frame.alias(name[0]) for name, frame in zip(names, frames, strict=True))
        expected = counted(left.join(right, F.expr(ON)).join(another, F.expr("r.k = a.k")), names)
        joined = dovetail.multijoin(dict(zip("lra", frames, strict=True)), on, cells=4)
        assert_survives(spark, place, kind, lambda: counted(joined, names), expected)
        inputs = dict(zip("lra", streamed(files, frames, names), strict=True))
        options: dict[str, Any] = {"memory": "1MB", "end": "available", "state_dir": str(state), "cells": 4}
        several = dovetail.multijoin(inputs, on, **options)
        harm = partial(kill_one, spark, place, kind)
        found = run_stream(several, files / "joined", state, harm, names=names, ends=True)
        assert found == expected, differences(found, expected)


def kill_along_the_diagonal(place: Path, kind: str) -> None:
    """Kill while keys are measured, while slices are joined, and while early results are computed in tasks."""
    files, on = place / "shared", "l.k = r.ref"
    options: dict[str, Any] = {"algorithm": "diag", "cells": 8}
    with session(place, workers=4) as spark:
        write_clustered(files)
        left, right = (spark.read.parquet(str(files / name)) for name in SIDES)
        expected = counted(left.alias("l").join(right.alias("r"), F.expr(on)))
        survives = partial(assert_survives, spark, place, kind, expected=expected)
        survives(lambda: counted(dovetail.join(left, right, on, **options)))
        joined = dovetail.join(left, right, on, **options)
        survives(lambda: counted(joined))
        taken: Counter[Any] = Counter()

        def take() -> Counter[Any]:
            for step in dovetail.progressive(left, right, on, work_dir=str(files / "work"), **options):
                taken.update(pairs_of(step.batch))
            return taken

        survives(take, is_time=lambda: bool(taken))


def written(spark: SparkSession, files: Path, names: Sequence[str]) -> list[DataFrame]:
    for name in names:
        write_side(files / name, name)
    return [spark.read.parquet(str(files / name)) for name in names]


def streamed(files: Path, frames: Sequence[DataFrame], names: Sequence[str]) -> list[DataFrame]:
    """The same tables as streams, with a file in each micro-batch."""
    return [
        frame.sparkSession.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(files / name))
        for frame, name in zip(frames, names, strict=True)
    ]


def run_stream(
    joined: DataFrame,
    out: Path,
    state: Path,
    harm: Callable[[Callable[[], bool]], None],
    *,
    after: Sequence[int] = (1,),
    names: Sequence[str] = SIDES,
    ends: bool = False,
) -> Counter[Any]:
    """The output of a query that is harmed after some micro-batches, while the next one writes its state."""
    sink = joined.writeStream.format("parquet").option("checkpointLocation", f"{out}-checkpoint")
    query = sink.trigger(availableNow=True).start(str(out))
    for number in after:
        wait_until(partial(is_done, query, number), "a micro-batch")
        before = stored_segments(state)
        wait_until(lambda: stored_segments(state) != before or not query.isActive, "a segment")  # noqa: B023
        harm(lambda: query.isActive)
    if ends:
        dovetail.finish(query)
        figures = [known_figures(progress, "dovetail") for progress in query.recentProgress]
        assert max(known.get("spilled_rows") or 0 for known in figures) > 0
    else:
        query.awaitTermination()
    return counted(joined.sparkSession.read.parquet(str(out)), names)


def differences(found: Counter[Any], expected: Counter[Any]) -> str:
    missing, more = expected - found, found - expected
    rows = f"{missing.total()} of {expected.total()} rows are missing, {more.total()} too many"
    return f"{rows}: {[*missing][:3]}, {[*more][:3]}"


def is_done(query: StreamingQuery, batch: int) -> bool:
    return query.lastProgress is not None and query.lastProgress.batchId >= batch


def write_side(directory: Path, name: str, files: int = FILES, rows: int = ROWS) -> pa.Table:
    """Write the files of one side, in order."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(len(name))
    count = files * rows
    table = pa.table(
        {
            "k": rng.integers(0, count // 2, count),
            "x": rng.random(count),
            name: np.arange(count),
            f"{name}_text": [f"{i:0100}" for i in range(count)],
        }
    )
    for number in range(files):
        path = directory / f"{number}.parquet"
        pq.write_table(table.slice(number * rows, rows), path)
        os.utime(path, (number, number))
    return table


def write_clustered(place: Path, rows: int = 80_000, each: int = 4) -> None:
    """Write keys, and rows that refer to a key at about the same relative position; some refer to random keys."""
    rng = np.random.default_rng(0)
    keys = rng.permutation(rows)
    near = np.arange(rows * each) // each
    refs = keys[np.where(rng.random(rows * each) < 0.01, rng.integers(0, rows, rows * each), near)]
    tables = {
        "left": pa.table({"k": keys, "left": np.arange(rows)}),
        "right": pa.table({"ref": refs, "right": np.arange(rows * each)}),
    }
    for name, table in tables.items():
        (place / name).mkdir()
        pq.write_table(table, place / name / "0.parquet", row_group_size=table.num_rows // 16)


def pairs_of(table: pa.Table | pa.RecordBatch, names: Sequence[str] = SIDES) -> Counter[Any]:
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def counted(frame: DataFrame, names: Sequence[str] = SIDES) -> Counter[Any]:
    return pairs_of(frame.select(*names).toArrow(), names)


def assert_survives(
    spark: SparkSession,
    place: Path,
    kind: str,
    work: Callable[[], Counter[Any]],
    expected: Counter[Any],
    is_time: Callable[[], bool] = lambda: True,
) -> None:
    """Check that work interrupted by a kill gives the same result."""
    before = failed_tasks(spark)
    found: list[Counter[Any]] = []
    worker = threading.Thread(target=lambda: found.append(work()))
    worker.start()
    wait_until(lambda: is_time() or not worker.is_alive(), "the time")
    kill_one(spark, place, kind, worker.is_alive)
    worker.join()
    assert found == [expected]
    assert failed_tasks(spark) > before, "no executor was killed at work"


PARTS: dict[str, Callable[..., None]] = {
    "classes": every_class_and_type,
    "kills": kill_an_executor_and_a_worker,
    "stream": kill_while_streams_spill,
    "multijoin": kill_in_multijoins,
    "diag": kill_along_the_diagonal,
}
KINDS = {"executor": EXECUTOR, "worker": WORKER}

if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    name, *kinds = sys.argv[2:]
    PARTS[name](Path(sys.argv[1]), *map(KINDS.__getitem__, kinds))
