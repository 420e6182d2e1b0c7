"""Compiles the kernels ahead of the first join, by running small joins of every kind on all cores.

Kernels are compiled for the types that they are called with, and kept in the user's cache (kernels/compiling.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from multiprocessing import get_context
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail import api
from dovetail.operators.registry import operator_names, operator_spec
from dovetail.window import window

ROWS = 300  # enough rows for the kernels to be used
MEMORY = "200KB"  # so little that operators spill

CONDITIONS = (
    "l.k = r.k",
    "l.s = r.s AND l.k = r.k",
    "l.k = r.k AND l.x < r.x",
    "l.k < r.k",
    "l.k < r.k AND l.x > r.x",
    "l.k < r.k AND l.x > r.x AND l.t < r.t",
    "l.t < r.t AND l.x > r.x",
    "l.t <= r.t AND r.t < l.t + INTERVAL 1 MINUTE",
    "abs(l.k - r.k) <= 1",
    "abs(l.x - r.x) <= 1",
    "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) <= 1",
    "l.k = r.k OR l.s = r.s",
    "l.k != r.k",
)
"""Each kind of condition, on numbers, strings and times."""

HOW = ("inner", "left", "full", "left_semi", "left_anti")


class Job(NamedTuple):
    call: str
    on: str
    options: dict[str, Any]


def compile_kernels(processes: int | None = None) -> int:
    """Run small joins of all kinds. Returns their number."""
    work = list(jobs())
    processes = min(len(work), processes or os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return sum(pool.map(_run, work))


def jobs() -> Iterator[Job]:
    for on in CONDITIONS:
        for how in HOW:
            yield Job("join", on, {"how": how})
        yield Job("count", on, {})
        yield Job("progressive", on, {"memory": MEMORY})
    yield Job("join", "l.k = r.k", {"algorithm": "diag"})
    for operator in operator_names():
        slides = {"window": window(rows=100)} if "window" in operator_spec(operator).parameters else {}
        yield Job("progressive", "l.k = r.k", {"algorithm": operator, "memory": MEMORY, **slides})


def _run(job: Job) -> int:
    found = getattr(api, job.call)(table(), table(), job.on, **job.options)
    if job.call == "progressive":
        for _ in found:
            pass
    return 1


def table() -> pa.Table:
    """Columns of common types: keys of all kinds, and other columns."""
    numbers = range(ROWS)
    return pa.table(
        {
            "k": numbers,
            "x": pa.array([number * 7 % ROWS + 0.5 for number in numbers]),
            "s": [f"row {number}" for number in numbers],
            "t": [datetime(2024, 1, 1) + timedelta(seconds=number * 11 % ROWS) for number in numbers],
            "i": pa.array(numbers, pa.int32()),
            "b": [number % 3 == 0 for number in numbers],
            "d": pa.array([Decimal(number) for number in numbers], pa.decimal128(18, 2)),
            "n": pa.array([None if number % 5 == 0 else number for number in numbers]),
        }
    )
