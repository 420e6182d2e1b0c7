"""Kill a streaming join for real, again and again, and see that no result is lost and none comes twice."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("recovery_job.py")
ROWS = 30_000  # of each side


def write_inputs(place: Path, files: int) -> dict[str, pa.Table]:
    """Two sides in many small files, a micro-batch each: duplicates everywhere, and one heavy key."""
    rng = np.random.default_rng(0)
    tables = {}
    for side in ("left", "right"):
        keys = np.where(rng.random(ROWS) < 0.01, -1, rng.integers(0, 20_000, ROWS))
        tables[side] = pa.table({"k": keys, side: np.arange(ROWS)})
        (place / side).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(ROWS), files)):
            path = place / side / f"{number:03d}.parquet"
            pq.write_table(tables[side].take(rows), path)
            os.utime(path, (number, number))
    return tables


@contextmanager
def started(place: Path) -> Iterator[subprocess.Popen[str]]:
    """The job in a process group of its own, all of which is gone afterwards, whatever happens."""
    command = [sys.executable, str(JOB), str(place)]
    with open(place / "job.log", "a") as log:
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        try:
            yield job
        finally:
            for pid in (*descendants(job.pid), job.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            job.wait()


def descendants(pid: int) -> list[int]:
    """The processes below a process, nearest first."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def victim(job: int, kind: str) -> int | None:
    """The driver's JVM, or a Python worker of it that runs tasks."""
    below = descendants(job)
    if kind == "jvm":
        return next((pid for pid in below if "SparkSubmit" in command_line(pid)), None)
    daemons = {pid for pid in below if "pyspark.daemon" in command_line(pid)}
    workers = [pid for daemon in daemons for pid in descendants(daemon)]
    return workers[-1] if workers else None


def run_until_killed(place: Path, kind: str, after_batches: int, pause: float) -> bool:
    """Start the job, let it do some micro-batches, then kill -9. False if it finished first."""
    with started(place) as job:
        assert job.stdout is not None
        seen = 0
        for line in job.stdout:
            if line.startswith("finished"):
                return False
            seen += line.startswith("batch")
            if seen >= after_batches:
                break
        else:
            pytest.fail(f"the job ended by itself:\n{(place / 'job.log').read_text()[-3000:]}")
        time.sleep(pause)  # anywhere in the next micro-batch
        pid = victim(job.pid, kind)
        assert pid is not None, f"no {kind} to kill"
        os.kill(pid, signal.SIGKILL)
        if kind == "worker":  # Spark notices by itself; what it makes of it is part of the test
            for line in job.stdout:
                if line.startswith("finished"):
                    return False
        return True


def check(place: Path, tables: dict[str, pa.Table], spark: SparkSession) -> None:
    sink = spark.read.parquet(str(place / "results")).select("left", "right").toArrow()
    found = Counter(zip(sink["left"].to_pylist(), sink["right"].to_pylist(), strict=True))
    at_rest = tables["left"].join(tables["right"], "k", join_type="inner")
    expected = Counter(zip(at_rest["left"].to_pylist(), at_rest["right"].to_pylist(), strict=True))
    assert found == expected


def kill_again_and_again(place: Path, kills: list[str], seed: int, spark: SparkSession) -> None:
    rng = random.Random(seed)
    tables = write_inputs(place, files=4 * len(kills) + 4)
    for kind in kills:
        if not run_until_killed(place, kind, rng.choice([2, 3]), rng.random()):
            break
    else:
        with started(place) as job:
            assert job.stdout is not None
            assert any(line.startswith("finished") for line in job.stdout), (place / "job.log").read_text()[-3000:]
    check(place, tables, spark)


def test_a_killed_driver_and_a_killed_worker(tmp_path: Path, spark: SparkSession) -> None:
    kill_again_and_again(tmp_path, ["jvm", "worker"], 1, spark)


@pytest.mark.slow
def test_many_kills(tmp_path: Path, spark: SparkSession) -> None:
    kill_again_and_again(tmp_path, ["jvm", "worker"] * 5, 2, spark)
