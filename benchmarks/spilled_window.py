"""A window larger than memory: the rate of SPO-Join with memory for a tenth of the window, against unlimited memory.

    python -m benchmarks.spilled_window [rows of the window]

Two inequalities with about 20 partners per row, through the public API, in process. Rates are rows of both streams per
CPU second; each ratio is of two consecutive runs, and the result is the median of three.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import dovetail

ON = "l.x < r.x AND l.y > r.y"
WINDOW = 1_400_000  # rows of both streams
LENGTH = 0.75  # rows of each stream, per row of the window: enough to fill all slides and let some expire
PARTNERS = 20
NOISE = 6.0  # of y around x, for about one partner, found by trial
ROW_BYTES = 40
LARGER = 10  # the window's bytes divided by the memory
TIMES = 3


class Rate(NamedTuple):
    rows_per_s: float
    results: int
    spilled_rows: int  # the maximum


def stream(seed: int, rows: int, window: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.random(rows)
    y = x + NOISE * PARTNERS / (window / 2) * rng.random(rows)
    return pa.table({"x": x, "y": y, "id": np.arange(rows), **{name: rng.integers(0, 1 << 40, rows) for name in "ab"}})


def measure(left: pa.Table, right: pa.Table, window: int, memory: int | None) -> Rate:
    recording = dovetail.Recording()
    started = time.process_time()
    bounds = dovetail.window(rows=window)
    steps = dovetail.progressive(left, right, ON, algorithm="spo", window=bounds, memory=memory, record=recording)
    results = sum(step.batch.num_rows for step in steps)
    seconds = time.process_time() - started
    spilled = max(told.moment.spilled_rows or 0 for told in recording.moments)
    return Rate((left.num_rows + right.num_rows) / seconds, results, spilled)


def main(window: int = WINDOW) -> None:
    left, right = (stream(seed, int(LENGTH * window), window) for seed in (1, 2))
    memory = window * ROW_BYTES // LARGER
    measure(left.slice(0, 50_000), right.slice(0, 50_000), window // 100, 1 << 18)  # compile
    ratios = []
    print(f"window of {window:,} rows, {window * ROW_BYTES:,} bytes; memory of {memory:,} bytes")
    print("in memory, rows/s  spilled, rows/s  ratio  rows on disk")
    for _ in range(TIMES):
        whole, spilled = (measure(left, right, window, limit) for limit in (None, memory))
        assert whole.results == spilled.results, (whole, spilled)
        ratios.append(spilled.rows_per_s / whole.rows_per_s)
        rates = f"{whole.rows_per_s:17,.0f}  {spilled.rows_per_s:15,.0f}"
        print(f"{rates}  {ratios[-1]:5.2f}  {spilled.spilled_rows:12,}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
