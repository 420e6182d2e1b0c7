"""The adaptive join: it can switch operators at any moment, once, and loses or duplicates nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat, some
from tests.seed import SEED

import dovetail
from dovetail.operators.adaptive import is_clustered
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
    """With restarts before, during and after the switch."""
    rng = random.Random(memory_rows)
    tables = {"l": table(kind, 90, 1), "r": table(kind, 70, 2)}
    schedule = random_schedule(rng, {"l": 90, "r": 70})
    check_run("adaptive", tables, on="l.k = r.k", schedule=schedule, memory_rows=memory_rows, block_rows=4)


def test_rows_with_many_partners_are_kept() -> None:
    """Without pauses and with many results, the most useful rows stay in memory."""
    tables = {"l": table("skewed", 300, 1), "r": table("skewed", 300, 2)}
    for memory_rows in range(80, 240, 40):
        run = check_run("adaptive", tables, on="l.k = r.k", memory_rows=memory_rows, block_rows=4)
        assert run.online > 0


def test_conformance() -> None:
    check_operator("adaptive", cases=repeat(60), seed=SEED)


def unordered(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, rows, rows) for _ in range(2)]


def clustered(rows: int) -> list[np.ndarray]:
    """Partners arrive at about the same time, but keys are in no order."""
    rng = np.random.default_rng(0)
    names = rng.permutation(rows)
    return [names[np.argsort(np.arange(rows) + rng.uniform(-rows / 60, rows / 60, rows))] for _ in range(2)]


def repeated(rows: int) -> list[np.ndarray]:
    """Each value has many rows, at random positions."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, rows // 40, rows) for _ in range(2)]


@pytest.mark.parametrize(
    ("arriving", "operator", "reason"),
    [
        (unordered, "pmj", "at any time"),
        (repeated, "diner", "many partners"),
        (clustered, "diner_merge", "at about the same time"),
    ],
)
def test_steps_name_the_operator(arriving: Callable[[int], list[np.ndarray]], operator: str, reason: str) -> None:
    rows = 20_000 if arriving is repeated else 60_000
    sides = [pa.table({"k": keys, "v": np.arange(rows)}) for keys in arriving(rows)]
    steps = list(dovetail.progressive(*sides, "l.k = r.k", memory="1MB"))
    assert steps[0].operator == "shj"
    assert steps[-1].operator == operator
    assert "all rows fit" in str(steps[0].reason)
    assert reason in str(steps[-1].reason)
    assert sum(step.batch.num_rows for step in steps) == dovetail.count(*sides, "l.k = r.k")


@pytest.mark.parametrize("ends", [True, False])
def test_one_side_first(ends: bool) -> None:
    tables = {"l": table("uniform", 90, 1), "r": table("uniform", 70, 2)}
    schedule = [("l", 90), *([("end", "l")] if ends else []), ("r", 30), ("stall", 3), ("r", 40)]
    check_run("adaptive", tables, on="l.k = r.k", schedule=schedule, memory_rows=40, block_rows=4)


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
    """Rows of a reader, whose number is unknown, but which fit in memory."""
    sides = [table("uniform", 500, seed) for seed in (1, 2)]
    readers = [pa.RecordBatchReader.from_batches(side.schema, side.to_batches(max_chunksize=50)) for side in sides]
    steps = list(dovetail.progressive(*readers, "l.k = r.k", memory="10MB"))
    assert {step.operator for step in steps} == {"shj"}
    assert sum(step.batch.num_rows for step in steps) == dovetail.count(*sides, "l.k = r.k")
