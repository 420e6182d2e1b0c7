"""Runs a child process within limits on CPU time, memory and elapsed time; the last is for processes that hang."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process_tree import Process, tree

POLL_S = 0.2
Processes = Mapping[int, Process]


@dataclass(frozen=True)
class Limits:
    cpu_s: float = 60.0
    """CPU seconds that a run may use."""
    memory_bytes: int = 8 * 10**9
    """The memory of the process and its descendants."""
    wall_factor: float = 20.0
    """Limit of the elapsed time of a run, in multiples of `cpu_s`: allows for waiting and for a busy machine."""
    prepare_s: float = 900.0
    """Limit of the elapsed time of everything that is not measured."""


@dataclass(frozen=True)
class Ended:
    """How a child ended: `excess` is the limit that it exceeded, `last_line` the last line of its output."""

    excess: str | None
    code: int
    last_line: str


def run_within(command: Sequence[str], cwd: Path, phases: Path, limits: Limits) -> Ended:
    """Run the command. `phases` is a file to which the child appends a line with the name of each phase it enters."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, cwd=cwd, stdout=said, stderr=said, start_new_session=True)
        try:
            excess = _watch(child, phases, limits)
        finally:
            _end(child)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    return Ended(excess, child.returncode, lines[-1].strip() if lines else f"exit code {child.returncode}")


def _watch(child: subprocess.Popen[bytes], phases: Path, limits: Limits) -> str | None:
    entered, count, cpu_before = time.monotonic(), 0, 0.0
    while child.poll() is None:
        processes = tree(child.pid)
        cpu = sum(process.cpu for process in processes.values())
        names = phases.read_text().split() if phases.exists() else []
        if len(names) != count:
            entered, count, cpu_before = time.monotonic(), len(names), cpu
        phase = names[-1] if names else "prepare"
        if excess := exceeded(phase, time.monotonic() - entered, cpu - cpu_before, processes, limits):
            return excess
        time.sleep(POLL_S)
    return None


def exceeded(phase: str, wall_s: float, cpu_s: float, processes: Processes, limits: Limits) -> str | None:
    """A description of the limit that is exceeded, if any."""
    if sum(process.resident_bytes for process in processes.values()) > limits.memory_bytes:
        return f"memory: more than {limits.memory_bytes / 1e9:g} GB"
    if phase != "run":
        return f"time: more than {limits.prepare_s:g} s before or after the run" if wall_s > limits.prepare_s else None
    if cpu_s > limits.cpu_s:
        return f"time: more than {limits.cpu_s:g} CPU seconds"
    if wall_s > limits.wall_factor * limits.cpu_s:
        return f"time: more than {limits.wall_factor * limits.cpu_s:g} seconds"
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's session, and descendants that have left the session."""
    others = set(tree(child.pid)) - {child.pid}
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    for pid in others:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    child.wait()
