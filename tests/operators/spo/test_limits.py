"""Conditions that bound event time: rows are dropped as the watermark allows, and no result is lost."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat, some
from tests.seed import seeded

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Side
from dovetail.operators.protocol import Workspace
from dovetail.operators.spo.spo import Spo
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import definition
from dovetail.window import UNBOUNDED, Limits, Window

SECOND = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("x", pa.float64()), ("ts", pa.timestamp("us"))])
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
ALSO = ("l.k = r.k", "l.x < r.x", "l.x < r.x AND l.k >= r.k", "l.k > 1 AND r.x > 0.2", "TRUE")
BOUNDS = {
    "l.ts >= r.ts - INTERVAL 9 SECONDS AND l.ts <= r.ts": (-9 * SECOND, 0),
    "l.ts - r.ts BETWEEN INTERVAL 3 SECONDS AND INTERVAL 7 SECONDS": (3 * SECOND, 7 * SECOND),
    "l.ts <= r.ts + INTERVAL 4 SECONDS": (-UNBOUNDED, 4 * SECOND),
    "l.ts = r.ts": (0, 0),
}


def table(rng: random.Random, rows: int) -> pa.Table:
    times = [(i + rng.randrange(-12, 4)) * SECOND if rng.random() < 0.9 else None for i in range(rows)]
    columns = {
        "id": range(rows),
        "k": [rng.choice([0, 1, 2, 3, None]) for _ in range(rows)],
        "x": [rng.choice([rng.random(), None, float("nan")]) for _ in range(rows)],
        "ts": times,
    }
    return pa.Table.from_pydict({name: pa.array(column, SCHEMA.field(name).type) for name, column in columns.items()})


class Run:
    """An operator and its results so far. It may be stopped and restored after each micro-batch."""

    def __init__(self, on: str, how: str, window: Window, store: BlockStore, memory: int | None) -> None:
        self._made = (on, how, window, store, memory)
        self.counters = Counters()
        self.operator = self._start()
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.alone: Counter[tuple[Side, int]] = Counter()

    def _start(self) -> Spo:
        on, how, window, store, memory = self._made
        graph = Graph.of(parse(on, SCHEMA, SCHEMA))
        budget = Budget(memory, "rows", self.counters)
        parameters = {"window": window}
        return Spo(Workspace(graph, budget, store, 2, self.counters, parameters=parameters, how=JoinType.read(how)))

    def restart(self) -> None:
        manifest = self.operator.snapshot()
        self.operator = self._start()
        self.operator.restore(manifest)

    def take(self, found: Any) -> None:
        for matches in found:
            self._take(matches)

    def _take(self, matches: Matches) -> None:
        ids = [
            [] if batch is None or rows is None else batch.column("id").to_numpy()[rows].tolist()
            for batch, rows in zip(matches.batches, matches.rows, strict=True)
        ]
        if matches.is_complete:
            self.pairs.update(zip(*ids, strict=True))
        else:
            self.alone.update((side, row) for side in Side for row in ids[side])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("bounds", "also", "how"), some(list(product(BOUNDS, ALSO, HOWS)), 0, of=3))
def test_nothing_is_lost(bounds: str, also: str, how: str, tmp_path: Any) -> None:
    rng = seeded(f"{bounds}{also}{how}")
    on = f"({bounds}) AND {also}"
    low, high = BOUNDS[bounds]
    for number in range(repeat(6)):
        expiry = (low, -high)
        if any(expiry[side] <= -UNBOUNDED for side in JoinType.read(how).preserved):
            return
        late = rng.choice([("ts", "ts"), ("ts", None), (None, "ts")])
        if None in late:  # the rows that wait for this side never expire
            side = late.index(None)
            expiry = (-UNBOUNDED, expiry[1]) if side == 1 else (expiry[0], -UNBOUNDED)
            if any(expiry[side] <= -UNBOUNDED for side in JoinType.read(how).preserved):
                continue
        size = 2 * UNBOUNDED if low <= -UNBOUNDED else high - low + 1
        window = Window(size, max(1, size // 10), ("ts", "ts"), limits=Limits((low, high), expiry, late))
        memory = rng.choice([None, None, 16])
        run = Run(on, how, window, BlockStore(tmp_path / f"{number}{memory}"), memory)
        tables = [table(rng, 40), table(rng, 40)]
        _play(rng, run, window, tables, on, how)


def _play(rng: random.Random, run: Run, window: Window, tables: list[pa.Table], on: str, how: str) -> None:
    """Run micro-batches with a watermark 5 seconds behind; after each, check the state against the watermark."""
    times = [np.asarray(t["ts"].cast(pa.int64()).fill_null(-(2**62))) for t in tables]
    good: list[set[int]] = [set(), set()]
    left_over = [0, 0]
    horizon = -(2**62)
    while any(done < 40 for done in left_over):
        newest = -(2**62)
        for side in Side:
            rows = range(left_over[side], min(40, left_over[side] + rng.randrange(8)))
            left_over[side] = rows.stop
            for row in rows:
                is_late = window.late_column(side) and times[side][row] < horizon and times[side][row] > -(2**62)
                if not is_late:
                    good[side].add(row)
            newest = max(newest, int(times[side][: rows.stop].max(initial=-(2**62))))
            if len(rows):
                (batch,) = tables[side].slice(rows.start, len(rows)).combine_chunks().to_batches()
                run.take(run.operator.arrive(side, batch))
        horizon = max(horizon, newest - 5 * SECOND)
        run.take(run.operator.expire(horizon, None))
        for side in Side:
            oldest = min((r.extent.at[1] for r in run.operator.runs(side)), default=UNBOUNDED)
            assert oldest >= horizon + window.expiry(side)  # runs are dropped as a whole
        if rng.random() < 0.5:
            run.restart()
    pairs = {(a, b) for a, b in definition(*tables, on) if a in good[0] and b in good[1]}
    kind = JoinType.read(how)
    assert run.pairs == Counter(pairs if kind.emits_pairs else [])
    run.take(run.operator.clean_up())
    expected: Counter[tuple[Side, int]] = Counter()
    for side in kind.tracked:
        partnered = {pair[side] for pair in pairs}
        expected.update((side, row) for row in (partnered if how == "left_semi" else good[side] - partnered))
    assert run.alone == expected
