"""Early results from big tables on Spark, two cores: waves against the batch join of the same tables.

100M results of 1M x 1M rows, two inequalities. The batch join is written as Parquet, as its users would have it; the
waves hand their rows to the driver. `python -m benchmarks.spark_early` tells how often the bounds of the estimate hold
the truth after a twentieth of the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import dovetail
from benchmarks.spark_join import ON, Frames, dovetail_write
from benchmarks.spark_join import frames as frames_of

FIRST = 10_000
SEEDS, PART = 20, 0.05

Timed = tuple[bool, float]


def frames(rows: int, results: int) -> Frames:
    return frames_of(rows, results)


def first_results(data: Frames) -> Timed:
    """The time until there are ten thousand."""
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
    """For each seed whether the bounds hold the truth after a part of the work, and how wide they are."""
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
