"""Windowed and time-bounded streams whose files arrive in any order: in process, against the definition.

A stream has a few files, some of them empty. Any file may be the first, and files of one side may arrive micro-batches
before matching files of the other. In between the query is restarted with another budget or slide, attempts are lost,
and the watermark advances without rows. The test takes the role of Spark.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType
from tests.effort import PART, repeat, some
from tests.seed import seeded
from tests.spark.streaming.window_cells import Query, Tables, played, query
from tests.spark.streaming.window_oracle import Results, Source, WindowOracle

from dovetail.condition import parse
from dovetail.spark.frames.schemas import DELAY_MS
from dovetail.spark.streaming.watermarks import bounded_window
from dovetail.storage import segments
from dovetail.window import Window, window

STREAMS = 500
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
START = datetime(2024, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
HOUR = 3600 * SECOND
MEMORIES = (None, 1 << 17, 1 << 18, 1_000_000)  # from the smallest budget of a window cell to one that holds everything
NAMES = ("left_row", "right_row")

File = tuple[int, range]
"""The side, and its rows."""


@dataclass(frozen=True)
class Match:
    """A condition, and its equivalent in NumPy."""

    on: str
    holds: Any


def equal(left: dict[str, Any], right: dict[str, Any], a: Any, b: Any) -> Any:
    return left["k"][a] == right["k"][b]


def ordered(left: dict[str, Any], right: dict[str, Any], a: Any, b: Any) -> Any:
    return (left["x"][a] < right["x"][b]) & (left["k"][a] >= right["k"][b])


def near(left: dict[str, Any], right: dict[str, Any], a: Any, b: Any) -> Any:
    return np.abs(left["x"][a] - right["x"][b]) <= 3


def other(left: dict[str, Any], right: dict[str, Any], a: Any, b: Any) -> Any:
    return left["k"][a] != right["k"][b]


MATCHES = (
    Match("l.k = r.k", equal),
    Match("l.k = r.k", equal),
    Match("l.x < r.x AND l.k >= r.k", ordered),
    Match("abs(l.x - r.x) <= 3", near),
    Match("l.k != r.k", other),
)
BOUNDS = {  # in seconds, left - right
    "r.ts BETWEEN l.ts AND l.ts + INTERVAL 20 SECONDS": (-20, 0),
    "r.ts BETWEEN l.ts - INTERVAL 7 SECONDS AND l.ts + INTERVAL 15 SECONDS": (-15, 7),
    "l.ts >= r.ts + INTERVAL 5 SECONDS AND l.ts <= r.ts + INTERVAL 25 SECONDS": (5, 25),
    "l.ts = r.ts": (0, 0),
}


def random_files(rng: random.Random, side: int) -> list[File]:
    """One to four files, some of them empty."""
    files, first = [], 0
    for _ in range(rng.choice([1, 2, 3, 3, 4])):
        rows = rng.choice([0, 1, 6, 20, 40])
        files.append((side, range(first, first + rows)))
        first += rows
    return files


def random_rows(rng: random.Random, files: Sequence[File], name: str, text: int) -> pa.Table:
    """Times increase from file to file, or are random; few keys, long strings."""
    rows = files[-1][1].stop
    scattered, behind = rng.random() < 0.4, rng.choice([0, 0, 10])
    numbers = [number for number, (_, some) in enumerate(files) for _ in some]
    seconds = [(rng.random() * 60 if scattered else 15 * number + rng.random() * 20) - behind for number in numbers]
    steps = [round(second) if rng.random() < 0.5 else second for second in seconds]
    return pa.table(
        {
            "k": pa.array([rng.randrange(6) for _ in range(rows)], pa.int64()),
            "x": pa.array([rng.randrange(40) for _ in range(rows)], pa.int64()),
            "ts": pa.array([START + timedelta(seconds=step) for step in steps], pa.timestamp("us", "UTC")),
            "text": pa.array([f"{row:0{text}d}" for row in range(rows)]),
            name: pa.array(range(rows), pa.int64()),
        }
    )


def orders(files: Sequence[File]) -> Iterator[list[list[File]]]:
    """All ways to assign files to micro-batches: the ordered partitions of the set of files."""
    if not files:
        yield []
        return
    for chosen in range(1, 1 << len(files)):
        first = [file for bit, file in enumerate(files) if chosen >> bit & 1]
        rest = [file for bit, file in enumerate(files) if not chosen >> bit & 1]
        for later in orders(rest):
            yield [first, *later]


def random_order(rng: random.Random, files: Sequence[File]) -> list[list[File]]:
    """One of the `orders`."""
    waiting, batches = list(files), []
    while waiting:
        batches.append(rng.sample(waiting, rng.choice([1, 1, 2, 2, 3, len(waiting)]) % (len(waiting) + 1)))
        waiting = [file for file in waiting if file not in batches[-1]]
    return batches


def with_delays(delays: tuple[int | None, int | None]) -> Any:
    """Fake inputs with watermarks of this many seconds, sufficient for `bounded_window`."""
    frames = []
    for delay in delays:
        metadata = {} if delay is None else {DELAY_MS: 1000 * delay}
        fields = [StructField("k", LongType()), StructField("ts", TimestampType(), metadata=metadata)]
        frames.append(SimpleNamespace(schema=StructType(fields)))
    return tuple(frames)


def random_window(rng: random.Random, tables: Tables, on: str, how: str) -> tuple[str, Window]:
    """The condition, which may itself bound event time, and the window."""
    kind = rng.choice(["rows", "per_stream", "delay", "one", "both", "both", "both", "bounded", "bounded"])
    slow, quick = 1000, rng.choice([0, 5, 15])
    delays = rng.choice([(slow, slow), (slow, slow), (quick, slow), (slow, quick), (quick, quick)])
    if kind == "rows":
        return on, window(rows=rng.choice([1, 9, 40]))
    if kind == "per_stream":
        return on, window(rows=rng.choice([1, 9, 40]), scope="per_stream")
    if kind == "bounded":
        bound = rng.choice(list(BOUNDS))
        marks = rng.choice([delays, delays, (quick, None), (None, quick)]) if how == "inner" else delays
        schemas = (tables[0].schema, tables[1].schema)
        limits = bounded_window(parse(f"{on} AND {bound}", *schemas), with_delays(marks), (None, None))
        if limits is not None:
            return f"{on} AND {bound}", limits
    bounds = window(time="10 seconds", slide=rng.choice(["1 second", "3 seconds", "10 seconds"]), on="ts")
    if kind == "delay":
        return on, replace(bounds, delay=delays[0] * SECOND, delay_given=True)
    left, right = (delay * SECOND for delay in delays)
    return on, bounds.with_watermarks((left, None) if kind == "one" else (left, right))


def columns(table: pa.Table) -> dict[str, Any]:
    names = ("k", "x")
    return {name: np.asarray(table[name]) for name in names} | {"at": np.asarray(table["ts"].cast(pa.int64()))}


def definition(run: Query, match: Match, bounded: tuple[int, int] | None) -> WindowOracle:
    left, right = (columns(table) for table in run.tables)
    holds = partial(match.holds, left, right)
    if bounded is not None:
        low, high = (SECOND * seconds for seconds in bounded)

        def holds(a: Any, b: Any) -> Any:
            apart = left["at"][a] - right["at"][b]
            return match.holds(left, right, a, b) & (apart >= low) & (apart <= high)

    times = (left["at"].tolist(), right["at"].tolist()) if run.join.window.by_time else None
    return WindowOracle(run.join.window, run.join.plan.how, holds, times)


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return played(monkeypatch)


def another_process() -> None:
    """Simulate another process: only stored state is kept."""
    segments._mapped.clear()
    segments._made.clear()
    segments._verified.clear()


def restart(run: Query, rng: random.Random) -> None:
    """Continue in another process, possibly with another budget, slide and number of cells."""
    another_process()
    plan, bounds = replace(run.join.plan, memory_bytes=rng.choice(MEMORIES)), run.join.window
    if bounds.limits is None:
        bounds = replace(bounds, slide=rng.choice([max(1, bounds.size // 10), bounds.size]))
    run.join = replace(run.join, plan=plan, window=bounds)
    partitions = run.join.setting.partitions
    if run.join.in_turns and run.join.cells <= partitions:
        run.join = replace(run.join, cells=rng.randint(1, partitions))


def play(run: Query, wanted: WindowOracle, batches: Sequence[Sequence[Source]], task: Any, rng: random.Random) -> int:
    """Run micro-batches and compare each with the definition. Returns the most rows that were on disk."""
    task.query = run
    spilled = 0
    for given in batches:
        sources = sorted(given, key=lambda source: source[0])  # partitions of the left stream come first
        sources = [(side, rows) for side, rows in sources if len(rows)]  # an empty file is not a partition
        if rng.random() < 0.3:
            restart(run, rng)
        late, expected = wanted.late_rows, wanted.micro_batch(sources)
        if rng.random() < 0.2:  # an attempt whose results and manifests are lost
            task.query = replace(run)
            task.query.micro_batch(sources, rng, wanted.watermark_ms)
            task.query = run
        found, figures = run.micro_batch(sources, rng, wanted.watermark_ms)
        assert found == expected
        assert figures["late_rows"] == wanted.late_rows - late
        spilled = max(spilled, figures["spilled_rows"])
    return spilled


def idle(batches: list[list[File]], rng: random.Random) -> list[list[File]]:
    """Add micro-batches without rows: the watermark has advanced, or a file was empty."""
    return [one for batch in batches for one in ([batch, []] if rng.random() < 0.3 else [batch])] + [[]]


@pytest.mark.parametrize("seed", range(repeat(STREAMS)))
def test_random_streams_in_a_random_order(seed: int, tmp_path: Path, task: Any) -> None:
    rng = seeded(seed)
    text = rng.choice([1, 1, 3000])
    files = [random_files(rng, side) for side in (0, 1)]
    tables = cast(Tables, tuple(random_rows(rng, files[side], NAMES[side], text) for side in (0, 1)))
    match, how = rng.choice(MATCHES), rng.choice(HOWS)
    on, bounds = random_window(rng, tables, match.on, how)
    bounded = BOUNDS[on.removeprefix(f"{match.on} AND ")] if bounds.limits is not None else None
    memory, cells = rng.choice(MEMORIES), rng.choice([1, 2, 3, 9])
    run = query(tables, on, how, bounds, tmp_path, cells=cells, memory_bytes=memory)
    batches = idle(random_order(rng, [*files[0], *files[1]]), rng)
    play(run, definition(run, match, bounded), cast(Any, batches), task, rng)


# Three files per side, the second right one empty: all orders of the others, with the empty one at any position.


def three_files() -> tuple[list[File], Tables]:
    rng = random.Random(8)
    files: list[File] = [(side, range(12 * number, 12 * number + 12)) for side in (0, 1) for number in range(3 - side)]
    tables = []
    for side in (0, 1):
        rows = 12 * (3 - side)
        seconds = [30 * (row // 12) * (1 + side) + rng.random() * 25 for row in range(rows)]  # the last files match
        times = pa.array([START + timedelta(seconds=second) for second in seconds], pa.timestamp("us", "UTC"))
        keys = pa.array([rng.randrange(3) for _ in range(rows)], pa.int64())
        columns = {"k": keys, "x": keys, "ts": times, "text": pa.array([f"{row:04000d}" for row in range(rows)])}
        tables.append(pa.table({**columns, NAMES[side]: pa.array(range(rows), pa.int64())}))
    return files, (tables[0], tables[1])


FILES, TABLES = three_files()
ORDERS = list(orders(FILES))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", HOWS)
def test_every_order_of_arrival(how: str, tmp_path: Path, task: Any) -> None:
    """Within the delay of the watermarks, all orders of arrival give the same pairs."""
    rng = seeded(how)
    bounds = window(time="10 seconds", on="ts").with_watermarks((1000 * SECOND, 1000 * SECOND))
    chosen = some(ORDERS, HOWS.index(how), of=3 * PART)
    totals = set()
    spilled = 0
    for case, order in enumerate(chosen):
        batches = list(order)
        batches.insert(rng.randint(0, len(batches)), [])
        run = query(TABLES, "l.k = r.k", how, bounds, tmp_path / str(case), cells=2, memory_bytes=MEMORIES[1])
        wanted = definition(run, MATCHES[0], None)
        task.query = run
        pairs: Results = Counter()
        for given in [*batches, None]:
            if given is None:  # the end: all windows close
                wanted.newest = [wanted.newest[0] + HOUR, wanted.newest[1] + HOUR]  # type: ignore[operator]
            sources: list[Source] = sorted(given or [], key=lambda source: source[0])
            if rng.random() < 0.5:
                another_process()
            expected = wanted.micro_batch(sources)
            found, figures = run.micro_batch(sources, rng, wanted.watermark_ms)
            assert found == expected, batches
            spilled = max(spilled, figures["spilled_rows"])
            pairs += expected
        totals.add(frozenset(pairs.items()))
    assert len(totals) == 1
    assert spilled
