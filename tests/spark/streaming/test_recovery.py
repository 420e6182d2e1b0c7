"""Kill a streaming join for real, again and again, and see that no result is lost and none comes twice."""

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
from tests.spark.streaming import recovery_job, window_queries
from tests.spark.streaming.killing import Job
from tests.spark.streaming.micro_batches import micro_batches
from tests.spark.streaming.window_oracle import Source, turns

pytestmark = pytest.mark.spark

ROWS = 50_000  # of each side
QUERY_ROWS = 3_000  # of each side, where an oracle goes row by row
WINDOW = 2000  # rows

Results = Counter[tuple[int, int | None]]
MicroBatches = Iterable[list[Source]]


class Work(NamedTuple):
    """What is joined, how, and what must come of it."""

    left: pa.Table
    right: pa.Table
    join: dict[str, Any]
    names: tuple[str, str]  # of columns that number the rows of each side
    expected: Callable[[MicroBatches], Results]


def equality() -> Work:
    left, right = clustered()
    pairs = left.select(["k", "left"]).join(right.select(["k", "right"]), "k", join_type="inner")
    expected = Counter(zip(pairs["left"].to_pylist(), pairs["right"].to_pylist(), strict=True))
    return Work(left, right, {"on": "l.k = r.k"}, ("left", "right"), lambda batches: expected)


def window(how: str = "inner") -> Work:
    left, right = clustered()
    options = {"on": "l.k < r.k AND l.v > r.v", "how": how, "window": {"rows": WINDOW}}
    return Work(left, right, options, ("left", "right"), partial(in_window, left, right, how == "left"))


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
    "window": window,
    "window, left": partial(window, "left"),
    "Q1": partial(query, "Q1"),
    "Q2": partial(query, "Q2"),
    "Q3": partial(query, "Q3"),
}


def clustered() -> tuple[pa.Table, pa.Table]:
    """Duplicates everywhere, and one heavy key. v grows with k: few rows have a smaller k but a larger v."""
    rng = np.random.default_rng(0)
    tables = []
    for side in ("left", "right"):
        keys = np.where(rng.random(ROWS) < 0.01, -1, rng.integers(0, 20_000, ROWS))
        values = keys + rng.integers(-100, 100, ROWS)
        tables.append(pa.table({"k": keys, "v": values, side: np.arange(ROWS)}))
    return tables[0], tables[1]


def in_window(left: pa.Table, right: pa.Table, outer: bool, batches: MicroBatches) -> Results:
    """Row by row: pairs whose places in the order of arrival are less than a window apart."""
    places = np.empty((2, ROWS), np.int64)
    for place, arrival in enumerate(chain.from_iterable(map(turns, batches))):
        places[arrival] = place
    columns = [[np.asarray(table[name]) for name in ("k", "v")] for table in (left, right)]
    order = np.argsort(places[1])
    first, last = (np.searchsorted(places[1], places[0] + reach, sorter=order) for reach in (1 - WINDOW, WINDOW))
    found: Results = Counter()
    for row in range(ROWS):
        near = order[first[row] : last[row]]
        partners = near[(columns[0][0][row] < columns[1][0][near]) & (columns[0][1][row] > columns[1][1][near])]
        found.update((row, int(partner)) for partner in partners)
        if outer and not len(partners) and places[0][row] <= 2 * ROWS - WINDOW:  # its window has closed
            found[row, None] += 1
    return found


def write(place: Path, work: Work, files: int) -> None:
    """Both sides in many small files, a micro-batch each."""
    (place / "join.json").write_text(json.dumps(work.join))
    for side, table in (("left", work.left), ("right", work.right)):
        (place / side).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(table.num_rows), files)):
            path = place / side / f"{number:03d}.parquet"
            pq.write_table(table.take(rows), path)
            os.utime(path, (number, number))  # Spark reads the oldest first


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job of which nothing is left afterwards, whatever happens."""
    job = Job(tmp_path)
    yield job
    job.end()


def check(place: Path, work: Work, spark: SparkSession) -> None:
    sink = spark.read.parquet(str(place / "results")).select(*work.names).toArrow()  # by the log of the sink
    results = Counter(zip(*(sink[name].to_pylist() for name in work.names), strict=True))
    expected = work.expected(micro_batches(place, work.names))
    assert results.total() == expected.total()
    assert results == expected


def check_segments(place: Path, spark: SparkSession) -> None:
    """Every segment that a manifest names is there, and few others: what killed attempts wrote has been swept."""
    store = spark.read.format("statestore").option("stateVarName", "manifest").load(str(place / "checkpoint"))
    names = store.selectExpr("get_json_object(value.manifest, '$.segments') AS names").collect()
    named = {name for row in names for name in re.findall(r'[^"\[\],]+\.arrow', row.names)}
    there = {path.name for path in place.glob("state/*/*/cell-*/*")}
    assert named <= there
    assert len(there) < 3 * len(named) + 20


@pytest.mark.parametrize("kind", ["equality", pytest.param("window, left", marks=pytest.mark.slow)])
def test_a_killed_driver_and_killed_workers(kind: str, job: Job, spark: SparkSession) -> None:
    work = WORK[kind]()
    write(job.place, work, files=5)
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
    rng = random.Random(2)
    work = WORK[kind]()
    write(job.place, work, files=40)
    for kills in range(5):
        job.kill_jvm(batches=rng.choice([1, 2, 3]), pause=rng.random() if kills % 2 else None)
        done = job.kill_workers(batches=rng.choice([1, 2]), master="local[2]")
        assert not done  # without retries a failed task ends the query
    assert job.run_to_the_end()
    check(job.place, work, spark)
    check_segments(job.place, spark)


@pytest.mark.slow
def test_a_stream_a_file_ahead(job: Job, spark: SparkSession) -> None:
    """The driver dies after the left stream has noted its file, before the right one and the query have."""
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
