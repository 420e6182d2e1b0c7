"""Progressive merge join: all classes of conditions, deep merges, little memory, spilling sweep areas."""

import gc
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import seeded

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, Phase, Side
from dovetail.errors import BudgetError, InputError, PlanError
from dovetail.execution.driver import Driver
from dovetail.operators.pmj.pmj import MOST_BLOCKS, Pmj
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import check_run, definition, random_schedule, random_table, simulate
from dovetail.testing.simulation import ROW, ScriptedRun

STRICTNESS = ("progressive", "semi_strict", "strict")


def numbers(rng: random.Random, rows: int, values: int) -> pa.Table:
    """Integer keys, doubles with ties, and intervals in x and y, some of them points, some reversed."""
    low = [rng.randrange(values) for _ in range(2 * rows)]
    high = [start + rng.choice([-1, 0, 0, 1, 2, 5, values // 2]) for start in low]
    return pa.table(
        {
            "k": pa.array([rng.randrange(values) for _ in range(rows)], pa.int32()),
            "x": [rng.choice([0.5, 1.0, 0.1]) * rng.randrange(values) for _ in range(rows)],
            "a": low[:rows],
            "b": high[:rows],
            "c": low[rows:],
            "d": high[rows:],
        }
    )


CONDITIONS = (
    "l.k = r.k",
    "l.k = r.k AND l.x < r.x",
    "abs(l.k - r.k) <= 2",
    "l.x BETWEEN r.x - 0.3 AND r.x + 0.1",
    "l.a <= r.b AND l.b >= r.a",
    "l.a < r.b AND l.b > r.a",
    "l.a <= r.b AND l.b >= r.a AND l.c <= r.d AND l.d >= r.c",
    "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) <= 1",
    "l.x < r.x",
    "l.x >= r.x AND l.k < r.k",
)


def check_merge_tree(rng: random.Random, on: str, fan_in: int, strictness: str, rows: int) -> None:
    values = rng.choice([1, 5, 40])
    left, right = (numbers(rng, rng.choice([1, rows // 2, rows]), values) for _ in range(2))
    block_rows = rng.choice([1, 3, 8])
    setting: dict[str, Any] = {"fan_in": fan_in, "strictness": strictness, "block_rows": block_rows}
    setting["memory_rows"] = rng.choice([4, 6, 12]) * block_rows
    check_run("pmj", left, right, on, random_schedule(rng, {"l": left.num_rows, "r": right.num_rows}), **setting)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize(("fan_in", "strictness"), list(zip((4, 6, 20), STRICTNESS, strict=True)))
def test_every_class_of_conditions(on: str, fan_in: int, strictness: str) -> None:
    check_merge_tree(seeded(f"{on}{strictness}"), on, fan_in, strictness, 24)


@pytest.mark.slow
@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize("fan_in", [4, 6, 20])
@pytest.mark.parametrize("strictness", STRICTNESS)
def test_every_class_by_every_merge_tree(on: str, fan_in: int, strictness: str) -> None:
    rng = seeded(f"{on}{fan_in}{strictness}")
    for _ in range(5):
        check_merge_tree(rng, on, fan_in, strictness, 80)


def points(rng: random.Random, rows: int, dimensions: int, places: int) -> pa.Table:
    """Points on a lattice, so that many are on cell borders, and many at the same distance."""
    return pa.table({f"x{d}": [rng.randrange(places) / 2 for _ in range(rows)] for d in range(dimensions)})


SLOWLY = pytest.mark.slow


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dimensions", [2, 3, *(pytest.param(n, marks=SLOWLY) for n in (8, 16))])
@pytest.mark.parametrize("copies", [1, 4, pytest.param(7, marks=SLOWLY)])
def test_points_on_borders_and_at_the_radius(dimensions: int, copies: int) -> None:
    rng = seeded(f"{dimensions}{copies}")
    radius = {2: 0.5, 3: 1.0, 8: 1.5, 16: 2.0}[dimensions]  # all are distances between lattice points
    squares = " + ".join(f"pow(l.x{d} - r.x{d}, 2)" for d in range(dimensions))
    for places in (2, 9):
        left, right = (points(rng, 16, dimensions, places if dimensions < 8 else 3) for _ in range(2))
        for operator in ("<", "<="):
            on = f"sqrt({squares}) {operator} {radius}"
            schedule = random_schedule(rng, {"l": 16, "r": 16})
            check_run("pmj", left, right, on, schedule, memory_rows=12, block_rows=3, copies=copies)


def test_points_outside_of_the_grid_that_was_learned() -> None:
    rng = seeded(0)
    near, far = points(rng, 20, 2, 5), points(rng, 20, 2, 200)
    table = pa.concat_tables([near, far, pa.table({"x0": [float("nan"), None, 1e300], "x1": [0.0, 0.0, -1e300]})])
    check_run("pmj", table, table, "distance(l.x0, l.x1, r.x0, r.x1) <= 1", [], memory_rows=16, block_rows=2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("share", "rows"),
    [pytest.param(0.01, 600, marks=pytest.mark.slow), (0.1, 40), (0.5, 80)],
)
@pytest.mark.parametrize("ratio", [1, 100])
def test_shares_of_memory_and_unequal_sides(share: float, rows: int, ratio: int) -> None:
    rng = seeded(f"{share}{ratio}")
    sizes = (2 * rows // (ratio + 1), 2 * rows * ratio // (ratio + 1))
    left, right = (numbers(rng, size, 100) for size in rng.sample(sizes, 2))
    memory_rows = max(8, int(share * sum(sizes)))
    for on in ("l.k = r.k", "abs(l.x - r.x) <= 0.5", "l.a <= r.b AND l.b >= r.a"):
        check_run("pmj", left, right, on, [], memory_rows=memory_rows, block_rows=max(1, memory_rows // 30))


@pytest.mark.parametrize("levels", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_deep_merges_find_nothing_twice(levels: int) -> None:
    rng = seeded(levels)
    rows = 10 * 2**levels
    left, right = numbers(rng, rows, 20), numbers(rng, rows, 20)
    run = check_run("pmj", left, right, "abs(l.k - r.k) <= 1", [], memory_rows=24, block_rows=4, fan_in=4)
    assert run.counters.merges >= 2 ** (levels - 1)


def test_all_keys_equal_spills_the_area() -> None:
    table = pa.table({"k": np.zeros(80, np.int64), "x": np.arange(80)})
    run = check_run("pmj", table, table, "l.k = r.k", [], memory_rows=40, block_rows=4)
    assert len(run.pairs) == 80 * 80


def test_results_come_before_the_merges() -> None:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"k": rng.integers(0, 50, 1000)}) for _ in range(2))
    shares = {}
    for strictness in STRICTNESS:
        run = simulate("pmj", left, right, "l.k = r.k", memory_rows=220, block_rows=20, strictness=strictness)
        shares[strictness] = sum(phase is Phase.ARRIVING for phase in run.phases) / len(run.phases)
    assert shares["semi_strict"] == shares["strict"] == 0
    assert 0.07 < shares["progressive"] < 0.13  # ten run pairs


def test_a_stall_lets_rows_meet_at_once() -> None:
    table = pa.table({"k": [1, 2, 3]})
    run = simulate("pmj", table, table, "l.k = r.k", [("l", 3), ("r", 2), ("stall", 5), ("r", 1)])
    assert run.phases == [Phase.REACTIVE, Phase.REACTIVE, Phase.CLEANUP]


def test_restarts_in_the_middle_of_a_meeting() -> None:
    table = pa.table({"k": [1] * 6})
    schedule = [("l", 3), ("r", 3), ("stall", 1), ("restart",), ("restart",), ("l", 3), ("stall", 9), ("restart",)]
    check_run("pmj", table, table, "l.k = r.k", schedule, block_rows=1, memory_rows=20)


def test_memory_larger_than_the_input_writes_nothing() -> None:
    rng = seeded(0)
    left, right = random_table(rng, 20), random_table(rng, 20)
    assert check_run("pmj", left, right, "l.x < r.x", []).counters.pages_written == 0


def test_what_it_refuses() -> None:
    table = pa.table({"k": [1], "s": ["a"]})
    with pytest.raises(PlanError, match="needs an order"):
        simulate("pmj", table, table, "l.k != r.k")
    with pytest.raises(InputError, match="at least 4"):
        simulate("pmj", table, table, "l.k = r.k", fan_in=3)
    with pytest.raises(InputError, match="strictness"):
        simulate("pmj", table, table, "l.k = r.k", strictness="lax")
    assert parse("l.s < r.s", table.schema, table.schema) is not None


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["left", "right", "full", "left_semi", "left_anti"])
@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.x - r.x) <= 0.3 AND l.a > 3", "l.a <= r.b AND l.b >= r.a"])
def test_join_types(how: str, on: str) -> None:
    rng = seeded(f"{how}{on}")
    for memory_rows in (None, 16):
        left, right = numbers(rng, 30, 40), numbers(rng, 24, 40)
        schedule = random_schedule(rng, {"l": 30, "r": 24})
        run = simulate("pmj", left, right, on, schedule, memory_rows=memory_rows, block_rows=3, how=how, fan_in=4)
        pairs = definition(left, right, on)
        partnered = [{pair[side] for pair in pairs} for side in Side]
        lonely = [
            {(side, row) for row in range(rows)} - {(side, row) for row in partnered[side]}
            for side, rows in ((Side.LEFT, 30), (Side.RIGHT, 24))
        ]
        wanted: set[tuple[Side, int]] = {
            "left": lonely[0],
            "right": lonely[1],
            "full": lonely[0] | lonely[1],
            "left_semi": {(Side.LEFT, row) for row in partnered[0]},
            "left_anti": lonely[0],
        }[how]
        assert Counter(run.pairs) == Counter([] if how in ("left_semi", "left_anti") else pairs)
        assert Counter(run.alone) == Counter(wanted)
        if memory_rows is not None:
            assert run.counters.peak_rows_in_memory <= memory_rows


def test_a_semi_join_writes_less() -> None:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"k": rng.integers(0, 50, 400)}) for _ in range(2))
    pages = {
        how: simulate("pmj", left, right, "l.k = r.k", memory_rows=80, block_rows=4, how=how).counters.pages_written
        for how in ("inner", "left_semi", "left_anti")
    }
    assert pages["left_semi"] == pages["left_anti"] < pages["inner"]


def test_points_in_several_cells_are_given_once() -> None:
    rng = seeded(1)
    left, right = points(rng, 30, 2, 40), points(rng, 30, 2, 40)
    on = "distance(l.x0, l.x1, r.x0, r.x1) <= 1"
    pairs = definition(left, right, on)
    for how in ("full", "left_semi"):
        run = simulate("pmj", left, right, on, memory_rows=16, block_rows=2, how=how)
        found = [{pair[side] for pair in pairs} for side in Side]
        alone = {(side, row) for side in Side for row in set(range(30)) - found[side]}
        assert Counter(run.alone) == Counter(alone if how == "full" else {(Side.LEFT, row) for row in found[0]})


@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 2", "l.a <= r.b AND l.b >= r.a"])
def test_output_in_order(on: str) -> None:
    rng = seeded(on)
    left, right = numbers(rng, 60, 30), numbers(rng, 50, 30)
    run = simulate("pmj", left, right, on, memory_rows=24, block_rows=3, sorted_output=True)
    assert Counter(run.pairs) == Counter(definition(left, right, on))
    if "abs" in on:  # intervals of right rows begin two below their key
        places = [max(left["k"][a].as_py(), right["k"][b].as_py() - 2) for a, b in run.pairs]
    elif on == "l.k = r.k":
        places = [left["k"][a].as_py() for a, _ in run.pairs]
    else:
        low = [[min(x, y) for x, y in zip(t["a"].to_pylist(), t["b"].to_pylist(), strict=True)] for t in (left, right)]
        places = [max(low[0][a], low[1][b]) for a, b in run.pairs]
    assert places == sorted(places)


def test_output_in_order_needs_one() -> None:
    table = pa.table({"s": ["a"], "k": [1]})
    with pytest.raises(InputError, match="sorted_output"):
        simulate("pmj", table, table, "l.s = r.s", sorted_output=True)
    with pytest.raises(InputError, match="sorted_output"):
        simulate("pmj", table, table, "l.k = r.k", sorted_output=True, how="left")


@pytest.mark.parametrize("seed", range(repeat(3)))
def test_memory_that_grows_and_shrinks(seed: int) -> None:
    rng = seeded(seed)
    left, right = (numbers(rng, 60, 25).append_column(ROW, pa.array(range(60))) for _ in range(2))
    on = "abs(l.k - r.k) <= 1"
    counters = Counters()
    budget = Budget(24, "rows", counters)
    blocks = BlockStore()
    workspace = Workspace(Graph.of(parse(on, left.schema, right.schema)), budget, blocks, 2, counters, 0, {"fan_in": 4})
    operator = Pmj(workspace)
    driver = Driver(operator, workspace)
    run = ScriptedRun()
    limits = [10, 16, 24, 60, 8]
    for found in driver.run(in_turn((left, right), 7)):
        run.add(found)
        assert budget.limit is not None
        assert budget.used <= budget.limit
        if rng.random() < 0.3:
            with suppress(BudgetError):  # rows on disk may need more
                operator.resize(rng.choice(limits))
    blocks.close()
    assert Counter(run.pairs) == Counter(definition(left, right, on))
    with pytest.raises(BudgetError):
        operator.resize(3)


def in_turn(tables: tuple[pa.Table, pa.Table], rows: int) -> Any:
    for start in range(0, max(table.num_rows for table in tables), rows):
        for side in Side:
            for batch in tables[side].slice(start, rows).to_batches():
                yield Arrival(side, batch)


def test_leaving_early_frees_memory_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rng = np.random.default_rng(0)
    left, right = (pa.table({"k": rng.integers(0, 500, 20_000)}) for _ in range(2))
    for step in dovetail.progressive(left, right, "l.k = r.k", algorithm="pmj", memory="100KB"):
        if step.phase is Phase.CLEANUP:
            assert list(tmp_path.iterdir())
            break
    del step
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_sums_and_averages_are_estimated() -> None:
    rng = np.random.default_rng(0)
    left, right = (
        pa.table({"k": rng.integers(0, 50, 2000), "v": pa.array(rng.exponential(5, 2000), mask=rng.random(2000) < 0.1)})
        for _ in range(2)
    )
    measures = {"total": "sum(r.v * 2)", "mean": "avg(l.v)"}
    workspace = Workspace(
        Graph.of(parse("l.k = r.k", left.schema, right.schema)), Budget(420, "rows"), BlockStore(), 10, Counters()
    )
    workspace.parameters.update(measures=measures, first_rows=None)
    for found in Driver(Pmj(workspace), workspace).run(in_turn((left, right), 10)):
        if found.phase is Phase.CLEANUP:
            break
    workspace.blocks.close()
    truth = dovetail.aggregate(left, right, "l.k = r.k", {"total": "sum(r.v * 2)"})["total"][0].as_py()
    estimate = workspace.estimator.sum("total", 2000, 2000)
    assert estimate is not None
    assert estimate.low <= truth <= estimate.high
    assert abs(estimate.total / truth - 1) < 0.1
    assert workspace.estimator.average("mean") is not None
    with pytest.raises(InputError, match="cannot be estimated"):
        simulate("pmj", left, right, "l.k = r.k", measures={"most": "max(l.v)"})


def test_rows_that_wait_meet_what_has_passed() -> None:
    """One side is loaded completely and waits while pages of the other are still on disk."""
    rng = seeded(0)
    starts = [rng.randrange(1, 50) for _ in range(40)]
    left = pa.table({"a": starts, "b": [100 for _ in starts]})
    right = pa.table({"a": [0, 60], "b": [0, 60]})  # in one page
    on = "l.a <= r.b AND l.b >= r.a"
    for tables in ((left, right), (right, left)):
        check_run("pmj", *tables, on, [("l", 2), ("r", 2)], memory_rows=24, block_rows=2, fan_in=4)


def test_runs_are_merged_while_sources_stall() -> None:
    rng = random.Random(0)
    left, right = numbers(rng, 100, 30), numbers(rng, 100, 30)
    arrivals = [(side, 5) for _ in range(19) for side in "lr"]
    runs = [
        check_run("pmj", left, right, "l.k = r.k", [*arrivals, *stall], memory_rows=60, block_rows=5)
        for stall in ([], [("stall", 10_000)])
    ]
    shares = [sum(phase is not Phase.CLEANUP for phase in run.phases) / len(run.phases) for run in runs]
    assert shares[0] < 0.4
    assert shares[1] > 0.85  # all except those of the last rows
    everything = [(side, 5) for _ in range(20) for side in "lr"]
    run = check_run("pmj", left, right, "l.k = r.k", [*everything, ("stall", 10_000)], memory_rows=60, block_rows=5)
    assert Phase.CLEANUP not in run.phases
    assert all(run.counters.merges for run in runs)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["inner", "full", "left_semi"])
@pytest.mark.parametrize("between", [[("stall", 1)], [("stall", 1), ("restart",)], [("stall", 4)]])
def test_merges_are_interrupted_at_every_yield(
    how: str, between: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By arrivals that need the merge's memory, by others that do not, and by restarts within a step."""
    monkeypatch.setattr("dovetail.operators.pmj.pairs.MOST_PAIRS", 3)
    rng = seeded(how)
    left, right = (pa.table({"k": [rng.choice([0, 0, 1, 2, 7, None]) for _ in range(rows)]}) for rows in (20, 24))
    late = [event for _ in range(4) for side in "lr" for event in ((side, 1), *between)]
    pairs = definition(left, right, "l.k = r.k")
    lonely = [set(range(rows)) - {pair[side] for pair in pairs} for side, rows in ((0, 20), (1, 24))]
    alone: dict[str, Any] = {
        "inner": [],
        "full": [(Side.LEFT, row) for row in lonely[0]] + [(Side.RIGHT, row) for row in lonely[1]],
        "left_semi": [(Side.LEFT, row) for row in set(range(20)) - lonely[0]],
    }
    for memory_rows in (12, 24):
        schedule = [("l", 8), ("r", 8), ("l", 8), ("r", 8), *(12 * between), *late]
        setting: dict[str, Any] = {"memory_rows": memory_rows, "block_rows": 3, "how": how, "fan_in": 4}
        run = simulate("pmj", left, right, "l.k = r.k", schedule, **setting)
        assert Counter(run.pairs) == Counter(pairs if how in ("inner", "full") else [])
        assert Counter(run.alone) == Counter(alone[how])
        assert run.counters.peak_rows_in_memory <= memory_rows


ENDS = [-(2**63), -(2**63) + 1, -(2**63) + 2], [2**63 - 3, 2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("keys", ENDS, ids=["least", "most"])
@pytest.mark.parametrize("on", ["l.k = r.k", "l.k - r.k BETWEEN -1 AND 1", "l.k - r.k BETWEEN 0 AND 2", "l.k <= r.k"])
def test_keys_at_the_ends_of_64_bits(keys: list[int], on: str) -> None:
    """An interval that would exceed the range of 64 bits is cut off there, and does not wrap around."""
    table = pa.table({"k": pa.array(keys * 4, pa.int64())})
    for schedule in ([], [("l", 12), ("r", 12)], [("r", 12), ("l", 12), ("stall", 3)]):
        run = check_run("pmj", table, table, on, schedule, memory_rows=8, block_rows=2)
        assert run.counters.merges
        assert Phase.CLEANUP in run.phases


def test_bands_as_wide_as_64_bits() -> None:
    table = pa.table({"k": pa.array([0, 1, 2**62, 2**63 - 1] * 3, pa.int64())})
    for bound in (2**61, 2**62 - 1):  # a larger bound cannot be added to a 64-bit integer
        on = f"l.k - r.k BETWEEN -{bound} AND {bound}"
        run = check_run("pmj", table, table, on, [], memory_rows=8, block_rows=2)
        assert run.counters.merges


def test_a_snapshot_writes_what_is_new(tmp_path: Path) -> None:
    """Rows of the run being built are written once, and all of them again when there are many blocks."""
    table = pa.table({"k": np.arange(1000) % 50})
    condition = parse("l.k = r.k", table.schema, table.schema)

    def operator() -> Pmj:
        counters = Counters()
        return Pmj(Workspace(Graph.of(condition), Budget(2000, "rows", counters), BlockStore(tmp_path), 25, counters))

    run, named, written = operator(), set[str](), []
    for start in range(0, 400, 10):
        for side in Side:
            list(run.arrive(side, table.slice(start, 10).to_batches()[0]))
        manifest = run.snapshot()
        written.append(sum(rows_in(tmp_path / name) for name in set(manifest.segments) - named))
        named |= set(manifest.segments)
        again = operator()
        again.restore(manifest)
        assert again.usage.resident_rows == run.usage.resident_rows == 2 * (start + 10)
        run = again
    assert written[:MOST_BLOCKS] == [20] * MOST_BLOCKS
    assert written[MOST_BLOCKS] == 2 * 10 * (MOST_BLOCKS + 1)


def rows_in(path: Path) -> int:
    with pa.ipc.open_file(path) as reader:
        return int(reader.read_all().num_rows)
