"""Windows larger than memory: reads, writes, removal, snapshots and counters."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import some
from tests.seed import generator, seeded

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Side
from dovetail.errors import BudgetError, StateError
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.operators.spo.run import Run, SpilledPart
from dovetail.operators.spo.spo import Spo
from dovetail.planning.planner import plan_operator
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import random_table
from dovetail.window import Window, window

MEMORY = 100_000
INEQUALITIES = "l.x < r.x AND l.y > r.y"
ALWAYS = (INEQUALITIES, "l.k = r.k", "abs(l.x - r.x) <= 0.01 AND l.s <> r.s", "l.s < r.s AND l.k < 40", "l.k <> r.k")

HOW = ("inner", "left", "left_semi", "left_anti")


def table(seed: int, rows: int) -> pa.Table:
    rng = generator(seed)
    x = rng.random(rows)
    x[::97] = np.nan
    keys = rng.integers(0, 500, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "x": x,
            "y": np.where(np.isnan(x), 0, x) + 0.05 * rng.random(rows),
            "k": pa.array(keys, mask=keys % 11 == 0),
            "s": pa.array([f"text {key}" for key in keys], mask=keys % 13 == 0),
        }
    )


def operator(on: str, schema: pa.Schema, store: BlockStore, memory: int | None, bounds: Window, **more: Any) -> Spo:
    budget = Budget(memory, "bytes", counters := Counters())
    how, parameters = more.pop("how", "inner"), {"window": bounds, **more}
    plan = plan_operator("spo", Graph.of(parse(on, schema, schema)), how, parameters)
    return Spo(Workspace.of(plan, budget, store, 4096, counters))


def feed(spo: Spo, rows: pa.Table, first: int, last: int, step: int = 50) -> Iterator[Any]:
    """Feed the same rows to both sides in turn."""
    for start in range(first, last, step):
        for side in Side:
            for results in spo.arrive(side, rows.slice(start, step).to_batches()[0]):
                yield from numbered(results)


def numbered(results: Matches) -> Iterator[Any]:
    taken = zip(results.batches, results.rows, strict=True)
    ids = [
        [None] * results.size if rows is None else batch.column("id").take(pa.array(rows)).to_pylist()
        for batch, rows in taken
    ]
    yield from zip(*ids, strict=True)


def files(store: BlockStore) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in store.directory.iterdir()}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("how", "on"), some(list(product(HOW, ALWAYS)), 4, of=7))
def test_the_same_results_as_in_memory(on: str, how: str) -> None:
    """Through the public API, with each kind of window."""
    rows = 1500
    left, right = table(1, rows), table(2, rows)
    times = pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us"))
    windows = (
        (left, right, window(rows=1200)),
        (left, right, window(rows=700, slide=7, scope="per_stream")),
        (left.append_column("ts", times), right.append_column("ts", times), window(time="9 minutes", on="ts")),
    )
    for one, other, bounds in windows:
        found = []
        for memory in ("64KiB", "1GB"):
            recording = dovetail.Recording()
            steps = dovetail.progressive(
                one, other, on, how, algorithm="spo", window=bounds, memory=memory, record=recording
            )
            found.append(counted([step.batch.select([0, -1]) for step in steps]))
            spilled = max(told.moment.spilled_rows or 0 for told in recording.moments)
            assert (spilled > 0) == (memory == "64KiB")
        assert found[0] == found[1]
        assert found[0].num_rows


def counted(batches: list[pa.RecordBatch]) -> pa.Table:
    """The distinct rows with their counts, sorted."""
    rows = pa.Table.from_batches(batches)
    names = rows.column_names
    return rows.group_by(names).aggregate([([], "count_all")]).sort_by([(name, "ascending") for name in names])


def test_parts_whose_keys_no_probe_asks_for_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys increase with time, so only the newest parts can match."""
    rows = 20_000
    rising = pa.table({"id": np.arange(rows), "k": np.arange(rows)})
    store = BlockStore()
    loaded: list[SpilledPart] = []
    load = SpilledPart.load
    monkeypatch.setattr(SpilledPart, "load", lambda part, *more: (loaded.append(part), load(part, *more))[1])
    spo = operator("l.k = r.k", rising.schema, store, 200_000, window(rows=10**6))
    assert Counter(feed(spo, rising, 0, rows, 100)) == Counter((row, row) for row in range(rows))
    assert len(spo.runs(Side.LEFT)) > 10
    assert spo.usage.spilled_rows > rows
    assert not loaded
    low = rising.slice(100, 1).to_batches()[0]
    assert [pair for results in spo.arrive(Side.LEFT, low) for pair in numbered(results)] == [(100, 100)]
    assert len(loaded) == 1
    store.close()


