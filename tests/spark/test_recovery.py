"""Kill a streaming join for real, again and again, and see that no result is lost and none comes twice."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.recovery_job import WINDOW

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("recovery_job.py")
ROWS = 50_000  # of each side
BATCH = re.compile(r"batch (-?\d+) failed (\d+)")


def write_inputs(place: Path, files: int) -> dict[str, pa.Table]:
    """Two sides in many small files, a micro-batch each: duplicates everywhere, and one heavy key.

    v grows with k, so that few rows have a smaller k and a larger v than another.
    """
    rng = np.random.default_rng(0)
    tables = {}
    for side in ("left", "right"):
        keys = np.where(rng.random(ROWS) < 0.01, -1, rng.integers(0, 20_000, ROWS))
        values = keys + rng.integers(-100, 100, ROWS)
        tables[side] = pa.table({"k": keys, "v": values, side: np.arange(ROWS)})
        (place / side).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(ROWS), files)):
            path = place / side / f"{number:03d}.parquet"
            pq.write_table(tables[side].take(rows), path)
            os.utime(path, (number, number))  # Spark reads the oldest first
    return tables


class Job:
    """A streaming query in processes of its own, all of which carry a mark."""

    def __init__(self, place: Path, mark: str, kind: str) -> None:
        self.place, self.mark, self.kind = place, mark, kind
        self.failed_tasks = 0

    @contextmanager
    def started(self, master: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, str(JOB), str(self.place), master, self.kind]
        environment = {**os.environ, "DOVETAIL_MARK": self.mark}
        with open(self.place / "job.log", "a") as log:
            job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
            try:
                yield job
            finally:
                job.kill()
                with suppress(StopIteration):
                    kill(next(self.jvms()))
                job.wait()
                assert job.stdout is not None
                job.stdout.close()

    def processes(self) -> Iterator[tuple[int, str]]:
        """Every process that stems from this job, also those that have lost their parents."""
        mark = f"DOVETAIL_MARK={self.mark}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended while we looked
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    yield int(process.name), (process / "cmdline").read_text()

    def jvms(self) -> Iterator[int]:
        return (pid for pid, command in self.processes() if "org.apache.spark.deploy.SparkSubmit" in command)

    def workers(self) -> list[int]:
        """Python workers: forked by a daemon, which the JVM started."""
        found = [pid for pid, command in self.processes() if "pyspark.daemon" in command]
        return [pid for pid in found if parent(pid) in found]

    def lines(self, job: subprocess.Popen[str]) -> Iterator[int]:
        """The number of each micro-batch when it is done; ends when the job does."""
        assert job.stdout is not None
        for line in job.stdout:
            if (found := BATCH.match(line)) is not None:
                self.failed_tasks = int(found[2])
                yield int(found[1])

    def run_to_the_end(self, master: str = "local[2]") -> bool:
        with self.started(master) as job:
            for _ in self.lines(job):
                pass
            return job.wait() == 0

    def kill_jvm(self, batches: int, pause: float | None) -> None:
        """Let the job do some micro-batches, then kill -9 the driver's JVM: after a pause, or while a task writes."""
        with self.started("local[2]") as job:
            self.wait_for(job, batches)
            if pause is None:
                self.wait_for_a_segment(job)
            else:
                time.sleep(pause)
            kill(next(self.jvms()))
            for _ in self.lines(job):
                pass
            assert job.wait() != 0

    def kill_workers(self, batches: int, master: str) -> bool:
        """Let the job do some micro-batches, then kill -9 its workers until tasks fail. True: it still got done."""
        with self.started(master) as job:
            self.wait_for(job, batches)
            while not self.failed_tasks and job.poll() is None:
                self.wait_for_a_segment(job)
                for worker in self.workers():
                    kill(worker)
                next(self.lines(job), None)
            assert self.failed_tasks, "no worker was killed at work"
            for _ in self.lines(job):
                pass
            return job.wait() == 0

    def wait_for(self, job: subprocess.Popen[str], batches: int) -> None:
        self.failed_tasks = 0
        first = None
        for number in self.lines(job):
            first = number if first is None and number >= 0 else first
            if first is not None and number >= first + batches - 1:
                return
        pytest.fail(f"the job ended by itself:\n{(self.place / 'job.log').read_text()[-3000:]}")

    def wait_for_a_segment(self, job: subprocess.Popen[str]) -> None:
        """The moment when a task has written part of its state, and has not committed it."""
        cells = [*self.place.glob("state/*/*/cell-*")]
        before = [os.listdir(cell) for cell in cells]
        while [os.listdir(cell) for cell in cells] == before and job.poll() is None:
            time.sleep(0.001)


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    """A job of which nothing is left afterwards, whatever happens. The parameter says what it joins."""
    job = Job(tmp_path, uuid.uuid4().hex, request.param)
    yield job
    for _ in range(100):
        left = [pid for pid, _ in job.processes()]
        for pid in left:
            kill(pid)
        if not left:
            return
        time.sleep(0.1)
    pytest.fail(f"processes {left} do not end")


