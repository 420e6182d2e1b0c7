"""A streaming join in processes of its own, which can be killed for real and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("recovery_job.py")
BATCH = re.compile(r"batch (-?\d+) rows (\d+) failed (\d+)")


class Job:
    """A streaming query in processes of its own, all of which carry a mark."""

    def __init__(self, place: Path) -> None:
        self.place, self.mark = place, uuid.uuid4().hex
        self.failed_tasks = 0

    def end(self) -> None:
        """Nothing of it is left."""
        for _ in range(100):
            left = [pid for pid, _ in self.processes()]
            for pid in left:
                kill(pid)
            if not left:
                return
            time.sleep(0.1)
        pytest.fail(f"processes {left} do not end")

    @contextmanager
    def started(self, master: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, str(JOB), str(self.place), master]
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
                self.failed_tasks = int(found[3])
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
