"""A budget in bytes is mostly used for rows; indexes, buffers and copies take the rest."""

from __future__ import annotations

import pytest
from benchmarks.memory_share import ALGORITHMS, SEVERAL, measure
from tests.effort import some

from dovetail.execution import monitor

MEMORY = 1_000_000


CASES = [(algorithm, *rows) for rows in ((60, True), (60, False), (200, True)) for algorithm in ALGORITHMS]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("algorithm", "width", "text"), some(CASES, 0, of=2))
def test_most_of_a_budget_holds_rows(algorithm: str, width: int, text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "EVERY_S", 0.0)  # a moment for every event, however short
    inputs = 3 if algorithm in SEVERAL else 2
    rows = 3 * MEMORY // (width * inputs)
    share = measure(algorithm, rows, width, 0.0, text=text, memory=MEMORY).payload
    assert share >= (0.75 if algorithm in SEVERAL else 0.8)
    assert share <= 1
