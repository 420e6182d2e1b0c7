"""Joins of streams that end, with operators that defer work: all results, each once, some of them early."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import dovetail
from dovetail.errors import InputError, PlanError
from dovetail.spark.streaming.state_dir import AT_ONCE

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

FILES, ROWS = 2, 300
SCHEMA = "id bigint, k bigint, x double, kind string"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of both sides; the last of each has a row that marks the end."""
    directory = tmp_path_factory.mktemp("ending")
    rng = np.random.default_rng(0)
    for side in "lr":
        (directory / side).mkdir()
        for number in range(FILES):
            ids = np.arange(number * ROWS, (number + 1) * ROWS)
            keys, x = rng.integers(0, 80, ROWS), rng.random(ROWS)
            table = pa.table({"id": ids, "k": keys, "x": x, "kind": ["row"] * ROWS})
            if number == FILES - 1:
                end = pa.table({"id": [-1], "k": [0], "x": [0.5], "kind": ["end"]}, table.schema)
                table = pa.concat_tables([end, table])
            path = directory / side / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (number, number))  # Spark reads the oldest first
    return directory


def streams(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(place / "l")), reader.parquet(str(place / "r"))


def expected(spark: SparkSession, place: Path, on: str, how: str = "inner") -> Counter[tuple[Any, ...]]:
    left, right = (spark.read.schema(SCHEMA).parquet(str(place / side)).where("kind = 'row'") for side in "lr")
    return Counter(map(tuple, dovetail.join(left, right, on, how).select("id", "id_right").collect()))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("algorithm", "on"),
    [
        ("diner", "l.k = r.k"),
        ("pmj", "abs(l.x - r.x) <= 0.002"),
        *(pytest.param(name, "l.k = r.k", marks=pytest.mark.slow) for name in ("xjoin", "shj")),
    ],
)
def test_all_results_once(spark: SparkSession, place: Path, tmp_path: Path, algorithm: str, on: str) -> None:
    options: dict[str, Any] = {
        "algorithm": algorithm,
        "memory": "1MB",
        "state_dir": str(tmp_path / "state"),
        "cells": 2,
    }
    joined = dovetail.join(*streams(spark, place), on, end="kind = 'end'", **options).select("id", "id_right")
    writer = joined.writeStream.format("memory").queryName(f"ending_{algorithm}")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    dovetail.finish(query)
    found = Counter(map(tuple, spark.table(f"ending_{algorithm}").collect()))
    assert found == expected(spark, place, on)
    fed = [step.observedMetrics["dovetail"]["results"] for step in query.recentProgress if step.numInputRows]
    assert len(fed) == FILES
    assert algorithm == "pmj" or any(fed)  # pmj waits until its memory is full


def test_a_restart_between_micro_batches(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    """The micro-batches with rows are complete; the next one, which emits rows without a partner, is not planned."""
    on = "l.k = r.k + 60"
    found: dict[int, list[tuple[Any, ...]]] = {}
    dies = True

    def keep(rows: DataFrame, batch: int) -> None:
        if dies and batch >= FILES:
            raise RuntimeError("killed")
        found[batch] = [tuple(row) for row in rows.collect()]

    def start() -> StreamingQuery:
        left, right = (stream.where("kind = 'row'") for stream in streams(spark, place))
        options: dict[str, Any] = {"memory": "1MB", "algorithm": "pmj", "state_dir": str(tmp_path / "state")}
        joined = dovetail.join(left, right, on, "left", end="available", **options)
        writer = joined.select("id", "id_right").writeStream.foreachBatch(keep).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with pytest.raises(Exception, match="killed"):
        start().awaitTermination()
    for file in (str(FILES), f".{FILES}.crc"):
        (tmp_path / "checkpoint" / "offsets" / file).unlink()
    all_pairs = expected(spark, place, on, "left")
    assert sum(map(len, found.values())) < all_pairs.total()
    dies = False
    spark.streams.resetTerminated()  # forgets the query that was killed
    query = start()
    assert not spark.streams.awaitAnyTermination(1)
    dovetail.finish(query)
    assert Counter(pair for pairs in found.values() for pair in pairs) == all_pairs


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("how", "on"),
    [
        ("full", "nullif(l.k, 3) = r.k AND l.x < r.x"),
        pytest.param("left", "abs(l.x - r.x) <= 0.0005", marks=pytest.mark.slow),  # cells with copies of right rows
    ],
)
def test_rows_without_a_partner(spark: SparkSession, place: Path, tmp_path: Path, how: str, on: str) -> None:
    options: dict[str, Any] = {"memory": "1MB", "state_dir": str(tmp_path / "state"), "cells": 2, "fan_in": 4}
    joined = dovetail.join(
        *streams(spark, place), on, how, end="kind = 'end'", algorithm="pmj", latency="1 second", **options
    )
    writer = joined.select("id", "id_right").writeStream.format("memory").queryName(f"ending_{how}")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    dovetail.finish(query)
    found = Counter(map(tuple, spark.table(f"ending_{how}").collect()))
    assert found == expected(spark, place, on, how)
    assert any(None in pair for pair in found)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("how", "on"),
    [
        ("left", "l.k != r.k + l.id"),
        ("full", "l.k = r.k + 40 OR l.id = r.id"),
        pytest.param("right", "l.k = r.k + 40 OR l.id = r.id", marks=pytest.mark.slow),
        pytest.param("left_anti", "l.id = r.id + 400 OR l.k + r.k = 3", marks=pytest.mark.slow),
        pytest.param("left_semi", "l.id = r.id OR l.k + r.k = 3", marks=pytest.mark.slow),
    ],
)
def test_join_types_without_an_order(spark: SparkSession, place: Path, tmp_path: Path, how: str, on: str) -> None:
    """Conditions that only spo supports are left to it, and it stays within its memory."""
    columns = ["id"] if how.startswith("left_") else ["id", "id_right"]
    options: dict[str, Any] = {"memory": "1MB", "state_dir": str(tmp_path / "state"), "cells": 2}
    joined = dovetail.join(*streams(spark, place), on, how, end="kind = 'end'", **options).select(*columns)
    writer = joined.writeStream.format("memory").queryName(f"unordered_{how}")
    dovetail.finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
    left, right = (spark.read.schema(SCHEMA).parquet(str(place / side)).where("kind = 'row'") for side in "lr")
    wanted = dovetail.join(left, right, on, how).select(*columns)
    found = Counter(map(tuple, spark.table(f"unordered_{how}").collect()))
    assert found == Counter(map(tuple, wanted.collect()))
    assert found


