"""CPU seconds and memory of a process and its descendants: the JVM and its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

TICK = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Used(NamedTuple):
    cpu: float
    wall: float


class Process(NamedTuple):
    cpu: float  # including children that have ended
    resident_bytes: int


def measure(run: Callable[[], object]) -> Used:
    """CPU seconds and peak memory of one run."""
    before, started = cpu_seconds(), time.perf_counter()
    run()
    wall = time.perf_counter() - started
    return Used(cpu_seconds() - before, wall)


def cpu_seconds() -> float:
    """CPU seconds of this process, measured exactly, and of its descendants, measured in kernel ticks."""
    own, ended = time.process_time(), os.times()
    others = sum(process.cpu for pid, process in tree(os.getpid()).items() if pid != os.getpid())
    return own + ended.children_user + ended.children_system + others


def tree(root: int) -> dict[int, Process]:
    """The process and its descendants."""
    found: dict[int, tuple[int, Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            cpu = sum(map(int, fields[11:15])) / TICK
            found[int(entry.name)] = (int(fields[1]), Process(cpu, int(fields[21]) * PAGE_BYTES))
    members, todo = {}, [root] * (root in found)
    while todo:
        pid = todo.pop()
        members[pid] = found[pid][1]
        todo += [child for child, (parent, _) in found.items() if parent == pid]
    return members


def forget_peaks() -> None:
    """Reset the peak: from now on, `peak_bytes` is the peak since this call."""
    for pid in tree(os.getpid()):
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            continue


def peak_bytes() -> int:
    """The sum of the peak memory of this process and of each of its descendants."""
    return sum(_high_water(pid) for pid in tree(os.getpid()))


def _high_water(pid: int) -> int:
    return next((int(line.split()[1]) * 1024 for line in _status(pid) if line.startswith("VmHWM:")), 0)


def _status(pid: int) -> Iterator[str]:
    try:
        yield from Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return
