"""How many threads this process should use if a call does not say so.

DOVETAIL_THREADS    if it is set
OMP_NUM_THREADS     if it is set: Spark, Dask, Ray and joblib set it for their workers, mostly to 1
otherwise           the processors that it may run on, or the quota of its container if that is less
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dovetail.errors import InputError

VARIABLE = "DOVETAIL_THREADS"
OF_WORKERS = "OMP_NUM_THREADS"
UNIFIED = "0"  # the hierarchy number of control groups v2


def default_threads() -> int:
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        if not (named.isdecimal() and int(named)):
            raise InputError(f"{VARIABLE} is a number of threads, 1 or more; got {named!r}.")
        return int(named)
    for_workers = os.environ.get(OF_WORKERS, "").split(",")[0].strip()  # one number per level of nesting
    if for_workers.isdecimal() and int(for_workers):
        return int(for_workers)
    return processors()


@cache
def processors() -> int:
    """The processors this process may run on, limited by the quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *(max(1, math.ceil(quota)) for quota in quotas())])


def quotas(root: Path = Path("/")) -> Iterator[float]:
    """The processor quota of each control group of this process that has a limit."""
    for hierarchy in _lines(root / "proc/self/cgroup"):
        number, controllers, path = hierarchy.split(":", 2)
        if number == UNIFIED:
            mounted = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            mounted = root / "sys/fs/cgroup/cpu"
        else:
            continue
        # In a container, the path may be that of the host, which is not mounted. Then the container's root is used.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            yield from _quota(mounted.joinpath(*parts[:depth]))


def _quota(group: Path) -> Iterator[float]:
    words = " ".join(_lines(group / "cpu.max")).split()
    if not words:
        words = [*_lines(group / "cpu.cfs_quota_us"), *_lines(group / "cpu.cfs_period_us")]
    try:
        quota, period = (float(word) for word in words)
    except ValueError:  # no limit, or no such file
        return
    if quota > 0 and period > 0:
        yield quota / period


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
