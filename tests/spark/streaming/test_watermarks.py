"""Time windows take their delay from the inputs' watermarks: every micro-batch against a per-row oracle."""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import ALL
from tests.patience import PATIENCE_S
from tests.spark.streaming.window_oracle import Results, WindowOracle

import dovetail
from dovetail.window import Watermarks

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

START = datetime(2024, 1, 1, tzinfo=UTC)
FIRST = (0, 60, 10, 400)  # seconds: the third file is 50 s late; after the last one windows close
ROWS = 30  # per file
SECOND = 1_000_000


def write_stream(directory: Path, name: str, rng: random.Random) -> pa.Table:
    directory.mkdir()
    times = [START + timedelta(seconds=first + rng.uniform(0, 20)) for first in FIRST for _ in range(ROWS)]
    columns = {name: range(len(times)), "k": [rng.randrange(20) for _ in times], "v": [rng.random() for _ in times]}
    table = pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    for number in range(len(FIRST)):
        path = directory / f"{number}.parquet"
        pq.write_table(table.slice(number * ROWS, ROWS), path)
        os.utime(path, (number, number))  # Spark reads the oldest first
    return table


class Streams(NamedTuple):
    spark: SparkSession
    directory: Path
    tables: tuple[pa.Table, pa.Table]

    def frames(self, files_at_once: int = 1) -> tuple[DataFrame, DataFrame]:
        reader = self.spark.readStream.option("maxFilesPerTrigger", files_at_once)
        left, right = (
            reader.schema(f"{name} bigint, k bigint, v double, ts timestamp").parquet(str(self.directory / name))
            for name in "ab"
        )
        return left, right

    def oracle(self, case: Case) -> WindowOracle:
        left, right = (table.to_pandas() for table in self.tables)
        matches = left["k"].to_numpy()[:, None] == right["k"].to_numpy()[None, :]
        if "<" in case.on:
            matches = left["v"].to_numpy()[:, None] < right["v"].to_numpy()[None, :]
        times = [table["ts"].cast(pa.int64()).to_pylist() for table in self.tables]
        return WindowOracle(
            WINDOW.with_watermarks(case.watermarks), case.how, lambda a, b: matches[a, b], (times[0], times[1])
        )


class Case(NamedTuple):
    delays: tuple[str | None, str | None]  # of the watermarks
    watermarks: Watermarks
    late: bool
    how: str = "inner"
    on: str = "l.k = r.k"


WINDOW = dovetail.window(time="60 seconds", slide="10 seconds", on="ts")
HOUR = 3600 * SECOND
CASES = {
    "hour": Case(("1 hour", "1 hour"), (HOUR, HOUR), late=False),
    "left": Case(("75 seconds", "2 minutes"), (75 * SECOND, 120 * SECOND), late=False, how="left"),
    "different": Case(("5 seconds", "2 minutes"), (5 * SECOND, 120 * SECOND), late=False, on="l.v < r.v"),
    "one": Case((None, "2 minutes"), (None, 120 * SECOND), late=False, how="left_semi"),
    "short": Case(("5 seconds", "6 seconds"), (5 * SECOND, 6 * SECOND), late=True, how="left_anti"),
    "none": Case((None, None), (None, None), late=True),
}


