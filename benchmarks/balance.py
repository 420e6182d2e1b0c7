"""Predicts how fast a join at rest would be on 4, 16 and 64 threads, on a machine with fewer cores.

    python -m benchmarks.balance

Work is divided as for this many threads, and its pieces run one after the other, each timed in CPU time. The pieces are
then assigned to simulated threads in order, each to the first that is free, as in a real join. The whole join is
included: sorting or hashing both sides, finding pairs, gathering rows. Work outside all pieces counts as serial.

`speed-up` is the time of the join on one thread divided by the predicted time. The prediction ignores contention for
memory bandwidth and for the interpreter's lock.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import SkipTest

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.datasets import read_columns
from benchmarks.whole_rows import Sides, groups, intervals, points, skewed, star, two_inequalities, unique_keys
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.core import threads as in_process
from dovetail.core.join_types import JoinType
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import output_schema

THREADS = (4, 16, 64)


def trips() -> Sides:
    """Taxi trips that were shorter than others and yet more expensive."""
    columns = read_columns("nyc_green_2020", "trip_distance", "fare_amount")
    rng = np.random.default_rng(0)
    left, right = (columns.take(rng.choice(columns.num_rows, 20_000, replace=False)) for _ in range(2))
    return left, right


def jobs() -> Sides:
    columns = read_columns("surf_jobs_2022", "submit_ms", "duration_ms").slice(0, 78_600)
    start, duration = (np.asarray(column) for column in columns.columns)
    table = pa.table({"s": start, "e": start + duration})
    return table, table


def zones() -> Sides:
    """Trips that began where others ended: there are few zones, and some are very busy."""
    columns = read_columns("nyc_green_2020", "pu_zone", "do_zone").slice(0, 30_000)
    return columns.select(["pu_zone"]), columns.select(["do_zone"])


WORKLOADS: dict[str, tuple[Callable[[], Sides], str]] = {
    "two inequalities, 3M": (lambda: two_inequalities(3_000_000, 0.00002), "l.a < r.a AND l.b > r.b"),
    "overlap of intervals, 3M": (lambda: intervals(3_000_000, 10), "l.s < r.e AND l.e > r.s"),
    "band, 3M": (lambda: points(3_000_000, 3_000_000), "l.x >= r.x - 2 AND l.x <= r.x + 2"),
    "equality, 3M integers": (lambda: unique_keys(3_000_000, "far_ints"), "l.k = r.k"),
    "equality, 3M strings": (lambda: unique_keys(3_000_000, "strings"), "l.k = r.k"),
    "equality, 10M x 1,000": (lambda: star(10_000_000, 1_000), "l.k = r.k"),
    "equality and inequality, 300,000 groups": (lambda: groups(3_000_000, 300_000), "l.g = r.g AND l.v < r.v"),
    "equality, Zipf 1.3": (lambda: skewed(3_000_000, 1.3), "l.k = r.k"),
    "trips, two inequalities": (trips, "l.trip_distance < r.trip_distance AND l.fare_amount > r.fare_amount"),
    "jobs that overlap": (jobs, "l.s < r.e AND l.e > r.s"),
    "zones, equality": (zones, "l.pu_zone = r.do_zone"),
    "trips, band": (trips, "abs(l.fare_amount - r.fare_amount) <= 0.1"),
}
SERIAL_NAMED = 0.02  # share of the time on one thread


class Cut(NamedTuple):
    """A join, divided for a number of threads."""

    seconds: float  # predicted
    serial: dict[str, float]  # seconds in which only one thread works, by the function that it calls next


class Clock:
    """A clock that advances as if pieces ran in parallel, and the serial work between them."""

    def __init__(self) -> None:
        self.saved = 0.0
        self.serial: defaultdict[str, float] = defaultdict(float)
        self._depth = 0
        self._since = self.now()

    def now(self) -> float:
        return time.process_time() - self.saved

    def in_threads(self, work: Sequence[Callable[[], Any]]) -> list[Any]:
        """Replaces `dovetail.core.threads.in_threads`: runs one piece after the other."""
        allowed = in_process.allowed_threads()
        threads = min(allowed, len(work))
        if threads <= 1:
            return [one() for one in work]
        if self._depth == 0:
            self.end_serial(_caller())
        self._depth += 1
        results, seconds = [], []
        with in_process.allow_threads(max(1, allowed // len(work))):
            for one in work:
                began = self.now()
                results.append(one())
                seconds.append(self.now() - began)
        self._depth -= 1
        self.saved += sum(seconds) - busiest(seconds, threads)
        self._since = self.now()
        return results

    def end_serial(self, name: str) -> None:
        self.serial[name] += self.now() - self._since
        self._since = self.now()


def _caller() -> str:
    """The calling function outside dovetail.core.threads."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename == in_process.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name.strip("_")


@contextmanager
def one_after_the_other(clock: Clock) -> Iterator[None]:
    """Replace `in_threads` in every module that has imported it."""
    own = in_process.in_threads
    users = [module for module in list(sys.modules.values()) if getattr(module, "in_threads", None) is own]
    for module in users:
        module.in_threads = clock.in_threads  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in users:
            module.in_threads = own  # type: ignore[attr-defined]


def cut(sides: Sides, on: str, threads: int) -> Cut:
    left, right = (one_batch(table, table.schema) for table in sides)
    schema = output_schema(left.schema, right.schema, "_right", JoinType.INNER)
    work = Joining(parse(on, left.schema, right.schema), JoinType.INNER, schema, threads=threads)
    flags = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    clock = Clock()
    began = clock.now()
    with one_after_the_other(clock):
        parts = work.split(work.build((left, right)))
        clock.end_serial("finding pairs")
        prepared = clock.now() - began
        seconds = []
        for part in parts:
            started = time.process_time()
            for _ in work.emit_pairs(part, (left, right), flags):
                pass
            seconds.append(time.process_time() - started)
    return Cut(prepared + busiest(seconds, threads), dict(clock.serial) if threads > 1 else {})


def busiest(seconds: list[float], threads: int) -> float:
    """The time at which the last thread finishes."""
    free = [0.0] * threads
    for part in seconds:
        heapq.heappush(free, heapq.heappop(free) + part)
    return max(free)


def main(arguments: list[str]) -> None:
    names = [name for name in WORKLOADS if not arguments or any(text in name for text in arguments)]
    columns = ("one thread", *(f"{threads} threads" for threads in THREADS), "serial", "most of it")
    table = Table("join", *columns, title="speed-up, computed")
    for name in names:
        data, on = WORKLOADS[name]
        try:
            sides = data()
        except SkipTest as missing:
            table.add_row(name, str(missing))
            continue
        cut(sides, on, 1)  # loads the kernels
        whole = min(cut(sides, on, 1).seconds for _ in range(3))
        found = [min((cut(sides, on, threads) for _ in range(3)), key=lambda one: one.seconds) for threads in THREADS]
        serial = found[-1].serial
        most = [f"{part} {seconds / whole:.1%}" for part, seconds in serial.items() if seconds > SERIAL_NAMED * whole]
        ratios = [f"{whole / one.seconds:.1f}" for one in found]
        table.add_row(name, f"{whole:.2f} s", *ratios, f"{sum(serial.values()) / whole:.1%}", ", ".join(most))
    Console(width=150).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
