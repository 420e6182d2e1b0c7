"""The adaptive join: it changes operators at any moment, once, and loses or doubles nothing."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat, some

import dovetail
from dovetail.operators.adaptive import Seen, choose_spilling, is_clustered, share_of_best
from dovetail.testing import check_operator, check_run, random_schedule


def keys(kind: str, rows: int, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.integers(0, 40, rows).tolist()
    weights = 1 / np.arange(1, 41) ** 1.5
    return rng.choice(40, rows, p=weights / weights.sum()).tolist()


def table(kind: str, rows: int, seed: int) -> pa.Table:
    return pa.table({"k": keys(kind, rows, seed), "v": range(rows)})


@pytest.mark.parametrize("kind", ["uniform", "skewed"])
@pytest.mark.parametrize("memory_rows", some(range(16, 130, 8), 0))
def test_switch_at_every_moment(kind: str, memory_rows: int) -> None:
    """With restarts before, at and after it."""
    rng = random.Random(memory_rows)
    tables = {"l": table(kind, 90, 1), "r": table(kind, 70, 2)}
    schedule = random_schedule(rng, {"l": 90, "r": 70})
    check_run("adaptive", tables, on="l.k = r.k", schedule=schedule, memory_rows=memory_rows, block_rows=4)


def test_conformance() -> None:
    check_operator("adaptive", cases=repeat(60), seed=3)


@pytest.mark.parametrize(("kind", "operator"), [("uniform", "pmj"), ("skewed", "diner_merge")])
def test_steps_name_the_operator(kind: str, operator: str) -> None:
    rng = np.random.default_rng(0)
    domain = np.arange(20_000)
    weights = np.ones(20_000) if kind == "uniform" else 1 / (1.0 + domain)
    sides = [
        pa.table({"k": rng.choice(domain, 60_000, p=weights / weights.sum()), name: np.arange(60_000)})
        for name in ("a", "b")
    ]
    steps = list(dovetail.progressive(*sides, "l.k = r.k", memory="1MB"))
    assert steps[0].operator == "shj"
    assert steps[-1].operator == operator
    assert "all rows fit" in str(steps[0].reason)
    assert "best fifth" in str(steps[-1].reason)
    assert sum(step.batch.num_rows for step in steps) == dovetail.count(*sides, "l.k = r.k")


@pytest.mark.parametrize("ends", [True, False])
def test_one_side_first(ends: bool) -> None:
    tables = {"l": table("uniform", 90, 1), "r": table("uniform", 70, 2)}
    schedule = [("l", 90), *([("end", "l")] if ends else []), ("r", 30), ("stall", 3), ("r", 40)]
    check_run("adaptive", tables, on="l.k = r.k", schedule=schedule, memory_rows=40, block_rows=4)


def test_the_choice_follows_from_what_was_seen() -> None:
    assert choose_spilling(Seen(one_sided=True, best_share=0.9, clustered=False)).operator == "diner"
    assert choose_spilling(Seen(one_sided=False, best_share=0.9, clustered=False)).operator == "diner_merge"
    assert choose_spilling(Seen(one_sided=False, best_share=0.2, clustered=True)).operator == "diner_merge"
    assert choose_spilling(Seen(one_sided=False, best_share=0.2, clustered=False)).operator == "pmj"
    assert "20%" in choose_spilling(Seen(one_sided=False, best_share=0.2, clustered=False)).reason


@pytest.mark.parametrize("seed", range(5))
def test_clustered_inputs_are_told_from_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = rng.permutation(4_000)
    near = [names[np.argsort(np.arange(4_000) + rng.uniform(-1_000, 1_000, 4_000))] for _ in range(2)]
    assert is_clustered(*near)
    assert not is_clustered(rng.permutation(4_000), rng.permutation(4_000))
    weights = 1 / np.arange(1, 3_001)
    skewed = [rng.choice(3_000, 4_000, p=weights / weights.sum()) for _ in range(2)]
    assert not is_clustered(*skewed)
    assert not is_clustered(np.arange(10), np.arange(10))  # too few


def test_everything_fits() -> None:
    """Rows that come from a reader: their number is not known, but they fit."""
    sides = [table("uniform", 500, seed) for seed in (1, 2)]
    readers = [pa.RecordBatchReader.from_batches(side.schema, side.to_batches(max_chunksize=50)) for side in sides]
    steps = list(dovetail.progressive(*readers, "l.k = r.k", memory="10MB"))
    assert {step.operator for step in steps} == {"shj"}
    assert sum(step.batch.num_rows for step in steps) == dovetail.count(*sides, "l.k = r.k")


def test_skew_is_told_from_chance() -> None:
    """Keys that happen to be frequent in one half of the rows say nothing about the other."""
    rng = np.random.default_rng(1)
    uniform = [rng.integers(0, 3_000, 4_000) for _ in range(2)]
    assert share_of_best(*uniform) < 0.3
    weights = 1 / np.arange(1, 3_001)
    skewed = [rng.choice(3_000, 4_000, p=weights / weights.sum()) for _ in range(2)]
    assert share_of_best(*skewed) > 0.8
    assert share_of_best(np.arange(10), np.arange(10, 20)) == 0
    assert share_of_best(np.empty(0, np.int64), np.arange(3)) == 0
