"""How evenly the work of a join at rest is cut for 4, 16 and 64 threads, on skewed and real data.

    python -m benchmarks.balance

Parts are cut as for this many threads and done one after the other, each timed by the processor's clock: pairs found,
rows gathered. Then they are given to threads in their order, each to the first that is free, as a join does. `largest`
is the largest part over the mean; `speed-up` is all in one part over the busiest thread. Preparing both
sides is not in it: sorts and hash tables of the two sides run side by side, each on one thread.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from unittest import SkipTest

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.datasets import read_columns
from benchmarks.whole_rows import Sides, intervals, skewed, two_inequalities
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import output_schema

THREADS = (4, 16, 64)


def trips() -> Sides:
    """Taxi trips that were shorter and still dearer than others."""
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
    """Trips that began where others ended: few zones, some of them very busy."""
    columns = read_columns("nyc_green_2020", "pu_zone", "do_zone").slice(0, 30_000)
    return columns.select(["pu_zone"]), columns.select(["do_zone"])


WORKLOADS: dict[str, tuple[Callable[[], Sides], str]] = {
    "two inequalities, uniform": (lambda: two_inequalities(300_000, 0.0002), "l.a < r.a AND l.b > r.b"),
    "overlap of intervals": (lambda: intervals(300_000, 20), "l.s < r.e AND l.e > r.s"),
    "equality, Zipf 1.3": (lambda: skewed(3_000_000, 1.3), "l.k = r.k"),
    "trips, two inequalities": (trips, "l.trip_distance < r.trip_distance AND l.fare_amount > r.fare_amount"),
    "jobs that overlap": (jobs, "l.s < r.e AND l.e > r.s"),
    "zones, equality": (zones, "l.pu_zone = r.do_zone"),
    "trips, band": (trips, "abs(l.fare_amount - r.fare_amount) <= 0.1"),
}


def part_seconds(sides: Sides, on: str, threads: int) -> list[float]:
    """The time of each part."""
    left, right = (one_batch(table, table.schema) for table in sides)
    schema = output_schema(left.schema, right.schema, "_right", JoinType.INNER)
    work = Joining(parse(on, left.schema, right.schema), JoinType.INNER, schema, threads=threads)
    flags = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    seconds = []
    for part in work.split(work.build((left, right))):
        started = time.process_time()
        for _ in work.emit_pairs(part, (left, right), flags):
            pass
        seconds.append(time.process_time() - started)
    return seconds


def busiest(seconds: list[float], threads: int) -> float:
    """The time at which the last thread is done."""
    free = [0.0] * threads
    for part in seconds:
        heapq.heappush(free, heapq.heappop(free) + part)
    return max(free)


def main() -> None:
    table = Table("join", *(f"{threads} threads: parts, largest, speed-up" for threads in THREADS))
    for name, (data, on) in WORKLOADS.items():
        try:
            sides = data()
        except SkipTest as missing:
            table.add_row(name, str(missing))
            continue
        part_seconds(sides, on, 1)  # loads the kernels
        whole = sum(part_seconds(sides, on, 1))
        cells = []
        for threads in THREADS:
            seconds = part_seconds(sides, on, threads)
            largest = max(seconds) * len(seconds) / sum(seconds)
            cells.append(f"{len(seconds)}, {largest:.2f}, {whole / busiest(seconds, threads):.1f}")
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
