"""The promise of `memory=`, measured in separate processes: at most 1.1 times the budget plus 64 MB."""

from __future__ import annotations

import sys

import pytest
from benchmarks.memory_promise import BAND, CONSTANT, OVER, Case, measure

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells how much memory is anonymous"),
]

CASES = [
    Case("progressive", 100, 200),
    Case("progressive", 100, 200, "one batch"),
    Case("progressive", 100, 200, "one row group"),
    Case("progressive", 100, 100, algorithm="diner_merge"),
    Case("progressive", 25, 50, algorithm="rpj", width=2000),
    Case("progressive", 25, 8, repeat=1000, width=500),
    Case("join", 100, 400, "one row group"),
    Case("join", 100, 200, "parquet", BAND, how="left"),
    Case("join", 100, 400),
    Case("join", 25, 100, "parquet", width=2000),
    Case("multijoin", 25, 12, "parquet", width=1000),
]


def test_the_promise() -> None:
    assert (OVER, CONSTANT) == (1.1, 64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_join_keeps_to_its_memory(case: Case) -> None:
    measured = measure(case)
    assert measured.is_kept, str(measured)
