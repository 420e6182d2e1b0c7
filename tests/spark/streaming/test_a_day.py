"""A day of streams in 10,000 micro-batches, without Spark: no result is lost, and memory and state do not grow."""

from __future__ import annotations

import gc
import os
import random
from array import array
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.streaming.window_cells import played, query
from tests.spark.streaming.window_oracle import Source

from dovetail.window import Limits, Window

SECOND = 1_000_000
DAY = 24 * 3600 * SECOND
MICRO_BATCHES, ROWS = 10_000, 6  # per day; per side and micro-batch
STEP = DAY // MICRO_BATCHES
DELAY, BOUND = 300 * SECOND, 120 * SECOND  # delay of both watermarks, and bound of the condition
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
ON = "abs(l.x - r.x) <= 0.02 AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 120 SECONDS"

Results = Counter[tuple[int, int]]
"""Row numbers, -1 for none."""


def stream(rng: np.random.Generator, rows: int, name: str) -> pa.Table:
    """Rows arrive up to two minutes late, one in a hundred up to twenty."""
    late = np.where(rng.random(rows) < 0.01, rng.integers(0, 1200, rows), rng.integers(0, 120, rows))
    times = START + np.arange(rows) * STEP // ROWS - late * SECOND
    return pa.table({"x": rng.random(rows), "ts": pa.array(times).cast(pa.timestamp("us")), name: np.arange(rows)})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("micro_batches", [60, pytest.param(MICRO_BATCHES, marks=pytest.mark.slow)])
def test_a_day(micro_batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    tables = tuple(stream(numbers, micro_batches * ROWS, name) for name in ("left_row", "right_row"))
    times = [np.asarray(table["ts"].cast(pa.int64())) for table in tables]
    limits = Limits((-BOUND, 0), (-BOUND - 1000, -1000), ("ts", "ts"))
    window = Window(BOUND + 1, BOUND // 10, ("ts", "ts"), watermarks=(DELAY, DELAY), limits=limits)
    run = query((tables[0], tables[1]), ON, "left", window, tmp_path, cells=1)
    task: Any = played(monkeypatch)
    task.query = run
    found = array("q")  # compact pairs, -1 for no row, so that the test itself hardly grows
    kept: tuple[list[int], list[int]] = ([], [])
    sizes = []
    before, watermark = 0, 0  # rows are late if behind the watermark of the previous micro-batch
    rng = random.Random(0)
    for number in range(micro_batches):
        rows = range(number * ROWS, (number + 1) * ROWS)
        for side in (0, 1):
            kept[side].extend(row for row in rows if times[side][row] > 1000 * before)
        sources: list[Source] = [(0, rows), (1, rows)]
        results, figures = run.micro_batch(sources, rng, watermark)
        found.extend(number for pair in results.elements() for number in numbered(pair))
        if number >= micro_batches // 3 and number % 20 == 0:
            gc.collect()
            sizes.append((figures["window_rows"], len(run.files()), resident_bytes()))
        before, newest = watermark, min(int(side[: rows.stop].max()) for side in times)
        watermark = max(watermark, (newest - DELAY) // 1000)
    left_over, _ = run.micro_batch([], random.Random(0), (START + 2 * DAY) // 1000)  # has no partner
    found.extend(number for pair in left_over.elements() for number in numbered(pair))
    assert Counter(zip(found[::2], found[1::2], strict=True)) == expected(tables, times, kept)
    assert sum(map(len, kept)) < 2 * micro_batches * ROWS  # some were late
    most_rows, most_files, memory = max(size[0] for size in sizes), max(size[1] for size in sizes), sizes
    assert most_rows < 2 * 2 * ROWS * (DELAY + BOUND) / STEP  # and rows dropped with their run
    assert most_files < 200
    assert memory[-1][2] - memory[0][2] < 20_000_000


def numbered(pair: tuple[int | None, int | None]) -> tuple[int, ...]:
    return tuple(-1 if row is None else row for row in pair)


def resident_bytes() -> int:
    """Resident memory; 0 without /proc, in which case only results and state are tested."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


def expected(
    tables: tuple[pa.Table, ...], times: list[Any], kept: tuple[list[int], list[int]]
) -> Counter[tuple[int, int]]:
    """The expected results, from rows sorted by time."""
    x = [np.asarray(table["x"]) for table in tables]
    rights = np.array(sorted(kept[1], key=lambda row: times[1][row]))
    results: Results = Counter()
    for row in kept[0]:
        first, last = np.searchsorted(times[1][rights], [times[0][row], times[0][row] + BOUND + 1])
        near = rights[first:last]
        partners = near[np.abs(x[0][row] - x[1][near]) <= 0.02].tolist()
        results.update([(row, partner) for partner in partners] or [(row, -1)])
    return results