@pytest.mark.parametrize("how", ["inner", "left"])
def test_parts_that_expire_are_removed_without_being_read(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(3, 3000).set_column(1, "x", pa.array(np.zeros(3000)))
    store = BlockStore()
    spo = operator("l.x = r.x AND l.id = r.id", rows.schema, store, MEMORY, window(rows=4000), how=how)
    found = list(feed(spo, rows, 0, 2000))
    assert len(found) == 2000  # each left row has one partner
    before = set(files(store))
    assert spo.usage.spilled_rows > 3000

    def fail(*_: Any) -> Run:
        raise AssertionError("read")

    monkeypatch.setattr(SpilledPart, "load", fail)
    assert not list(spo.expire(10**6, (10**6, 10**6)))
    assert before
    assert files(store).keys() <= {"lock"}
    assert spo.usage.spilled_rows == spo.usage.resident_rows == 0


def test_left_rows_without_a_partner_are_emitted_when_their_part_expires() -> None:
    rows = table(3, 3000)
    store = BlockStore()
    spo = operator("l.id = r.id + 1000000", rows.schema, store, MEMORY, window(rows=2000), how="left_anti")
    alone = [row for row, _ in feed(spo, rows, 0, 3000)]
    assert sorted(alone) == list(range(max(alone) + 1))
    assert len(alone) >= 1900
    alone += [row for results in spo.clean_up() for row, _ in numbered(results)]
    assert sorted(alone) == list(range(3000))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("how", "on"), some(list(product(HOW, ALWAYS)), 2, of=4))
