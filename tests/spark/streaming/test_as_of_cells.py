"""The cells of an as-of join of two streams, in process: against the definition, with lost attempts and restarts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import seeded
from tests.spark.streaming.test_windowed_cells import micro_batches
from tests.spark.streaming.window_cells import Query, Tables, played
from tests.spark.streaming.window_oracle import Results, Source

from dovetail.condition import parse
from dovetail.condition.best import parse_best
from dovetail.condition.spellings import spell_asof
from dovetail.execution import as_of_streams
from dovetail.execution.as_of_streams import AsOf
from dovetail.execution.output import output_schema
from dovetail.planning.best import plan_best
from dovetail.routing import one_bucket
from dovetail.routing.routers import HashRouter, Router
from dovetail.spark.best.asof import read_times
from dovetail.spark.streaming.as_of_join import AsOfJoin
from dovetail.spark.streaming.stream_join import Setting
from dovetail.storage import segments

START = datetime(2024, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
FLUSH = 10_000  # seconds after everything else: these rows expire all others


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return played(monkeypatch)


def stream(rng: random.Random, rows: int, name: str) -> pa.Table:
    """Mostly sorted by time, with equal times, nulls and late rows; the last two rows expire all others."""
    seconds: list[Any] = [i // 2 + rng.choice([0, 0, 0, -3, -8, -30]) for i in range(rows)]
    times = [None if rng.random() < 0.05 else START + timedelta(seconds=at) for at in seconds]
    keys = [rng.choice([1, 2, 3, 4, None]) for _ in range(rows)]
    times += [START + timedelta(seconds=FLUSH + more) for more in (0, FLUSH)]
    keys += [9, 9]
    words = [None if key is None else f"key {key}" for key in keys]
    columns = {"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": pa.array(keys, pa.int64()), "s": words}
    return pa.table({**columns, name: pa.array(range(rows + 2))})


@dataclass
class Oracle:
    """The expected results, row by row, from the rows that were not late."""

    tables: Tables
    by: str | None
    direction: str
    tolerance: int | None  # microseconds
    exact: bool
    how: str
    delays: tuple[int, int]
    watermark_ms: int = 0  # of this micro-batch
    late_rows: int = 0
    arrived: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    _before: int = 0
    _newest: list[int] = field(default_factory=lambda: [0, 0])

    def __post_init__(self) -> None:
        self.times = [table["ts"].cast(pa.int64()).to_pylist() for table in self.tables]
        self.keys = [[0] * t.num_rows if self.by is None else t[self.by].to_pylist() for t in self.tables]

    def micro_batch(self, sources: list[Source]) -> None:
        for side, rows in sources:
            for row in rows:
                at = self.times[side][row]
                if at is not None and at <= 1000 * self._before:
                    self.late_rows += 1
                else:
                    self.arrived[side].append(row)
        self._before = self.watermark_ms
        for side, rows in sources:
            seen = [self.times[side][row] for row in rows if self.times[side][row] is not None]
            self._newest[side] = max([self._newest[side], *seen])

    def pass_time(self) -> None:
        """Compute the watermark of the next micro-batch."""
        marks = [newest // 1000 - delay for newest, delay in zip(self._newest, self.delays, strict=True)]
        self.watermark_ms = max(self.watermark_ms, min(marks), 0)

    def partner(self, row: int) -> int | None:
        at, key = self.times[0][row], self.keys[0][row]
        best = None
        for place, other in enumerate(self.arrived[1]):
            time = self.times[1][other]
            if at is None or time is None or key is None or self.keys[1][other] != key:
                continue
            if (time == at and not self.exact) or (self.tolerance is not None and abs(at - time) > self.tolerance):
                continue
            if (self.direction == "backward" and time > at) or (self.direction == "forward" and time < at):
                continue
            later = time > at or (self.direction == "forward" and time == at)
            rank = (abs(at - time), later, place if later else -place)
            best = min(best, (rank, other)) if best is not None else (rank, other)
        return None if best is None else best[1]

    def due(self) -> Iterator[int]:
        """Left rows that must have been emitted, because no future row can change their partner."""
        reach = 0 if self.direction == "backward" else self.tolerance
        for row in self.arrived[0]:
            at = self.times[0][row]
            if (
                at is None
                or self.keys[0][row] is None
                or (reach is not None and at + reach <= 1000 * self.watermark_ms)
            ):
                yield row

    def result(self, rows: Iterator[int]) -> Results:
        pairs = [(row, self.partner(row)) for row in rows]
        return Counter(pair for pair in pairs if self.how == "left" or pair[1] is not None)


def query(wanted: Oracle, state_dir: Path, cells: int, filters: str = "") -> Query:
    schemas = (wanted.tables[0].schema, wanted.tables[1].schema)
    length = None if wanted.tolerance is None else timedelta(microseconds=wanted.tolerance)
    spelled = spell_asof(schemas, "ts", wanted.by, wanted.direction, length, wanted.exact)
    condition = parse(spelled.on + filters, *schemas)
    best = parse_best(1, spelled.order_by, "any", schemas, is_distance=spelled.is_distance)
    times = read_times(condition, best)
    assert times is not None
    plan = plan_best(condition, wanted.how, best)
    router: Router = HashRouter(condition, cells) if wanted.by else one_bucket(condition, 1, (1, 1), None)[0]
    output = output_schema(*schemas, "_r", plan.how)
    asof = AsOf(condition, best, times.order, ("ts", "ts"))
    return Query(
        wanted.tables, AsOfJoin(plan, (0, 0), output, Setting(3, str(state_dir), "d"), asof=asof, router=router)
    )


def play(
    run: Query, wanted: Oracle, task: Any, rng: random.Random, after: Callable[[], None] = lambda: None
) -> list[int]:
    """Run all micro-batches, some attempts at which are lost, and two that expire all rows. Returns the rows kept."""
    task.query = run
    sizes = tuple(table.num_rows for table in wanted.tables)
    batches = list(micro_batches(rng, (sizes[0] - 2, sizes[1] - 2)))
    batches += [[(side, [size - last]) for side, size in enumerate(sizes)] for last in (2, 1)]
    batches += [[], []]
    found: Results = Counter()
    kept = []
    for sources in batches:
        late = wanted.late_rows
        wanted.micro_batch(sources)
        if rng.random() < 0.25:  # an attempt whose results and manifests are lost
            attempt = replace(run, timers={label: [*timers] for label, timers in run.timers.items()})
            task.query = attempt
            attempt.micro_batch(sources, rng, wanted.watermark_ms)
            task.query = run
        if rng.random() < 0.2:  # restarted, or in other workers
            segments._mapped.clear()
        results, figures = run.micro_batch(sources, rng, wanted.watermark_ms)
        found += results
        assert figures["late_rows"] == wanted.late_rows - late
        kept.append(figures["resident_rows"])
        due = wanted.result(wanted.due())
        assert due <= found, "a row that is final still waits"
        if wanted.direction == "backward":
            assert due == found
        after()
        wanted.pass_time()
    ends = {size - last for size in sizes[:1] for last in (2, 1)}
    expected = wanted.result(row for row in wanted.arrived[0] if row not in ends)
    waits = wanted.direction != "backward" and wanted.tolerance is None  # wait for a partner without a limit
    if waits:
        expected = Counter(pair for pair in expected if pair[1] is not None or pair in found)
    assert Counter({pair: times for pair, times in found.items() if pair[0] not in ends}) == expected
    assert wanted.late_rows
    return kept


DIRECTIONS = ("backward", "forward", "nearest")


@pytest.mark.parametrize("case", range(repeat(100)))
def test_random_schedules_are_the_definition(
    case: int, tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = seeded("as-of of streams", case)
    monkeypatch.setattr(as_of_streams, "FEW_ROWS", rng.choice([0, 8, 1 << 12]))
    monkeypatch.setattr(as_of_streams, "MOST_SEGMENTS", rng.choice([1, 2, 5, 32]))
    direction, exact = rng.choice(DIRECTIONS), rng.random() < 0.7
    tolerance = rng.choice([None, 2 * SECOND, 7 * SECOND]) if exact or direction != "nearest" else None
    tables = stream(rng, rng.choice([40, 80]), "left_row"), stream(rng, rng.choice([30, 90]), "right_row")
    delays = (1000 * rng.choice([1, 5]), 1000 * rng.choice([2, 9]))
    wanted = Oracle(
        tables, rng.choice(["k", "s", None]), direction, tolerance, exact, rng.choice(["left", "inner"]), delays
    )
    play(query(wanted, tmp_path, rng.choice([1, 2, 3])), wanted, task, rng)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_state_expires(direction: str, tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows behind the watermark are dropped: with five times as many rows, hardly more are kept."""
    monkeypatch.setattr(as_of_streams, "FEW_ROWS", 0)
    most = []
    for rows in (60, 300):
        rng = seeded("as-of state", rows)
        tables = stream(rng, rows, "left_row"), stream(rng, rows, "right_row")
        wanted = Oracle(tables, "k", direction, 3 * SECOND, True, "left", (2000, 2000))
        most.append(max(play(query(wanted, tmp_path / str(rows), 2), wanted, task, rng)))
    assert most[1] < 160, "of 600 rows"
