"""Spilled rows of an equality join are joined range by range at the end, within any budget in bytes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import some

import dovetail

SPILLING = ("diner", "diner_merge", "xjoin", "hmj", "rpj", "dphj", "adaptive")
MEMORY = "80kB"


def table(rows: int, seed: int, *, frequent: float) -> pa.Table:
    """Some rows share one value, the others have one of many; some keys are null."""
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(rows) < frequent, 7, rng.integers(0, rows, rows))
    nulls = pa.array(keys, mask=rng.random(rows) < 0.02)
    text = pa.array([None if key is None else f"a long prefix {key}" for key in nulls.to_pylist()])
    return pa.table({"k": nulls, "s": text, "a": keys % 3, "n": np.arange(rows)})


CASES = [
    (name, on, frequent)
    for name in SPILLING
    for on, frequent in (
        ("l.k = r.k", 0.1),
        ("l.s = r.s", 0.05),
        ("l.a = r.a AND l.k = r.k", 0.0),
        ("l.k = r.k AND l.n < r.n", 0.1),
    )
]


@pytest.mark.parametrize(("name", "on", "frequent"), some(CASES, 0, of=4))
def test_every_pair_is_found_once(name: str, on: str, frequent: float) -> None:
    left, right = table(1_200, 1, frequent=frequent), table(1_600, 2, frequent=frequent)
    steps = dovetail.progressive(left, right, on, memory=MEMORY, algorithm=name)
    found = Counter(pair for step in steps for pair in _pairs(step.batch))
    assert found == Counter(_pairs(dovetail.join(left, right, on)))


def _pairs(rows: pa.RecordBatch | pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows.column("n").to_pylist(), rows.column("n_right").to_pylist(), strict=True))
