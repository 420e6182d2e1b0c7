"""A budget in bytes is spent on rows: indexes, buffers and copies take what is left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.core.metrics import Moment
from dovetail.execution import monitor

MEMORY = 1_000_000
LEAST = {"miner": 0.75, "mjoin": 0.75}  # of three inputs; of two, four fifths
INPUTS = 3


class EveryMoment(dovetail.Recording):
    """All that the join tells, however fast it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Moment] = []

    def tell(self, moment: Moment) -> None:
        super().tell(moment)
        self.told.append(moment)


def table(width: int, rows: int, seed: int, text: bool) -> pa.Table:
    """Rows of exactly so many bytes: a key, and a text or numbers."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, rows, rows)
    if text:
        return pa.table({"k": keys, "s": pa.array([f"{i:0{width - 12}d}" for i in range(rows)])})
    numbers = {f"n{i}": rng.integers(0, 1 << 40, rows) for i in range(width // 8 - 1)}
    return pa.table({"k": keys, **numbers, **({"n": np.zeros(rows, np.int32)} if width % 8 else {})})


@pytest.mark.parametrize(("width", "text"), [(60, True), (60, False), (200, True)])
@pytest.mark.parametrize("algorithm", ["diner", "xjoin", "hmj", "rpj", "dphj", "pmj", "miner", "mjoin"])
def test_most_of_a_budget_holds_rows(algorithm: str, width: int, text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "EVERY_S", 0.0)  # a moment of every event, whatever time it takes
    inputs = INPUTS if algorithm in LEAST else 2
    rows = 3 * MEMORY // (width * inputs)
    tables = [table(width, rows, seed, text) for seed in range(inputs)]
    recording = EveryMoment()
    if inputs == 2:
        steps = dovetail.progressive(*tables, "l.k = r.k", memory=MEMORY, algorithm=algorithm, record=recording)
    else:
        on = "a.k = b.k AND b.k = c.k"
        named = dict(zip("abc", tables, strict=True))
        steps = dovetail.progressive(named, on=on, memory=MEMORY, algorithm=algorithm, record=recording)
    for _ in steps:
        pass
    moments = [moment for moment in recording.told if moment.phase == "arriving"]
    if algorithm == "pmj":  # all of its rows leave whenever memory is full: what counts is how many they are then
        share = max(moment.resident_rows or 0 for moment in moments) * width / MEMORY
    else:
        full = [moment.resident_rows or 0 for moment in moments if moment.spilled_rows]
        assert len(full) > 5
        share = float(np.median(full)) * width / MEMORY
    assert share >= LEAST.get(algorithm, 0.8)
    assert share <= 1