def test_snapshots_name_spilled_parts_once_and_restore_with_any_memory(on: str, how: str) -> None:
    rng = seeded(f"{on}{how}")
    size, bounds = 1500, window(rows=1600)
    rows = table(5, size)
    store = BlockStore()
    whole = operator(on, rows.schema, store, None, bounds, how=how)
    expected = Counter(feed(whole, rows, 0, size))
    expected.update(row for results in whole.clean_up() for row in numbered(results))
    store.close()
    store = BlockStore()
    spo = operator(on, rows.schema, store, MEMORY, bounds, how=how)
    found: Counter[Any] = Counter()
    done = 0
    spilled: dict[str, int] = {}
    for moment in (*sorted(rng.sample(range(200, size, 50), 4)), size):
        found.update(feed(spo, rows, done, moment))
        done = moment
        kept = set(files(store))
        manifest = spo.snapshot()
        described = [run for side in manifest.state["runs"] for run in side]
        parts = {
            run["blocks"][kind]["name"]
            for run in described
            if "spilled" in run
            for kind in run["blocks"]
            if kind != "flags"
        }
        assert set(manifest.segments) <= set(files(store))
        assert parts <= kept  # a snapshot does not rewrite them
        assert all(files(store)[name] == written for name, written in spilled.items() if name in parts)
        spilled = {name: files(store)[name] for name in parts}
        state = json.loads(json.dumps(manifest.state))
        memory = rng.choice([MEMORY // 4 * 3, MEMORY, 3 * MEMORY, None])
        spo = operator(on, rows.schema, store, memory, bounds, how=how)
        spo.restore(Manifest(manifest.version, state, manifest.segments))
        assert sum(len(spo.runs(side)) > 0 for side in Side) == 2
    found.update(row for results in spo.clean_up() for row in numbered(results))
    assert found == expected
    store.close()


def test_flags_that_did_not_change_are_not_written_again() -> None:
    rows = table(6, 1000)
    store = BlockStore()
    spo = operator("l.id = r.id", rows.schema, store, MEMORY, window(rows=10**6), how="left_anti")
    Counter(feed(spo, rows, 0, 1000))
    named = set(spo.snapshot().segments)
    before = set(files(store))
    assert set(spo.snapshot().segments) == named
    assert set(files(store)) == before
    store.close()


def test_expired_parts_are_not_in_the_manifest() -> None:
    rows = table(6, 4000)
    store = BlockStore()
    spo = operator(INEQUALITIES, rows.schema, store, MEMORY, window(rows=1500))
    Counter(feed(spo, rows, 0, 2000))
    first = set(spo.snapshot().segments)
    Counter(feed(spo, rows, 2000, 4000))
    second = set(spo.snapshot().segments)
    assert not first & second
    assert second <= set(files(store))


def test_a_part_that_is_damaged_on_disk_is_refused() -> None:
    rows = table(6, 2000)
    store = BlockStore()
    spo = operator(INEQUALITIES, rows.schema, store, MEMORY, window(rows=4000))
    Counter(feed(spo, rows, 0, 1000))
    manifest = spo.snapshot()
    name = next(run["blocks"]["rows"]["name"] for run in manifest.state["runs"][0] if "spilled" in run)
    path = Path(store.directory / name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    again = operator(INEQUALITIES, rows.schema, store, MEMORY, window(rows=4000))
    again.restore(manifest)
    with pytest.raises(StateError, match="damaged"):
        list(feed(again, rows, 1000, 1100))
    store.close()


@pytest.mark.parametrize("on", [INEQUALITIES, "l.k = r.k"])
def test_what_a_run_takes_is_counted_in_full(on: str) -> None:
    rows = table(7, 1000)
    spo = operator(on, rows.schema, BlockStore(), None, window(rows=10**6))
    Counter(feed(spo, rows, 0, 1000, 500))
    for side in Side:
        for run in spo.runs(side):
            arrays: list[Any] = [run.kept.batch, run.kept.rows, *run.places, run.partnered, run.reported]
            if (part := run.kept.part) is not None:
                arrays += [*part.first, *part.second, part.second_to_first, part.first_to_second]
            assert 0.9 * run.nbytes <= sum(array.nbytes for array in arrays) <= run.nbytes


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [65_536, 90_000, 300_000])
def test_memory_is_used_and_never_exceeded(memory: int) -> None:
    """A budget raises an error as soon as it is exceeded."""
    rows = table(8, 4000)
    store, counters = BlockStore(), Counters()
    condition = parse(INEQUALITIES, rows.schema, rows.schema)
    space = Workspace(Graph.of(condition), Budget(memory, "bytes", counters), store, 4096, counters)
    spo = Spo(space)
    Counter(feed(spo, rows, 0, 4000))
    assert spo.usage.resident_bytes + spo.usage.spilled_bytes > 2 * memory
    assert 0.5 * memory < counters.peak_bytes_in_memory <= memory
    store.close()


def test_a_budget_for_less_than_the_fixed_minimum_is_refused() -> None:
    with pytest.raises(BudgetError, match="Give 65,536 bytes or more"):
        operator(INEQUALITIES, table(1, 1).schema, BlockStore(), 60_000, window(rows=10))


@pytest.mark.one_in(2)
def test_rows_of_every_type_come_back_from_disk() -> None:
    rng = random.Random(4)
    left, right = random_table(rng, 600), random_table(rng, 600)
    on = "l.k >= r.k AND l.x < r.x"
    one, other = (
        Counter(
            str(row)
            for step in dovetail.progressive(left, right, on, algorithm="spo", window=window(rows=900), memory=memory)
            for row in step.batch.to_pylist()
        )
        for memory in ("64KiB", "1GB")
    )
    assert one == other
    assert one
