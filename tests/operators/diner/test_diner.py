"""DINER: statistics, bounds and work on blocks, after every event and at every point of interruption."""

import json
import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import some
from tests.seed import seeded

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Side, Stall
from dovetail.errors import BudgetError, PlanError
from dovetail.execution.driver import Driver
from dovetail.operators.diner.diner import Diner
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget, Unit
from dovetail.storage.residence import NEVER, met_in_memory
from dovetail.storage.resident_snapshot import MOST_BLOCKS
from dovetail.testing import check_run, definition, random_schedule, random_table, simulate

VARIANTS: list[dict[str, Any]] = [
    {"reload": True},
    {"reload": True, "outer_blocks": 3},
    {"regions": 2},
    {"regions": 5},
    {"middle": "random"},
    {"counted": True},
    {"ties": "middle"},
]
CONDITIONS = (
    "l.k = r.k",
    "l.s = r.s AND l.k <= r.k",
    "l.w = r.w",
    "l.s <= r.s",
    "l.w > r.w",
    "l.x < r.x",
    "abs(l.x - r.x) < 1",
    "l.x <= r.x + 1.5 AND l.x >= r.x - 0.5",
    "abs(l.k - r.k) <= 1 AND l.s <> r.s",
    "l.t BETWEEN r.t - INTERVAL 1 SECOND AND r.t",
    "l.w BETWEEN r.w - 1 AND r.w + 2",
)
ONE = pa.table({"k": [1]})


class Lab:
    """An operator that is driven event by event, with access to its internals."""

    def __init__(self, left: pa.Table, right: pa.Table, on: str, limit: int, unit: Unit, rows: int, **parameters: Any):
        self.tables = [
            t.append_column("row", pa.array(range(t.num_rows), pa.int64())).combine_chunks() for t in (left, right)
        ]
        self.on = on
        self.taken = [0, 0]
        self.pairs: list[tuple[int, int]] = []
        self.counters = Counters()
        self.store = BlockStore(counters=self.counters)
        self.setting = (limit, unit, rows, parameters)
        self.driver = self._new()

    def _new(self) -> Driver:
        limit, unit, rows, parameters = self.setting
        condition = parse(self.on, *(t.schema for t in self.tables), in_process=True)
        budget = Budget(limit, unit, self.counters)
        workspace = Workspace(Graph.of(condition), budget, self.store, rows, self.counters, 0, parameters)
        self.operator = Diner(workspace)
        return Driver(self.operator, workspace)

    def arrive(self, side: Side, rows: int) -> None:
        start = self.taken[side]
        for batch in self.tables[side].slice(start, rows).to_batches():
            self.handle(Arrival(side, batch))
            self.taken[side] += batch.num_rows

    def handle(self, event: Event) -> None:
        for found in self.driver.handle(event):
            assert found.results.is_complete
            both = zip(found.results.batches, found.results.rows, strict=True)
            rows = [np.asarray(batch["row"])[taken] for batch, taken in both]
            self.pairs += zip(*(r.tolist() for r in rows), strict=True)

    def restart(self) -> None:
        manifest = self.operator.snapshot()
        state = json.loads(json.dumps(manifest.state))
        old = self.driver
        driver = self._new()
        self.operator.restore(Manifest(manifest.version, state, manifest.segments))
        self.driver = old.restart(self.operator, driver._workspace)

    def finish(self) -> None:
        for side in Side:
            self.arrive(side, self.tables[side].num_rows)
        for side in Side:
            self.handle(End(side))
        self.store.close()
        assert Counter(self.pairs) == Counter(definition(*self.tables, self.on))

    def check_statistics(self) -> None:
        """Check that incremental statistics equal recomputed ones."""
        operator = self.operator
        for side in Side:
            residents, regions, spilled = (
                operator._sides[side],
                operator._regions[side],
                operator._spilled.work.spilled[side],
            )
            living = np.arange(residents.rows)
            codes = residents.codes()
            rows = residents.take(living)
            assert residents.rows == len(living) == rows.num_rows
            assert codes.tolist() == operator._keys.read(side, rows).codes.tolist()
            assert regions.tups.tolist() == np.bincount(regions.region_of(codes), minlength=len(regions.tups)).tolist()
            assert (regions.tups >= 0).all()
            assert (regions.joins >= 0).all()
            if regions.bounds is not None:
                assert (regions.bounds[1:] >= regions.bounds[:-1]).all()
            for block in spilled:
                stored = operator._store.read(block.block)
                order = np.asarray(stored["__code"])
                assert (order[1:] >= order[:-1]).all()
                assert (order[0], order[-1]) == (block.block.low, block.block.high)
                arrived = np.asarray(stored["__arrived"])
                assert (arrived.min(), arrived.max()) == block.came
                assert arrived.max() < block.left
            taken = self.tables[side].slice(0, self.taken[side])
            ever = len(operator._keys.read(side, one_batch(taken, taken.schema)).codes)
            assert len(living) + sum(block.block.rows for block in spilled) == ever

    def check_rectangle(self) -> None:
        """Check that all pairs in the finished rectangle of blocks, or together in memory once, have been emitted."""
        work = self.operator._spilled.work
        stays: list[dict[int, tuple[int, int, int]]] = [{}, {}]  # row -> (arrived, left, number of its block)
        for side in Side:
            residents = self.operator._sides[side]
            living = np.arange(residents.rows)
            for row, came in zip(residents.take(living)["row"].to_pylist(), residents.arrived[living], strict=True):
                stays[side][row] = (int(came), NEVER, NEVER)
            for number, spilled in enumerate(work.spilled[side]):
                stored = self.operator._store.read(spilled.block)
                for row, came in zip(stored["row"].to_pylist(), stored["__arrived"].to_pylist(), strict=True):
                    stays[side][row] = (came, spilled.left, number)
        out = Counter(self.pairs)
        assert not out or max(out.values()) == 1
        joined = (work.rectangle.joined_left, work.rectangle.joined_right)
        for pair in definition(*(t.slice(0, n) for t, n in zip(self.tables, self.taken, strict=True)), self.on):
            (a, b, i), (c, d, j) = stays[0][pair[0]], stays[1][pair[1]]
            met = bool(met_in_memory(*(np.array([tick]) for tick in (a, b, c, d)))[0])
            if met or (i < joined[0] and j < joined[1] and work._step is None):
                assert pair in out


