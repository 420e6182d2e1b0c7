"""A stream joined with a table at rest: conditions, join types, micro-batches, restarts; against Spark's own joins."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from tests.effort import some
from tests.spark.join_cases import CONDITIONS, random_rows, rows_by_type

import dovetail
from dovetail.errors import InputError, PlanError

pytestmark = pytest.mark.spark

ROWS = 80  # per file
TABLE_ROWS = 150
TYPES = {"left": ("inner", "left", "left_semi", "left_anti"), "right": ("inner", "right")}
"""By the side of the stream: the supported join types."""
CASES = [(side, how) for side, types in TYPES.items() for how in types]
SMALL = 70_000  # bytes: makes several parts of the table, and does not leave equal keys to Spark
INEQUALITIES = CONDITIONS["two_inequalities"]


class Place:
    """Files of a stream, a table, and one query over them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        (directory / "stream").mkdir(parents=True)
        self.write_table(TABLE_ROWS)

    def write_table(self, rows: int) -> None:
        pq.write_table(random_rows(rows, seed=0), self.directory / "table.parquet")

    def add_file(self, number: int) -> None:
        rows = random_rows(ROWS, seed=1 + number)
        rows = rows.set_column(0, "id", pa.array(np.arange(ROWS) + number * ROWS))
        path = self.directory / "stream" / f"{number}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_000 + number,) * 2)  # the order in which files are read

    @property
    def table(self) -> DataFrame:
        return self.spark.read.parquet(str(self.directory / "table.parquet"))

    @property
    def rows(self) -> DataFrame:
        """The streamed rows as a DataFrame at rest."""
        return self.spark.read.parquet(str(self.directory / "stream"))

    @property
    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.table.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.directory / "stream"))

    def join(self, left: DataFrame, right: DataFrame, *arguments: Any, **options: Any) -> DataFrame:
        joined: DataFrame = dovetail.join(left, right, *arguments, state_dir=str(self.directory / "state"), **options)
        assert joined.isStreaming
        return joined

    def run(self, joined: DataFrame) -> tuple[StreamingQuery, dict[int, list[Any]]]:
        """The results of each micro-batch."""
        found: dict[int, list[Any]] = {}

        def keep(batch: DataFrame, number: int) -> None:
            found[number] = batch.collect()

        writer = joined.writeStream.option("checkpointLocation", str(self.directory / "checkpoint"))
        query = writer.trigger(availableNow=True).foreachBatch(keep).start()
        query.awaitTermination()
        return query, found