def files_of_one_key(directory: Path, keys: list[int]) -> Path:
    """Rows of a micro-batch visit one cell; the third file has no rows that are joined."""
    directory.mkdir()
    for number, key in enumerate(keys):
        kind = "other" if number == 2 else "row"
        ids = np.arange(3) + 3 * number
        pq.write_table(
            pa.table({"id": ids, "k": [key] * 3, "x": ids / 2, "kind": [kind] * 3}), directory / f"{number}.parquet"
        )
        os.utime(directory / f"{number}.parquet", (number, number))
    return directory


@pytest.mark.one_in(2)
@pytest.mark.parametrize("source", ["filtered", "shuffled"])
def test_what_is_available_is_all(spark: SparkSession, tmp_path: Path, source: str) -> None:
    """Cells without input in a micro-batch do not take it for the end, even if a filter removes all its rows. After a
    shuffle of Spark's own, tasks run also without input."""
    places = [files_of_one_key(tmp_path / "l", [0, 1, 2, 3, 1]), files_of_one_key(tmp_path / "r", [2, 3, 1, 0, 0])]
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    left, right = (reader.parquet(str(place)).where("kind = 'row'") for place in places)
    if source == "shuffled":
        left = left.dropDuplicates(["id"])
    on = "l.k = r.k"
    options: dict[str, Any] = {"memory": "1MB", "algorithm": "diner", "state_dir": str(tmp_path / "state"), "cells": 4}
    joined = dovetail.join(left, right, on, end="available", **options)
    writer = joined.select("id", "id_right").writeStream.format("memory").queryName(f"available_{source}")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    dovetail.finish(query)
    wanted = expected(spark, tmp_path, on)
    assert wanted.total() == 27
    assert Counter(map(tuple, spark.table(f"available_{source}").collect())) == wanted


def test_what_can_end_is_left_to_us(spark: SparkSession, place: Path) -> None:
    left, right = streams(spark, place)
    chosen = [
        dovetail.explain(left, right, on, end="kind = 'end'", memory=memory).operator.name
        for on, memory in (("l.k = r.k", None), ("l.k = r.k", "1MB"), ("l.x < r.x", None), ("l.k != r.k", None))
    ]
    assert chosen == ["shj", "adaptive", "pmj", "spo"]


@pytest.mark.parametrize(
    ("before", "memory", "after"),
    [("64m", "64MB", "2000000"), ("64m", "1MB", "1048576"), ("100k", "64MB", "100k"), ("64m", None, "64m")],
)
def test_spark_hands_over_what_memory_allows(
    spark: SparkSession, place: Path, tmp_path: Path, before: str, memory: str | None, after: str
) -> None:
    spark.conf.set(AT_ONCE, before)
    try:
        dovetail.join(*streams(spark, place), "l.k = r.k", memory=memory, end="kind = 'end'", state_dir=str(tmp_path))
        assert spark.conf.get(AT_ONCE) == after
    finally:
        spark.conf.unset(AT_ONCE)


def test_what_cannot_end_is_refused(spark: SparkSession, place: Path) -> None:
    left, right = streams(spark, place)
    with pytest.raises(PlanError, match="end="):
        dovetail.join(left, right, "l.k = r.k", algorithm="diner")
    with pytest.raises(PlanError, match="if the streams end, set end="):
        dovetail.join(left, right, "l.x < r.x")
    with pytest.raises(InputError, match="end must be a string"):
        dovetail.join(left, right, "l.k = r.k", end=3)
    with pytest.raises(PlanError, match="if the streams end"):
        dovetail.join(left, right, "l.k = r.k", "left")
    with pytest.raises(InputError, match="handover must be"):
        dovetail.join(left, right, "l.k = r.k", algorithm="hmj", handover="never", end="kind = 'end'")
    with pytest.raises(InputError, match="duration"):
        dovetail.join(left, right, "l.k = r.k", end="kind = 'end'", latency="soon")
    with pytest.raises(InputError, match=r"cannot be evaluated on the left stream \(id, k, x, kind\): "):
        dovetail.join(left, right, "l.k = r.k", end="nothing = 1")
    ends = {"a": "k < 0", "b": "nothing = 1", "c": "k < 0"}
    with pytest.raises(InputError, match=r"cannot be evaluated on b \(id, k, x, kind\): "):
        dovetail.multijoin({"a": left, "b": right, "c": left}, "a.k = b.k AND b.k = c.k", end=ends)