def numbers(rng: random.Random, rows: int, high: int = 6) -> pa.Table:
    return pa.table({"k": pa.array([rng.randrange(high) for _ in range(rows)], pa.int64())})


@pytest.mark.one_in(5)
@pytest.mark.parametrize("parameters", VARIANTS, ids=str)
def test_every_variant_is_exact(parameters: dict[str, Any]) -> None:
    rng = seeded(str(parameters))
    for case in range(2 * len(CONDITIONS)):
        left, right = random_table(rng), random_table(rng)
        schedule = random_schedule(rng, {"l": left.num_rows, "r": right.num_rows})
        block_rows = rng.choice([1, 2, 3])
        memory_rows = rng.choice([4, 5, 8]) * block_rows
        on = CONDITIONS[case % len(CONDITIONS)]
        check_run("diner", left, right, on, schedule, memory_rows=memory_rows, block_rows=block_rows, **parameters)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 1", "l.k < r.k"])
@pytest.mark.parametrize("seed", range(2))
def test_statistics_equal_those_counted_anew_after_every_event(seed: int, on: str) -> None:
    rng = seeded(seed)
    lab = Lab(numbers(rng, 40), numbers(rng, 40), on, rng.choice([12, 24]), "rows", 3, regions=rng.choice([2, 3, 3, 4]))
    while min(lab.taken) < 40:
        event = rng.random()
        if event < 0.7:
            lab.arrive(rng.choice(list(Side)), rng.choice([1, 2, 5]))
        elif event < 0.9:
            lab.handle(Stall(rng.choice([1, 2, 5])))
        else:
            lab.restart()
        lab.check_statistics()
        lab.check_rectangle()
    lab.finish()


