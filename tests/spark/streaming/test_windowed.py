"""Windowed joins of streams on Spark: every micro-batch against a per-row oracle, restarts with other cells, errors."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from tests.effort import ALL
from tests.patience import PATIENCE_S
from tests.spark.streaming.window_oracle import Results, Source, WindowOracle

import dovetail
from dovetail.errors import InputError, PlanError, StateError
from dovetail.window import Window

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

COLUMNS = "x {}, y DOUBLE, s STRING, d DECIMAL(8, 2), t TIMESTAMP, ts TIMESTAMP"
SCHEMAS = ("a BIGINT, " + COLUMNS.format("INT"), "b BIGINT, " + COLUMNS.format("BIGINT"))
TYPES = {"y": pa.float64(), "s": pa.string(), "d": pa.decimal128(8, 2), "t": pa.timestamp("us", "UTC")}
START = datetime(2024, 1, 1, tzinfo=UTC)
DOCS = Path(__file__).parents[3] / "docs"

Row = dict[str, Any]


def random_stream(seed: int, rows: int, name: str, x: pa.DataType) -> pa.Table:
    """Few values, so that many are equal, and nulls in all columns. Times increase, with some out of order."""
    rng = random.Random(seed)

    def some(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.08 else rng.choice(values) for _ in range(rows)]

    columns = {
        name: pa.array(range(rows)),
        "x": pa.array(some([*range(6)]), x),
        "y": pa.array(some([0.0, -0.0, 0.5, 1.0, float("inf")])),
        "s": pa.array(some(["", "a", "ab", "ba", "bab"])),
        "d": pa.array(some([Decimal("0.10"), Decimal("1.00"), Decimal("-3.25")]), TYPES["d"]),
        "t": pa.array(some([START, START + timedelta(microseconds=1), START - timedelta(days=9)]), TYPES["t"]),
    }
    times = [START + timedelta(seconds=i + rng.choice([0, 0, 2, -6, -20])) for i in range(rows)]
    columns["ts"] = pa.array([None if rng.random() < 0.05 else t for t in times], TYPES["t"])
    return pa.table(columns)


def write_files(directory: Path, table: pa.Table, sizes: list[int], first: int = 0) -> None:
    """Write the rows of a table as files of these sizes."""
    directory.mkdir(parents=True, exist_ok=True)
    start = 0
    for number, size in enumerate(sizes, first):
        path = directory / f"{number:03}.parquet"
        pq.write_table(table.slice(start, size), path)
        os.utime(path, (number, number))  # Spark reads the oldest first
        start += size


class Streams(NamedTuple):
    """Two streams of files, and their rows."""

    spark: SparkSession
    directory: Path
    tables: tuple[pa.Table, pa.Table]

    def frames(self, files_at_once: int) -> tuple[DataFrame, DataFrame]:
        reader = self.spark.readStream.option("maxFilesPerTrigger", files_at_once)
        left, right = (reader.schema(SCHEMAS[i]).parquet(str(self.directory / "lr"[i])) for i in (0, 1))
        return left, right

    def joined(self, on: str, how: str = "inner", **options: Any) -> DataFrame:
        result: DataFrame = dovetail.join(*self.frames(1), on, how, state_dir=str(self.directory / "state"), **options)
        return result

    def writer(self, joined: DataFrame) -> DataStreamWriter:
        checkpoint = str(self.directory / "checkpoint")
        return joined.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)

    def micro_batches(self, files_at_once: int) -> list[list[Source]]:
        """The rows of each partition of each micro-batch, as reported by Spark."""
        left, right = self.frames(files_at_once)
        both = left.select(F.lit(0), "a").union(right.select(F.lit(1), "b"))
        found: list[list[Source]] = []

        def look(batch: DataFrame, number: int) -> None:
            sources: dict[tuple[int, int], list[int]] = {}
            place = F.monotonically_increasing_id()  # the partition, and the position in it
            for side, row, at in sorted(batch.select("*", place).collect(), key=lambda r: r[2]):
                sources.setdefault((at >> 33, side), []).append(row)
            found.append([(side, rows) for (_, side), rows in sources.items()])

        run(both.writeStream.foreachBatch(look).trigger(availableNow=True))
        return found

    def oracle(self, holds: Callable[[Row, Row], bool | None], how: str, window: Window) -> WindowOracle:
        left, right = (table.to_pylist() for table in self.tables)
        matches = np.array([[bool(holds(a, b)) for b in right] for a in left])
        times = [table["ts"].cast(pa.int64()).to_pylist() for table in self.tables]
        return WindowOracle(window, how, lambda a, b: matches[a, b], (times[0], times[1]) if window.by_time else None)


def run(writer: DataStreamWriter) -> StreamingQuery:
    query = writer.start()
    query.awaitTermination()
    return query


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    directory = tmp_path_factory.mktemp("windows")
    tables = random_stream(0, 100, "a", pa.int32()), random_stream(1, 90, "b", pa.int64())
    write_files(directory / "l", tables[0], [25, 8, 17, 30, 12, 8])
    write_files(directory / "r", tables[1], [12, 21, 5, 33, 1, 18])
    return Streams(spark, directory, tables)


# Results.


def null_safe(compare: Callable[..., bool], *names: str) -> Callable[[Row, Row], bool]:
    """A comparison of l's and r's values that is false for nulls."""

    def holds(left: Row, right: Row) -> bool:
        values = [row[name] for row in (left, right) for name in names]
        return None not in values and compare(*values)

    return holds


class Case(NamedTuple):
    on: str
    holds: Callable[[Row, Row], bool]
    how: str
    window: Window
    cells: int


def levenshtein(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(levenshtein(a[1:], b) + 1, levenshtein(a, b[1:]) + 1, levenshtein(a[1:], b[1:]) + (a[0] != b[0]))


less_and_more = null_safe(lambda x, y, v, w: x < v and y > w, "x", "y")
equal = null_safe(lambda s, z: s == z, "s")
earlier = null_safe(lambda t, u: t < u, "t")
close = null_safe(lambda s, z: levenshtein(s, z) < 2, "s")
CASES = {
    "band": Case(
        "abs(l.x - r.x) <= 1",
        null_safe(lambda x, v: abs(x - v) <= 1, "x"),
        "left",
        dovetail.window(rows=5, scope="per_stream"),
        3,
    ),
    "equality": Case(
        "l.s = r.s AND l.d < r.d",
        null_safe(lambda s, d, z, e: s == z and d < e, "s", "d"),
        "left_anti",
        dovetail.window(rows=20, slide=20),
        2,
    ),
    "unequal": Case(
        "l.d != r.d AND l.x > 3",
        null_safe(lambda d, x, e, _: d != e and x > 3, "d", "x"),
        "left_semi",
        dovetail.window(time="10 seconds", on="ts", delay="5 seconds"),
        2,
    ),
}
MORE = {
    "residual": Case(
        "(l.s = r.s OR l.t < r.t) AND levenshtein(l.s, r.s) < 2",
        lambda a, b: (equal(a, b) or earlier(a, b)) and close(a, b),
        "inner",
        dovetail.window(rows=15),
        1,
    ),
    "two inequalities": Case("l.x < r.x AND l.y > r.y", less_and_more, "inner", dovetail.window(rows=40), 2),
    "per stream": Case(
        "l.x < r.x AND l.y > r.y", less_and_more, "left_anti", dovetail.window(rows=9, scope="per_stream"), 2
    ),
    "time": Case(
        "l.x < r.x AND l.y > r.y",
        less_and_more,
        "inner",
        dovetail.window(time="15 seconds", on="ts", delay="5 seconds"),
        2,
    ),
    "time, left": Case(
        "l.t = r.t", null_safe(lambda t, u: t == u, "t"), "left", dovetail.window(time="10 seconds", on="ts"), 3
    ),
}


@pytest.fixture(scope="module")
def batches(streams: Streams) -> list[list[Source]]:
    return streams.micro_batches(files_at_once=2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("cases", [CASES, pytest.param(MORE, marks=pytest.mark.slow)], ids=["few", "more"])
def test_every_micro_batch(
    cases: dict[str, Case], streams: Streams, batches: list[list[Source]], tmp_path: Path
) -> None:
    """All cases in one query."""
    left, right = streams.frames(files_at_once=2)
    joins = []
    for name, case in cases.items():
        options = {"window": case.window, "cells": case.cells, "metrics": name, "state_dir": str(tmp_path / "state")}
        joined = dovetail.join(left, right, case.on, case.how, **options)
        row = F.col("b") if "b" in joined.columns else F.lit(None).cast("bigint")
        joins.append(joined.select(F.lit(name), "a", row))
    found: list[dict[str, Results]] = []

    def keep(batch: DataFrame, number: int) -> None:
        results: dict[str, Results] = {name: Counter() for name in cases}
        for name, a, b in batch.collect():
            results[name][a, b] += 1
        found.append(results)

    writer = reduce(DataFrame.union, joins).writeStream.foreachBatch(keep).trigger(availableNow=True)
    query = run(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    progress = [p for p in query.recentProgress if p.numInputRows]
    assert len(batches) == len(found) == len(progress) == 3
    assert any(len(sources) == 4 for sources in batches)
    for name, case in cases.items():
        oracle = streams.oracle(case.holds, case.how, case.window)
        for sources, results, step in zip(batches, found, progress, strict=True):
            late = oracle.late_rows
            assert results[name] == oracle.micro_batch(sources), name
            figures = step.observedMetrics[name]
            assert figures["late_rows"] == oracle.late_rows - late
            if "levenshtein" not in case.on:  # Spark applies it to the results of the join
                assert figures["matches"] == results[name].total()
        assert bool(oracle.late_rows) == case.window.by_time


@pytest.mark.slow
def test_a_window_larger_than_the_memory_of_its_cell(spark: SparkSession, tmp_path: Path) -> None:
    """The results of each micro-batch are the same as with enough memory."""
    rows = 1200
    for side, name, x in ((0, "a", pa.int32()), (1, "b", pa.int64())):
        write_files(tmp_path / "lr"[side], random_stream(side, rows, name, x), [400, 350, 450])
    streams = Streams(spark, tmp_path, (pa.table({}), pa.table({})))
    left, right = streams.frames(files_at_once=1)
    hows, memories = ("inner", "left_anti") if ALL else ("left_anti",), {"much": None, "little": 65_536}
    options = {"window": dovetail.window(rows=1500), "cells": 1, "state_dir": str(tmp_path / "state")}
    on = "l.x < r.x AND l.y > r.y AND l.s <> r.s"
    joins = []
    for how in hows:
        for name, memory in memories.items():
            joined = dovetail.join(left, right, on, how, memory=memory, metrics=f"{how} {name}", **options)
            row = F.col("b") if "b" in joined.columns else F.lit(None).cast("bigint")
            joins.append(joined.select(F.lit(f"{how} {name}").alias("join"), F.xxhash64("a", row).alias("pair")))
    found: dict[str, Counter[Any]] = {f"{how} {name}": Counter() for how in hows for name in memories}

    def keep(batch: DataFrame, number: int) -> None:
        for join, pairs, total in batch.groupBy("join").agg(F.count("*"), F.sum(F.col("pair") % 1000003)).collect():
            found[join][number] += pairs
            found[join][number, "sum"] += total

    writer = reduce(DataFrame.union, joins).writeStream.foreachBatch(keep).trigger(availableNow=True)
    query = run(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    steps = [p.observedMetrics for p in query.recentProgress if p.numInputRows]
    assert len(steps) == 3
    for how in hows:
        assert found[f"{how} much"] == found[f"{how} little"]
        assert found[f"{how} much"].total()
        for step in steps:  # the same window, except that a part of it may be kept longer
            kept = [step[f"{how} {name}"]["window_rows"] for name in memories]
            assert kept[0] <= kept[1] <= kept[0] + 1000


@pytest.mark.one_in(2)
def test_windows_close_by_the_clock_while_nothing_arrives(spark: SparkSession, tmp_path: Path) -> None:
    """Without arrivals event time does not advance, but `idle` limits the wait."""
    alone = pa.table({"a": [1], "ts": pa.array([START], pa.timestamp("us", "UTC"))})
    other = pa.table({"b": [1], "ts": pa.array([START], pa.timestamp("us", "UTC"))})
    write_files(tmp_path / "l", alone, [1])
    write_files(tmp_path / "r", other, [1])
    left = spark.readStream.schema("a bigint, ts timestamp").parquet(str(tmp_path / "l"))
    right = spark.readStream.schema("b bigint, ts timestamp").parquet(str(tmp_path / "r"))
    bounds = dovetail.window(time="1 second", on="ts", delay="0 seconds", idle="300 milliseconds")
    joined = dovetail.join(left, right, "l.a < r.b", "left", window=bounds, state_dir=str(tmp_path / "state"))
    query = (
        joined.writeStream.format("memory")
        .queryName("closed_by_the_clock")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )

    def matches_while_idle() -> list[int]:
        """A micro-batch reports its progress only after its rows can be read."""
        progress = [
            p.observedMetrics["dovetail"] for p in query.recentProgress if not p.numInputRows and p.observedMetrics
        ]
        return [metrics["matches"] for metrics in progress if metrics["matches"]]

    try:
        deadline = time.monotonic() + PATIENCE_S
        while not matches_while_idle() and time.monotonic() < deadline:
            query.awaitTermination(0.2)
        assert matches_while_idle()
        assert [(row["a"], row["b"]) for row in spark.table("closed_by_the_clock").collect()] == [(1, None)]
    finally:
        query.stop()


# Restarts, and bounded state.


@pytest.mark.slow
def test_an_inner_join_goes_on_with_other_cells(spark: SparkSession, tmp_path: Path) -> None:
    """Fewer and more cells, up to the number of partitions; all columns are unchanged, and state is bounded."""
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    rows, batches, size = 20, 12, 50
    tables = random_stream(2, rows * batches, "a", pa.int32()), random_stream(3, rows * batches, "b", pa.int64())
    streams = Streams(spark, tmp_path, tables)
    case = MORE["two inequalities"]._replace(window=dovetail.window(rows=size, slide=10))
    oracle = streams.oracle(case.holds, "inner", case.window)
    values = [[tuple(row.values()) for row in table.to_pylist()] for table in tables]
    width = len(values[0][0])
    files: list[int] = []
    kept: list[int] = []

    def check(batch: DataFrame, number: int) -> None:
        found = [tuple(row.values()) for row in batch.toArrow().to_pylist()]
        numbers = range(number * rows, (number + 1) * rows)
        assert Counter((row[0], row[width]) for row in found) == oracle.micro_batch([(0, numbers), (1, numbers)])
        assert all(row == values[0][row[0]] + values[1][row[width]] for row in found)
        files.append(sum(1 for _ in tmp_path.glob("state/*/*/cell-*/*")))

    for start, cells in enumerate((2, 1, 3)):
        for side, table in zip("lr", tables, strict=True):
            write_files(tmp_path / side, table.slice(4 * start * rows), [rows] * 4, 4 * start)
        joined = streams.joined(case.on, window=case.window, cells=cells)
        query = run(streams.writer(joined).foreachBatch(check))
        kept += [p.observedMetrics["dovetail"]["window_rows"] for p in query.recentProgress if p.numInputRows]
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert len(kept) == len(files) == batches
    assert max(kept) <= size + 2 * rows + 10  # the window, a micro-batch of both sides, a slide
    assert max(files) <= 3 * 8 * 5  # cells, files of a micro-batch, micro-batches in the window or not swept yet


@pytest.mark.slow
def test_a_left_join_stays_with_its_cells(streams: Streams, spark: SparkSession, tmp_path: Path) -> None:
    short = Streams(spark, tmp_path, streams.tables)
    window = dovetail.window(rows=10)
    for side, table in zip("lr", streams.tables, strict=True):
        write_files(tmp_path / side, table, [10])
    run(short.writer(short.joined("l.x < r.x", "left", window=window, cells=2)).format("noop"))
    with pytest.raises(StateError, match="made by another join: cells was 2 and is now 1"):
        short.writer(short.joined("l.x < r.x", "left", window=window, cells=1)).format("noop").start()
    larger = short.joined("l.x < r.x", "left", window=dovetail.window(rows=12), cells=2)
    with pytest.raises(StateError, match=r"made by another join: window was \[10, .* and is now \[12, "):
        short.writer(larger).format("noop").start()


# Errors before a query starts.


def test_refusals(streams: Streams) -> None:
    left, right = streams.frames(1)
    rows = dovetail.window(rows=10)
    with pytest.raises(PlanError, match=r"has no equality between the two streams.*window=dovetail.window\(rows=…\)"):
        dovetail.join(left, right, "l.x < r.x")
    with pytest.raises(InputError, match="window= is for two streams"):
        dovetail.join(*(streams.spark.range(3).toDF(name) for name in "xy"), "l.x < r.y", window=rows)
    with pytest.raises(
        InputError, match=r"window must be Window, such as dovetail.window\(rows=1000\).*; got '10 rows'"
    ):
        dovetail.join(left, right, "l.x < r.x", window="10 rows")
    with pytest.raises(InputError, match="'sent', which is not a column of the left side"):
        dovetail.join(left, right, "l.x < r.x", window=dovetail.window(time="1 hour", on="sent"))
    with pytest.raises(InputError, match="'s', which is not a timestamp of the right side"):
        dovetail.join(left, right, "l.x < r.x", window=dovetail.window(time="1 hour", on=("ts", "s")))
    with pytest.raises(PlanError, match="algorithm='shj' does not join within windows; spo does"):
        dovetail.join(left, right, "l.x = r.x", window=rows, algorithm="shj")
    with pytest.raises(PlanError, match=r"how='left' .* does not support levenshtein"):
        dovetail.join(left, right, "levenshtein(l.s, r.s) < 2", "left", window=rows)


def test_spark_refuses_the_same_join(streams: Streams) -> None:
    """The error quoted in docs/windows.md."""
    left, right = streams.frames(1)
    joined = left.alias("l").join(right.alias("r"), F.expr("l.x < r.x AND l.y > r.y"))
    with pytest.raises((AnalysisException, StreamingQueryException)) as failure:
        run(joined.writeStream.format("noop").trigger(availableNow=True))
    said = "Stream-stream join without equality predicate is not supported"
    assert said in str(failure.value)
    assert said in (DOCS / "windows.md").read_text()


def test_a_plan_says_what_it_would_do(streams: Streams) -> None:
    plan = dovetail.explain(*streams.frames(1), "l.x < r.x AND l.y > r.y", window=dovetail.window(rows=10), cells=2)
    assert "10 rows of both streams" in str(plan)