@pytest.fixture(scope="module")
def place(spark: SparkSession, two_partitions: None, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(spark, tmp_path_factory.mktemp("static"))
    made.add_file(0)
    made.add_file(1)
    return made


def spark_pairs(left: DataFrame, right: DataFrame) -> dict[str, list[tuple[int, int]]]:
    """The pairs of each condition, computed by Spark with a single cross join."""
    holds = [F.expr(on).alias(name) for name, on in CONDITIONS.items()]
    both = left.alias("l").crossJoin(right.alias("r"))
    found = both.select(F.col("l.id").alias("i"), F.col("r.id").alias("j"), *holds).toArrow()
    return {
        name: list(zip(*(found.filter(found[name])[side].to_pylist() for side in "ij"), strict=True))
        for name in CONDITIONS
    }


@pytest.mark.one_in(3)
def test_every_condition_in_every_micro_batch(place: Place) -> None:
    """All joins in one query; join types, and tables in parts due to a small budget, in turn."""
    cases = {
        f"{name} {side} {how}": (name, side, how)
        for number, name in enumerate(CONDITIONS)
        for side, how in some(CASES, number, of=len(CASES))
    }
    stream, table = place.stream, place.table
    parts = []
    for number, (case, (name, side, how)) in enumerate(cases.items()):
        inputs = (stream, table) if side == "left" else (table, stream)
        memory = SMALL if number % 2 else None
        joined = place.join(*inputs, CONDITIONS[name], how, memory=memory)
        parts.append(joined.select(F.lit(case).alias("case"), F.array(*map(_text, joined.columns)).alias("row")))
    _, found = place.run(reduce(DataFrame.union, parts))
    streamed, kept = _contents(place.rows), _contents(table)
    pairs = {"left": spark_pairs(place.rows, table), "right": spark_pairs(table, place.rows)}
    assert len(found) == 2
    for batch, rows in found.items():
        ids = range(batch * ROWS, (batch + 1) * ROWS)
        mine = {i: row for i, row in streamed.items() if i in ids}
        for case, (name, side, how) in cases.items():
            of_batch = [pair for pair in pairs[side][name] if pair[side == "right"] in ids]
            expected = rows_by_type(of_batch, [mine, kept] if side == "left" else [kept, mine])[how]
            assert Counter(str(tuple(row.row)) for row in rows if row.case == case) == expected, (batch, case)


def _text(name: str) -> Any:
    return F.col(name).cast("string")


def _contents(frame: DataFrame) -> dict[int, tuple[Any, ...]]:
    """Rows by number, as strings."""
    printed = frame.select("id", *(_text(name).alias(f"_{name}") for name in frame.columns))
    return {row.id: tuple(row)[1:] for row in printed.collect()}


def pairs_at_rest(left: DataFrame, right: DataFrame, on: str) -> Counter[tuple[int, int]]:
    joined = left.alias("l").join(right.alias("r"), F.expr(on)).select("l.id", "r.id")
    return Counter(map(tuple, joined.collect()))


@pytest.mark.one_in(3)
def test_a_restart_reads_the_table_again(spark: SparkSession, two_partitions: None, tmp_path: Path) -> None:
    place = Place(spark, tmp_path / "own")
    place.add_file(0)
    _, found = place.run(place.join(place.stream, place.table, INEQUALITIES).select("id", "id_right"))
    first = pairs_at_rest(place.rows, place.table, INEQUALITIES)
    assert Counter(map(tuple, found[0])) == first
    for copy in (place.directory / "state").iterdir():  # as at the end of the process
        shutil.rmtree(copy)
    place.write_table(2 * TABLE_ROWS)
    place.add_file(1)
    _, found = place.run(place.join(place.stream, place.table, INEQUALITIES).select("id", "id_right"))
    assert list(found) == [1]
    new = place.rows.where(f"id >= {ROWS}")
    assert Counter(map(tuple, found[1])) == pairs_at_rest(new, place.table, INEQUALITIES)
    assert max(right for _, right in found[1]) >= TABLE_ROWS


@pytest.mark.one_in(3)
def test_a_lost_copy_is_an_error(spark: SparkSession, two_partitions: None, tmp_path: Path) -> None:
    place = Place(spark, tmp_path / "own")
    place.add_file(0)
    joined = place.join(place.stream, place.table, INEQUALITIES)
    for copy in (place.directory / "state").iterdir():
        shutil.rmtree(copy)
    with pytest.raises(StreamingQueryException, match=r"is missing\. Stop the query, call dovetail\.join again"):
        place.run(joined)
    _, found = place.run(place.join(place.stream, place.table, INEQUALITIES))
    assert found[0]


@pytest.mark.slow
def test_among_stateful_operators(place: Place, tmp_path: Path) -> None:
    """Two tables in one query, before and after a join of streams; expressions and types that only Spark supports."""
    own = Place(place.spark, tmp_path / "own")
    for number in (0, 1):
        own.add_file(number)
    table = own.table.selectExpr("id AS t", "x", "s AS word", "make_ym_interval(0, int(id)) AS i", "map(id, s) AS m")
    other = own.stream.selectExpr("id AS o", "k AS key")
    before = own.join(own.stream, table, "soundex(l.s) = soundex(r.word) AND l.x > r.x + 5", suffix="_t")
    both = own.join(before, other, "l.id = r.o")
    after = own.join(table.where("t < 40"), both, "abs(l.x - r.x) <= 3 AND levenshtein(l.word, r.s) < 8", "inner")
    _, found = own.run(after.selectExpr("id", "t_right", "o", "t", "string(i)", "m_right AS m"))
    rows, few = own.rows.alias("l"), table.where("t < 40").alias("a")
    first = rows.join(table.alias("r"), F.expr("soundex(l.s) = soundex(r.word) AND l.x > r.x + 5"))
    last = first.join(few, F.expr("abs(a.x - l.x) <= 3 AND levenshtein(a.word, l.s) < 8"))
    expected = last.selectExpr("l.id", "r.t", "l.id AS o", "a.t", "string(a.i)", "r.m").collect()
    assert expected
    found_rows = Counter(str(tuple(row)) for batch in found.values() for row in batch)
    assert found_rows == Counter(str(tuple(row)) for row in expected)


@pytest.mark.one_in(3)
def test_watermarks_reach_what_follows(place: Place, tmp_path: Path) -> None:
    own = Place(place.spark, tmp_path / "own")
    for number in (0, 1):
        own.add_file(number)
    timed = own.stream.withWatermark("start_at", "0 seconds")
    joined = own.join(timed, own.table.select("x", "y"), "l.x < r.x AND l.y > r.y", "left")
    counted = joined.groupBy(F.window("start_at", "100 seconds").alias("w")).count()
    query, found = own.run(counted.selectExpr("w.start", "count"))
    closed = Counter(tuple(row) for batch in found.values() for row in batch)
    assert closed  # append mode emits a window once the watermark has passed it
    assert query.lastProgress is not None
    assert query.lastProgress.eventTime["watermark"] > "1970-01-01T00:05"


@pytest.mark.one_in(3)
def test_a_table_without_rows(place: Place, tmp_path: Path) -> None:
    own = Place(place.spark, tmp_path / "own")
    own.add_file(0)
    nothing = own.table.where("id < 0")
    on = "l.x < r.x"
    parts = [own.join(own.stream, nothing, on, how).select(F.lit(how), "id") for how in TYPES["left"]]
    turned = own.join(nothing, own.stream, on, "right").select(F.lit("right"), "id_right")
    _, found = own.run(reduce(DataFrame.union, [*parts, turned]))
    expected = [(how, i) for how in ("left", "left_anti", "right") for i in range(ROWS)]
    assert sorted(map(tuple, found[0])) == sorted(expected)


def test_plans(place: Place) -> None:
    plan = str(dovetail.explain(place.stream, place.table, "l.x < r.x AND l.y > r.y"))
    assert "kernel     two_inequalities" in plan
    assert f"table      r, {TABLE_ROWS} rows: read and sorted once, when the join is made" in plan
    assert "Spark's own join: for equal keys alone" in str(dovetail.explain(place.table, place.stream, "l.k = r.k"))
    only_spark = dovetail.explain(place.stream, place.table, "levenshtein(l.s, r.s) < 2")
    assert "operator   spark: Spark's own join, because only Spark can evaluate levenshtein(" in str(only_spark)


@pytest.mark.parametrize(
    ("side", "how"), [("left", "right"), ("left", "full"), ("right", "left"), ("right", "left_semi"), ("right", "full")]
)
def test_rows_of_the_table_without_a_partner_are_refused(place: Place, side: str, how: str) -> None:
    inputs = (place.stream, place.table) if side == "left" else (place.table, place.stream)
    possible = "inner, left, left_semi and left_anti joins" if side == "left" else "inner and right joins"
    with pytest.raises(PlanError, match=rf"With the stream as the {side} input there are {possible}\.") as refused:
        dovetail.join(*inputs, "l.x < r.x", how)
    other = "right" if side == "left" else "left"
    assert (f"make the stream the {other} input." in str(refused.value)) == (how != "full")


def test_refusals(place: Place) -> None:
    stream, table = place.stream, place.table
    with pytest.raises(
        InputError, match="window= is for two streams; it means nothing for a stream with a table at rest"
    ):
        dovetail.join(stream, table, "l.x < r.x", window=dovetail.window(rows=10))
    with pytest.raises(PlanError, match="algorithm='diner' does not join a stream with a table at rest"):
        dovetail.join(stream, table, "l.x < r.x", algorithm="diner")
    with pytest.raises(
        InputError,
        match="cells= is for DataFrames, end= is for streams that end; they mean nothing for a stream with a",
    ):
        dovetail.join(stream, table, "l.x < r.x", end="available", cells=3)
    with pytest.raises(PlanError, match="limit of 1 or more"):
        dovetail.join(stream, table, "l.x < r.x", limit=0)
    with pytest.raises(PlanError, match="t: these are at rest, and others are streams"):
        dovetail.multijoin({"s": stream, "o": stream, "t": table}, "s.k = o.k AND o.k = t.k", end="available")
    for inputs in ((stream, table), (table, stream)):
        with pytest.raises(PlanError, match="Join it, then count or aggregate in the query"):
            dovetail.aggregate(*inputs, "l.x < r.x", {"n": "count(*)"})
        with pytest.raises(PlanError, match="Join it, then count or aggregate in the query"):
            dovetail.count(*inputs, "l.x < r.x")


@pytest.mark.one_in(3)
def test_every_type_is_carried(place: Place, tmp_path: Path) -> None:
    """Decimals, nested values, intervals and binaries in both inputs; the condition compares decimals."""
    own = Place(place.spark, tmp_path / "own")
    own.add_file(0)
    columns = [
        "id",
        "CAST(x AS DECIMAL(10, 2)) AS price",
        "CAST(y AS DECIMAL(38, 4)) AS wide",
        "CAST(y AS DECIMAL(18, 3)) AS narrow",
        "CAST(id AS DECIMAL(5)) AS number",
        "CAST(start_at AS TIMESTAMP_NTZ) AS local",
        "make_dt_interval(0, 0, 0, id) AS seconds",
        "make_ym_interval(0, int(id)) AS months",
        "CAST(s AS BINARY) AS bytes",
        "named_struct('a', k, 'b', array(s, NULL)) AS nested",
        "CAST(id AS BOOLEAN) AS flag",
    ]
    on = "l.price < r.price - 30 AND l.wide > r.wide AND l.flag = r.flag"
    joined = own.join(own.stream.selectExpr(*columns), own.table.selectExpr(*columns), on, "left")
    assert [f.dataType for f in joined.schema][1:5] == [f.dataType for f in own.rows.selectExpr(*columns).schema][1:5]
    printed = [f"string({name})" for name in joined.columns]
    _, found = own.run(joined.selectExpr(*printed))
    left, right = own.rows.selectExpr(*columns).alias("l"), own.table.selectExpr(*columns).alias("r")
    expected = left.join(right, F.expr(on), "left").toDF(*joined.columns).selectExpr(*printed)
    assert Counter(map(tuple, found[0])) == Counter(map(tuple, expected.collect()))
