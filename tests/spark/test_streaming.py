"""Joins of streams: file sources, several micro-batches, restarts, and state that is missing, damaged or not theirs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import dovetail
from dovetail.errors import InputError, PlanError
from dovetail.spark.partitions import spark_partition, spread_labels
from dovetail.spark.state import DEFAULT_PROVIDER, PROVIDER, ROCKSDB_PROVIDER

pytestmark = pytest.mark.spark

SCHEMAS = ("k BIGINT, a BIGINT, name STRING", "k INT, b BIGINT")
FILES = 10  # at first; one more comes later. Eight runs of a size are merged into one.
ROWS = 60
ON = "l.k = r.k"


def write_file(directory: Path, side: int, number: int) -> None:
    """One file of one side: few keys, some of them null, one of them in every third row."""
    rng = np.random.default_rng((side, number))
    keys = [7 if i % 3 == 0 else None if i % 11 == 1 else int(rng.integers(0, 40)) for i in range(ROWS)]
    numbers = np.arange(ROWS) + number * ROWS
    if side == 0:
        table = pa.table({"k": pa.array(keys, pa.int64()), "a": numbers, "name": [f"n{i % 4}" for i in range(ROWS)]})
    else:
        table = pa.table({"k": pa.array(keys, pa.int32()), "b": numbers})
    path = directory / "lr"[side]
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / f"{number:03}.parquet")


class Place:
    """Where a streaming query has its files."""

    def __init__(self, spark: SparkSession, source: Path, own: Path) -> None:
        self.spark, self.source, self.own = spark, source, own

    def copied(self, own: Path) -> Place:
        """The same query at the same point, free to go another way."""
        for part in ("checkpoint", "state"):
            shutil.copytree(self.own / part, own / part)
        return Place(self.spark, self.source, own)

    def streams(self) -> tuple[DataFrame, DataFrame]:
        reader = self.spark.readStream.option("maxFilesPerTrigger", 1)
        left, right = (reader.schema(SCHEMAS[i]).parquet(str(self.source / "lr"[i])) for i in (0, 1))
        return left, right

    def joined(self, on: Any = ON, **options: Any) -> DataFrame:
        result: DataFrame = dovetail.join(*self.streams(), on, state_dir=str(self.own / "state"), **options)
        return result

    def start(self, joined: DataFrame) -> StreamingQuery:
        writer = joined.writeStream.option("checkpointLocation", str(self.own / "checkpoint"))
        return writer.trigger(availableNow=True).start(str(self.own / "out"), "parquet")

    def run(self, on: Any = ON, **options: Any) -> StreamingQuery:
        query = self.start(self.joined(on, **options))
        query.awaitTermination()
        return query

    def fails(self, on: Any = ON, **options: Any) -> str:
        """Run a query that must fail; return why it did."""
        query = self.start(self.joined(on, **options))
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
        return str(query.exception())

    def results(self) -> Counter[tuple[Any, ...]]:
        """What the sink's log says is there."""
        return Counter(map(tuple, self.spark.read.parquet(str(self.own / "out")).collect()))

    def expected(self, files: int, condition: str = ON) -> Counter[tuple[Any, ...]]:
        sides = []
        for side in "lr":
            paths = sorted(map(str, (self.source / side).iterdir()))[:files]
            sides.append(self.spark.read.parquet(*paths).alias(side))
        from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

        return Counter(map(tuple, sides[0].join(sides[1], F.expr(condition)).collect()))

    def segments(self) -> set[str]:
        """All segment files, as cell/name."""
        return {f"{path.parent.name}/{path.name}" for path in self.own.glob("state/*/*/cell-*/*")}

    def manifests(self) -> dict[str, dict[str, Any]]:
        """The committed manifest of every cell, from Spark's state store."""
        store = self.spark.read.format("statestore").option("stateVarName", "manifest")
        rows = store.load(str(self.own / "checkpoint")).collect()
        return {f"cell-{row.key.cell}": json.loads(row.value.manifest) for row in rows}


