"""Statistics of operators are part of snapshots: a restored operator evicts the same rows as without a restart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.operators.registry import operator_names, operator_spec
from dovetail.testing.simulation import simulate

ROWS, STEP = 480, 40
BUDGET = {"memory_rows": 120, "block_rows": 8}
LARGER = {"memory_rows": 240, "block_rows": 40}
WITHOUT = ("nested_loop", "spo")  # the first spills everything at a snapshot, the second evicts by age
SPILLING = [name for name in operator_names() if operator_spec(name).spills and name not in WITHOUT]
EQUAL, BAND = "l.k = r.k", "abs(l.k - r.k) <= 1"
CASES: list[tuple[str, str, dict[str, Any]]] = [(name, EQUAL, {}) for name in SPILLING]
CASES += [(name, "l.near = r.near", {}) for name in ("adaptive", "diner", "diner_merge")]
CASES += [("diner", EQUAL, {"counted": True}), ("diner", EQUAL, {"regions": 5}), ("diner", BAND, {})]
SEVERAL: list[tuple[str, str, dict[str, Any]]] = [
    ("miner", "a.k = b.k AND b.x = c.x", {}),
    ("miner", "a.k = b.k AND abs(b.x - c.x) <= 1", {}),
    ("miner", "a.k = b.k AND b.x = c.x", {"policy": "benefit"}),
    ("mjoin", "a.k = b.k AND b.k = c.k", {}),
    ("pmj", "a.k = b.k AND b.k = c.k", {}),
]


def frequent_keys(rng: np.random.Generator, domain: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Some keys are frequent, and the set of frequent keys drifts."""
    often = rng.zipf(1.2, ROWS) % domain
    return ((often + np.arange(ROWS) // 40) % domain).astype(np.int64)


def table(seed: int, domain: int = 200) -> pa.Table:
    """Columns with frequent keys, with unique keys, and with keys whose partners arrive at about the same time."""
    rng = np.random.default_rng(seed)
    columns = {"k": frequent_keys(rng, domain), "x": rng.permutation(ROWS)}
    return pa.table({**columns, "near": (np.arange(ROWS) + rng.integers(-30, 30, ROWS)) * 7919 % 100_003})


def batches(aliases: str, *, restarts: bool) -> list[tuple[Any, ...]]:
    """Batches of all inputs in turn, sometimes with fewer rows of the first."""
    schedule: list[tuple[Any, ...]] = []
    for number in range(ROWS // STEP):
        for alias in aliases:
            schedule.append((alias, STEP // 2 if alias == aliases[0] and number % 3 == 2 else STEP))
            if restarts:
                schedule.append(("restart",))
    return schedule


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("name", "on", "parameters"), CASES, ids=str)
def test_the_same_rows_are_evicted(name: str, on: str, parameters: dict[str, Any]) -> None:
    runs = []
    for restarts in (False, True):
        schedule = batches("lr", restarts=restarts)
        runs.append(simulate(name, table(1), table(2), on=on, schedule=schedule, **BUDGET, **parameters))
    online = [Counter(run.pairs[: run.online]) for run in runs]
    assert online[0] == online[1]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "on", "parameters"), SEVERAL, ids=str)
def test_the_same_rows_of_several_inputs_are_evicted(name: str, on: str, parameters: dict[str, Any]) -> None:
    tables = {alias: table(seed) for seed, alias in enumerate("abc")}
    runs = []
    for restarts in (False, True):
        schedule = batches("abc", restarts=restarts)
        runs.append(simulate(name, tables, on=on, schedule=schedule, **LARGER, **parameters))
    online = [Counter(run.tuples[: run.online]) for run in runs]
    assert online[0] == online[1]
