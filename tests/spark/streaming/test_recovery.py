"""Kill a streaming join repeatedly, and check that no result is lost or duplicated."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.effort import KILLS
from tests.seed import seeded
from tests.spark.streaming import recovery_job, window_queries
from tests.spark.streaming.killing import Job
from tests.spark.streaming.micro_batches import micro_batches
from tests.spark.streaming.window_oracle import Source, turns

pytestmark = pytest.mark.spark

ROWS = 50_000  # per side
QUERY_ROWS = 3_000  # per side, if an oracle works row by row
WINDOW = 2000  # rows
BOUND = 15  # seconds; each has 100 rows

Results = Counter[tuple[int, int | None]]
MicroBatches = Iterable[list[Source]]


class Work(NamedTuple):
    """The inputs of a join, its arguments, and the expected result."""

    left: pa.Table
    right: pa.Table
    join: dict[str, Any]
    names: tuple[str, str]  # columns with the row numbers of each side
    expected: Callable[[MicroBatches], Results]


def equality(**options: str) -> Work:
    left, right = clustered()
    pairs = left.select(["k", "left"]).join(right.select(["k", "right"]), "k", join_type="inner")
    expected = Counter(zip(pairs["left"].to_pylist(), pairs["right"].to_pylist(), strict=True))
    return Work(left, right, {"on": "l.k = r.k", **options}, ("left", "right"), lambda batches: expected)


def window(how: str = "inner") -> Work:
    left, right = clustered()
    options = {"on": "l.k < r.k AND l.v > r.v", "how": how, "window": {"rows": WINDOW}}
    return Work(left, right, options, ("left", "right"), partial(in_window, left, right, how == "left"))


def bounded(how: str) -> Work:
    """Rows arrive sorted by time; the last row of each stream expires all others."""
    tables = []
    for name, table in zip(("left", "right"), clustered(), strict=True):
        times = np.arange(ROWS) * 10_000 + np.where(np.arange(ROWS) == ROWS - 1, 3600_000_000, 0)
        tables.append(table.append_column(f"{name}_ts", pa.array(times).cast(pa.timestamp("us", "UTC"))))
    left, right = tables
    on = f"l.k < r.k AND l.v > r.v AND r.right_ts BETWEEN l.left_ts AND l.left_ts + INTERVAL {BOUND} SECONDS"
    marks = {"left": ["left_ts", "10 seconds"], "right": ["right_ts", "20 seconds"]}
    ahead = np.minimum(np.arange(ROWS) + 100 * BOUND + 1, ROWS - 1)
    ahead[-1] = ROWS
    found = partners_of(left, right, np.arange(ROWS), ahead, np.arange(ROWS))
    expected = Counter({(row, partner) for row, partner in found})
    alone = set(range(ROWS - 1)) - {row for row, _ in expected} if how == "left" else set()
    expected.update((row, None) for row in alone)
    return Work(left, right, {"on": on, "how": how, "watermarks": marks}, ("left", "right"), lambda batches: expected)


def as_of() -> Work:
    """The last right row of the same key up to each left row, emitted once both watermarks have passed."""
    work = bounded("inner")
    on = "l.k = r.k AND r.right_ts <= l.left_ts"
    best = {"how": "left", "top": 1, "order_by": "r.right_ts DESC", "watermarks": work.join["watermarks"]}
    newest: dict[int, int] = {}
    expected: Results = Counter()
    for row, (key, other) in enumerate(zip(work.left["k"].to_pylist(), work.right["k"].to_pylist(), strict=True)):
        newest[other] = row
        expected[row, newest.get(key)] += row < ROWS - 1
    return Work(work.left, work.right, {"on": on, **best}, work.names, lambda batches: expected)


def with_table() -> Work:
    left, right = clustered()
    right = right.slice(0, 500)
    everywhere = np.zeros(ROWS, np.int64)
    found = set(partners_of(left, right, everywhere, everywhere + right.num_rows, np.arange(right.num_rows)))
    expected: Results = Counter(found)
    expected.update((row, None) for row in set(range(ROWS)) - {row for row, _ in found})
    options = {"on": "l.k < r.k AND l.v > r.v", "how": "left", "table": "right"}
    return Work(left, right, options, ("left", "right"), lambda batches: expected)


def query(name: str) -> Work:
    found = window_queries.read(name, QUERY_ROWS)
    options = {"on": found.on, "window": found.size}
    return Work(
        found.left,
        found.right,
        options,
        ("left_row", "right_row"),
        lambda batches: sum(map(found.oracle().micro_batch, batches), Counter()),
    )


WORK: dict[str, Callable[[], Work]] = {
    "equality": equality,
    "spilling": partial(equality, algorithm="spo", memory="1MB"),
    "window": window,
    "window, left": partial(window, "left"),
    "bounded, inner": partial(bounded, "inner"),
    "bounded, left": partial(bounded, "left"),
    "as-of": as_of,
    "Q1": partial(query, "Q1"),
    "Q2": partial(query, "Q2"),
    "Q3": partial(query, "Q3"),
}


def clustered() -> tuple[pa.Table, pa.Table]:
    """Many duplicates, and one heavy key. v increases with k, so few rows have a smaller k but a larger v."""
    rng = np.random.default_rng(0)
    tables = []
    for side in ("left", "right"):
        keys = np.where(rng.random(ROWS) < 0.01, -1, rng.integers(0, 20_000, ROWS))
        values = keys + rng.integers(-100, 100, ROWS)
        tables.append(pa.table({"k": keys, "v": values, side: np.arange(ROWS)}))
    return tables[0], tables[1]


def in_window(left: pa.Table, right: pa.Table, outer: bool, batches: MicroBatches) -> Results:
    """Computed row by row: pairs whose positions in the order of arrival are less than a window apart."""
    places = np.empty((2, ROWS), np.int64)
    for place, arrival in enumerate(chain.from_iterable(map(turns, batches))):
        places[arrival] = place
    order = np.argsort(places[1])
    first, last = (np.searchsorted(places[1], places[0] + reach, sorter=order) for reach in (1 - WINDOW, WINDOW))
    found: Results = Counter(partners_of(left, right, first, last, order))
    if outer:
        closed = set(np.flatnonzero(places[0] <= 2 * ROWS - WINDOW).tolist())
        found.update((row, None) for row in closed - {row for row, _ in found})
    return found


def partners_of(left: pa.Table, right: pa.Table, first: Any, last: Any, order: Any) -> Iterator[tuple[int, int]]:
    """Pairs with l.k < r.k AND l.v > r.v; the partners of a left row are in `order[first:last]`."""
    keys, values = ([np.asarray(table[name]) for table in (left, right)] for name in ("k", "v"))
    for row in range(left.num_rows):
        near = order[first[row] : last[row]]
        partners = near[(keys[0][row] < keys[1][near]) & (values[0][row] > values[1][near])]
        yield from ((row, int(partner)) for partner in partners)


def write(place: Path, work: Work, files: int) -> None:
    """Write both sides as many small files, one per micro-batch."""
    (place / "join.json").write_text(json.dumps(work.join))
    for side, table in (("left", work.left), ("right", work.right)):
        (place / side).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(table.num_rows), files)):
            path = place / side / f"{number:03d}.parquet"
            pq.write_table(table.take(rows), path)
            os.utime(path, (number, number))  # Spark reads the oldest first


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job whose processes are all ended afterwards, in any case."""
    job = Job(tmp_path)
    yield job
    job.end()