def with_watermark(frame: DataFrame, delay: str | None) -> DataFrame:
    """Set the watermark before a filter and projections, which must preserve it."""
    if delay is None:
        return frame
    renamed = frame.withColumnRenamed("ts", "event_time").withWatermark("event_time", delay)
    return renamed.where("k >= 0").withColumn("more", F.lit(1)).withColumnRenamed("event_time", "ts").drop("more")


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    directory = tmp_path_factory.mktemp("watermarks")
    rng = random.Random(0)
    return Streams(spark, directory, (write_stream(directory / "a", "a", rng), write_stream(directory / "b", "b", rng)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES if ALL else ["left", "short"])
def test_every_micro_batch(name: str, streams: Streams, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Late rows are dropped, counted and logged. A query has only one watermark, so each query has one join."""
    case = CASES[name]
    left, right = map(with_watermark, streams.frames(), case.delays)
    options = {"window": WINDOW, "metrics": name, "state_dir": str(tmp_path / "state")}
    joined = dovetail.join(left, right, case.on, case.how, **options)
    row = F.col("b") if "b" in joined.columns else F.lit(None).cast("bigint")
    found: list[Results] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.append(Counter((a, b) for a, b in batch.collect()))

    writer = joined.select("a", row).writeStream.foreachBatch(keep).trigger(availableNow=True)
    oracle, late = streams.oracle(case), {}
    with caplog.at_level(logging.WARNING, "dovetail.spark"):
        query = writer.queryName(name).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        progress = [p for p in query.recentProgress if p.numInputRows]
        assert len(progress) == len(FIRST)
        for number, results in enumerate(found):
            rows, known = range(number * ROWS, (number + 1) * ROWS), oracle.late_rows
            sources = [(0, rows), (1, rows)] if number < len(FIRST) else []  # with a new watermark, but without rows
            assert results == oracle.micro_batch(sources), number
            if number < len(FIRST):
                assert progress[number].observedMetrics[name]["late_rows"] == oracle.late_rows - known
            if oracle.late_rows > known:
                late[number] = oracle.late_rows - known
        assert bool(late) == case.late
        deadline = time.monotonic() + PATIENCE_S  # listeners are notified with a delay
        while len(caplog.records) < len(late) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert {record.getMessage().split(" Allow")[0] for record in caplog.records} == {
        f"query {name}, join {name}, micro-batch {number}: {rows} late rows were dropped."
        for number, rows in late.items()
    }


def test_rows_within_the_delay_are_joined_as_if_they_had_come_in_time(streams: Streams) -> None:
    """With a delay of an hour, the oracle's result is the join of the tables."""
    oracle = streams.oracle(CASES["hour"])
    batches = [range(number * ROWS, (number + 1) * ROWS) for number in range(len(FIRST))]
    found = sum((oracle.micro_batch([(0, rows), (1, rows)]) for rows in batches), Counter())
    left, right = (table["ts"].cast(pa.int64()).to_numpy() for table in streams.tables)
    near = np.abs(left[:, None] - right[None, :]) < 60 * SECOND
    keys = [table["k"].to_numpy() for table in streams.tables]
    assert set(found) == set(zip(*np.nonzero(near & (keys[0][:, None] == keys[1][None, :])), strict=True))


def test_explain_says_where_the_delay_comes_from(streams: Streams) -> None:
    left, right = streams.frames()
    bounds = dovetail.window(time="1 minute", slide="10 seconds", on=("sent", "ts"))
    late = left.withColumnRenamed("ts", "sent").withWatermark("sent", "2 hours")
    plan = str(dovetail.explain(late, right, "l.k = r.k", window=bounds))
    assert "delay      2:00:00 for l.sent: its watermark\n" in plan
    assert "delay      0:00:10 for r.ts: a slide, it has no watermark\n" in plan
    other = right.withColumn("read", F.current_timestamp()).withWatermark("read", "1 hour")
    plan = str(dovetail.explain(late, other, "l.k = r.k", window=bounds))
    assert "the watermark of r.read is not used: the window is of r.ts" in plan
    bounds = dovetail.window(time="1 minute", on=("sent", "ts"), delay="5 seconds")
    plan = str(dovetail.explain(late, other, "l.k = r.k", window=bounds))
    assert "delay      0:00:05 behind the newest row of both inputs: as given\n" in plan
    assert "advice" not in plan


@pytest.mark.slow
def test_aggregates_take_the_delay_too(streams: Streams, tmp_path: Path) -> None:
    """Each left row is aggregated over earlier right rows: none is late."""
    left, right = (with_watermark(frame, "1 hour") for frame in streams.frames(files_at_once=2))
    options = {"window": WINDOW, "cells": 2, "state_dir": str(tmp_path / "state")}
    counted = dovetail.aggregate(left, right, "l.v < r.v", {"n": "count(*)"}, **options)
    query = counted.writeStream.format("memory").queryName("late_aggregates").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert streams.spark.table("late_aggregates").count() == len(FIRST) * ROWS
