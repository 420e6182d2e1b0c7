"""Runs a join on Spark in separate processes, which tests kill and restart."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import pytest
from tests.patience import wait_until

JOB = Path(__file__).with_name("recovery_job.py")
BATCH = re.compile(r"batch (-?\d+) rows (\d+) failed (\d+)")
STARVED = "Python worker failed to connect back"  # Spark waits only ten seconds, even on a busy machine
P = ParamSpec("P")
R = TypeVar("R")


class StarvedError(Exception):
    """Spark gave up on a worker that started too slowly. This is not a fault of the join, so the run is repeated."""


def again_if_starved(run: Callable[P, R]) -> Callable[P, R]:
    @wraps(run)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        while True:
            with suppress(StarvedError):
                return run(*args, **kwargs)

    return repeated


class Batch(NamedTuple):
    """A micro-batch: its number, and its number of rows."""

    number: int
    rows: int


Phase = Callable[[Batch], bool]
"""Selects the micro-batches that count."""


def any_batch(batch: Batch) -> bool:
    return True


class Job:
    """A join in separate processes, all of which carry a mark in their environment."""

    def __init__(self, place: Path, script: Path = JOB) -> None:
        self.place, self.script, self.mark = place, script, uuid.uuid4().hex
        self.failed_tasks = 0
        self.peak_rss = 0  # bytes, of the largest worker
        self._logged = 0  # bytes of the log written by earlier runs

    def end(self) -> None:
        """Kill all processes of the job, and wait until none is left."""

        def has_ended() -> bool:
            left = [pid for pid, _ in self.processes()]
            for pid in left:
                kill(pid)
            return not left

        wait_until(has_ended, "the end of all processes")

    @contextmanager
    def started(self, master: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, str(self.script), str(self.place), master]
        environment = {**os.environ, "DOVETAIL_MARK": self.mark}
        with open(self.place / "job.log", "a") as log:
            self._logged = log.tell()
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
        """All processes started by this job, including orphans."""
        mark = f"DOVETAIL_MARK={self.mark}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    yield int(process.name), (process / "cmdline").read_text()

    def jvms(self) -> Iterator[int]:
        return (pid for pid, command in self.processes() if "org.apache.spark.deploy.SparkSubmit" in command)

    def workers(self) -> list[int]:
        """The Python workers: forked by a daemon, which the JVM started. The JVM's command also contains the module
        name, and a child process of the JVM briefly has the same command and memory."""
        found = [pid for pid, command in self.processes() if "\0-m\0dovetail.spark.session.daemon\0" in command]
        return [pid for pid in found if parent(pid) in found]

    def lines(self, job: subprocess.Popen[str]) -> Iterator[Batch]:
        """Yield each micro-batch when it is done, until the job ends."""
        assert job.stdout is not None
        for line in job.stdout:
            if (found := BATCH.match(line)) is not None:
                self.failed_tasks = int(found[3])
                self.peak_rss = max([self.peak_rss, *map(peak_rss, self.workers())])
                yield Batch(int(found[1]), int(found[2]))

    @again_if_starved
    def run_to_the_end(self, master: str = "local[2]") -> bool:
        with self.started(master) as job:
            for _ in self.lines(job):
                pass
            self.check_starved()
            return job.wait() == 0

    @again_if_starved
    def kill_jvm(self, batches: int, pause: float | None, phase: Phase = any_batch) -> None:
        """Let the job run some micro-batches, then kill -9 the driver's JVM: after a pause, or while a task writes."""
        with self.started("local[2]") as job:
            self.wait_for(job, batches, phase)
            self._kill_jvm(job, pause)

    @again_if_starved
    def kill_workers(self, batches: int, master: str, phase: Phase = any_batch, pause: float | None = None) -> bool:
        """Let the job run some micro-batches, then kill -9 its workers until tasks fail. True: the job still succeeded.

        Kills happen while tasks write, or after random pauses of up to `pause`, in which the job may finish.
        """
        with self.started(master) as job:
            self.wait_for(job, batches, phase)
            self._kill_workers(job, pause)
            for _ in self.lines(job):
                pass
            return job.wait() == 0

    @again_if_starved
    def kill_workers_and_jvm(self) -> None:
        """Kill both in one run, while tasks write: tasks are retried after the first kill, but not after the second."""
        with self.started("local[2,8]") as job:
            self.wait_for(job, 1, any_batch)
            self._kill_workers(job, None)
            self.wait_for(job, 1, any_batch)
            self._kill_jvm(job, None)

    def _kill_jvm(self, job: subprocess.Popen[str], pause: float | None) -> None:
        if pause is None:
            self.wait_for_a_segment(job)
        else:
            time.sleep(pause)
        kill(next(self.jvms()))
        for _ in self.lines(job):
            pass
        assert job.wait() != 0

    def _kill_workers(self, job: subprocess.Popen[str], pause: float | None) -> None:
        while not self.failed_tasks and job.poll() is None:
            if pause is None:
                self.wait_for_a_segment(job)
            else:
                time.sleep(random.uniform(0, pause))  # while working or not
            for worker in self.workers():
                kill(worker)
            next(self.lines(job), None)
        assert self.failed_tasks or pause is not None, "no worker was killed at work"

    def wait_for(self, job: subprocess.Popen[str], batches: int, phase: Phase) -> None:
        """Wait until this many micro-batches of a phase are done."""
        self.failed_tasks = 0
        done = set()
        for batch in self.lines(job):
            if batch.number >= 0 and phase(batch):
                done.add(batch.number)
            if len(done) >= batches:
                return
        self.check_starved()
        pytest.fail(f"the job ended by itself:\n{(self.place / 'job.log').read_text()[-3000:]}")

    def check_starved(self) -> None:
        if STARVED.encode() in (self.place / "job.log").read_bytes()[self._logged :]:
            raise StarvedError

    def wait_for_a_segment(self, job: subprocess.Popen[str]) -> None:
        """Wait until a task has written part of its state, but has not committed it."""
        state = self.place / "state"
        before = stored_segments(state)
        while stored_segments(state) == before and job.poll() is None:
            time.sleep(0.001)


def stored_segments(state: Path) -> list[list[str]]:
    """The names of all segments, by cell."""
    return [os.listdir(cell) for cell in sorted(state.glob("*/*/cell-*"))]


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def peak_rss(pid: int) -> int:
    """The peak memory of a process in bytes; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
