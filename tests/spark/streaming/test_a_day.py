"""A day of streams in 10,000 micro-batches, without Spark: nothing is lost, and nothing grows."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.streaming.window_cells import Query, played, query
from tests.spark.streaming.window_oracle import Results, Source

from dovetail.window import Limits, Window

SECOND = 1_000_000
BATCHES, ROWS = 10_000, 6  # of each side, in each micro-batch
DELAY, BOUND = 300 * SECOND, 120 * SECOND  # of both watermarks, and of the condition
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
DAY = 24 * 3600 * SECOND
ON = "l.x < r.x AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 120 SECONDS"


def stream(rng: np.random.Generator, name: str) -> pa.Table:
    """Rows come up to two minutes late, one in a hundred up to twenty."""
    rows = BATCHES * ROWS
    late = np.where(rng.random(rows) < 0.01, rng.integers(0, 1200, rows), rng.integers(0, 120, rows))
    times = START + np.arange(rows) * DAY // rows - late * SECOND
    return pa.table({"x": rng.random(rows), "ts": pa.array(times).cast(pa.timestamp("us")), name: np.arange(rows)})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    tables = stream(numbers, "left_row"), stream(numbers, "right_row")
    times = [np.asarray(table["ts"].cast(pa.int64())) for table in tables]
    limits = Limits((-BOUND, 0), (-BOUND - 1000, -1000), ("ts", "ts"))
    window = Window(BOUND + 1, BOUND // 10, ("ts", "ts"), watermarks=(DELAY, DELAY), limits=limits)
    run = query(tables, ON, "left", window, tmp_path, cells=1)
    task: Any = played(monkeypatch)
    task.query = run
    found: Results = Counter()
    good, sizes = ([], []), []
    horizon, watermark = 0, 0  # rows are late by the watermark of the micro-batch before
    rng = random.Random(0)
    for number in range(BATCHES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        for side in (0, 1):
            good[side].extend(row for row in rows if times[side][row] > 1000 * horizon)
        sources: list[Source] = [(0, rows), (1, rows)]
        results, figures = run.micro_batch(sources, rng, watermark)
        found.update(results)
        if number % 100 == 99:
            sizes.append((figures["window_rows"], len(run.files()), resident_bytes()))
        horizon, newest = watermark, min(int(side[: rows.stop].max()) for side in times)
        watermark = max(watermark, (newest - DELAY) // 1000)
    _close(run, found)
    assert found == expected(tables, times, (set(good[0]), set(good[1])))
    per_second = 2 * ROWS * BATCHES / (24 * 3600)
    kept, files, memory = zip(*sizes[10:], strict=True)
    assert max(kept) < 2 * per_second * (DELAY + BOUND + DAY / BATCHES) / SECOND  # and what leaves with its run
    assert max(files) <= 2 * max(files[:10])
    assert memory[-1] - memory[0] < 20_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _close(run: Query, found: Results) -> None:
    """A watermark far ahead: what is left has no partner."""
    results, _ = run.micro_batch([], random.Random(0), (START + 2 * DAY) // 1000)
    found.update(results)


def expected(tables: tuple[pa.Table, pa.Table], times: list[Any], good: tuple[set[int], set[int]]) -> Results:
    """By rows sorted by time."""
    x = [np.asarray(table["x"]) for table in tables]
    rights = np.array(sorted(good[1], key=lambda row: times[1][row]))
    results: Results = Counter()
    for row in good[0]:
        first, last = np.searchsorted(times[1][rights], [times[0][row], times[0][row] + BOUND + 1])
        partners = [int(r) for r in rights[first:last] if x[0][row] < x[1][r]]
        results.update([(row, partner) for partner in partners] or [(row, None)])
    return results
