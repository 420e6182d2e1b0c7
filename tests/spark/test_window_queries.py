"""The queries of the SPO-Join paper on real data: in one operator, in cells, and on Spark, against a per-row oracle.

Q1  two streams, two inequalities, a window of rows       readings of a household's meter
Q2  a self-join, a band in two dimensions, by time        taxi pickups
Q3  a self-join, two inequalities, a window of rows       taxi rides
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import SkipTest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.datasets import read_columns
from pyspark.sql import SparkSession
from tests.spark.window_cells import played, query
from tests.spark.window_oracle import Holds, Results, Source, WindowOracle

import dovetail
from dovetail.window import Window

ROWS = 900  # of each stream


class Case(NamedTuple):
    left: pa.Table
    right: pa.Table
    on: str
    holds: Holds
    window: Window

    def oracle(self) -> WindowOracle:
        times = None
        if self.window.on is not None:
            tables = zip((self.left, self.right), self.window.on, strict=True)
            left, right = (table[name].cast(pa.int64()).to_pylist() for table, name in tables)
            times = left, right
        return WindowOracle(self.window, "inner", self.holds, times)


def numbered(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(range(table.num_rows)))


def column(table: pa.Table, name: str) -> Any:
    return np.asarray(table[name].cast(pa.float64()))  # NaN, which is less and more than nothing, for null


def inequalities(left: pa.Table, right: pa.Table, less: str, more: str, window: Window) -> Case:
    x, y, v, w = column(left, less), column(left, more), column(right, less), column(right, more)
    on = f"l.{less} < r.{less} AND l.{more} > r.{more}"
    return Case(
        numbered(left, "left_row"),
        numbered(right, "right_row"),
        on,
        lambda a, b: (x[a] < v[b]) & (y[a] > w[b]),
        window,
    )


def q1() -> Case:
    readings = read_columns("household_power_2007h1", "active_kw", "reactive_kw").slice(0, 2 * ROWS)
    left, right = (readings.take(np.arange(first, 2 * ROWS, 2)) for first in (0, 1))
    return inequalities(left, right, "active_kw", "reactive_kw", dovetail.window(rows=300, slide=50))


def q2() -> Case:
    rides = read_columns("nyc_taxi_2013_lonlat", "src", "pickup_ts", "pickup_lon", "pickup_lat")
    rides = rides.filter(pc.equal(rides["src"], "debs")).drop_columns("src").slice(0, ROWS)
    lon, lat = column(rides, "pickup_lon"), column(rides, "pickup_lat")
    return Case(
        numbered(rides, "left_row"),
        numbered(rides, "right_row"),
        "abs(l.pickup_lon - r.pickup_lon) < 0.03 AND abs(l.pickup_lat - r.pickup_lat) < 0.03",
        lambda a, b: (np.abs(lon[a] - lon[b]) < 0.03) & (np.abs(lat[a] - lat[b]) < 0.03),
        dovetail.window(time="2 minutes", slide="20 seconds", on="pickup_ts"),
    )


def q3() -> Case:
    rides = read_columns("nyc_green_2020", "trip_distance", "fare_amount").slice(100_000, ROWS)
    return inequalities(rides, rides, "fare_amount", "trip_distance", dovetail.window(rows=400))


QUERIES: dict[str, Callable[[], Case]] = {"Q1": q1, "Q2": q2, "Q3": q3}


def read(name: str) -> Case:
    try:
        return QUERIES[name]()
    except SkipTest as missing:
        pytest.skip(str(missing))


def micro_batches(rows: int) -> Iterator[list[Source]]:
    """One partition of each stream, so many rows of each at once."""
    for start in range(0, ROWS, rows):
        numbers = range(start, min(start + rows, ROWS))
        yield [(0, numbers), (1, numbers)]


@pytest.mark.parametrize("rows", [50, 300])
@pytest.mark.parametrize("name", QUERIES)
def test_in_one_operator(name: str, rows: int) -> None:
    """Here the rows of a side arrive together, first those of the left one."""
    case = read(name)
    oracle = case.oracle()
    schedule: list[tuple[Any, ...]] = []
    expected: Results = Counter()
    for sources in micro_batches(rows):
        for side, numbers in sources:
            expected += oracle.micro_batch([(side, numbers)])
            schedule.append(("lr"[side], len(numbers)))
            if oracle.horizon is not None:
                schedule.append(("watermark", oracle.horizon))
    run = dovetail.simulate("spo", case.left, case.right, case.on, schedule, window=case.window, block_rows=rows)
    assert Counter(run.pairs) == expected
    assert expected.total() > ROWS


@pytest.mark.parametrize(("rows", "cells"), [(50, 3), (300, 1), (300, 3)])
@pytest.mark.parametrize("name", QUERIES)
def test_in_cells(name: str, rows: int, cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, rng = read(name), random.Random(0)
    oracle = case.oracle()
    task: SimpleNamespace = played(monkeypatch)
    task.query = query((case.left, case.right), case.on, "inner", case.window, tmp_path, cells=cells)
    for sources in micro_batches(rows):
        assert task.query.micro_batch(sources, rng)[0] == oracle.micro_batch(sources)


MORE = [(name, rows, cells) for name in QUERIES for rows, cells in ((90, 1), (450, 2))]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in MORE]


@pytest.mark.spark
@pytest.mark.parametrize(("name", "rows", "cells"), [("Q2", 450, 3), *SLOW])
def test_on_spark(name: str, rows: int, cells: int, spark: SparkSession, tmp_path: Path) -> None:
    case = read(name)
    for side, table in (("l", case.left), ("r", case.right)):
        (tmp_path / side).mkdir()
        for number, start in enumerate(range(0, ROWS, rows)):
            path = tmp_path / side / f"{number:03}.parquet"
            pq.write_table(table.slice(start, rows), path)
            os.utime(path, (number, number))  # Spark reads the oldest first
    readers = [spark.readStream.schema(spark.read.parquet(str(tmp_path / side)).schema) for side in "lr"]
    left, right = (
        reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / side))
        for reader, side in zip(readers, "lr", strict=True)
    )
    options = {"window": case.window, "cells": cells, "state_dir": str(tmp_path / "state")}
    joined = dovetail.join(left, right, case.on, **options).select("left_row", "right_row")
    name = f"window_query_{os.getpid()}"
    writer = joined.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    oracle = case.oracle()
    expected = sum((oracle.micro_batch(sources) for sources in micro_batches(rows)), Counter())
    assert Counter(map(tuple, spark.table(name).collect())) == expected