def check(place: Path, work: Work, spark: SparkSession) -> None:
    sink = spark.read.parquet(str(place / "results")).select(*work.names).toArrow()  # from the log of the sink
    results = Counter(zip(*(sink[name].to_pylist() for name in work.names), strict=True))
    expected = work.expected(micro_batches(place, work.names))
    assert results.total() == expected.total()
    assert results == expected


def check_segments(place: Path, spark: SparkSession) -> None:
    """Check that all segments in manifests exist, and few others: segments of killed attempts have been swept."""
    store = spark.read.format("statestore").option("stateVarName", "manifest").load(str(place / "checkpoint"))
    named, before = (
        {
            name
            for row in store.selectExpr(f"get_json_object(value.manifest, '$.{which}') AS names").collect()
            for name in re.findall(r'[^"\[\],]+\.arrow', row.names)
        }
        for which in ("segments", "previous")
    )
    there = {path.name for path in place.glob("state/*/*/cell-*/*")}
    assert named <= there
    assert len(there) < 3 * len(named | before) + 20


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["equality", pytest.param("window, left", marks=pytest.mark.slow)])
def test_a_killed_driver_and_killed_workers(kind: str, job: Job, spark: SparkSession) -> None:
    work = WORK[kind]()
    write(job.place, work, files=10)  # on a busy machine it takes several to hit a busy worker
    job.kill_workers_and_jvm()
    session = spark.newSession()
    for name, value in recovery_job.CONF.items():
        session.conf.set(name, value)
    recovery_job.run(session, job.place)
    check(job.place, work, spark)
    check_segments(job.place, spark)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORK)
def test_many_kills(kind: str, job: Job, spark: SparkSession) -> None:
    """Kill the driver and the workers in turn, DOVETAIL_TEST_KILLS times."""
    rng = seeded("kills", kind)
    work = WORK[kind]()
    write(job.place, work, files=4 * KILLS)
    for kills in range(0, KILLS, 2):
        job.kill_jvm(batches=rng.choice([1, 2, 3]), pause=rng.random() if kills % 4 else None)
        done = job.kill_workers(batches=rng.choice([1, 2]), master="local[2]")
        assert not done  # without retries a failed task ends the query
    assert job.run_to_the_end()
    check(job.place, work, spark)
    check_segments(job.place, spark)


@pytest.mark.slow
def test_kills_beside_a_table(job: Job, spark: SparkSession) -> None:
    rng = random.Random(3)
    work = with_table()
    write(job.place, work, files=60)
    for _ in range(3):
        job.kill_jvm(batches=rng.choice([1, 2, 3]), pause=rng.random() / 2)
    assert job.kill_workers(batches=1, master="local[2,8]", pause=0.05)
    check(job.place, work, spark)
    assert not [*job.place.glob("state/*")]  # copies of the table have been removed


@pytest.mark.slow
def test_a_stream_a_file_ahead(job: Job, spark: SparkSession) -> None:
    """The driver dies after the left stream has logged its file, but before the right stream and the query have."""
    work = WORK["Q3"]()
    write(job.place, work, files=20)
    job.kill_jvm(batches=4, pause=None)
    checkpoint = job.place / "checkpoint"
    last = max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    assert not (checkpoint / "commits" / str(last)).exists()
    for log in (checkpoint / "offsets", checkpoint / "sources" / "1"):
        (log / str(last)).unlink()
        (log / f".{last}.crc").unlink()
    assert job.run_to_the_end()
    sizes = [len(batch) for batch in micro_batches(job.place, work.names)]
    assert sizes == [2] * last + [3] + [2] * (19 - last - 1) + [1]
    check(job.place, work, spark)
