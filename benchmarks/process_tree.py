"""CPU seconds of this process and all that it has started: the JVM and its Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TICK = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    cpu: float
    wall: float


def measure(run: Callable[[], object]) -> Used:
    """What one run takes."""
    before, started = _seconds(), time.perf_counter()
    run()
    wall, after = time.perf_counter() - started, _seconds()
    # A worker that has ended in between takes its seconds along.
    return Used(sum(after.values()) - sum(before[pid] for pid in before if pid in after), wall)


def _seconds() -> dict[int, float]:
    """By process."""
    found: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK)
    tree, todo = {}, [os.getpid()]
    while todo:
        pid = todo.pop()
        tree[pid] = found[pid][1]
        todo += [child for child, (parent, _) in found.items() if parent == pid]
    return tree
