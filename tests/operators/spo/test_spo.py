"""SPO-Join against a per-row oracle: windows, join types, restarts, late rows."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import some
from tests.seed import seeded

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Side
from dovetail.matching.sorted_part import PartBuilder
from dovetail.operators.protocol import Workspace
from dovetail.operators.spo.spo import Spo
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import definition, random_schedule, random_table, simulate
from dovetail.window import Window, window

CONDITIONS = (
    "l.x < r.x AND l.k > r.k",
    "l.x <= r.x AND l.k >= r.k AND l.n <> r.n",
    "l.x < r.x",
    "l.k = r.k AND l.x < r.x",
    "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) < 2",
    "l.s < r.s AND l.t >= r.t",
    "l.k != r.k",
    "l.k < r.n AND r.n <= l.n",
    "l.s <= r.s AND l.x < r.x AND l.k > r.k AND l.n >= r.n",
    "l.x <= r.x AND l.k >= r.k AND l.n <= r.n AND l.t >= r.t AND l.k <= r.n AND l.s <> r.s",
)


HOW = ("inner", "left", "left_semi", "left_anti")


def little_memory(rng: random.Random) -> dict[str, Any]:
    """A budget that is mostly smaller than the window, with blocks of few rows."""
    block_rows = rng.choice([1, 2, 3])
    return {"block_rows": block_rows, "memory_rows": block_rows * rng.choice([4, 5, 8])}


class Spilled:
    """The largest number of rows on disk after any event."""

    rows = 0

    def __call__(self, operator: Any) -> None:
        self.rows = max(self.rows, operator.usage.spilled_rows)


def arrivals(schedule: list[tuple[Any, ...]], rows: tuple[int, int]) -> list[tuple[int, int]]:
    """(side, row) in the order of arrival according to the schedule."""
    order: list[tuple[int, int]] = []
    done = [0, 0]

    def take(side: int, count: int) -> None:
        count = min(count, rows[side] - done[side])
        order.extend((side, done[side] + i) for i in range(count))
        done[side] += count

    for entry in schedule:
        if entry[0] in ("l", "r"):
            take("lr".index(entry[0]), entry[1])
        elif entry[0] == "end":
            take("lr".index(entry[1]), 10**9)
    while done != list(rows):
        take(0, 1)
        take(1, 1)
    return order


def in_window(window: Window, order: list[tuple[int, int]], left: int, right: int) -> bool:
    """By definition: both rows are in the window when the later one arrives."""
    positions = order.index((0, left)), order.index((1, right))
    later = max(positions)
    seen = order[: later + 1]
    if window.scope == "combined":
        return min(positions) > later - window.size
    return all(row in [r for s, r in seen if s == side][-window.size :] for side, row in ((0, left), (1, right)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("on", "scope", "how", "fits"),
    some(list(product(CONDITIONS, ["combined", "per_stream"], HOW, [True, False])), 0, of=11),
)
def test_windows_of_rows(on: str, scope: Any, how: str, fits: bool) -> None:
    rng = seeded(f"{on}{scope}{how}")
    spilled = Spilled()
    for _ in range(6):
        left, right = (random_table(rng, None if fits else rng.choice([14, 20])) for _ in Side)
        schedule = random_schedule(rng, {"l": left.num_rows, "r": right.num_rows})
        size = rng.choice([1, 2, 5, 9, 100] if fits else [9, 16, 30, 100])
        bounds = window(rows=size, slide=rng.randint(1, size), scope=scope)
        memory = {"block_rows": rng.choice([1, 3, 50])} if fits else little_memory(rng)
        run = simulate("spo", left, right, on, schedule, window=bounds, how=how, watch=spilled, **memory)
        assert fits or run.counters.peak_rows_in_memory <= memory["memory_rows"]
        order = arrivals(schedule, (left.num_rows, right.num_rows))
        pairs = [pair for pair in definition(left, right, on) if in_window(bounds, order, *pair)]
        partnered = {pair[0] for pair in pairs}
        assert Counter(run.pairs) == Counter(pairs if how in ("inner", "left") else [])
        wanted = {"inner": set(), "left_semi": partnered}.get(how, set(range(left.num_rows)) - partnered)
        assert Counter(run.alone) == Counter((Side.LEFT, row) for row in wanted)
    assert (spilled.rows == 0) == fits


def timed(rng: random.Random, rows: int) -> pa.Table:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=rng.randint(0, 12) + 2 * i) for i in range(rows)]
    return random_table(rng, rows).append_column("ts", pa.array(times, pa.timestamp("us", "UTC")))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("on", "how", "fits"), some(list(product(CONDITIONS[:5], HOW, [True, False])), 0, of=7))
def test_windows_of_time(on: str, how: str, fits: bool) -> None:
    rng = seeded(f"{on}{how}")
    spilled = Spilled()
    for _ in range(8):
        left, right = timed(rng, 14), timed(rng, 12)
        schedule: list[tuple[Any, ...]] = []
        delay = rng.choice([0, 3, 20]) * 1_000_000
        horizon, late = 0, [set(), set()]  # type: ignore[var-annotated]
        done = [0, 0]
        newest = 0
        while done != [14, 12]:
            side = rng.randrange(2)
            table = (left, right)[side]
            times = [int(t.timestamp() * 1_000_000) for t in table["ts"].to_pylist()]
            for row in range(done[side], min(done[side] + 3, table.num_rows)):
                newest = max(newest, times[row])
                if times[row] < horizon:
                    late[side].add(row)
            schedule.append(("lr"[side], 3))
            done[side] = min(done[side] + 3, table.num_rows)
            horizon = max(horizon, newest - delay)
            schedule.append(("watermark", horizon))
            if rng.random() < 0.2:
                schedule.append(("restart",))
        bounds = window(time="10 seconds", slide="2 seconds", on="ts")
        memory = {} if fits else little_memory(rng)
        run = simulate("spo", left, right, on, schedule, window=bounds, how=how, watch=spilled, **memory)
        lefts, rights = left["ts"].to_pylist(), right["ts"].to_pylist()
        pairs = [
            (a, b)
            for a, b in definition(left, right, on)
            if a not in late[0] and b not in late[1] and abs(lefts[a] - rights[b]) < timedelta(seconds=10)
        ]
        assert Counter(run.pairs) == Counter(pairs if how in ("inner", "left") else [])
        assert run.counters.late_rows == len(late[0]) + len(late[1])
        partnered = {a for a, _ in pairs}
        wanted = {"inner": set(), "left_semi": partnered}.get(how, set(range(14)) - partnered - late[0])
        assert Counter(run.alone) == Counter((Side.LEFT, a) for a in wanted)
    assert (spilled.rows == 0) == fits


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_rows_without_a_time(how: str) -> None:
    """They have no partner, but are not late."""
    times = pa.array([None, datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    table = pa.table({"x": [1, 1], "ts": times})
    run = simulate("spo", table, table, "l.x = r.x", window=window(time="1 hour", on="ts"), how=how)
    assert run.pairs == ([(1, 1)] if how in ("inner", "left") else [])
    assert run.alone == {"inner": [], "left_semi": [(Side.LEFT, 1)]}.get(how, [(Side.LEFT, 0)])
    assert run.counters.late_rows == 0


def test_the_window_bounds_what_is_kept() -> None:
    rng = random.Random(1)
    left, right = random_table(rng, 400), random_table(rng, 400)
    schedule = [("l", 10), ("r", 10)] * 40
    run = simulate("spo", left, right, "l.x < r.x AND l.k > r.k", schedule, window=window(rows=100, slide=10))
    assert run.counters.peak_rows_in_memory <= 130


OF_ONE = ["l.x > r.x AND l.k < r.k", "abs(l.k - r.k) <= 1 AND abs(l.x - r.x) <= 1", "l.k = r.k"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("on", "how", "fits"), some(list(product(OF_ONE, ["inner", "left_semi", "left_anti"], [True, False])), 0, of=5)
)
def test_a_row_is_not_its_own_partner(on: str, how: str, fits: bool) -> None:
    rng = seeded(f"{on}{how}")
    spilled = Spilled()
    for size in (1, 3, 10, 100):
        table = random_table(rng, 30)
        schedule = [("l", rng.randint(1, 6)) if rng.random() < 0.8 else ("restart",) for _ in range(12)]
        memory = {} if fits else little_memory(rng)
        same = {"window": window(rows=size), "how": how, "self_join": True}
        run = simulate("spo", table, table, on, schedule, watch=spilled, **same, **memory)
        pairs = [(a, b) for a, b in definition(table, table, on) if a != b and abs(a - b) < size]
        partnered = {a for a, _ in pairs}
        assert Counter(run.pairs) == Counter(pairs if how == "inner" else [])
        wanted = {"inner": set(), "left_semi": partnered}.get(how, set(range(30)) - partnered)
        assert Counter(run.alone) == Counter((Side.LEFT, row) for row in wanted)
    assert (spilled.rows == 0) == fits


def test_more_than_the_window_at_once_is_kept_piece_by_piece() -> None:
    table = pa.table({"k": list(range(100))})
    condition = parse("l.k < r.k AND l.k > r.k", table.schema, table.schema)
    parameters = {"window": window(rows=60, slide=10, scope="per_stream")}
    operator = Spo(Workspace(Graph.of(condition), Budget(None), BlockStore(), 50, Counters(), parameters=parameters))
    assert not list(operator.arrive(Side.LEFT, table.combine_chunks().to_batches()[0]))
    assert [run.rows for run in operator.runs(Side.LEFT)] == [30, 30, 10]
    assert operator.usage.resident_rows == 70


def test_runs_are_sorted_by_the_two_inequalities_that_find_the_fewest() -> None:
    rows = 500
    rng = random.Random(3)
    table = pa.table({"all": [0] * rows, "a": list(range(rows)), "b": rng.sample(range(rows), rows)})
    condition = parse("l.all <= r.all AND l.a < r.a AND l.b > r.b", table.schema, table.schema)
    batch = table.combine_chunks().to_batches()[0]
    keeping = PartBuilder(condition)
    unknown, known = keeping.keep(batch), keeping.keep(batch, batch)
    probing = keeping.probing(batch)
    assert probing.match(known).candidates() < probing.match(unknown).candidates()
    assert (
        probing.match(known).count() == probing.match(unknown).count() == len(definition(table, table, condition.text))
    )


def test_runs_are_sorted_by_columns_that_rise_together_where_the_inequalities_go_apart() -> None:
    rng = random.Random(3)
    a = [rng.random() for _ in range(500)]
    table = pa.table({"c": [rng.random() for _ in a], "a": a, "b": [x + rng.gauss(0, 1e-3) for x in a]})
    condition = parse("l.c < r.c - 0.1 AND l.a < r.a AND l.b > r.b", table.schema, table.schema)
    batch = table.combine_chunks().to_batches()[0]
    keeping = PartBuilder(condition)
    kept = keeping.keep(batch, batch)
    for part in (kept, keeping.keep_some(kept, np.arange(100, 500))):
        matcher = keeping.probing(batch).match(part)
        assert matcher.candidates() < 0.01 * 500 * 500
        assert matcher.count() == len(definition(table, table.slice(500 - part.batch.num_rows), condition.text))
