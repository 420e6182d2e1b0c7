from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tests.seed import generator

from dovetail.core import parts, threads
from dovetail.core.parts import chunk_ranges, part_ranges
from dovetail.core.threads import allow_threads


def part_of(counts: np.ndarray, start: int, end: int) -> np.ndarray:
    return counts[start:end]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("wanted", [1, 4, 100])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 1_000])
def test_parts_have_all_pairs_once(rows: int, wanted: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RANGE", 50)
    monkeypatch.setattr(parts, "BLOCK", 16)
    monkeypatch.setattr(parts, "LEAST_PART", 10)
    monkeypatch.setattr(parts, "GOOD_PART", 10)
    rng = generator(1)
    for counts in (rng.integers(0, 3, rows), rng.zipf(1.5, rows).clip(0, 10_000), np.zeros(rows, np.int64)):
        with allow_threads(number):
            found = part_ranges(partial(part_of, counts), rows, wanted)
        inside = np.concatenate([np.arange(0), *(np.arange(start, end) for start, end in found)])
        assert (np.diff(inside) > 0).all()
        assert counts[inside].sum() == counts.sum()
        most = max(10, -(-int(counts.sum()) // wanted))
        assert all(counts[start:end].sum() <= most or np.count_nonzero(counts[start:end]) == 1 for start, end in found)


def test_chunks_have_all_pairs_once() -> None:
    counts = np.array([0, 3, 0, 0, 9, 1, 1, 0])
    assert list(chunk_ranges(counts, 14, 4)) == [(0, 4, 3), (4, 5, 9), (5, 8, 2)]
