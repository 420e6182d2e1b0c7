"""The state of a streaming join through failures of every kind, in process. The test takes the role of Spark."""

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import generator, seeded

import dovetail
from dovetail.columns.batches import no_matches
from dovetail.condition import parse
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Side
from dovetail.errors import DovetailError, StateError
from dovetail.execution.output import multi_schema, output_schema
from dovetail.operators.registry import operator_class
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.routing import one_bucket
from dovetail.routing.routers import HashRouter, hypercube
from dovetail.spark.exchange.packing import PACK_BYTES, Rewrite, from_bytes, multi_packer
from dovetail.spark.streaming import cell_state
from dovetail.spark.streaming.cell_processor import CellProcessor
from dovetail.spark.streaming.end_of_stream import LAST
from dovetail.spark.streaming.state_dir import check_layout
from dovetail.spark.streaming.stream_cell import StreamCell
from dovetail.spark.streaming.stream_join import SMALLEST_PACK, Setting, StreamJoin
from dovetail.storage.blocks import BlockStore
from dovetail.storage.resident_snapshot import MOST_BLOCKS

SCHEMAS = (
    pa.schema([("k", pa.int64()), ("a", pa.int64()), ("s", pa.string())]),
    pa.schema([("k", pa.int64()), ("b", pa.int64())]),
)
CELL = 0

Rows = tuple[pa.RecordBatch, pa.RecordBatch]
Results = Counter[tuple[int | None, int | None]]
ARROW_NAMES = {
    "inner": "inner",
    "left": "left outer",
    "right": "right outer",
    "full": "full outer",
    "left_semi": "left semi",
    "left_anti": "left anti",
}


ENDING = InputFacts("stream", on_spark=True)


class CrashError(Exception):
    """A simulated crash of an attempt."""


def stream_join(
    state_dir: Path,
    on: str = "l.k = r.k",
    algorithm: str = "auto",
    memory_bytes: int | None = None,
    how: str = "inner",
    **parameters: Any,
) -> StreamJoin:
    condition = parse(on, *SCHEMAS)
    plan = plan_join(condition, how, ENDING, algorithm=algorithm, memory_bytes=memory_bytes, parameters=parameters)
    schema = output_schema(*SCHEMAS, "_r", plan.how)
    return StreamJoin(replace(plan, cells=1), (0, 0), schema, Setting(1, state_dir, "join"), HashRouter(condition, 1))


