"""Joins of DataFrames on structs and arrays, against Spark's own join."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import some

import dovetail
from dovetail.errors import ConditionError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

NAN = float("nan")
INSTANT = datetime(2024, 2, 29, 12, tzinfo=UTC)
STRUCT = "STRUCT<a: INT, b: STRING, c: ARRAY<DOUBLE>>"
WIDER = "STRUCT<a: BIGINT, b: STRING, c: ARRAY<FLOAT>>"
DEEP = "ARRAY<STRUCT<d: DATE, t: TIMESTAMP, n: DECIMAL(30, 3), y: BINARY, x: STRUCT<f: BOOLEAN>>>"
SCHEMA = f"i INT, s {STRUCT}, w {STRUCT}, v ARRAY<INT>, e {DEEP}, m MAP<STRING, INT>"
RIGHT = ("i AS k", "s", f"CAST(w AS {WIDER})", "CAST(v AS ARRAY<DOUBLE>)", "e", "m")
COMPARISONS = ("=", "<=>", "!=", "<", "<=", ">", ">=")
COLUMNS = ("s", "w", "v", "e")
HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")


def row(rng: random.Random, number: int) -> tuple[Any, ...]:
    def or_null(value: Any, share: float = 0.2) -> Any:
        return None if rng.random() < share else value

    def struct() -> Any:
        doubles = [or_null(rng.choice((0.0, -0.0, 1.5, NAN))) for _ in range(rng.randrange(3))]
        number, text = rng.randrange(-1, 2), rng.choice(("", "a", "a\0", "Ä"))
        return or_null((or_null(number), or_null(text), or_null(doubles)), 0.1)

    def deep() -> Any:
        day, instant = rng.choice((date(2024, 2, 29), date(1969, 1, 1))), INSTANT.replace(hour=rng.randrange(2))
        number = Decimal(rng.randrange(-1, 2)) * Decimal("1e20")
        return (
            or_null(day),
            or_null(instant),
            or_null(number),
            or_null(rng.choice((b"", b"\0", b"\xff"))),
            or_null((or_null(True),)),
        )

    return (
        number,
        struct(),
        struct(),
        or_null([or_null(rng.randrange(3)) for _ in range(rng.randrange(3))], 0.1),
        or_null([or_null(deep()) for _ in range(rng.randrange(3))], 0.1),
        {"a": 1},
    )


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files of both sides; the session's zone is not UTC."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    place = tmp_path_factory.mktemp("nested")
    rng = random.Random(5)
    left, right = (spark.createDataFrame([row(rng, i) for i in range(rows)], SCHEMA) for rows in (120, 90))
    left.repartition(2).write.parquet(str(place / "l"))
    right.selectExpr(*RIGHT).repartition(2).write.parquet(str(place / "r"))
    yield place
    spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.fixture(scope="module")
def frames(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    return spark.read.parquet(str(place / "l")), spark.read.parquet(str(place / "r"))


def numbers(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, frame.select(*(name for name in ("i", "k") if name in frame.columns)).collect()))


def sparks_own(frames: tuple[DataFrame, DataFrame], on: str, how: str = "inner") -> Counter[tuple[Any, ...]]:
    left, right = frames[0].alias("l"), frames[1].alias("r")
    return numbers(left.join(right, F.expr(on), how))


def at_once(joined: dict[str, DataFrame]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The row numbers of several joins, computed in one job."""
    nothing = F.lit(None).cast("int").alias("k")
    frames = [f.select(F.lit(on), "i", "k" if "k" in f.columns else nothing) for on, f in joined.items()]
    found: dict[str, Counter[tuple[Any, ...]]] = {on: Counter() for on in joined}
    for on, *row in reduce(DataFrame.union, frames).collect():
        found[on][tuple(row)] += 1
    return found


@pytest.mark.one_in(3)
def test_every_comparison(frames: tuple[DataFrame, DataFrame]) -> None:
    """For the columns of this turn, or all. Spark compares every pair of rows in one job."""
    conditions = [
        f"l.{column} {operator} r.{column}"
        for turn, column in enumerate(COLUMNS)
        for operator in some(COMPARISONS, turn, of=6)
    ]
    found = at_once({on: dovetail.join(*frames, on) for on in conditions})
    compared = frames[0].alias("l").crossJoin(frames[1].alias("r")).select("i", "k", *map(F.expr, conditions)).collect()
    for number, on in enumerate(conditions, 2):
        assert found[on] == Counter((row[0], row[1]) for row in compared if row[number]), on
    assert all(found.values())


def test_counts(frames: tuple[DataFrame, DataFrame]) -> None:
    assert dovetail.count(*frames, "l.s = r.s") == sparks_own(frames, "l.s = r.s").total()


