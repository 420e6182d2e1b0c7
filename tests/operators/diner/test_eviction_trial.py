"""Eviction by value or by age: decided on a sample, and followed by the operator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.kernels.hashing import hash_codes
from dovetail.operators.blockwise.regions import Policy
from dovetail.operators.diner.eviction_trial import EvictionTrial
from dovetail.operators.diner.keys import Keyed
from dovetail.storage.blocks import BlockStore
from dovetail.testing import simulate

ROWS, BLOCK, BATCH = 512, 32, 16
Keys = tuple[NDArray[np.int64], NDArray[np.int64]]


def clustered(rows: int) -> Keys:
    """Partners arrive at about the same time, in either order; keys are in no order."""
    rng = np.random.default_rng(1)
    names = rng.permutation(rows)
    left, right = (np.argsort(np.arange(rows) + rng.uniform(-50, 50, rows)) for _ in Side)
    return names[left], names[right]


def skewed(rows: int) -> Keys:
    rng = np.random.default_rng(2)
    likely = 1 / np.arange(1, rows + 1)
    left = rng.permutation(rows)[rng.choice(rows, rows, p=likely / likely.sum())]
    return left, left[rng.permutation(rows)]


def tried(keys: Keys, trial: EvictionTrial, store: BlockStore | None = None) -> list[bool]:
    """The decisions after each batch. With a store, the trial is restored from a snapshot each time."""
    decisions = [trial.decide(ROWS, BLOCK)]
    for start in range(0, len(keys[0]), BATCH):
        for side in Side:
            codes = keys[side][start : start + BATCH]
            trial.arrive(side, Keyed(None, codes, hash_codes(codes)))
        decisions.append(trial.decide(ROWS, BLOCK))
        if store is not None:
            trial = restored(trial, store)
    return decisions


def restored(trial: EvictionTrial, store: BlockStore) -> EvictionTrial:
    again = EvictionTrial(Policy())
    again.restore(json.loads(json.dumps(trial.save(store))), store)
    return again


def test_old_rows_leave_where_partners_arrive_together() -> None:
    decisions = tried(clustered(8_000), EvictionTrial(Policy()))
    assert not decisions[0]
    assert all(decisions[len(decisions) // 2 :])


def test_values_decide_where_some_give_most_results() -> None:
    assert not any(tried(skewed(8_000), EvictionTrial(Policy())))


def test_it_changes_its_mind() -> None:
    trial = EvictionTrial(Policy())
    tried(clustered(4_000), trial)
    assert trial.by_age
    tried(skewed(16_000), trial)
    assert not trial.by_age


@pytest.mark.parametrize("keys", [clustered(3_000), skewed(3_000)], ids=["clustered", "skewed"])
def test_samples_survive_restarts(keys: Keys, tmp_path: Path) -> None:
    """With restarts after every batch, as between micro-batches, decisions are the same at the same time."""
    assert tried(keys, EvictionTrial(Policy()), BlockStore(tmp_path)) == tried(keys, EvictionTrial(Policy()))


def test_a_decision_of_an_earlier_release_is_kept(tmp_path: Path) -> None:
    again = EvictionTrial(Policy())
    again.restore({"by_age": True}, BlockStore(tmp_path))
    assert again.by_age
    assert again.decide(ROWS, BLOCK)


def test_its_samples_are_small() -> None:
    trial = EvictionTrial(Policy())
    tried(clustered(8_000), trial)
    assert 0 < trial.nbytes <= 2 * 17 * (ROWS + BATCH)


def share(algorithm: str, keys: Keys, *, ageing: bool) -> float:
    """The share of the results found up to the last arrival."""
    rows = len(keys[0])
    schedule = [("l", 10), ("r", 10)] * (rows // 10)
    left, right = (pa.table({"k": side}) for side in keys)
    memory = rows // 7
    run = simulate(
        algorithm, left, right, "l.k = r.k", schedule, memory_rows=memory, block_rows=memory // 20, ageing=ageing
    )
    return run.online / len(run.tuples)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", ["diner", "diner_merge"])
def test_more_results_of_clustered_inputs(algorithm: str) -> None:
    by_value, tried = (share(algorithm, clustered(2_000), ageing=ageing) for ageing in (False, True))
    assert by_value < 0.85
    assert tried > 0.93


@pytest.mark.one_in(2)
def test_none_are_lost_where_values_are_skewed() -> None:
    by_value, tried = (share("diner", skewed(2_000), ageing=ageing) for ageing in (False, True))
    assert tried >= 0.98 * by_value