class Handle:
    """A state store with one key: the last value, and an optional crash."""

    def __init__(self, stored: str | None, crash: bool = False) -> None:
        self.stored, self.crash = stored, crash
        self.timers: list[int] = []

    def registerTimer(self, at: int) -> None:
        self.timers.append(at)

    def deleteTimer(self, at: int) -> None:
        """Ignored: the timer of an earlier micro-batch is not kept here."""

    def get(self) -> tuple[str] | None:
        return None if self.stored is None else (self.stored,)

    def update(self, value: tuple[str]) -> None:
        if self.crash:
            raise CrashError
        (self.stored,) = value


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}
    context = SimpleNamespace(getLocalProperty=known.get, partitionId=lambda: 0)
    monkeypatch.setattr(cell_state, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr("os.fsync", lambda handle: None)  # slow, and tests do not lose power


def packed(join: StreamJoin, rows: Rows) -> list[pd.DataFrame]:
    """A micro-batch of rows as passed to the stateful operator."""
    frames = []
    for side in Side:
        pack = join.packer(side)
        frames += [batch.to_pandas().drop(columns="cell") for batch in pack(iter([rows[side]]))]
    return frames


def attempt(join: StreamJoin, stored: str | None, rows: Rows, crash: int | None = None) -> tuple[str, Results]:
    """Attempt a micro-batch. Returns the new manifest and the results. `crash` is the number of the step that fails."""
    frames = packed(join, rows)
    handle = Handle(stored, crash == len(frames) + 1)

    def arriving() -> Iterator[pd.DataFrame]:
        for step, frame in enumerate(frames):
            if step == crash:
                raise CrashError
            yield frame

    processor = CellProcessor(join)
    processor.start(handle, handle)  # type: ignore[arg-type]
    results: Results = Counter()
    for step, frame in enumerate(processor.handleInputRows((CELL,), arriving(), None), start=len(frames)):  # type: ignore[arg-type]
        results += pairs(frame)
        if step == crash:
            raise CrashError
    processor.close()
    assert handle.stored is not None
    return handle.stored, results


def pairs(frame: pd.DataFrame) -> Results:
    if frame["payload"][0] is None:
        return Counter()
    batch = from_bytes(frame["payload"][0])
    rights = batch["b"].to_pylist() if "b" in batch.schema.names else [None] * batch.num_rows
    return Counter(zip(batch["a"].to_pylist(), rights, strict=True))


class Source:
    """Rows with few keys, and with row numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)  # thresholds of tests below depend on it
        self.tables: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])

    def next(self) -> Rows:
        batches = []
        for side in Side:
            rows = int(self.rng.integers(0, 30))
            first = sum(batch.num_rows for batch in self.tables[side])
            columns = {
                "k": pa.array(self.rng.integers(0, 12, rows), mask=self.rng.random(rows) < 0.1),
                "ab"[side]: pa.array(np.arange(first, first + rows)),
            }
            if side is Side.LEFT:
                columns["s"] = pa.array(["x" * int(n) for n in self.rng.integers(0, 9, rows)], pa.string())
            batches.append(pa.record_batch(columns, SCHEMAS[side]))
            self.tables[side].append(batches[side])
        return batches[0], batches[1]

    def joined(self, how: str = "inner") -> Results:
        left, right = (pa.Table.from_batches(batches) for batches in self.tables)
        both = left.join(right, "k", join_type=ARROW_NAMES[how])
        rights = both["b"].to_pylist() if "b" in both.column_names else [None] * both.num_rows
        return Counter(zip(both["a"].to_pylist(), rights, strict=True))


def segments(state_dir: Path) -> set[str]:
    return {path.name for path in cell_directory(state_dir).iterdir()}


def cell_directory(state_dir: Path) -> Path:
    return state_dir / "query" / "join" / f"cell-{CELL}"


@pytest.mark.parametrize("seed", range(repeat(10)))
def test_every_result_once_whatever_happens_to_attempts(tmp_path: Path, seed: int) -> None:
    """Attempts crash anywhere; some micro-batches are computed twice, and the sink may keep the results of one attempt
    while the state continues from another: both began with the same state."""
    rng = seeded(seed)
    join, source = stream_join(tmp_path), Source(seed)
    stored: str | None = None
    history: list[set[str]] = []  # the segments named in each committed manifest
    found: Results = Counter()
    for _ in range(30):
        rows = source.next()
        if not any(batch.num_rows for batch in rows):
            continue
        done = []
        while not done or rng.random() < 0.3:
            try:
                done.append(attempt(join, stored, rows, rng.choice([None, 0, 1, 2, 3, 4])))
            except CrashError:
                continue
        stored = rng.choice(done)[0]
        found += rng.choice(done)[1]
        history.append(set(json.loads(stored)["segments"]))
        # The sweep used the two previous manifests, and kept segments that could belong to another attempt.
        young = {name for name in segments(tmp_path) if int(name.partition("-")[0]) >= len(history) - 1}
        assert history[-1] <= segments(tmp_path) <= set.union(young, *history[-3:])
    assert found == source.joined()


def test_a_retry_from_the_manifest_of_another_attempt(tmp_path: Path) -> None:
    """Two attempts at one micro-batch succeed; the next starts from the first, fails, and restarts from the other."""
    join, source = stream_join(tmp_path), Source(0)
    start, found = attempt(join, None, source.next())
    rows = source.next()
    one, results = attempt(join, start, rows)
    other, _ = attempt(join, start, rows)
    rows = source.next()
    attempt(join, one, rows)
    _, more = attempt(join, other, rows)
    assert found + results + more == source.joined()


def test_a_step_back(tmp_path: Path) -> None:
    """A power failure can lose the last commit: the previous micro-batch is computed again."""
    join, source = stream_join(tmp_path), Source(0)
    manifests: list[str | None] = [None]
    batches = [source.next() for _ in range(12)]  # enough for runs to be merged
    results = []
    for rows in batches:
        stored, found = attempt(join, manifests[-1], rows)
        manifests.append(stored)
        results.append(found)
        if len(results) > 1:
            assert attempt(join, manifests[-3], batches[len(results) - 2])[1] == results[-2]


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    join, source = stream_join(tmp_path), Source(0)
    stored = None
    most = 0
    for _ in range(100):
        stored, _ = attempt(join, stored, source.next())
        most = max(most, len(segments(tmp_path)))
    assert most <= 2 * 2 * 3 * 8  # two sides, two generations, runs of three sizes, eight of each


def test_figures_of_what_a_cell_holds(tmp_path: Path) -> None:
    join, source = stream_join(tmp_path), Source(0)
    handle = Handle(None)
    for _ in range(20):
        rows = source.next()
        processor = CellProcessor(join)
        processor.start(handle, handle)  # type: ignore[arg-type]
        *_, told = processor.handleInputRows((CELL,), iter(packed(join, rows)), None)  # type: ignore[arg-type]
        assert handle.stored is not None
        figures = {name: told[name][0] for name in told.columns}
        named = json.loads(handle.stored)["segments"]
        assert figures["state_bytes"] == sum((cell_directory(tmp_path) / name).stat().st_size for name in named)
        keys = sum(batch.num_rows - batch["k"].null_count for side in source.tables for batch in side)
        assert figures["resident_rows"] + figures["spilled_rows"] == keys == figures["largest_cell_rows"]
        assert figures["cells"] == 1


# Operators that defer work.

PROGRESSIVE = ("adaptive", "diner", "diner_merge", "hmj", "nested_loop", "pmj", "rpj", "xjoin")
MEMORY_BYTES = 1 << 18


class Clock:
    def getCurrentProcessingTimeInMs(self) -> int:
        return 0


class Cell:
    """A cell of a join whose micro-batches sometimes fail and are repeated, possibly keeping another outcome."""

    def __init__(self, join: StreamJoin, rng: random.Random) -> None:
        self.join, self.rng = join, rng
        self.stored: str | None = None
        self.has_timer = False
        self.found: Results = Counter()
        self.history: dict[int, set[str]] = {}  # the segments named in the manifest of each version

    def run(self, frames: list[pd.DataFrame] | None) -> None:
        """Run a micro-batch with these rows; None: a timer expires."""
        while True:
            handle = Handle(self.stored)
            processor = CellProcessor(self.join)
            processor.start(handle, handle)  # type: ignore[arg-type]
            if frames is None:
                steps = processor.handleExpiredTimer((CELL,), Clock(), None)  # type: ignore[arg-type]
            else:
                steps = processor.handleInputRows((CELL,), iter(frames), Clock())  # type: ignore[arg-type]
            found: Results = Counter()
            for frame in steps:
                found += pairs(frame)
                if self.rng.random() < 0.1:
                    break
            else:
                assert handle.stored is not None
                self.stored, self.has_timer = handle.stored, bool(handle.timers)
                manifest = json.loads(handle.stored)
                self.history[manifest["version"]] = set(manifest["segments"])
                self.found += found
                return


def in_pieces(packs: list[Rewrite], tables: list[pa.Table], rng: random.Random) -> list[pd.DataFrame]:
    """Rows of each input, from several partitions, whose blocks arrive in any order."""
    frames = []
    for pack, table in zip(packs, tables, strict=True):
        for partition, start in enumerate(range(0, table.num_rows, 150)):
            for batch in pack(iter(table.slice(start, 150).combine_chunks().to_batches())):
                frame = batch.to_pandas().drop(columns="cell")
                frames.append(frame.assign(seq=frame["seq"] + (partition << 40)))
    rng.shuffle(frames)
    return frames


THREE = "x.k = y.k AND y.k = z.k"


@pytest.mark.parametrize(
    ("algorithm", "on", "how"),
    [
        *((name, "l.k = r.k", "inner") for name in PROGRESSIVE),
        *((name, "l.k BETWEEN r.k AND r.k + 2", "inner") for name in ("diner", "hmj", "pmj", "rpj")),
        *(("pmj", "l.k = r.k", how) for how in ("left", "full", "left_anti")),
        *((name, THREE, "inner") for name in ("miner", "mjoin", "pmj")),
    ],
)
@pytest.mark.parametrize("seed", range(repeat(1)))
def test_attempts_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, on: str, how: str, seed: int
) -> None:
    """If an executor is lost, a task may complete twice: the sink keeps the rows of one attempt, and the checkpoint the
    state of the other. So both do the same work, although blocks arrive in another order and one machine is slower.
    Attempts at the next micro-batch may start from either state: an executor has its own in memory."""
    rng, keys = seeded(f"{algorithm}{on}{how}{seed}"), generator(seed)
    schemas = [pa.schema([("k", pa.int64()), (name, pa.int64()), ("s", pa.string())]) for name in "xyz"]
    aliases = "xyz" if on == THREE else "lr"
    schemas = schemas[: len(aliases)]
    graph = parse_graph(on, dict(zip(aliases, schemas, strict=True)))
    setting, packs, router = Setting(1, str(tmp_path), "join"), [], None
    if on == THREE:
        router = hypercube(graph, dict.fromkeys(aliases, 1), 1)
        packs = [multi_packer(router, number) for number in range(3)]
        plan, schema = plan_join(graph, algorithm=algorithm, memory_bytes=1 << 17), multi_schema(graph.schemas)
        join = StreamJoin(plan, (), schema, setting, router)
    else:
        condition = parse(on, *schemas)
        plan = plan_join(condition, how, ENDING, algorithm=algorithm, memory_bytes=1 << 17)
        schema = output_schema(*schemas, "_r", plan.how)
        one_cell = HashRouter(condition, 1) if condition.equalities else one_bucket(condition, 1, (1, 1), None)[0]
        join = StreamJoin(replace(plan, cells=1), (0, 0), schema, setting, one_cell)
        packs = [join.packer(side) for side in Side]
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += rng.expovariate(1.0) ** 4
        return now

    monkeypatch.setattr("dovetail.spark.streaming.stream_cell.time", SimpleNamespace(time=clock))
    states: list[str | None] = [None, None]
    found: Counter[str] = Counter()
    reactive = 0

    def micro_batch(frames: Callable[[], list[pd.DataFrame] | None]) -> bool:
        """Whether a timer is set, so that there may be work left."""
        nonlocal states, found, reactive
        kept: list[tuple[Counter[str], Handle]] = []
        for stored in states:
            handle = Handle(stored)
            processor = CellProcessor(join)
            processor.start(handle, handle)  # type: ignore[arg-type]
            arriving = frames()
            if arriving is None:
                steps = processor.handleExpiredTimer((CELL,), Clock(), None)  # type: ignore[arg-type]
            else:
                steps = processor.handleInputRows((CELL,), iter(arriving), Clock())  # type: ignore[arg-type]
            rows: Counter[str] = Counter()
            for frame in steps:
                if frame["payload"][0] is not None:
                    rows.update(map(repr, from_bytes(frame["payload"][0]).to_pylist()))
                reactive += int(frame["reactive"][0] or 0)
            kept.append((rows, handle))
        assert kept[0][0] == kept[1][0]
        (rows, _), (_, handle) = rng.sample(kept, 2)
        found += rows
        twice = states[0] == states[1]  # executors are not lost in every micro-batch
        states = [other.stored if twice else handle.stored for _, other in kept]
        return bool(handle.timers)

    tables: list[list[pa.Table]] = [[] for _ in schemas]
    for _ in range(6):
        arrived = []
        for number, of in enumerate(schemas):
            rows = int(keys.integers(300, 900))
            columns = {"k": keys.integers(0, 900, rows), of.names[1]: np.arange(rows), "s": ["some text"] * rows}
            arrived.append(pa.table(columns, of))
            tables[number].append(arrived[-1])
        is_timed = micro_batch(lambda arrived=arrived: in_pieces(packs, arrived, rng))  # type: ignore[misc]
        for _ in range(rng.randint(0, 2)):
            is_timed = is_timed and micro_batch(lambda: None)
    count = len(schemas)
    end = pd.DataFrame({"side": [*range(count)], "seq": [LAST] * count, "payload": [None] * count})
    is_timed = micro_batch(lambda: [end])
    while is_timed:
        is_timed = micro_batch(lambda: None)
    whole = {alias: pa.concat_tables(tables[number]) for number, alias in enumerate(aliases)}
    if on == THREE:
        expected = dovetail.multijoin(whole, on).to_pylist()
    else:
        expected = dovetail.join(whole["l"], whole["r"], on, how, suffixes=("", "_r")).to_pylist()
    assert found == Counter(map(repr, expected))
    if algorithm != "nested_loop":
        assert reactive


@pytest.mark.one_in(2)
@pytest.mark.parametrize("algorithm", PROGRESSIVE)
@pytest.mark.parametrize("seed", range(repeat(3)))
def test_progressive_operators_between_micro_batches(tmp_path: Path, algorithm: str, seed: int) -> None:
    """Rows arrive, pause, and end; despite any failures, every pair is emitted once, and no work is left."""
    rng = seeded(f"{algorithm}{seed}")
    join, source = stream_join(tmp_path, algorithm=algorithm, memory_bytes=MEMORY_BYTES), Source(seed)
    cell = Cell(join, rng)
    for _ in range(12):
        cell.run(packed(join, source.next()))
        for _ in range(rng.randint(0, 2)):
            if cell.has_timer:
                cell.run(None)
    end = pd.DataFrame({"side": [0, 1], "seq": [0, 0], "payload": [None, None]})
    cell.run([end])
    while cell.has_timer:
        cell.run(None)
    assert cell.found == source.joined()
    assert cell.stored is not None
    notes = json.loads(cell.stored)["notes"]
    assert notes["ended"] == [True, True]
    assert notes["finished"]
    last = max(cell.history)
    old = {name for name in segments(tmp_path) if int(name.partition("-")[0]) < last - 1}
    assert old <= set.union(*(cell.history[version] for version in (last - 2, last - 1, last)))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("algorithm", [name for name in PROGRESSIVE if name != "nested_loop"])
def test_the_number_of_segments_is_bounded(tmp_path: Path, algorithm: str) -> None:
    """If rows fit in memory, snapshots write only new rows, and all rows again when there are many segments."""
    join, source = stream_join(tmp_path, algorithm=algorithm, memory_bytes=1 << 20), Source(0)
    cell = Cell(join, random.Random(0))
    for _ in range(80):
        cell.run(packed(join, source.next()))
    assert max(map(len, cell.history.values())) <= 2 * (MOST_BLOCKS + 2)  # two sides, and their marks


@pytest.mark.parametrize("how", [how for how in ARROW_NAMES if how != "inner"])
def test_join_types_between_micro_batches(tmp_path: Path, how: str) -> None:
    """Rows with a null key are also results if the join type requires it; none is emitted too early."""
    rng = seeded(how)
    join, source = stream_join(tmp_path, memory_bytes=MEMORY_BYTES, how=how, algorithm="pmj", fan_in=4), Source(3)
    cell = Cell(join, rng)
    for _ in range(8):
        cell.run(packed(join, source.next()))
        if cell.has_timer and rng.random() < 0.5:
            cell.run(None)
    assert how in ("left_semi", "left_anti") or not any(None in pair for pair in cell.found)
    cell.run([pd.DataFrame({"side": [0, 1], "seq": [0, 0], "payload": [None, None]})])
    while cell.has_timer:
        cell.run(None)
    assert cell.found == source.joined(how)


def test_parameters_reach_the_operator_and_are_part_of_the_layout(tmp_path: Path) -> None:
    join = stream_join(tmp_path, algorithm="xjoin", memory_bytes=MEMORY_BYTES, partitions=3, n_flush=0.25)
    operator: Any = join.plan.make_operator(join.workspace(BlockStore(tmp_path / "blocks"), Counters()))
    assert (operator._parameters.partitions, operator._parameters.n_flush) == (3, 0.25)
    check_layout(tmp_path, join.layout)
    others = {
        "parameters was": replace(join.plan, parameters={"partitions": 3}),
        "how was None and is now 'left'": replace(join.plan, how=JoinType.LEFT),
    }
    for message, plan in others.items():
        with pytest.raises(StateError, match=message):
            check_layout(tmp_path, replace(join, plan=plan).layout)


@pytest.mark.parametrize("algorithm", ["spo", *PROGRESSIVE])
def test_what_spills_keeps_to_its_memory(tmp_path: Path, algorithm: str) -> None:
    join = stream_join(tmp_path, algorithm=algorithm, memory_bytes=1 << 20)
    assert join.keeps_to_memory
    assert join.pack_bytes == SMALLEST_PACK
    assert not stream_join(tmp_path, algorithm=algorithm).keeps_to_memory


def test_what_does_not_spill_is_not_told_to(tmp_path: Path) -> None:
    join = stream_join(tmp_path, algorithm="shj", memory_bytes=1 << 20)
    assert not join.keeps_to_memory
    assert join.pack_bytes == PACK_BYTES


@pytest.mark.parametrize(
    ("algorithm", "parameters", "message"),
    [
        ("diner", {"regoins": 5}, "not a parameter of algorithm='diner'"),
        ("diner", {"regions": "5"}, "regions must be an integer"),
        ("xjoin", {"shed": True}, "lost results would not be counted"),
        ("auto", {"fan_in": 4}, "fan_in"),
    ],
)
def test_wrong_parameters(tmp_path: Path, algorithm: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(DovetailError, match=message):
        stream_join(tmp_path, algorithm=algorithm, memory_bytes=MEMORY_BYTES, **parameters)


def test_cells_work_after_arrivals(tmp_path: Path) -> None:
    """Work that fits in the time before the next micro-batch is done, and counted as background work."""
    join, source = stream_join(tmp_path, algorithm="pmj", memory_bytes=MEMORY_BYTES), Source(2)
    handle = Handle(None)
    processor = CellProcessor(join)
    processor.start(handle, handle)  # type: ignore[arg-type]
    rows = packed(join, source.next())
    while not source.joined():
        rows += packed(join, source.next())
    frames = list(processor.handleInputRows((CELL,), iter(rows), Clock()))  # type: ignore[arg-type]
    found: Results = sum((pairs(frame) for frame in frames), Counter())
    assert found == source.joined() != Counter()
    assert sum(int(frame["reactive"][0] or 0) for frame in frames) == found.total()


def test_work_makes_way_for_arrivals_only_while_some_can_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = no_matches(SCHEMAS)

    def found(ended: list[bool], price_s: float = 0.0) -> tuple[int, bool]:
        """The number of units of work done, of four that are pending and one to clean up. One takes a second."""
        join = stream_join(tmp_path, algorithm="diner", memory_bytes=1 << 20)
        cell = StreamCell(join, {"ended": ended, "pace": {"price_s": price_s, "units": 1, "reacting_s": 1.0}})
        operator = cell.open(BlockStore(tmp_path))
        units: list[int] = []

        def work(count: int) -> Iterator[Matches]:
            for _ in range(count):
                units.append(1)
                yield unit

        monkeypatch.setattr(operator, "react", lambda: work(4))
        monkeypatch.setattr(operator, "clean_up", lambda: work(1))
        for _ in cell.run(None, 0):
            pass
        return len(units), cell.is_over

    assert found([True, False]) == (1, False)
    assert found([True, False], price_s=1000.0) == (4, False)
    assert found([True, True]) == (5, True)


@pytest.mark.parametrize("memory_bytes", [1 << 16, MEMORY_BYTES])
def test_what_is_available_is_all(tmp_path: Path, memory_bytes: int) -> None:
    """Also with the smallest memory that a plan accepts."""
    join = stream_join(tmp_path, algorithm="diner", memory_bytes=memory_bytes)
    join = replace(join, setting=replace(join.setting, ends_when_idle=True))
    source = Source(5)
    cell = Cell(join, seeded(0))
    for _ in range(5):
        cell.run(packed(join, source.next()))
    while cell.has_timer:
        cell.run(None)
    assert cell.found == source.joined()


@pytest.mark.parametrize(
    ("algorithm", "on"), [("miner", "x.k = y.k AND y.m = z.m"), ("mjoin", "x.k = y.k AND y.k = z.m")]
)
@pytest.mark.parametrize("seed", range(repeat(3)))
def test_several_streams_between_micro_batches(tmp_path: Path, algorithm: str, on: str, seed: int) -> None:
    """Three inputs with little memory; micro-batches fail and are repeated."""
    rng = seeded(f"{algorithm}{seed}")
    keys = generator(seed)
    tables = {
        "x": pa.table({"k": keys.integers(0, 30, 150), "a": np.arange(150)}),
        "y": pa.table({"k": keys.integers(0, 30, 120), "m": keys.integers(0, 20, 120)}),
        "z": pa.table({"m": keys.integers(0, 20, 100), "b": np.arange(100)}),
    }
    graph = parse_graph(on, {alias: table.schema for alias, table in tables.items()})
    router = hypercube(graph, dict.fromkeys(tables, 1), 1)
    plan = plan_join(graph, algorithm=algorithm, memory_bytes=1 << 17)
    join = StreamJoin(plan, (), multi_schema(graph.schemas), Setting(1, str(tmp_path), "join"), router)
    cell = Cell(join, rng)
    done = dict.fromkeys(tables, 0)
    while any(done[alias] < table.num_rows for alias, table in tables.items()):
        frames = []
        for number, (alias, table) in enumerate(tables.items()):
            rows = table.slice(done[alias], rng.choice([0, 7, 30]))
            done[alias] += rows.num_rows
            pack = multi_packer(router, number)
            frames += [b.to_pandas().drop(columns="cell") for b in pack(iter(rows.to_batches()))]
        if frames:
            cell.run(frames)
        if cell.has_timer and rng.random() < 0.4:
            cell.run(None)
    cell.run([pd.DataFrame({"side": [0, 1, 2], "seq": [0] * 3, "payload": [None] * 3})])
    while cell.has_timer:
        cell.run(None)
    joined = dovetail.multijoin(tables, on)
    assert cell.found == Counter(zip(joined["a"].to_pylist(), joined["b"].to_pylist(), strict=True))


class Undisturbed(random.Random):
    """A random source with which no attempt fails."""

    def random(self) -> float:
        return 1.0


@pytest.mark.parametrize("algorithm", ["miner", "mjoin"])
def test_nothing_is_left_of_an_operator(tmp_path: Path, algorithm: str) -> None:
    """Its parts refer to each other, but the next cell of the task needs the memory."""
    rows = {x: pa.record_batch({"k": np.arange(10), of: np.arange(10)}) for x, of in zip("xyz", "amb", strict=True)}
    graph = parse_graph("x.k = y.k AND y.k = z.k", {alias: batch.schema for alias, batch in rows.items()})
    router = hypercube(graph, dict.fromkeys(rows, 1), 1)
    plan = plan_join(graph, algorithm=algorithm, memory_bytes=1 << 17)
    join = StreamJoin(plan, (), multi_schema(graph.schemas), Setting(1, str(tmp_path), "join"), router)
    frames = []
    for number, batch in enumerate(rows.values()):
        frames += [b.to_pandas().drop(columns="cell") for b in multi_packer(router, number)(iter([batch]))]
    gc.collect()
    gc.disable()
    try:
        Cell(join, Undisturbed()).run(frames)
        assert not [found for found in gc.get_objects() if type(found) is operator_class(algorithm, 3)]
    finally:
        gc.enable()


# Wrong or damaged state.


@pytest.fixture
def started(tmp_path: Path) -> tuple[Path, str]:
    stored, _ = attempt(stream_join(tmp_path), None, Source(0).next())
    return tmp_path, stored


def fails(state_dir: Path, stored: str, join: StreamJoin | None = None) -> str:
    with pytest.raises(StateError) as failure:
        attempt(join or stream_join(state_dir), stored, Source(1).next())
    return str(failure.value)


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("harm", "message"), [(lose, "is missing"), (cut, "is damaged"), (spoil, "is damaged")])
def test_harmed_segments(started: tuple[Path, str], harm: Callable[[Path], None], message: str) -> None:
    state_dir, stored = started
    for path in state_dir.rglob("*.arrow"):
        harm(path)
    assert f".arrow {message}" in fails(state_dir, stored)


def test_lost_directory(started: tuple[Path, str]) -> None:
    state_dir, stored = started
    (state_dir / "query").rename(state_dir / "elsewhere")
    assert "is missing" in fails(state_dir, stored)


def test_damaged_layout(started: tuple[Path, str]) -> None:
    state_dir, stored = started
    cut(state_dir / "query" / "join" / "layout.json")
    assert "layout.json is damaged" in fails(state_dir, stored)


def changed(state_dir: Path) -> dict[str, StreamJoin]:
    join = stream_join(state_dir)
    renamed = (SCHEMAS[0].set(1, pa.field("c", pa.int64())), SCHEMAS[1])
    other_columns = replace(join.plan, graph=Graph.of(parse("l.k = r.k", *renamed)))
    return {
        "condition was 'l.k = r.k' and is now 'l.k = r.b'": stream_join(state_dir, "l.k = r.b"),
        "cells was 1 and is now 2": replace(join, router=HashRouter(join.plan.condition, 2)),
        "partitions was 1 and is now 2": replace(join, setting=replace(join.setting, partitions=2)),
        "columns was": replace(join, plan=other_columns),
    }


@pytest.mark.parametrize("message", changed(Path()))
def test_another_join_than_before(started: tuple[Path, str], message: str) -> None:
    state_dir, stored = started
    why = fails(state_dir, stored, changed(state_dir)[message])
    assert "was made by another join" in why
    assert message in why


def without_layout(state_dir: Path) -> None:
    (state_dir / "query" / "join" / "layout.json").unlink()


@pytest.mark.parametrize("message", [None, *changed(Path())])
def test_state_without_a_layout(started: tuple[Path, str], message: str | None) -> None:
    """The state cannot be interpreted, not even by a cell that has none yet, so nothing is written."""
    state_dir, stored = started
    without_layout(state_dir)
    join = stream_join(state_dir) if message is None else changed(state_dir)[message]
    for known in (stored, None):
        with pytest.raises(StateError, match=r"layout\.json is missing.* state_dir"):
            attempt(join, known, Source(1).next())
    assert not (state_dir / "query" / "join" / "layout.json").exists()


@pytest.mark.parametrize("message", changed(Path()))
def test_state_with_the_layout_of_another_join(started: tuple[Path, str], message: str) -> None:
    """The manifest in the checkpoint records which join created it."""
    state_dir, stored = started
    without_layout(state_dir)
    join = changed(state_dir)[message]
    (state_dir / "query" / "join" / "layout.json").write_text(json.dumps(join.layout))
    assert "the manifest of cell 0 in the checkpoint belongs to another join" in fails(state_dir, stored, join)


def test_a_manifest_without_its_state_directory(started: tuple[Path, str], tmp_path: Path) -> None:
    _, stored = started
    assert "layout.json is missing" in fails(tmp_path / "other", stored)


def test_a_manifest_of_a_release_that_did_not_note_the_layout(started: tuple[Path, str]) -> None:
    """It is restored if layout.json exists, and records the layout from then on."""
    state_dir, stored = started
    document = json.loads(stored)
    old = json.dumps({name: value for name, value in document.items() if name != "layout"})
    again, _ = attempt(stream_join(state_dir), old, Source(1).next())
    assert json.loads(again)["layout"] == document["layout"]
    without_layout(state_dir)
    assert "layout.json is missing" in fails(state_dir, old)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("algorithm", [*PROGRESSIVE, "shj", "spo"])
def test_a_flipped_bit_of_a_running_query(tmp_path: Path, algorithm: str) -> None:
    """This process wrote the segments, and has read most of them before. It verifies them whenever it reads them."""
    memory_bytes = None if algorithm == "shj" else MEMORY_BYTES
    join, source = stream_join(tmp_path, algorithm=algorithm, memory_bytes=memory_bytes), Source(4)
    cell = Cell(join, Undisturbed())
    for _ in range(6):
        cell.run(packed(join, source.next()))
    stored, rows = cell.stored, packed(join, source.next())
    assert stored is not None
    found: list[Results] = []
    complaints: list[tuple[str | None, str]] = []
    names = json.loads(stored)["segments"]
    for name in [None, *names]:
        cell.stored, cell.found = stored, Counter()
        whole = b""
        if name is not None:
            path = cell_directory(tmp_path) / name
            whole = path.read_bytes()
            spoil(path)
        try:
            cell.run(rows)
            found.append(cell.found)
        except StateError as error:
            complaints.append((name, str(error)))
        if name is not None:
            path.write_bytes(whole)
    assert all(f"{name} is damaged" in message for name, message in complaints)
    assert all(results == found[0] for results in found)
    assert 2 * len(found) < len(names)  # the other segments are not needed in this micro-batch