SOME_BLOCKS = [(4, 4), (4, 1), (1, 3), (0, 2), (3, 2)]
ALL_BLOCKS = [(a, b) for a in range(5) for b in range(5)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "blocks", [*SOME_BLOCKS, *(pytest.param(b, marks=pytest.mark.slow) for b in ALL_BLOCKS)], ids=str
)
def test_every_point_of_interruption(blocks: tuple[int, int], restart: bool) -> None:
    """Up to 4 x 4 blocks: reactive work stops after any yield, continues after an arrival, and finishes."""
    rng = seeded(str(blocks))
    left, right = (numbers(rng, 2 * n + 4, 4) for n in blocks)
    for steps in range(15):
        schedule: list[tuple[Any, ...]] = [("l", 2 * blocks[0]), ("r", 2 * blocks[1]), ("stall", steps)]
        if restart:
            schedule.append(("restart",))
        schedule += [("l", 2), ("stall", steps), ("r", 2), ("stall", 3)]
        check_run("diner", left, right, "l.k = r.k", schedule, memory_rows=8, block_rows=2, outer_blocks=2)


@pytest.mark.one_in(2)
def test_all_keys_equal() -> None:
    for value, type_ in ((7, pa.int64()), (-(2**63), pa.int64()), (2**63 - 1, pa.int64()), ("", pa.string())):
        table = pa.table({"k": pa.array([value] * 24, type_)})
        for on in ("l.k = r.k", "l.k <= r.k", "l.k < r.k"):
            run = check_run("diner", table, table, on, [("stall", 3)], memory_rows=12, block_rows=3)
            assert len(run.pairs) == (0 if "< " in on else 576)


def test_edges_of_64_bits() -> None:
    edge = pa.table({"k": pa.array([-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1] * 4, pa.int64())})
    for on in ("l.k = r.k", "l.k < r.k", "l.k - r.k BETWEEN 0 AND 1", "l.k BETWEEN r.k AND r.k + 0"):
        try:
            check_run("diner", edge, edge, on, [("l", 9), ("stall", 2)], memory_rows=8, block_rows=2)
        except dovetail.DovetailError as error:
            assert "fit" in str(error)  # noqa: PT017  a difference that overflows is an error in every operator


@pytest.mark.one_in(5)
@pytest.mark.parametrize("on", ["l.s = r.s", "l.s < r.s", "l.s >= r.s AND l.k = 1"])
def test_strings_that_begin_alike(on: str) -> None:
    """A common prefix carries no information: codes use the bytes after it, and outliers stay in order."""
    rng = seeded(on)
    words = [f"customer#{rng.randrange(30):04d}" for _ in range(20)]
    outliers = ["", "a", "zz", "customer#", "customer#0001x"]
    tables = [pa.table({"s": rng.choices(words, k=35) + outliers, "k": rng.choices([0, 1], k=40)}) for _ in range(2)]
    for _ in range(3):
        schedule = random_schedule(rng, {"l": 40, "r": 40})
        check_run("diner", tables[0], tables[1], on, schedule, memory_rows=16, block_rows=2)
    lab = Lab(tables[0], tables[1], on, 16, "rows", 2)
    for _ in range(20):
        lab.arrive(Side.LEFT, 2)
        lab.arrive(Side.RIGHT, 2)
        lab.check_statistics()
    assert lab.operator._keys.learned.startswith(b"customer#")
    lab.finish()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", ["l.k = r.k", "l.s = r.s", "abs(l.k - r.k) <= 1", "l.s < r.s AND l.k = 3"])
def test_a_budget_in_bytes(on: str) -> None:
    rng = seeded(on)
    size = 700

    def table() -> pa.Table:
        keys = [rng.randrange(200) for _ in range(size)]
        texts = [f"{key % 50:03d}" + "x" * rng.choice([0, 5, 400]) for key in keys]
        return pa.table({"k": keys, "s": texts, "f": [rng.random() for _ in keys]})

    limit = 100_000
    lab = Lab(table(), table(), on, limit, "bytes", 64)
    while min(lab.taken) < size:
        lab.arrive(rng.choice(list(Side)), rng.choice([1, 30, 200]))
        if rng.random() < 0.3:
            lab.handle(Stall(rng.randrange(1, 9)))
        if rng.random() < 0.05:
            lab.restart()
        lab.check_statistics()
    assert any(lab.operator._spilled.work.spilled)
    lab.finish()
    assert lab.counters.peak_bytes_in_memory <= limit


