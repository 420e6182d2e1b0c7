"""The cells of a windowed join of streams, in process. The test takes the role of Spark."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.effort import ALL, repeat, some
from tests.seed import seeded
from tests.spark.streaming.window_cells import Clock, Handle, Query, played, query
from tests.spark.streaming.window_oracle import Results, Source, WindowOracle

from dovetail.condition.select import parse_aggregates
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import StateError
from dovetail.routing.choice import StripeRouter
from dovetail.spark.streaming.cell_processor import CellProcessor
from dovetail.testing import definition, random_table
from dovetail.window import Window, window

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
CONDITIONS = (
    "l.x < r.x AND l.k > r.k",
    "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) < 2",
    "l.k = r.k AND l.x < r.x",
    "l.s != r.s",
    "l.k = r.k OR l.x < r.x",
    "l.k < r.k AND l.x > 0 AND r.n <> 1",
)
START = datetime(2024, 1, 1, tzinfo=UTC)
DELAYS = ((5, 5), (200, 3), (2, 200), (None, 20), (3, None))


def stream(rng: random.Random, rows: int, name: str) -> pa.Table:
    """Random rows, mostly sorted by time; some times are null."""
    times = [START + timedelta(seconds=i + rng.choice([0, 0, 0, -3, -8, -30])) for i in range(rows)]
    column = pa.array([None if rng.random() < 0.05 else t for t in times], pa.timestamp("us", "UTC"))
    return random_table(rng, rows).append_column("ts", column).append_column(name, pa.array(range(rows)))


def micros(table: pa.Table) -> list[int | None]:
    return table["ts"].cast(pa.int64()).to_pylist()


def oracle(query: Query, timed: bool = False) -> WindowOracle:
    left, right = query.tables
    matches = np.zeros((left.num_rows, right.num_rows), np.bool_)
    for pair in definition(left, right, query.join.plan.condition.text):
        matches[pair] = True
    times = (micros(left), micros(right)) if timed else None
    return WindowOracle(query.join.window, query.join.plan.how, lambda left, right: matches[left, right], times)


def micro_batches(rng: random.Random, rows: tuple[int, int]) -> Iterator[list[Source]]:
    """All rows, a few at a time, in up to three partitions of each stream."""
    done = [0, 0]
    while done != list(rows):
        sources: list[Source] = []
        for side in (0, 1):
            for _ in range(rng.randint(0, 3)):
                count = min(rng.choice([0, 1, 3, 8]), rows[side] - done[side])
                sources.append((side, range(done[side], done[side] + count)))
                done[side] += count
        if any(rows for _, rows in sources):
            yield sources


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return played(monkeypatch)


def play(query: Query, wanted: WindowOracle, batches: Iterator[list[Source]], task: Any, rng: random.Random) -> int:
    """Run micro-batches and compare each with the oracle; some are computed twice. Returns the most rows kept."""
    task.query = query
    most = 0
    for sources in batches:
        late = wanted.late_rows
        expected = wanted.micro_batch(sources)
        if rng.random() < 0.2:  # an attempt whose results and manifests are lost
            attempt = replace(query)
            task.query = attempt
            attempt.micro_batch(sources, rng, wanted.watermark_ms)
            task.query = query
        found, figures = query.micro_batch(sources, rng, wanted.watermark_ms)
        assert found == expected
        assert figures["results"] == expected.total()
        assert figures["late_rows"] == wanted.late_rows - late
        most = max(most, figures["window_rows"])
    return most


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scope", ["combined", "per_stream"])
@pytest.mark.parametrize("how", HOWS)
def test_windows_of_rows(how: str, scope: Any, tmp_path: Path, task: Any) -> None:
    rng = seeded(f"{how}{scope}")
    for case, on in enumerate(rng.sample(CONDITIONS, repeat(3))):
        tables = stream(rng, 40, "left_row"), stream(rng, 30, "right_row")
        bounds = window(rows=rng.choice([1, 7, 20]), scope=scope)
        run = query(tables, on, how, bounds, tmp_path / str(case), cells=rng.choice([1, 2, 3, 5]))
        play(run, oracle(run), micro_batches(rng, (40, 30)), task, rng)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("delay", [0, 5, 100])
def test_windows_of_time(how: str, delay: int, tmp_path: Path, task: Any) -> None:
    """Rows arrive out of order, some are late, some have no time."""
    rng = seeded(f"{how}{delay}")
    tables = stream(rng, 40, "left_row"), stream(rng, 30, "right_row")
    bounds = window(time="10 seconds", slide="2 seconds", on="ts", delay=timedelta(seconds=delay))
    run = query(tables, rng.choice(CONDITIONS), how, bounds, tmp_path, cells=rng.choice([1, 2, 3]))
    wanted = oracle(run, timed=True)
    play(run, wanted, micro_batches(rng, (40, 30)), task, rng)
    assert bool(wanted.late_rows) == (delay < 100)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("how", "seconds"), list(product(HOWS, DELAYS) if ALL else zip(HOWS, (*DELAYS, (5, 5)), strict=True))
)
def test_delays_of_watermarks(how: str, seconds: tuple[int | None, int | None], tmp_path: Path, task: Any) -> None:
    """The right stream is 15 seconds behind the left one; this alone makes no row of a stream with a watermark late."""
    rng = seeded(f"{how}{seconds}")
    left, right = stream(rng, 50, "left_row"), stream(rng, 40, "right_row")
    behind = pc.subtract(right["ts"], pa.scalar(timedelta(seconds=15)))
    right = right.set_column(right.schema.get_field_index("ts"), "ts", behind)
    bounds = window(time="10 seconds", slide="2 seconds", on="ts")
    delays = [None if delay is None else 1_000_000 * delay for delay in seconds]
    run = query(
        (left, right), rng.choice(CONDITIONS), how, bounds.with_watermarks((delays[0], delays[1])), tmp_path, cells=2
    )
    wanted = oracle(run, timed=True)
    play(run, wanted, micro_batches(rng, (50, 40)), task, rng)
    assert bool(wanted.late_rows) == (200 not in seconds)


def test_a_row_from_the_future_does_not_keep_the_others(tmp_path: Path, task: Any) -> None:
    """The watermark of the other stream advances, and rows are dropped with it."""
    rng = random.Random(0)
    left, right = stream(rng, 400, "left_row"), stream(rng, 400, "right_row")
    times = left["ts"].to_pylist()
    times[0] = START + timedelta(days=9)
    left = left.set_column(left.schema.get_field_index("ts"), "ts", pa.array(times, pa.timestamp("us", "UTC")))
    bounds = window(time="10 seconds", slide="2 seconds", on="ts").with_watermarks((40_000_000, 40_000_000))
    run = query((left, right), "l.k < r.k", "left", bounds, tmp_path, cells=1)
    batches = ([(0, range(at, at + 20)), (1, range(at, at + 20))] for at in range(0, 400, 20))
    most = play(run, oracle(run, timed=True), iter(batches), task, rng)
    assert most < 2 * (50 + 20 + 10 + 30)  # both sides: window and delay, a micro-batch, slides, disorder


def test_state_of_a_release_that_knew_one_newest_time(tmp_path: Path, task: Any) -> None:
    rng = seeded(1)
    tables = stream(rng, 40, "left_row"), stream(rng, 30, "right_row")
    run = query(tables, CONDITIONS[0], "left", window(time="10 seconds", on="ts"), tmp_path, cells=2)
    wanted = oracle(run, timed=True)
    batches = list(micro_batches(rng, (40, 30)))
    half = len(batches) // 2
    play(run, wanted, iter(batches[:half]), task, rng)
    for label, stored in run.manifests.items():
        manifest = json.loads(stored)
        left, right, newest, heard_ms = manifest["notes"]
        run.manifests[label] = json.dumps({**manifest, "notes": [left, right, max(newest), heard_ms]})
    play(run, wanted, iter(batches[half:]), task, rng)


BANDS = ("abs(l.x - r.x) <= 1", "abs(l.x - r.x) <= 1 AND abs(l.k - r.k) < 2", "l.k BETWEEN r.k - 1 AND r.k + 2")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("on", "how", "timed"), some(list(product(BANDS, [how for how in HOWS if how != "full"], (False, True))), 0)
)
def test_many_cells_divide_bands_into_stripes(on: str, how: str, timed: bool, tmp_path: Path, task: Any) -> None:
    rng = seeded(f"{on}{how}{timed}")
    tables = stream(rng, 60, "left_row"), stream(rng, 50, "right_row")
    bounds = window(time="10 seconds", slide="2 seconds", on="ts", delay="0 seconds") if timed else window(rows=20)
    run = query(tables, on, how, bounds, tmp_path, cells=9)
    assert isinstance(run.join.router, StripeRouter)
    play(run, oracle(run, timed), micro_batches(rng, (60, 50)), task, rng)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", ["l.k = r.k AND l.x < r.x", BANDS[0]])
def test_a_self_join_by_value_is_the_one_in_turns(on: str, tmp_path: Path, task: Any) -> None:
    rng = seeded(on)
    table = stream(rng, 60, "left_row")
    found = []
    for by_value in (True, False):
        run = query((table, table), on, "inner", window(rows=15), tmp_path / str(by_value), cells=9)
        router = run.join.router if by_value else None
        run.join = replace(run.join, self_join=True, router=router)
        task.query = run
        batches = (range(start, start + 10) for start in range(0, 60, 10))
        found.append([run.micro_batch([(0, rows)], random.Random(0))[0] for rows in batches])
    assert found[0] == found[1]
    assert sum(map(Counter.total, found[0])) > 0


def test_event_time_goes_on_by_the_clock_after_a_pause(tmp_path: Path, task: Any) -> None:
    times = pa.array([START], pa.timestamp("us", "UTC"))
    tables = pa.table({"x": [1], "ts": times, "left_row": [0]}), pa.table({"x": [0], "ts": times, "right_row": [0]})
    bounds = window(time="10 seconds", on="ts", delay="0 seconds", idle="4 seconds")
    run = query(tables, "l.x < r.x", "left", bounds, tmp_path, cells=1)
    task.query = run
    handle, processor = Handle(), CellProcessor(run.join)
    processor.start(handle, handle)  # type: ignore[arg-type]
    label = run.join.labels[0]
    packed = [
        row
        for side in Side
        for batch in run.join.packer(side)(iter(tables[side].to_batches()))
        for row in batch.to_pylist()
        if row["cell"] == label
    ]
    first = processor.handleInputRows((label,), iter([pd.DataFrame(packed)]), Clock(1_000))  # type: ignore[arg-type]
    assert [frame["results"][0] for frame in first] == [0]
    closed = []
    while handle.timers:  # as in Spark, an expired timer is removed
        now = handle.timers.pop()
        processor.start(handle, handle)  # type: ignore[arg-type]
        frames = processor.handleExpiredTimer((label,), Clock(now), None)  # type: ignore[arg-type]
        if any(frame["results"][0] for frame in frames):
            closed.append(now)
    assert closed == [13_000]  # pauses of 4 s since the row arrived at 1 s, until 10 s have passed
    assert run.join.has_timers
    assert not replace(run.join, plan=replace(run.join.plan, how=JoinType.INNER)).has_timers


@pytest.mark.one_in(2)
def test_late_rows_are_counted_once_whatever_the_cells(tmp_path: Path, task: Any) -> None:
    rng = seeded(0)
    tables = stream(rng, 40, "left_row"), stream(rng, 40, "right_row")
    bounds = window(time="10 seconds", on="ts", delay="0 seconds")
    for turn, how in enumerate(HOWS):
        for cells, on in some(((1, CONDITIONS[0]), (4, CONDITIONS[0]), (9, BANDS[0])), turn, of=3):
            run = query(tables, on, how, bounds, tmp_path / f"{how}{cells}", cells=cells)
            play(run, oracle(run, timed=True), even(40, 10), task, rng)


def test_a_longer_delay_does_not_bring_back_what_was_late(tmp_path: Path, task: Any) -> None:
    """Dropped rows cannot come back, so rows that would have needed them are still counted as late."""
    rng = random.Random(0)
    tables = tuple(
        pa.table({"x": [0] * 3, "ts": pa.array([100, second, 95], pa.timestamp("s", "UTC")), name: range(3)})
        for second, name in ((200, "left_row"), (120, "right_row"))
    )
    bounds = window(time="10 seconds", on="ts", delay="0 seconds")
    run = query((tables[0], tables[1]), "l.x = r.x", "inner", bounds, tmp_path, cells=2)
    task.query = run
    assert run.micro_batch([(0, [0, 1]), (1, [0])], rng)[1]["late_rows"] == 0
    run.join = replace(run.join, window=window(time="10 seconds", on="ts", delay="1 hour"))
    found, figures = run.micro_batch([(0, [2]), (1, [1, 2])], rng)
    assert not found
    assert figures["late_rows"] == 3


def even(rows: int, batches: int) -> Iterator[list[Source]]:
    """The same number of rows of both sides in every micro-batch."""
    for numbers in np.split(np.arange(rows), batches):
        yield [(0, numbers.tolist()), (1, numbers.tolist())]


def test_late_rows_of_a_self_join_are_counted_once(tmp_path: Path, task: Any) -> None:
    times = pa.array([100, 90], pa.timestamp("s", "UTC"))
    table = pa.table({"x": [0, 1], "ts": times, "left_row": [0, 1]})
    run = query((table, table), "l.x < r.x", "inner", window(time="9 seconds", on="ts"), tmp_path, cells=2)
    run.join = replace(run.join, self_join=True)
    task.query = run
    late = [run.micro_batch([(0, [row])], seeded(0))[1]["late_rows"] for row in (0, 1)]
    assert late == [0, 1]


@pytest.mark.parametrize("on", ["l.k = r.k", "l.k = r.k AND l.x > 1", "l.k < r.k"])
def test_aggregates_are_given_for_every_left_row(on: str, tmp_path: Path, task: Any) -> None:
    left, right = pa.table({"k": [1, None, 2], "x": [1, 2, 3], "left_row": range(3)}), pa.table({"k": [1, 2, 2]})
    run = query((left, right), on, "inner", window(rows=100), tmp_path, cells=3)
    wanted = parse_aggregates({"n": "count(*)"}, left.schema, right.schema)
    schema = left.schema.append(pa.field("n", pa.int64()))
    run.join = replace(run.join, aggregates=wanted, schema=schema)
    task.query = run
    found, _ = run.micro_batch([(1, [0, 1, 2])], random.Random(0))
    assert not found
    found, _ = run.micro_batch([(0, [0, 1, 2])], random.Random(0))
    assert sorted(row for row, _ in found) == [0, 1, 2]


# Other numbers of cells.


@pytest.mark.one_in(2)
@pytest.mark.parametrize("bounds", [window(rows=30), window(rows=15, scope="per_stream")])
def test_an_inner_join_goes_on_with_other_cells(bounds: Window, tmp_path: Path, task: Any) -> None:
    rng = seeded(0)
    tables = stream(rng, 100, "left_row"), stream(rng, 100, "right_row")
    run = query(tables, CONDITIONS[0], "inner", bounds, tmp_path, cells=2, partitions=4)
    wanted = oracle(run)
    batches = even(100, 20)
    for cells in (2, 1, 4, 3, 2):
        run.join = replace(run.join, cells=cells)
        play(run, wanted, (next(batches) for _ in range(4)), task, rng)


@pytest.mark.parametrize(
    ("how", "before", "after"), [("inner", 2, 5), ("inner", 5, 2), ("left", 2, 3), ("left", 2, 1), ("left_semi", 1, 4)]
)
def test_cells_whose_state_would_not_be_reached(how: str, before: int, after: int, tmp_path: Path, task: Any) -> None:
    """Left rows stay in their cells; cells in other partitions would lack rows of earlier runs, or not be read."""
    rng = seeded(0)
    tables = stream(rng, 20, "left_row"), stream(rng, 20, "right_row")
    run = query(tables, CONDITIONS[0], how, window(rows=30), tmp_path, cells=before, partitions=4)
    batches = even(20, 2)
    play(run, oracle(run), (next(batches) for _ in range(1)), task, rng)
    run.join = replace(run.join, cells=after)
    with pytest.raises(StateError, match="made by another join: cells was"):
        run.micro_batch(next(batches), rng)


# Bounded state.


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("how", "scope"), some(list(product(HOWS, ["combined", "per_stream"])), 0, of=3))
def test_what_is_kept_is_bounded(how: str, scope: Any, tmp_path: Path, task: Any) -> None:
    """Kept are the window, a slide and a micro-batch; right rows once per cell if cells must know all of them."""
    rng = random.Random(0)
    rows, cells = 300, 2
    tables = stream(rng, rows, "left_row"), stream(rng, rows, "right_row")
    bounds = window(rows=40, slide=4, scope=scope)
    run = query(tables, CONDITIONS[0], how, bounds, tmp_path, cells=cells, partitions=4)
    task.query = run
    kept, files, evicted = [], [], 0
    for sources in even(rows, 30):  # 20 rows each
        _, figures = run.micro_batch(sources, rng)
        kept.append(figures["window_rows"])
        evicted += figures["evicted_rows"]
        files.append(len(run.files()))
        named = [name for text in run.manifests.values() for name in json.loads(text)["segments"]]
        sizes = {path.name: path.stat().st_size for path in run.files()}
        assert figures["state_bytes"] == sum(sizes[name] for name in named)
        assert figures["cells"] == len(run.manifests)
        assert figures["window_rows"] <= figures["cells"] * figures["largest_cell_rows"]
    in_window = 40 if scope == "combined" else 80
    copies = 1 if how == "inner" else (1 + cells) / 2
    assert max(kept) <= copies * (in_window + in_window // 10 + 20)
    assert max(files[15:]) <= max(files[5:15])
    if how == "inner":
        assert evicted + kept[-1] == 2 * rows


@pytest.mark.one_in(4)
@pytest.mark.parametrize("scope", ["combined", pytest.param("per_stream", marks=pytest.mark.slow)])
def test_many_cells_keep_no_more_than_few(scope: Any, tmp_path: Path, task: Any) -> None:
    """Runs are merged up to a slide of the whole stream, of which each cell has only a few rows."""
    rng = random.Random(0)
    tables = stream(rng, 160, "left_row"), stream(rng, 160, "right_row")
    bounds = window(rows=40, slide=20, scope=scope)
    run = query(tables, CONDITIONS[0], "inner", bounds, tmp_path, cells=8, partitions=8)
    task.query = run
    in_window = 40 if scope == "combined" else 80
    for sources in even(160, 40):
        assert run.micro_batch(sources, rng)[1]["window_rows"] <= 1.5 * in_window + 8


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_limit(how: str, tmp_path: Path, task: Any) -> None:
    """Cells emit at least `limit` results, even if attempts are lost; then they drop arriving rows."""
    rng, limit = seeded(how), 25
    tables = stream(rng, 60, "left_row"), stream(rng, 60, "right_row")
    run = query(tables, "l.k = r.k", how, window(rows=40), tmp_path, cells=3)
    run.join = replace(run.join, setting=replace(run.join.setting, limit=limit))
    wanted = oracle(run)
    found: Results = Counter()
    every: Results = Counter()
    for sources in micro_batches(rng, (60, 60)):
        every += wanted.micro_batch(sources)
        reached = found.total() >= limit
        task.query = replace(run)
        task.query.micro_batch(sources, rng)  # an attempt whose results and manifests are lost
        task.query = run
        new, _ = run.micro_batch(sources, rng)
        assert not (reached and new)
        found += new
    assert every.total() > 3 * limit
    assert limit <= found.total() <= run.join.cells * limit
    assert found <= every
