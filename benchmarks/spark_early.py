"""Early results from large tables on Spark, two cores: waves against a batch join of the same tables.

100M results of 1M x 1M rows in Parquet files, two inequalities. The batch join writes Parquet, as users would; the
waves return their rows to the driver. `python -m benchmarks.spark_early` prints how often the bounds of the estimate
contain the true number after a twentieth of the work.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

import dovetail
from benchmarks.spark_join import ON, Frames, dovetail_write, tables
from dovetail.spark.session.session import local_session

FIRST = 10_000
SEEDS, PART = 20, 0.05

Timed = tuple[bool, float]


def frames(rows: int, results: int) -> Frames:
    """Both sides, each in two files. (A table in the driver would be sent with every task.)"""
    spark = local_session("benchmark", conf={"spark.sql.shuffle.partitions": "8"})
    sides = tables(rows, results)
    place = Path(tempfile.mkdtemp(prefix="dovetail-benchmark-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    read = []
    for name, table in zip(("left", "right"), sides, strict=True):
        (place / name).mkdir()
        for half in range(2):
            part = table.slice(half * rows // 2, rows // 2)
            pq.write_table(part, place / name / f"{half}.parquet")
        read.append(spark.read.parquet(str(place / name)))
    return Frames(read[0], read[1], dovetail.count(*sides, ON))


def first_results(data: Frames) -> Timed:
    """The time to the first ten thousand results."""
    started = time.perf_counter()
    for step in dovetail.progressive(data.left, data.right, ON):
        if step.results >= FIRST:
            return True, time.perf_counter() - started
    raise AssertionError("too few results")


def all_results(data: Frames) -> Timed:
    started = time.perf_counter()
    found = sum(step.batch.num_rows for step in dovetail.progressive(data.left, data.right, ON))
    if found != data.pairs:
        raise AssertionError(f"{found} results, {data.pairs} expected")
    return True, time.perf_counter() - started


def batch_join(data: Frames) -> Timed:
    return True, dovetail_write(data)[1]


def coverage(data: Frames) -> Iterator[tuple[bool, float]]:
    """For each seed, whether the bounds contain the true number after a part of the work, and their width."""
    for seed in range(SEEDS):
        for step in dovetail.progressive(data.left, data.right, ON, seed=seed, aggregate={"n": "count(*)"}):
            estimate = (step.aggregates or {}).get("n")
            if estimate is not None and (step.done or 0) >= PART:
                yield estimate.low <= data.pairs <= estimate.high, (estimate.high - estimate.low) / data.pairs
                break


def main() -> None:
    seen = []
    for held, width in coverage(frames(1_000_000, 100_000_000)):
        seen.append(held)
        sys.stdout.write(f"{sum(seen)} of {len(seen)} hold the truth; this one is {width:.1%} wide\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
