"""RPJ's claims at a hundredth of its size: who is ahead, how far from the bound, and whether expectations come true."""

from functools import cache

import numpy as np
import pytest
from benchmarks.papers.rpj_runs import SETTINGS, Kind, Online, online, watched, workload

ROWS = 12_000
BLOCK = 30  # rows that arrive at once
SOME: tuple[Kind, float] = ("harmony", 5)
slow = pytest.mark.slow
ALL = [pytest.param(*s, marks=() if s == SOME else slow) for s in SETTINGS]


@cache
def run(operator: str, kind: Kind, ratio: float, flush: str | None = None, n_flush: float | None = None) -> Online:
    given = {"flush": flush, "n_flush": n_flush}
    parameters = {name: value for name, value in given.items() if value is not None}
    return online(operator, kind, ratio, ROWS, block_rows=BLOCK, **parameters)


@pytest.mark.parametrize(("kind", "ratio"), ALL)
def test_rpj_delivers_most_while_rows_arrive(kind: Kind, ratio: float) -> None:
    """Fig. 8."""
    others = max(run(name, kind, ratio).share for name in ("hmj", "xjoin"))
    assert run("rpj", kind, ratio).share >= 1.3 * others


@slow
@pytest.mark.parametrize(("kind", "ratio"), [SOME, ("reverse", 1)])
def test_rpj_comes_close_to_the_clairvoyant_bound(kind: Kind, ratio: float) -> None:
    """Lemma 1; and nobody is above it."""
    fine = run("rpj", kind, ratio, n_flush=0.01)
    assert fine.share >= 0.97 * fine.bound
    for each in (fine, run("rpj", kind, ratio), run("hmj", kind, ratio), run("xjoin", kind, ratio)):
        assert each.share <= each.bound + 0.01


@slow
@pytest.mark.parametrize(("kind", "ratio"), SETTINGS)
def test_rpj_comes_closer_the_less_arrives_at_once(kind: Kind, ratio: float) -> None:
    fine = online("rpj", kind, ratio, 40_000, block_rows=20, n_flush=0.01)
    assert 0.97 * fine.bound <= fine.share <= fine.bound + 0.01


@slow
@pytest.mark.parametrize("flush", ["largest", "smallest", "adaptive", "all"])
@pytest.mark.parametrize(("kind", "ratio"), SETTINGS)
def test_no_policy_is_better_than_the_optimal_one(kind: Kind, ratio: float, flush: str) -> None:
    """Section 4.3."""
    best = run("rpj", kind, ratio, n_flush=0.01).share
    assert run("rpj", kind, ratio, flush=flush, n_flush=0.0).share <= best


@slow
def test_which_policy_suits_which_arrivals() -> None:
    """Section 4.3, equal speeds. Flush largest alone is XJoin's policy, adaptive pairs are HMJ's."""
    assert run("rpj", "reverse", 1, flush="largest", n_flush=0.0).share == run("xjoin", "reverse", 1).share
    assert run("rpj", "reverse", 1, flush="adaptive", n_flush=0.0).share == run("hmj", "reverse", 1).share
    assert run("xjoin", "reverse", 1).share > run("rpj", "reverse", 1, flush="smallest", n_flush=0.0).share
    assert run("rpj", "harmony", 1, flush="smallest", n_flush=0.0).share > run("xjoin", "harmony", 1).share
    unequal, equal = (run("hmj", "harmony", ratio).share / run("rpj", "harmony", ratio).share for ratio in (5, 1))
    assert unequal < equal


def test_results_until_the_next_flush_come_as_expected() -> None:
    """Equations 2 and 4."""
    cycles = watched(workload("reverse", 1, 60_000), 3000, n_flush=0.3).cycles
    ratios = np.array(cycles.actual[1:]) / np.array(cycles.predicted[1:])
    assert len(ratios) >= 50
    assert 0.95 <= ratios.mean() <= 1.05


@slow
@pytest.mark.parametrize("rows", [6_000, 12_000])
def test_tasks_give_about_what_they_promise(rows: int) -> None:
    """Section 5.3."""
    executed = watched(workload("harmony", 1, rows), rows // 20, stall_every=200, handover="bucket").executed
    assert len(executed.actual) >= 20
    assert min(executed.predicted) >= 0
    assert 0.8 <= sum(executed.predicted) / sum(executed.actual) <= 1.25
