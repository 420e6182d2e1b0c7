"""XJoin, HMJ, DPHJ and RPJ: exactly once for every interruption, policy and hand-over, with invariants at each step."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import some
from tests.operators.hashing.hash_invariants import check_invariants
from tests.seed import generator, seeded

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Side, Stall
from dovetail.errors import InputError
from dovetail.execution.driver import Driver
from dovetail.operators.hashing.spilling import SpillingHash
from dovetail.operators.hashing.spilling_joins import Rpj
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.operators.registry import operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import check_run, definition

OPERATORS = ("xjoin", "hmj", "dphj", "rpj")
ONE_TASK: tuple[tuple[str, dict[str, Any]], ...] = (("rpj", {"tasks": "md"}), ("rpj", {"tasks": "dd"}))
REACTIVE: tuple[tuple[str, dict[str, Any]], ...] = (("xjoin", {}), ("hmj", {}), ("rpj", {}), *ONE_TASK)


def keyed(rows: int, keys: int, seed: int) -> pa.Table:
    rng = generator(seed)
    return pa.table({"k": rng.integers(0, keys, rows), "s": [f"v{i % 7}" for i in range(rows)]})


def in_portions(rng: random.Random, left: int, right: int, most: int) -> list[tuple[Any, ...]]:
    rest = {"l": left, "r": right}
    schedule: list[tuple[Any, ...]] = []
    while any(rest.values()):
        side = rng.choice([name for name, rows in rest.items() if rows])
        rows = min(rest[side], rng.randint(1, most))
        rest[side] -= rows
        schedule.append((side, rows))
        if rng.random() < 0.3:
            schedule.append(("stall", rng.choice([1, 2, 5, 50])))
        if rng.random() < 0.05:
            schedule.append(("restart",))
    return schedule


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "keys"), [(name, keys) for turn, name in enumerate(OPERATORS) for keys in some((1, 100), turn, of=2)]
)
def test_more_than_memory_holds(name: str, keys: int) -> None:
    """With few keys, the rows of one key do not fit, and are joined chunk by chunk."""
    left, right = keyed(60, keys, 1), keyed(50, keys, 2)
    for seed, (memory_rows, block_rows) in enumerate([(4, 1), (48, 3)]):
        schedule = in_portions(seeded(seed), 60, 50, 12)
        setting = {"memory_rows": memory_rows, "block_rows": block_rows, "partitions": 1 + seed, "fan_in": 2 + seed}
        check_run(name, left, right, "l.k = r.k", schedule, **setting)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "also"), REACTIVE)
def test_interrupted_at_every_single_yield(name: str, also: dict[str, Any]) -> None:
    left, right = keyed(40, 8, 3), keyed(40, 8, 4)
    for step in range(1, 11):
        stall = [("stall", step), ("restart",)] if step % 2 else [("stall", step)]
        schedule = [("l", 14), ("r", 16), ("l", 10), *stall, ("r", 8), ("stall", step), ("l", 16)]
        setting = {"memory_rows": 32, "block_rows": 2, "partitions": 2, "fan_in": 2, **also}
        check_run(name, left, right, "l.k = r.k", schedule, handover=["merge", "bucket", "all"][step % 3], **setting)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "also"), REACTIVE)
@pytest.mark.parametrize("handover", ["merge", "bucket", "all"])
def test_interrupted_and_restarted_at_every_single_yield(name: str, also: dict[str, Any], handover: str) -> None:
    left, right = keyed(60, 12, 3), keyed(60, 12, 4)
    for step in range(1, 20):
        for more in ([], [("restart",)]):
            schedule = [("l", 20), ("r", 25), ("l", 15), ("stall", step), *more, ("r", 15), ("stall", step), ("l", 25)]
            setting = {"memory_rows": 32, "block_rows": 2, "partitions": 2, "fan_in": 2, "handover": handover, **also}
            check_run(name, left, right, "l.k = r.k", schedule, **setting)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("flush", ["all", "largest", "smallest", "adaptive", "symmetric", "optimal"])
@pytest.mark.parametrize("name", ["xjoin", "hmj", "rpj"])
def test_any_policy_in_any_operator_that_can_carry_it(name: str, flush: str) -> None:
    left, right = keyed(50, 20, 5), keyed(40, 20, 6)
    schedule = in_portions(seeded(flush), 50, 40, 9)
    setting = {"memory_rows": 30, "block_rows": 3, "flush": flush, "partitions": 5}
    if flush == "optimal" and name == "hmj":
        with pytest.raises(InputError, match="flush must be one of all, largest"):
            check_run(name, left, right, "l.k = r.k", schedule, **setting)
    else:
        check_run(name, left, right, "l.k = r.k", schedule, **setting)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "also"), [*((name, {}) for name in OPERATORS), *ONE_TASK])
def test_invariants_after_every_event(name: str, also: dict[str, Any]) -> None:
    for seed in range(2):
        rng = seeded(f"{name}{seed}{also}")
        tables = keyed(80, 25, seed), keyed(70, 25, seed + 50)
        condition = parse("l.k = r.k", tables[0].schema, tables[1].schema)
        counters = Counters()
        store = BlockStore(counters=counters)
        parameters = {"partitions": 4, "handover": rng.choice(["merge", "bucket"]), "unit_rows": 10, **also}
        workspace = Workspace(
            Graph.of(condition), Budget(60, "rows", counters), store, 3, counters, parameters=parameters
        )
        operator = operator_class(name)(workspace)
        assert isinstance(operator, SpillingHash)
        driver = Driver(operator, workspace)
        found = 0
        try:
            for event in _events(rng, tables):
                for results in driver.handle(event):
                    assert results.results.is_complete
                    found += results.results.size
                    if operator._open is None and not isinstance(event, End):
                        check_invariants(operator)
                if not isinstance(event, End):
                    check_invariants(operator)
        finally:
            store.close()
        assert found == len(definition(*tables, "l.k = r.k"))


def _events(rng: random.Random, tables: tuple[pa.Table, pa.Table]) -> list[Event]:
    events: list[Event] = []
    position = [0, 0]
    for entry in in_portions(rng, tables[0].num_rows, tables[1].num_rows, 9):
        if entry[0] in ("l", "r"):
            side = Side("lr".index(entry[0]))
            rows = tables[side].slice(position[side], entry[1]).to_batches()
            events += [Arrival(side, batch) for batch in rows]
            position[side] += entry[1]
        elif entry[0] == "stall":
            events.append(Stall(None))  # until no work is left and no task is open
    return [*events, End(Side.LEFT), End(Side.RIGHT)]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_budget_in_bytes_is_kept(name: str) -> None:
    left, right = keyed(10_000, 8_000, 7), keyed(10_000, 8_000, 8)
    steps = list(dovetail.progressive(left, right, "l.k = r.k AND l.s <= r.s", memory="200kB", algorithm=name))
    found = Counter(
        zip(*(pa.concat_batches([s.batch for s in steps]).column(c).to_pylist() for c in (0, 1, 3)), strict=True)
    )
    whole = dovetail.join(left, right, "l.k = r.k AND l.s <= r.s")
    assert found == Counter(zip(*(whole.column(c).to_pylist() for c in (0, 1, 3)), strict=True))
    assert {step.phase for step in steps} == {"arriving", "cleanup"}


class Watched(BlockStore):
    """Records the memory in use after rows have been written to free memory."""

    most = 0

    def _record_block(self, name: str, pages: int) -> None:
        super()._record_block(name, pages)
        self.most = max(self.most, pa.total_allocated_bytes())


@pytest.mark.parametrize("name", ["xjoin", *(pytest.param(name, marks=pytest.mark.slow) for name in ("hmj", "rpj"))])
def test_results_that_are_forgotten_hold_no_rows(name: str, tmp_path: Path) -> None:
    """The sides arrive in long turns: the last results refer to rows of a whole side, which are then evicted."""
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    text = pa.array([f"{i:0300d}" for i in range(2_000)])
    rng = np.random.default_rng(0)
    counters, store = Counters(), Watched(tmp_path)
    budget = Budget(8_000_000, "bytes", counters)
    workspace = Workspace(Graph.of(parse("l.k = r.k", schema, schema)), budget, store, 1000, counters)
    driver = Driver(operator_class(name)(workspace), workspace)
    before = pa.total_allocated_bytes()
    for turn in range(60):
        batch = pa.record_batch({"k": rng.integers(0, 20_000, len(text)), "s": text}, schema)
        for _, results in driver.handle(Arrival(Side(turn // 10 % 2), batch)):
            del results
    assert counters.results > 1_000
    assert store.most - before < 8_000_000  # the budget of residents, without evicted rows


def test_rows_that_have_met_everything_are_dropped() -> None:
    left, right = keyed(20, 5, 9), keyed(200, 5, 10)
    for name in OPERATORS:
        run = check_run(name, left, right, "l.k = r.k", [("end", "l")], memory_rows=60, block_rows=2)
        assert run.counters.pages_written == 0
        assert run.online == len(run.pairs)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_flus": 0.1}, "n_flus: .*There are flush, partitions"),
        ({"handover": "never"}, "handover must be one of merge, bucket, all; got 'never'"),
        ({"flush": "none"}, "flush must be one of"),
        ({"partitions": 0}, "partitions must be at least 1; got 0"),
        ({"fan_in": 1}, "fan_in must be at least 2; got 1"),
        ({"tasks": "mm"}, "tasks must name md, dd or both"),
        ({"n_flush": 2}, "must be between 0 and 1"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dovetail.testing.simulate("rpj", keyed(1, 1, 0), keyed(1, 1, 0), "l.k = r.k", **parameters)


BANDS = (
    "abs(l.x - r.x) <= 0.5",
    "l.x - r.x BETWEEN 1 AND 2.5",
    "l.i - r.i BETWEEN 2 AND 4",
    "abs(l.i - r.i) < 3 AND l.x < r.x",
    "abs(l.x - r.x) <= 1 AND abs(l.i - r.i) <= 1",
    "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) <= 1.0",
    "abs(l.x - r.x) <= 0",
)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("on", "name"), some(list(product(BANDS, ["rpj", "hmj"])), 0, of=3))
def test_bands_and_distances(on: str, name: str) -> None:
    """Values on cell borders, outliers, and nulls."""
    rng = seeded(f"{name}{on}")

    def table(rows: int) -> pa.Table:
        def number() -> float | None:
            few = (None, float("nan"), float("inf"), -1e17, 1e17, 0.5, 1.0)
            return rng.choice(few) if rng.random() < 0.2 else rng.uniform(-4, 4)

        numbers = {name: pa.array([number() for _ in range(rows)], pa.float64()) for name in "xy"}
        return pa.table(
            {**numbers, "i": [rng.choice([2**40, rng.randint(-9, 9), rng.randint(-9, 9)]) for _ in range(rows)]}
        )

    for memory_rows in (8, 40):
        left, right = table(30), table(25)
        check_run(name, left, right, on, in_portions(rng, 30, 25, 7), memory_rows=memory_rows, block_rows=2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_result_that_shedding_costs_is_counted(name: str) -> None:
    left, right = keyed(150, 20, 11), keyed(150, 20, 12)
    whole = Counter(definition(left, right, "l.k = r.k"))
    restarted = in_portions(seeded(name), 150, 150, 12)
    without = [entry for entry in restarted if entry[0] != "restart"]
    for schedule in (restarted, [*without[:40], ("restart",), *without[40:]], without):
        run = dovetail.testing.simulate(
            name, left, right, "l.k = r.k", schedule, memory_rows=40, block_rows=3, shed=True
        )
        assert Counter(run.pairs) <= whole
        assert len(run.pairs) + run.counters.results_missed == sum(whole.values())
        assert run.counters.peak_rows_in_memory <= 40
    assert run.counters.results_missed > 0
    assert run.counters.rows_shed > 0


def test_what_shedding_costs_is_expected_where_keys_are_alike() -> None:
    run = dovetail.testing.simulate(
        "rpj", keyed(4000, 200, 1), keyed(4000, 200, 2), "l.k = r.k", [("l", 20), ("r", 20)] * 200,
        memory_rows=300, block_rows=20, shed=True,
    )  # fmt: skip
    expected, exact = run.counters.results_missed_expected, run.counters.results_missed
    assert 0.9 * exact < expected < 1.1 * exact


def test_rpj_sheds_what_is_least_missed() -> None:
    rng = np.random.default_rng(0)
    skewed = [pa.table({"k": np.minimum(rng.geometric(0.03, 3000), 200)}) for _ in Side]
    found = {}
    for flush in ("optimal", "largest"):
        schedule = [("l", 20), ("r", 20)] * 150
        setting = {"memory_rows": 300, "block_rows": 20, "partitions": 50, "n_flush": 0.05, "flush": flush}
        run = dovetail.testing.simulate("rpj", *skewed, "l.k = r.k", schedule, shed=True, **setting)
        found[flush] = len(run.pairs)
    assert found["optimal"] > 1.2 * found["largest"]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_snapshot_keeps_what_is_in_memory_and_writes_what_is_new(name: str, tmp_path: Path) -> None:
    table = keyed(600, 50, 17)
    condition = parse("l.k = r.k", table.schema, table.schema)

    def operator(memory_rows: int) -> SpillingHash:
        counters = Counters()
        space = Workspace(
            Graph.of(condition), Budget(memory_rows, "rows", counters), BlockStore(tmp_path), 10, counters
        )
        made = operator_class(name)(space)
        assert isinstance(made, SpillingHash)
        return made

    def arrive(run: SpillingHash, start: int, rows: int) -> None:
        for side in Side:
            for batch in table.slice(start, rows).to_batches(max_chunksize=10):
                list(run.arrive(side, batch))

    first = operator(400)
    arrive(first, 0, 300)  # more than fit
    before = first.snapshot()
    second = operator(400)
    second.restore(Manifest(before.version, json.loads(json.dumps(before.state)), before.segments))
    usages = [replace(run.usage, resident_bytes=0) for run in (first, second)]  # spare capacity of indexes varies
    assert usages[0] == usages[1]
    assert second.usage.resident_rows > 100
    quiet = []  # rows written if none were evicted in between
    for start in range(300, 360, 5):
        spilled, named = second.usage.spilled_rows, set(second.snapshot().segments)
        arrive(second, start, 5)
        new = set(second.snapshot().segments) - named
        if second.usage.spilled_rows == spilled:
            quiet.append([rows_of(tmp_path / segment) for segment in sorted(new)])
    assert quiet == [[5, 5]] * len(quiet) != []
    third = operator(100)  # with less memory
    third.restore(second.snapshot())
    assert third.usage.resident_rows <= 100
    kept = [usage.resident_rows + usage.spilled_rows for usage in (second.usage, third.usage)]
    assert kept[0] == kept[1]


def rows_of(path: Path) -> int:
    with pa.ipc.open_file(path) as reader:
        return int(reader.read_all().num_rows)


@pytest.mark.parametrize(("name", "also"), [("hmj", {}), ("rpj", {"tasks": "dd"})])
def test_arrivals_wait_for_one_merge_at_most(name: str, also: dict[str, Any]) -> None:
    tables = keyed(300, 300, 13), keyed(300, 300, 14)
    condition = parse("l.k = r.k", tables[0].schema, tables[1].schema)
    counters = Counters()
    store = BlockStore(counters=counters)
    parameters = {"partitions": 3, "fan_in": 2, "handover": "merge", **also}
    workspace = Workspace(Graph.of(condition), Budget(150, "rows", counters), store, 5, counters, parameters=parameters)
    driver = Driver(operator_class(name)(workspace), workspace)
    waited = []
    try:
        for start in range(0, 300, 5):
            for side in Side:
                merges = counters.merges
                for batch in tables[side].slice(start, 5).to_batches():
                    for _ in driver.handle(Arrival(side, batch)):
                        pass
                waited.append(counters.merges - merges)
            for _ in driver.handle(Stall(1)):
                pass
    finally:
        store.close()
    assert counters.merges > 2
    assert max(waited) <= 1


@pytest.mark.parametrize("passes", ["runs", "pages"])
def test_rpj_expects_of_a_merge_what_it_reads_and_writes(passes: str) -> None:
    """Runs of several pages are read and written in sequence; as printed, every page is charged at random."""
    tables = keyed(300, 300, 13), keyed(300, 300, 14)
    condition = parse("l.k = r.k", tables[0].schema, tables[1].schema)
    counters = Counters()
    store = BlockStore(counters=counters)
    parameters = {"partitions": 1, "fan_in": 10, "n_flush": 0.5, "passes": passes, "tasks": "dd"}
    workspace = Workspace(Graph.of(condition), Budget(75, "rows", counters), store, 5, counters, parameters=parameters)
    operator = Rpj(workspace)
    driver = Driver(operator, workspace)
    try:
        for start in range(0, 300, 5):
            for side in Side:
                for batch in tables[side].slice(start, 5).to_batches():
                    for _ in driver.handle(Arrival(side, batch)):
                        pass
        [promise] = operator.promises()
        runs = [operator._runs_of(side, 0) for side in Side]
    finally:
        store.close()
    pages = sum(run.pages for of_side in runs for run in of_side)
    assert pages >= 2 * sum(map(len, runs))
    reading = 10 * sum(map(len, runs)) + pages - sum(map(len, runs))
    assert promise.cost == ((reading + pages) * 1 if passes == "runs" else 2 * 10 * pages * 2)


@pytest.mark.parametrize("tasks", ["md", "dd"])
def test_former_names_are_accepted_with_a_warning(tasks: str) -> None:
    left, right = keyed(60, 12, 3), keyed(60, 12, 4)
    schedule = [("l", 20), ("r", 25), ("l", 15), ("stall", 5)]
    setting: dict[str, Any] = {"memory_rows": 32, "block_rows": 2, "partitions": 2, "fan_in": 2}
    with pytest.warns(FutureWarning, match=f"algorithm='rpj_{tasks}' is a former name: write algorithm='rpj', tasks="):
        former = dovetail.simulate(f"rpj_{tasks}", left, right, "l.k = r.k", schedule, **setting)
    present = dovetail.simulate("rpj", left, right, "l.k = r.k", schedule, tasks=tasks, **setting)
    assert (former.pairs, former.phases, former.counters) == (present.pairs, present.phases, present.counters)
    with pytest.warns(FutureWarning, match="write algorithm='rpj'"):
        plan = dovetail.explain(left, right, "l.k = r.k", progressive=True, algorithm=f"rpj_{tasks}", fan_in=3)
    assert (plan.operator.name, plan.parameters) == ("rpj", {"tasks": tasks, "fan_in": 3})