def test_hand_over_takes_one_step_whatever_is_on_disk() -> None:
    """Between two yields of the reactive phase, one inner block and its outer blocks are read, or one is written."""
    rng = random.Random(0)
    outer_blocks = 3
    lab = Lab(numbers(rng, 600, 50), numbers(rng, 600, 50), "l.k = r.k", 100, "rows", 10, outer_blocks=outer_blocks)
    for side in list(Side) * 30:
        lab.arrive(side, 20)
    counters = lab.counters
    read = counters.pages_read_random + counters.pages_read_sequential
    written = counters.pages_written
    steps = 0
    for _ in lab.operator.react():
        steps += 1
        now_read, now_written = counters.pages_read_random + counters.pages_read_sequential, counters.pages_written
        assert now_read - read <= outer_blocks + 1
        assert now_written - written <= 1
        read, written = now_read, now_written
    assert steps > 10
    lab.store.close()


@pytest.mark.one_in(3)
def test_once_all_has_come_more_blocks_are_loaded_at_once() -> None:
    reads = []
    for ended in (False, True):
        rng = random.Random(0)
        lab = Lab(numbers(rng, 600, 50), numbers(rng, 600, 50), "l.k = r.k", 100, "rows", 10, outer_blocks=1)
        for side in list(Side) * 30:
            lab.arrive(side, 20)
        for side in Side if ended else ():
            lab.operator.end(side)
        read = lab.counters.pages_read_random + lab.counters.pages_read_sequential
        for _ in lab.operator.react():
            pass
        reads.append(lab.counters.pages_read_random + lab.counters.pages_read_sequential - read)
        assert lab.counters.peak_rows_in_memory <= 100
        lab.store.close()
    assert reads[1] < reads[0] / 2


@pytest.mark.one_in(5)
@pytest.mark.parametrize("useful", ["smallest", "middle", "largest"])
def test_values_that_give_results_stay_in_memory(useful: str) -> None:
    """A tenth of the values gives all results; the other values occur on one side only."""
    rng = random.Random(0)
    first = {"smallest": 0, "middle": 450, "largest": 900}[useful]
    shared = range(first, first + 100)
    alone = [key for key in range(1000) if key not in shared]

    def keys(parity: int) -> pa.Table:
        others = [key for key in alone if key % 2 == parity]
        return pa.table({"k": [rng.choice(shared if row % 4 == 0 else others) for row in range(2000)]})

    lab = Lab(keys(0), keys(1), "l.k = r.k", 400, "rows", 20)
    for side in list(Side) * 40:
        lab.arrive(side, 50)
    resident = np.concatenate([side.codes() for side in lab.operator._sides])
    assert np.isin(resident, shared).mean() > 0.5  # of a quarter of the arrivals
    assert len(lab.pairs) > 0.3 * len(definition(lab.tables[0], lab.tables[1], lab.on))  # with memory for a tenth
    lab.finish()


@pytest.mark.one_in(2)
def test_blocks_that_cannot_match_are_not_read() -> None:
    """With ascending values, early blocks of one side have no matches in late blocks of the other."""
    grow = pa.table({"k": pa.array(range(400), pa.int64())})
    late = pa.table({"k": pa.array(range(1000, 1400), pa.int64())})
    schedule = [("l", 400), ("r", 400), ("stall", 1000)]
    run = check_run("diner", grow, late, "l.k = r.k", schedule, memory_rows=40, block_rows=5)
    assert run.counters.pages_read_random + run.counters.pages_read_sequential == 0
    run = check_run("diner", grow, grow, "l.k = r.k", schedule, memory_rows=40, block_rows=5)
    blocks = run.counters.pages_written
    assert run.counters.pages_read_random + run.counters.pages_read_sequential < blocks * blocks / 16


