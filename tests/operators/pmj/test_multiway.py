"""Progressive merge join of several inputs: equalities and bands on one attribute, deep merges, interruptions."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import generator, seeded

import dovetail
from dovetail.condition.graph import parse_graph
from dovetail.core.rows import Phase
from dovetail.errors import InputError, PlanError
from dovetail.matching.links import links_of
from dovetail.operators.pmj.multiway import SweepReach
from dovetail.testing import check_run, random_schedule

CONDITIONS = (
    "a.k = b.k AND b.k = c.k",
    "abs(a.k - b.k) <= 1 AND b.k = c.k",
    "a.k BETWEEN b.k - 1 AND b.k + 2 AND c.k BETWEEN b.k AND b.k + 1",
    "abs(a.x - b.x) <= 0.5 AND abs(b.x - c.x) < 0.3",
    "abs(a.x - b.x) <= 0.5 AND abs(a.x - c.x) <= 0.5 AND abs(b.x - c.x) <= 0.2",
    "a.k = b.k AND b.k = c.k AND c.x < a.x",
    "abs(a.k - b.k) <= 1 AND abs(b.k - c.k) <= 1 AND a.x + b.x < c.x AND c.k > 0",
    "a.k = b.k AND a.k = c.k AND abs(d.k - c.k) <= 1",
)


def table(rng: random.Random, rows: int, values: int) -> pa.Table:
    keys = [rng.choice([None, *range(values)]) for _ in range(rows)]
    return pa.table(
        {
            "k": pa.array(keys, pa.int32()),
            "x": [
                rng.choice([0.1, 0.25, float("nan")] if rng.random() < 0.1 else [0.1]) * rng.randrange(9 * values)
                for _ in keys
            ],
        }
    )


def check(rng: random.Random, on: str, rows: int, **setting: Any) -> Any:
    aliases = "abcd" if "d." in on else "abc"
    tables = {alias: table(rng, rng.choice([1, rows // 2, rows]), rng.choice([2, 5, 20])) for alias in aliases}
    block_rows = rng.choice([1, 2, 4])
    memory_rows = (len(aliases) + rng.choice([2, 4, 9])) * block_rows
    schedule = random_schedule(rng, {alias: rows.num_rows for alias, rows in tables.items()})
    return check_run("pmj", tables, on=on, schedule=schedule, memory_rows=memory_rows, block_rows=block_rows, **setting)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", CONDITIONS)
def test_equalities_and_bands_along_one_attribute(on: str) -> None:
    rng = seeded(on)
    for _ in range(3):
        check(rng, on, 12, fan_in=8)


@pytest.mark.slow
@pytest.mark.parametrize("on", CONDITIONS)
def test_equalities_and_bands_for_long(on: str) -> None:
    rng = seeded(f"long {on}")
    for _ in range(60):
        check(rng, on, 24, fan_in=rng.choice([8, 20]))


def test_deep_merges_and_all_keys_equal() -> None:
    rng = random.Random(0)
    tables = {alias: table(rng, 30, 12) for alias in "abc"}
    run = check_run("pmj", tables, on=CONDITIONS[1], schedule=[], memory_rows=20, block_rows=2, fan_in=6)
    assert run.counters.merges >= 4
    equal = {alias: pa.table({"k": [1] * 14}) for alias in "abc"}
    run = check_run("pmj", equal, on=CONDITIONS[0], schedule=[], memory_rows=10, block_rows=2)
    assert len(run.tuples) == 14**3


def test_results_come_early_and_while_sources_stall() -> None:
    rng = random.Random(0)
    tables = {alias: table(rng, 40, 20) for alias in "abc"}
    arrivals = [(alias, 4) for _ in range(9) for alias in "abc"]
    shares = []
    for stall in ([], [("stall", 10_000)]):
        run = check_run("pmj", tables, on=CONDITIONS[0], schedule=[*arrivals, *stall], memory_rows=40, block_rows=2)
        shares.append(sum(phase is not Phase.CLEANUP for phase in run.phases) / len(run.phases))
    assert 0.05 < shares[0] < 0.5
    assert shares[1] > 0.7


def test_tables_by_the_public_call() -> None:
    rng = generator(0)
    tables = {alias: pa.table({"k": rng.integers(0, 3000, 4000), "v": rng.random(4000)}) for alias in "abc"}
    on = "abs(a.k - b.k) <= 1 AND b.k = c.k"
    found = dovetail.multijoin(tables, on, algorithm="pmj", memory="200KB", fan_in=6)
    expected = dovetail.multijoin(tables, on)
    order = [(name, "ascending") for name in expected.column_names]
    assert found.sort_by(order).equals(expected.sort_by(order))


def test_what_it_refuses() -> None:
    tables = {alias: pa.table({"k": [1], "x": [1.0]}) for alias in "abc"}
    for on in ("a.k = b.k AND b.x = c.x", "a.k = b.k AND b.k < c.k", "a.k = b.k AND b.k = c.x"):
        with pytest.raises(PlanError, match="along one attribute"):
            dovetail.multijoin(tables, on, algorithm="pmj")
    with pytest.raises(InputError, match="at least 6, two runs of each input; got 5"):
        dovetail.multijoin(tables, CONDITIONS[0], algorithm="pmj", fan_in=5)
    with pytest.raises(InputError, match="Did you mean 'buckets'"):
        dovetail.multijoin(tables, CONDITIONS[0], algorithm="mjoin", bukets=5)
    with pytest.raises(InputError, match="fan_in is a parameter of an algorithm"):
        dovetail.multijoin(tables, CONDITIONS[0], fan_in=5)


def test_bounds_add_up_along_the_graph() -> None:
    schemas = {alias: pa.schema([("k", pa.int64())]) for alias in "abc"}
    on = "a.k BETWEEN b.k - 1 AND b.k + 3 AND c.k BETWEEN b.k - 7 AND b.k"
    reach = SweepReach.along(links_of(parse_graph(on, schemas)), ["a", "b", "c"])
    assert reach is not None
    codes = np.array([0, 2**63 - 4], np.int64)
    # b - a <= 1, and c <= b; a - b <= 3; a - c <= 3 + 7.
    assert [int(reach.ends(alias, codes)[0]) for alias in "abc"] == [1, 3, 10]
    assert [int(reach.ends(alias, codes)[1]) for alias in "abc"] == [2**63 - 3, 2**63 - 1, 2**63 - 1]


@pytest.mark.parametrize("keys", [[-(2**63), 1 - 2**63, 2 - 2**63], [2**63 - 3, 2**63 - 2, 2**63 - 1]])
@pytest.mark.parametrize("on", ["a.k = b.k AND b.k = c.k", "abs(a.k - b.k) <= 1 AND c.k - b.k BETWEEN -1 AND 0"])
def test_keys_at_the_ends_of_64_bits(keys: list[int], on: str) -> None:
    tables = {alias: pa.table({"k": pa.array(keys * 3, pa.int64())}) for alias in "abc"}
    for schedule in ([], [("a", 9), ("b", 9), ("c", 9)]):
        run = check_run("pmj", tables, on=on, schedule=schedule, memory_rows=10, block_rows=2)
        assert run.counters.merges


def test_bands_that_together_are_wider_than_64_bits() -> None:
    tables = {alias: pa.table({"k": pa.array([0, 1, 2**62, 2**63 - 1] * 2, pa.int64())}) for alias in "abc"}
    on = f"abs(a.k - b.k) <= {2**62 - 1} AND abs(b.k - c.k) <= {2**62 - 1}"
    run = check_run("pmj", tables, on=on, schedule=[], memory_rows=10, block_rows=2)
    assert run.counters.merges