@pytest.mark.parametrize("on", ["l.w = r.w", pytest.param("l.s < r.s AND l.v = r.v", marks=pytest.mark.slow)])
def test_every_join_type(frames: tuple[DataFrame, DataFrame], on: str) -> None:
    left, right = frames[0].alias("l"), frames[1].alias("r")
    hows = some(HOW, 0, of=3)
    expected = at_once({how: left.join(right, F.expr(on), how) for how in hows})
    assert at_once({how: dovetail.join(*frames, on, how=how) for how in hows}) == expected


@pytest.mark.one_in(3)
def test_conditions_as_columns_and_fields(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    made = "struct(l.i % 3, l.v) = struct(r.k % 3, transform(r.v, x -> CAST(x AS INT)))"
    conditions: dict[str, Any] = {
        "l.w = r.w": left.w == right.w,
        "l.s.a <= r.w.a": left.s.a <= right.w.a,
        "l.s.c = r.w.c": left.s.c == right.w.c,
        "get(l.e, 0) = get(r.e, 0)": F.get(left.e, F.lit(0)) == F.get(right.e, F.lit(0)),
        "l.v < r.v AND NOT l.s <=> r.s": (left.v < right.v) & ~left.s.eqNullSafe(right.s),
        made: made,
    }
    ours = {on: dovetail.join(left, right, condition, sample=False) for on, condition in conditions.items()}
    theirs = {on: left.alias("l").join(right.alias("r"), F.expr(on)) for on in conditions}
    assert at_once(ours) == at_once(theirs)


@pytest.mark.one_in(3)
def test_groups(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames[0].alias("l"), frames[1].alias("r")
    for by in some(("s", "e"), 0, of=2):
        found = dovetail.aggregate(*frames, "l.v <= r.v", {"n": "count(*)", "least": "min(l.i)"}, by=f"l.{by}")
        joined = left.join(right, F.expr("l.v <= r.v")).groupBy(f"l.{by}")
        expected = joined.agg(F.count("*").alias("n"), F.min("l.i").alias("least"))
        assert Counter(map(str, found.collect())) == Counter(map(str, expected.collect()))


@pytest.mark.one_in(3)
def test_three_inputs_and_waves(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    third = left.select(F.col("i").alias("j"), "s", "v")
    joined = dovetail.multijoin({"a": left, "b": right, "c": third}, "a.s = b.s AND b.v <= c.v AND a.v = c.v")
    one, two, three = left.alias("a"), right.alias("b"), third.alias("c")
    expected = one.join(two, F.expr("a.s = b.s")).join(three, F.expr("b.v <= c.v AND a.v = c.v"))
    assert Counter(map(tuple, joined.select("i", "k", "j").collect())) == Counter(
        map(tuple, expected.select("i", "k", "j").collect())
    )
    for on in some(("l.w = r.w", "l.e > r.e"), 1, of=2):
        steps = dovetail.progressive(left, right, on, cells=8)
        pairs: Counter[tuple[Any, ...]] = Counter()
        for step in steps:
            pairs.update(zip(step.batch["i"].to_pylist(), step.batch["k"].to_pylist(), strict=True))
        assert pairs == sparks_own(frames, on)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"algorithm": "diner", "end": "available", "memory": "1MB", "cells": 2}, {}], ids=["ending", "endless"]
)
def test_streams(spark: SparkSession, place: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    frames = spark.read.parquet(str(place / "l")), spark.read.parquet(str(place / "r"))
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    streams = [reader.schema(f.schema).parquet(str(place / name)) for f, name in zip(frames, "lr", strict=True)]
    joined = dovetail.join(*streams, "l.w = r.w", state_dir=str(tmp_path / "state"), **options).select("i", "k")
    writer = joined.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("parquet").option("path", str(tmp_path / "out")).start()
    if options:
        dovetail.finish(query)
    query.awaitTermination()
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == sparks_own(frames, "l.w = r.w")


@pytest.mark.slow
def test_char_inside_is_padded(spark: SparkSession) -> None:
    try:
        spark.sql("CREATE TABLE short (i INT, s STRUCT<a: CHAR(3)>) USING parquet")
        spark.sql("CREATE TABLE long (k INT, s STRUCT<a: CHAR(5)>) USING parquet")
        for name in ("short", "long"):
            spark.sql(f"INSERT INTO {name} VALUES (1, named_struct('a', 'ab')), (2, named_struct('a', 'abc'))")
        frames = spark.table("short"), spark.table("long")
        for on in ("l.s = r.s", "l.s < r.s"):
            assert numbers(dovetail.join(*frames, on)) == sparks_own(frames, on)
    finally:
        spark.sql("DROP TABLE IF EXISTS short")
        spark.sql("DROP TABLE IF EXISTS long")


def test_what_spark_refuses_too(spark: SparkSession, frames: tuple[DataFrame, DataFrame]) -> None:
    with pytest.raises(ConditionError, match="Maps have neither equality nor order"):
        dovetail.join(*frames, "l.m = r.m")
    variants = spark.range(2).selectExpr("parse_json('1') AS q")
    with pytest.raises(ConditionError, match="Variants and places have neither equality nor order"):
        dovetail.join(variants, variants, "l.q = r.q")