def test_after_an_end_reloaded_rows_find_partners_online() -> None:
    rng = random.Random(3)
    left, right = numbers(rng, 200, 40), numbers(rng, 200, 40)
    schedule = [("l", 200), ("end", "l"), ("r", 200)]
    online = []
    for reload in (False, True):
        run = check_run("diner", left, right, "l.k = r.k", schedule, memory_rows=100, block_rows=5, reload=reload)
        online.append(run.online)
    assert online[1] > 1.3 * online[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ended", ["l", pytest.param("r", marks=pytest.mark.slow)])
def test_blocks_that_come_again_and_leave_again(ended: str) -> None:
    """Rows that arrive between two stays of a block in memory, or after the last, are joined with it on disk only."""
    rng = seeded(ended)
    left, right = numbers(rng, 150, 12), numbers(rng, 150, 12)
    arriving = "lr".replace(ended, "")
    for step, memory_rows in some(list(product((1, 3, 7), (20, 30, 60))), of=3):
        later = [event for _ in range(12) for event in ((arriving, 12), ("stall", step), (arriving, 1))]
        schedule = [(ended, 150), ("end", ended), *later]
        check_run("diner", left, right, "l.k = r.k", schedule, memory_rows=memory_rows, block_rows=5, reload=True)


def test_a_budget_that_is_too_small_is_refused() -> None:
    with pytest.raises(BudgetError, match="at least 4"):
        simulate("diner", ONE, ONE, "l.k = r.k", memory_rows=3, block_rows=1)


def test_conditions_without_an_order_are_refused() -> None:
    with pytest.raises(PlanError, match="equality, a band or an inequality"):
        simulate("diner", ONE, ONE, "l.k <> r.k")


def test_progressive_joins_of_tables() -> None:
    rng = np.random.default_rng(0)
    left = pa.table({"k": rng.integers(0, 2000, 5000), "a": ["x" * 50] * 5000})
    right = pa.table({"k": rng.integers(0, 2000, 5000), "b": ["y" * 50] * 5000})
    steps = list(dovetail.progressive(left, right, "l.k = r.k", memory="300KB", algorithm="diner"))
    assert sum(step.batch.num_rows for step in steps) == dovetail.count(left, right, "l.k = r.k")
    assert {step.phase for step in steps} >= {"arriving", "cleanup"}
    plan = dovetail.explain(left, right, "abs(l.k - r.k) < 3 AND l.a <> r.b", algorithm="diner")
    assert [line.split()[0] for line in str(plan).splitlines()].count("checked") == 1


@pytest.mark.one_in(4)
def test_a_snapshot_writes_what_is_new(tmp_path: Path) -> None:
    """Rows once, and a few bytes for each remaining row; everything again if most are gone, or in many blocks."""
    rng = np.random.default_rng(0)
    table = pa.table({"k": rng.integers(0, 50, 2400), "s": [f"{i:0100d}" for i in range(2400)]})
    condition = parse("l.k = r.k", table.schema, table.schema)

    def operator() -> Diner:
        counters = Counters()
        return Diner(Workspace(Graph.of(condition), Budget(1000, "rows", counters), BlockStore(tmp_path), 25, counters))

    run = operator()
    named: set[str] = set()
    new_bytes = []
    for start in range(0, 2400, 20):
        for side in Side:
            for batch in table.slice(start, 20).to_batches():
                list(run.arrive(side, batch))
        manifest = run.snapshot()
        kept = {name for name in manifest.segments if "kept" in name}
        new_bytes.append(sum((tmp_path / name).stat().st_size for name in kept - named))
        named = kept
        before = run.usage
        run = operator()
        run.restore(Manifest(manifest.version, json.loads(json.dumps(manifest.state)), manifest.segments))
        assert (run.usage.resident_rows, run.usage.spilled_rows) == (before.resident_rows, before.spilled_rows)
    assert run.usage.resident_rows > 900
    assert np.median(new_bytes) < 0.3 * max(new_bytes)  # the largest snapshot writes everything
    assert len(named) <= 2 * (MOST_BLOCKS + 1)
