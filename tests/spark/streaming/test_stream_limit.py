"""Joins of streams with a limit: exactly that many results, also across restarts, without waiting for the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.errors import PlanError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

ROWS, LIMIT = 200, 50
SCHEMA = "id bigint, k bigint, kind string"
ON = "l.k = r.k"

Pairs = Counter[tuple[Any, ...]]


class Streams:
    """Two streams of files that have not ended, unless a test ends them."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.files = spark, place, 0
        for side in "lr":
            (place / side).mkdir()
        self.add()

    def add(self, kind: str = "row") -> None:
        rng = np.random.default_rng(self.files)
        for side in "lr":
            ids = np.arange(self.files * ROWS, (self.files + 1) * ROWS)
            rows = {"id": ids, "k": rng.integers(0, 80, ROWS), "kind": ["row"] * (ROWS - 1) + [kind]}
            pq.write_table(pa.table(rows), self.place / side / f"{self.files}.parquet")
        self.files += 1

    @property
    def frames(self) -> tuple[DataFrame, DataFrame]:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.place / "l")), reader.parquet(str(self.place / "r"))

    def join(self, limit: int, **options: Any) -> DataFrame:
        options = {"state_dir": str(self.place / "state"), "cells": 2} | options
        return dovetail.join(*self.frames, ON, limit=limit, **options).select("id", "id_right")

    def all_pairs(self) -> Pairs:
        tables = [self.spark.read.schema(SCHEMA).parquet(str(self.place / side)).where("kind = 'row'") for side in "lr"]
        return pairs(dovetail.join(*tables, ON))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def pairs(frame: DataFrame) -> Pairs:
    return Counter(map(tuple, frame.select("id", "id_right").collect()))


ENDING = {"end": "kind = 'end'", "memory": "1MB", "algorithm": "pmj"}


@pytest.mark.one_in(2)
def test_a_query_that_is_started_again(streams: Streams) -> None:
    """It ends before its inputs do. With more rows, there are no more results, and it ends again."""
    out = str(streams.place / "out")

    def run() -> Any:
        writer = streams.join(LIMIT, **ENDING).writeStream.format("parquet")
        query = writer.option("checkpointLocation", str(streams.place / "checkpoint")).start(out)
        dovetail.finish(query)
        return query

    run()
    found = pairs(streams.spark.read.parquet(out))
    assert found.total() == LIMIT
    assert found <= streams.all_pairs()
    streams.add()
    last = run().lastProgress.observedMetrics["dovetail"]
    assert pairs(streams.spark.read.parquet(out)) == found
    assert (last.results, last.reactive, last.limit_reached, last.finished) == (0, 0, 1, 2)
    assert last.emitted >= LIMIT


@pytest.mark.slow
def test_micro_batches_that_are_computed_again(streams: Streams) -> None:
    """A sink that computes each micro-batch twice, and fails first. The limit exceeds the results of a micro-batch."""
    for _ in range(2):
        streams.add()
    total = streams.all_pairs().total()
    limit = total // 2
    batches: dict[int, Pairs] = {}
    failures = iter([True, False, True])

    def take(frame: DataFrame, batch: int) -> None:
        frame.count()
        batches[batch] = pairs(frame)
        if next(failures, False):
            raise OSError("the sink is full")

    def run() -> None:
        writer = streams.join(limit, **ENDING).writeStream.foreachBatch(take)
        dovetail.finish(writer.option("checkpointLocation", str(streams.place / "checkpoint")).start())

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the sink is full"):
            run()
    run()
    found = sum(batches.values(), Counter())
    assert found.total() == limit
    assert found <= streams.all_pairs()
    assert len([batch for batch in batches.values() if batch]) > 1


@pytest.mark.slow
def test_fewer_results_than_the_limit(streams: Streams) -> None:
    streams.add("end")
    query = streams.join(10**6, **ENDING).writeStream.format("memory").queryName("limit_all").start()
    dovetail.finish(query)
    assert pairs(streams.spark.table("limit_all")) == streams.all_pairs()


def test_enough_without_a_limit(streams: Streams) -> None:
    """`until` stops a query whose inputs have not ended."""
    joined = dovetail.join(*streams.frames, ON, state_dir=str(streams.place / "state"), **ENDING)
    query = joined.writeStream.format("memory").queryName("until_some").start()
    dovetail.finish(query, until=10)
    assert not query.isActive
    assert streams.spark.table("until_some").count() >= 10


@pytest.mark.slow
@pytest.mark.parametrize("windowed", [False, True])
def test_streams_without_an_end(streams: Streams, windowed: bool) -> None:
    streams.add()
    joined = streams.join(LIMIT, window=dovetail.window(rows=400) if windowed else None)
    query = joined.writeStream.format("memory").queryName(f"limit_{windowed}").start()
    query.processAllAvailable()
    query.stop()
    found = pairs(streams.spark.table(f"limit_{windowed}"))
    assert found.total() == LIMIT
    assert found <= streams.all_pairs()
    assert query.lastProgress.observedMetrics["dovetail"].limit_reached == 1


@pytest.mark.slow
def test_a_stream_and_a_table(streams: Streams) -> None:
    streams.add()
    table = streams.spark.read.schema(SCHEMA).parquet(str(streams.place / "r"))
    joined = dovetail.join(streams.frames[0], table, "l.k < r.k", limit=LIMIT, state_dir=str(streams.place / "state"))
    query = joined.writeStream.format("memory").queryName("limit_table").trigger(availableNow=True).start()
    query.awaitTermination()
    assert streams.spark.table("limit_table").count() == LIMIT


def test_what_cannot_be_limited_is_refused(streams: Streams) -> None:
    left, right = streams.frames
    with pytest.raises(PlanError, match="limit of 1 or more"):
        dovetail.join(left, right, ON, limit=0)
    with pytest.raises(PlanError, match=r"\.limit\(3\)"):
        dovetail.join(left, right, "l.k = r.k AND hash(l.id, r.id) > 0", limit=3)