Results = Counter[tuple[int, int | None]]


def check(job: Job, tables: dict[str, pa.Table], spark: SparkSession) -> None:
    sink = spark.read.parquet(str(job.place / "results")).select("left", "right").toArrow()  # by the log of the sink
    found = Counter(zip(sink["left"].to_pylist(), sink["right"].to_pylist(), strict=True))
    expected = equal(tables) if job.kind == "equality" else in_window(tables, left="left" in job.kind)
    assert found == expected


def equal(tables: dict[str, pa.Table]) -> Results:
    pairs = tables["left"].select(["k", "left"]).join(tables["right"].select(["k", "right"]), "k", join_type="inner")
    return Counter(zip(pairs["left"].to_pylist(), pairs["right"].to_pylist(), strict=True))


def in_window(tables: dict[str, pa.Table], left: bool) -> Results:
    """Row by row. In a micro-batch, which is a file of each side, rows of the sides take turns."""
    columns = [[np.asarray(tables[side][name]) for name in ("k", "v")] for side in ("left", "right")]
    found: Results = Counter()
    for row in range(ROWS):  # left row i is the arrival 2 i, right row i the arrival 2 i + 1
        first, last = max(0, row - WINDOW // 2), min(ROWS, row + WINDOW // 2)
        near = np.arange(first, last)
        near = near[np.abs(2 * near + 1 - 2 * row) < WINDOW]
        partners = near[(columns[0][0][row] < columns[1][0][near]) & (columns[0][1][row] > columns[1][1][near])]
        found.update((row, int(partner)) for partner in partners)
        if left and not len(partners) and 2 * row <= 2 * ROWS - WINDOW:  # its window has closed
            found[row, None] += 1
    return found


def check_segments(place: Path, spark: SparkSession) -> None:
    """Every segment that a manifest names is there, and few others: what killed attempts wrote has been swept."""
    store = spark.read.format("statestore").option("stateVarName", "manifest").load(str(place / "checkpoint"))
    names = store.selectExpr("get_json_object(value.manifest, '$.segments') AS names").collect()
    named = {name for row in names for name in re.findall(r'[^"\[\],]+\.arrow', row.names)}
    there = {path.name for path in place.glob("state/*/*/cell-*/*")}
    assert named <= there
    assert len(there) < 3 * len(named) + 20


@pytest.mark.parametrize("job", ["equality", "window, left"], indirect=True)
def test_a_killed_driver_and_killed_workers(job: Job, spark: SparkSession) -> None:
    tables = write_inputs(job.place, files=10)
    job.kill_jvm(batches=3, pause=random.Random(1).random())
    assert job.kill_workers(batches=2, master="local[2,8]")  # tasks are tried again
    check(job, tables, spark)
    check_segments(job.place, spark)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["equality", "window", "window, left"], indirect=True)
def test_many_kills(job: Job, spark: SparkSession) -> None:
    rng = random.Random(2)
    tables = write_inputs(job.place, files=60)
    for kills in range(5):
        job.kill_jvm(batches=rng.choice([1, 2, 3]), pause=rng.random() if kills % 2 else None)
        done = job.kill_workers(batches=rng.choice([1, 2]), master="local[2]")
        assert not done  # without retries a failed task ends the query
    assert job.run_to_the_end()
    check(job, tables, spark)
    check_segments(job.place, spark)
