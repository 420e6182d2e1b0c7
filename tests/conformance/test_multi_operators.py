"""Every registered operator for several inputs, with generated join trees and schedules, against the definition."""

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import SEED, seeded

from dovetail.condition.graph import parse_graph
from dovetail.errors import BudgetError, PlanError
from dovetail.matching import expansion, links
from dovetail.operators.registry import operator_class, operator_names
from dovetail.storage.ordered_index import OrderedIndex
from dovetail.testing import check_operator, check_run
from dovetail.testing.simulation import simulate

SHARED = "a.k = b.k AND b.k = c.k"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("name", operator_names(3))
def test_conforms_for_long(name: str, seed: int) -> None:
    check_operator(name, inputs=[3, 4, 5, 6], cases=300, seed=SEED + seed)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("most", [1 << 18, 2])
@pytest.mark.parametrize("name", operator_names(3))
def test_interrupted_at_every_yield(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each yield of reactive work, even within a step, rows arrive or the operator is restarted."""
    monkeypatch.setattr(expansion, "MOST", most)
    rng = seeded(3)
    tables = {alias: pa.table({"k": [rng.choice([0, 0, 0, 1, None]) for _ in range(14)]}) for alias in "abc"}
    for between in ([("stall", 1)], [("stall", 1), ("restart",)], [("stall", 3)]):
        late = [event for step in "abcabcabcabc" for event in ((step, 1), *between)]
        for schedule in (late, [("a", 9), ("b", 9), ("c", 9), *between, *late]):
            check_run(name, tables, on=SHARED, schedule=schedule, memory_rows=15, block_rows=3)


@pytest.mark.parametrize("name", operator_names(3))
@pytest.mark.parametrize("key", [7, "same", None])
def test_all_keys_equal(name: str, key: object) -> None:
    """Also with identical rows, which count as different rows."""
    keys = pa.array([key] * 5, pa.string() if key == "same" else pa.int64())
    tables = {alias: pa.table({"k": keys}) for alias in "abc"}
    schedule = [("a", 3), ("b", 3), ("stall", 1), ("c", 2)]
    run = check_run(name, tables, on=SHARED, schedule=schedule, memory_rows=10, block_rows=2)
    assert len(run.tuples) == (0 if key is None else 125)


@pytest.mark.parametrize("name", operator_names(3))
def test_the_ends_of_the_range_of_codes(name: str) -> None:
    edge = [-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1]
    tables = {alias: pa.table({"k": pa.array(edge * 2, pa.int64())}) for alias in "abc"}
    check_run(name, tables, on=SHARED, schedule=[("a", 4), ("stall", 1)], memory_rows=10, block_rows=2)


def test_bands_at_the_ends_of_the_range_of_codes() -> None:
    edge = [-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1]
    tables = {alias: pa.table({"k": pa.array(edge, pa.int64())}) for alias in "ab"}
    tables["c"] = pa.table({"k": pa.array([0, 1, -1], pa.int64())})
    found = links.links_of(parse_graph("abs(a.k - b.k) <= 3 AND c.k = b.k", {a: t.schema for a, t in tables.items()}))
    codes = tables["a"]["k"].to_numpy()
    for known, other in (("a", "b"), ("b", "a")):
        index = OrderedIndex()
        index.insert(codes, np.arange(len(codes)))
        mine, theirs = index.lookup(*found[0].bounds(known, codes))
        near = [(i, j) for i in range(5) for j in range(5) if abs(int(codes[i]) - int(codes[j])) <= 3]
        assert sorted(zip(mine.tolist(), theirs.tolist(), strict=True)) == near, (known, other)


@pytest.mark.parametrize("name", [name for name in operator_names(3) if operator_class(name, 3).spec.spills])
def test_a_budget_that_is_too_small_is_refused(name: str) -> None:
    tables = {alias: pa.table({"k": [1, 2]}) for alias in "abc"}
    with pytest.raises(BudgetError, match="at least 5 are needed"):
        simulate(name, tables, on=SHARED, memory_rows=8, block_rows=2)


def test_mjoin_refuses_more_than_one_attribute() -> None:
    tables = {alias: pa.table({"k": [1], "x": [1]}) for alias in "abc"}
    with pytest.raises(PlanError, match="equality of one attribute"):
        simulate("mjoin", tables, on="a.k = b.k AND b.x = c.x")


def test_miner_refuses_what_no_index_finds() -> None:
    tables = {alias: pa.table({"k": [1], "s": ["x"]}) for alias in "abc"}
    with pytest.raises(PlanError, match="c has none"):
        simulate("miner", tables, on="a.k = b.k AND b.s != c.s")


def test_bands_of_doubles_at_their_borders() -> None:
    """Differences that rounding decides, infinities and NaN."""
    x = [0.0, 1.0, 1.5, 0.1 + 0.2, 0.3, 0.7, -0.0, float("nan"), float("inf"), -1e300, 1e300, None]
    tables = {alias: pa.table({"x": x, "i": list(range(len(x)))}) for alias in "abc"}
    for band in ("abs(a.x - b.x) <= 1", "a.x <= b.x + 0.4 AND a.x >= b.x - 0.4", "a.x - b.x BETWEEN 0.3 AND 1.2"):
        on = f"{band} AND abs(c.x - b.x) < 0.5"
        schedule = [("a", 5), ("b", 5), ("stall", 2)]
        run = check_run("miner", tables, on=on, schedule=schedule, memory_rows=25, block_rows=5)
        assert len(run.tuples) > 10


@pytest.mark.parametrize("name", operator_names(3))
def test_keys_that_share_a_hash_are_told_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "hash_column", lambda array: np.zeros(len(array), np.int64))
    tables = {alias: pa.table({"s": ["a", "b", "c", "a", None, "d"]}) for alias in "abc"}
    check_run(name, tables, on="a.s = b.s AND b.s = c.s", schedule=[("a", 4), ("b", 4)], memory_rows=10, block_rows=2)