@pytest.fixture(scope="module")
def two_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture(scope="module")
def first(spark: SparkSession, two_partitions: None, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A query that has joined the first files, in a session as Spark makes it; then one more file came on each side."""
    directory = tmp_path_factory.mktemp("streams")
    for number in range(FILES):
        write_file(directory, 0, number)
        write_file(directory, 1, number)
    place = Place(spark, directory, directory / "first")
    spark.conf.set(PROVIDER, DEFAULT_PROVIDER)
    query = place.run()
    assert spark.conf.get(PROVIDER) == ROCKSDB_PROVIDER
    assert len([p for p in query.recentProgress if p.numInputRows]) == FILES
    write_file(directory, 0, FILES)
    write_file(directory, 1, FILES)
    return place


def test_results(first: Place) -> None:
    assert first.results() == first.expected(FILES)


def test_files_that_no_manifest_names_are_swept(first: Place) -> None:
    manifests = first.manifests()
    named = {f"{cell}/{name}" for cell, m in manifests.items() for name in m["segments"]}
    before = {f"{cell}/{name}" for cell, m in manifests.items() for name in m["previous"]}
    assert sum(m["version"] for m in manifests.values()) == 2 * FILES
    assert named <= first.segments() <= named | before
    assert len(named) < 2 * 2 * FILES  # runs were merged


def test_restart_goes_on(first: Place, tmp_path: Path) -> None:
    place = first.copied(tmp_path)
    query = place.run()
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [2 * ROWS]
    assert place.results() == first.expected(FILES + 1) - first.expected(FILES)


def test_any_sink(first: Place, tmp_path: Path, spark: SparkSession) -> None:
    """foreachBatch, which here runs every micro-batch twice, and the console's friend, the memory sink."""
    seen: Counter[tuple[Any, ...]] = Counter()

    def keep(batch: DataFrame, number: int) -> None:
        batch.count()
        seen.update(map(tuple, batch.collect()))

    new = first.expected(FILES + 1) - first.expected(FILES)
    one, other = first.copied(tmp_path / "one"), first.copied(tmp_path / "other")
    writer = one.joined().writeStream.foreachBatch(keep).option("checkpointLocation", str(one.own / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen == new
    writer = other.joined().writeStream.format("memory").queryName("seen")
    writer.option("checkpointLocation", str(other.own / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert Counter(map(tuple, spark.table("seen").collect())) == new


@pytest.mark.parametrize(
    ("on", "options", "message"),
    [
        ("l.k = r.k AND l.a < r.b", {}, "condition was 'l.k = r.k' and is now 'l.k = r.k AND l.a < r.b'"),
        (ON, {"cells": 3}, "cells was 2 and is now 3"),
    ],
)
def test_another_join_on_restart(first: Place, tmp_path: Path, on: str, options: dict[str, Any], message: str) -> None:
    place = first.copied(tmp_path)
    why = place.fails(on, **options)
    assert "StateError" in why
    assert message in why
    place.run()  # nothing was lost by the attempt
    assert place.results() == first.expected(FILES + 1) - first.expected(FILES)


def test_other_partitions_on_restart(first: Place, tmp_path: Path, spark: SparkSession) -> None:
    """They would give the cells other labels, under which there is no state."""
    place = first.copied(tmp_path)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        assert "partitions was 2 and is now 3" in place.fails(cells=2)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("harm", "message"), [(lose, "is missing"), (cut, "is damaged"), (spoil, "is damaged")])
def test_segments_that_are_not_there(first: Place, tmp_path: Path, harm: Any, message: str) -> None:
    place = first.copied(tmp_path)
    for name in {f"{cell}/{name}" for cell, m in place.manifests().items() for name in m["segments"]}:
        (found,) = place.own.glob(f"state/*/*/{name}")
        harm(found)
    why = place.fails()
    assert "StateError" in why
    assert f".arrow {message}" in why
    assert not place.results() if (place.own / "out" / "_spark_metadata").exists() else True


def test_two_joins_in_one_query(first: Place, tmp_path: Path, spark: SparkSession) -> None:
    """With parts that Spark evaluates before and after the join, and a type that Arrow cannot carry."""
    place = Place(spark, first.source, tmp_path)
    left, right = place.streams()
    left = left.selectExpr("*", "make_ym_interval(0, int(a)) AS i")
    state = {"state_dir": str(tmp_path / "state")}
    inner = dovetail.join(
        left, right, "soundex(concat(l.name, l.k)) = soundex(concat('n', r.k)) AND l.k = r.k", **state
    )
    with pytest.raises(PlanError, match="metrics="):
        dovetail.join(inner, right, "l.a = r.b", suffix="_2", **state)
    outer = dovetail.join(
        inner, right, "l.a = r.b AND levenshtein(l.name, r.k) > 1", metrics="outer", suffix="_2", **state
    )
    place.start(outer).awaitTermination()
    tables = [spark.read.parquet(str(first.source / side)) for side in "lr"]
    tables[0].selectExpr("*", "make_ym_interval(0, int(a)) AS i").createOrReplaceTempView("one")
    tables[1].createOrReplaceTempView("other")
    expected = spark.sql(
        "SELECT one.*, x.k, x.b, y.k, y.b FROM one JOIN other x ON one.k = x.k JOIN other y ON one.a = y.b "
        "WHERE soundex(concat(one.name, one.k)) = soundex(concat('n', x.k)) AND levenshtein(one.name, y.k) > 1"
    ).toDF(*outer.columns)
    printed = [f"cast({name} AS STRING)" for name in outer.columns]
    found = spark.read.parquet(str(tmp_path / "out"))
    rows = Counter(map(tuple, found.selectExpr(*printed).collect()))
    assert rows
    assert rows == Counter(map(tuple, expected.selectExpr(*printed).collect()))


# What is refused before a query starts.


def test_refusals(first: Place, spark: SparkSession, tmp_path: Path) -> None:
    left, right = first.streams()
    with pytest.raises(PlanError, match="has no equality between the two streams"):
        dovetail.join(left, right, "l.k < r.k")
    with pytest.raises(PlanError, match="leaves pairs for later"):
        dovetail.join(left, right, ON, algorithm="nested_loop")
    with pytest.raises(PlanError, match="one input is a stream and the other a table at rest"):
        dovetail.join(left, spark.range(3).toDF("k"), ON)
    (tmp_path / "file").touch()  # a directory without write permission would not stop root
    with pytest.raises(InputError, match="cannot hold join state"):
        dovetail.join(left, right, ON, state_dir=str(tmp_path / "file" / "state"))
    with pytest.raises(InputError, match="must be a file system that all workers mount"):
        dovetail.join(left, right, ON, state_dir="s3://bucket/state")


def test_state_goes_beside_the_checkpoints(first: Place, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", f"file://{tmp_path}")
    try:
        dovetail.join(*first.streams(), ON)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert (tmp_path / "dovetail-state").is_dir()


# Where Spark puts the cells.


def test_labels_spread_cells_as_spark_does(spark: SparkSession) -> None:
    for cells, partitions in [(2, 2), (3, 2), (7, 4), (5, 8)]:
        labels = spread_labels(cells, partitions)
        rows = spark.createDataFrame([(label,) for label in labels], "cell INT").repartition(partitions, "cell")
        found = rows.selectExpr("cell", "spark_partition_id() AS p").collect()
        assert {row.cell: row.p for row in found} == {label: spark_partition(label, partitions) for label in labels}
        assert max(Counter(row.p for row in found).values()) == -(-cells // partitions)
