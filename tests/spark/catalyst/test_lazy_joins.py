"""`dovetail.join` as part of a query: nothing runs at the call, and columns and filters are pushed down."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import repeat
from tests.seed import seeded
from tests.spark.catalyst.queries import plan, rows

import dovetail
from dovetail.errors import BudgetError, ConditionError, DovetailError, InputError, PlanError
from dovetail.spark import joins
from dovetail.spark.session.settings import AT_ONCE

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

Frames = tuple[DataFrame, DataFrame]
ON = "l.x BETWEEN r.lo AND r.hi"


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Frames:
    points = spark.range(120).selectExpr(
        "id",
        "(id * 7919) % 109 AS x",
        "IF(id % 7 = 0, NULL, id % 13) AS k",
        "CASE WHEN id % 11 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 13 = 0 THEN -0.0D ELSE id % 9 / 3.0D END AS f",
        "concat('p', id % 17) AS s",
        "array(id, NULL) AS unused",
    )
    bands = spark.range(60).selectExpr(
        "id",
        "(id * 104729) % 109 AS lo",
        "(id * 104729) % 109 + 4 AS hi",
        "IF(id % 5 = 0, NULL, CAST(id % 13 AS INT)) AS k",
        "CASE WHEN id % 7 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 9 = 0 THEN 0.0D ELSE id % 4 / 3.0D END AS f",
        "concat('p', id % 13) AS s",
        "map('id', id) AS unused",
    )
    return points, bands


def made_columns(frame: DataFrame) -> list[str]:
    """The columns that the join in a query produces."""
    made = re.findall(r"DovetailJoin .*\[(.*)\]", plan(frame))
    return [name.split("#")[0] for name in made[0].split(", ") if name] if made else []


@contextmanager
def at_once(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(AT_ONCE, "true")
    try:
        yield
    finally:
        spark.conf.unset(AT_ONCE)


@contextmanager
def no_jobs(spark: SparkSession) -> Iterator[None]:
    context, group = spark.sparkContext, f"building {random.random()}"
    context.setJobGroup(group, "nothing is to run")
    try:
        yield
        assert list(context.statusTracker().getJobIdsForGroup(group)) == []
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def of_each(frames: dict[str, DataFrame]) -> dict[str, Counter[str]]:
    """The rows of DataFrames with different columns, computed in one job."""
    texts = [
        frame.select(F.lit(name).alias("of"), F.struct(*map(cell, frame.columns)).cast("string").alias("row"))
        for name, frame in frames.items()
    ]
    found: dict[str, Counter[str]] = {name: Counter() for name in frames}
    for name, row in reduce(DataFrame.union, texts).collect():
        found[name][row] += 1
    return found


def cell(name: str) -> Any:
    return F.col(f"`{name}`").cast("string")


# The query.


def test_nothing_runs_at_the_call(frames: Frames, spark: SparkSession) -> None:
    left, right = frames
    with no_jobs(spark):
        for how in ("inner", "left", "full", "left_anti"):
            joined = dovetail.join(left, right, ON, how, memory="1MB", cells=3)
            joined.where("x > 3").select("x").explain(True)
        dovetail.join(left, right, "l.k = r.k AND l.f < r.f", columns=["f_right"], limit=4).schema.json()
        dovetail.join(left, right, [left.k == right.k], algorithm="shj")
        with pytest.raises(ConditionError, match="nowhere"):
            dovetail.join(left, right, "l.nowhere < r.lo")
        with pytest.raises(PlanError, match="pmj"):
            dovetail.join(left, right, "l.x != r.lo", algorithm="pmj")
        with pytest.raises(DovetailError, match="fan_in"):
            dovetail.join(left, right, "l.x < r.lo", algorithm="pmj", memory="1MB", fan_in=0)
        with pytest.raises(BudgetError):
            dovetail.join(left, right, "l.x < r.lo", algorithm="pmj", memory=10)
        with pytest.raises(InputError, match="columns= asks for 'hello'"):
            dovetail.join(left, right, ON, columns=["hello"])


def test_columns_and_filters_are_pushed_through(frames: Frames) -> None:
    left, right = frames
    joined = dovetail.join(left, right, ON).where("s LIKE 'p1%' AND id_right > 10").select("f", "s_right")
    assert made_columns(joined) == ["f", "s"]
    inputs = plan(joined).split("DovetailJoin", 1)[1]
    assert "unused" not in inputs
    assert inputs.count("Filter") == 2
    assert made_columns(dovetail.join(left, right, ON).groupBy("k").count()) == ["k"]
    counted = dovetail.join(left, right, ON).groupBy().count()
    assert made_columns(counted) == ["rows"]
    assert "run by     Dovetail: dovetail.join has made it" in str(dovetail.explain(counted))
    assert counted.collect()[0][0] == left.join(right, (left.x >= right.lo) & (left.x <= right.hi)).count()


def test_columns_of_the_inputs_and_aliases(frames: Frames) -> None:
    left, right = frames[0].alias("points"), frames[1].alias("b")
    joined = dovetail.join(left, right, ON)
    plain = left.join(right, (left.x >= right.lo) & (left.x <= right.hi))
    chosen = joined.select(left.x, right.k, F.col("points.s"), "b.hi", F.col("b.s_right"))
    assert rows(chosen) == rows(plain.select(left.x, right.k, left.s, "b.hi", right.s.alias("s_right")))
    assert chosen.columns == ["x", "k", "s", "hi", "s_right"]
    for how in ("inner", "left", "right", "full", "left_semi"):
        found, spark_s = dovetail.join(left, right, ON, how), left.join(right, left.x >= right.lo, how)
        assert [f.nullable for f in found.schema] == [f.nullable for f in spark_s.schema]
        assert [f.dataType for f in found.schema] == [f.dataType for f in spark_s.schema]


def test_self_joins_and_joins_of_joins(frames: Frames) -> None:
    left, right = frames
    again = dovetail.join(left, left, "l.x < r.x AND l.id > r.id AND r.k = 3")
    one, other = left.alias("one"), left.alias("other")
    by_alias = dovetail.join(one, other, (F.col("one.x") < F.col("other.x")) & (F.col("one.id") > F.col("other.id")))
    first = dovetail.join(left, right, ON).drop("id_right")
    of_join = dovetail.join(first, right, "l.hi < r.lo AND l.id > r.id", "left", suffix="_2")
    found = of_each({"again": again.select("id", "id_right"), "of join": of_join.select("x", "lo_2", "hi")})
    with at_once(left.sparkSession):
        again = dovetail.join(left, left, "l.x < r.x AND l.id > r.id AND r.k = 3")
        first = dovetail.join(left, right, ON).drop("id_right")
        of_join = dovetail.join(first, right, "l.hi < r.lo AND l.id > r.id", "left", suffix="_2")
        expected = of_each({"again": again.select("id", "id_right"), "of join": of_join.select("x", "lo_2", "hi")})
    assert found == expected
    assert by_alias.select("one.x").where("k_right = 3").count() == found["again"].total()
    itself = dovetail.join(left, right, ON)
    assert itself.alias("a").join(itself.alias("b"), F.expr("a.id = b.id_right")).count() > 0


def test_inside_of_queries(frames: Frames, spark: SparkSession) -> None:
    left, right = frames
    dovetail.join(left, right, ON, "left", memory="1MB").createOrReplaceTempView("lazily_joined")
    queries = [
        "SELECT s, count(*) AS n, max(hi) AS top FROM lazily_joined GROUP BY s",
        "SELECT x, '', hi FROM lazily_joined WHERE hi > 50 UNION ALL SELECT id, s, lo FROM lazily_joined WHERE lo < 9",
        "SELECT a.id, b.lo, 0 FROM lazily_joined a JOIN lazily_joined b ON a.id = b.id_right AND a.x > 90",
        "SELECT id, x, k FROM lazily_joined WHERE x > (SELECT avg(lo) FROM lazily_joined) AND k < hi",
    ]
    lazily = of_each({query: spark.sql(query) for query in queries})
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        cached = spark.table("lazily_joined").cache()
        assert of_each({query: spark.sql(query) for query in queries}) == lazily
        cached.unpersist()
        with at_once(spark):
            dovetail.join(left, right, ON, "left").createOrReplaceTempView("lazily_joined")
            assert of_each({query: spark.sql(query) for query in queries}) == lazily
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert all(found.total() for found in lazily.values())


def test_filters_of_both_sides_that_only_spark_evaluates(frames: Frames, spark: SparkSession) -> None:
    left, right = frames
    odd = F.udf(lambda a, b: (a + b) % 2 == 1, "boolean")
    joined = dovetail.join(left, right, ON)
    lazily = of_each(
        {
            "udf": joined.where(odd("x", "lo")).select("s"),
            "function": joined.where("levenshtein(s, s_right) < 2").select("x"),
        }
    )
    with at_once(spark):
        joined = dovetail.join(left, right, ON)
        expected = {
            "udf": joined.where(odd("x", "lo")).select("s"),
            "function": joined.where("levenshtein(s, s_right) < 2").select("x"),
        }
    assert lazily == of_each(expected)


# Joins that run at the call, and errors.


def test_what_stays_as_it_was(frames: Frames, spark: SparkSession) -> None:
    left, right = frames
    spark.udf.register("next_one", lambda x: x + 1, "bigint")
    own = dovetail.join(left, right, "next_one(l.x) < r.lo", trusted=True, sample=False)
    assert "DovetailJoin" not in plan(own)
    assert own.count() == left.join(right, left.x + 1 < right.lo).count()
    assert "DovetailJoin" not in plan(dovetail.join(left, right, ["k"]))  # joins on equal keys are left to Spark
    assert "DovetailJoin" in plan(dovetail.join(left, right, ["k"], cells=2))


def test_errors_of_the_run_are_raised(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = dovetail.join(*frames, ON)

    def fail(request: Any) -> DataFrame:
        raise PlanError("this cannot be planned")

    monkeypatch.setattr(joins, "join_dataframes", fail)
    with pytest.raises(IllegalArgumentException, match="this cannot be planned"):
        joined.collect()


def test_errors_of_the_inputs_are_raised(frames: Frames) -> None:
    left, right = frames
    failing = left.withColumn("x", F.expr("IF(id > 100, raise_error('no more'), x)"))
    with pytest.raises(Exception, match="no more"):
        dovetail.join(failing, right, ON).count()


def test_a_condition_that_cannot_be_read_again_is_run_by_spark(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(dovetail.join(*frames, ON).select("s", "lo"))
    joined = dovetail.join(*frames, ON)

    def fail(request: Any) -> DataFrame:
        raise ConditionError("what is this")

    monkeypatch.setattr(joins, "join_dataframes", fail)
    with pytest.warns(RuntimeWarning, match="what is this"):
        assert rows(joined.select("s", "lo")) == expected


# Random queries.

CONDITIONS = (
    ON,
    "l.x > r.lo AND l.k <= r.k",
    "l.k = r.k AND l.f <= r.f",
    "l.f = r.f AND l.x < r.hi",
    "l.f < r.f AND l.x >= r.hi",
    "abs(l.x - r.lo) <= 4",
    "l.s <= r.s AND l.s LIKE '%1'",
    "l.k != r.k AND r.id % 3 = 0",
    "l.k <=> r.k AND l.x < r.lo",
    "l.x < r.lo OR l.k > r.k + 10",
    "soundex(l.s) = soundex(r.s) AND l.x < r.lo AND r.lo < 20",
    "levenshtein(l.s, r.s) < 2 AND l.x > r.lo",
    "l.k > 2 AND r.k < 3",
    "l.k = 5 AND r.k = l.k AND r.lo > 7",
)
TYPES = ("inner", "left", "right", "full", "left_semi", "left_anti")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"sample": False},
    {"cells": 3},
    {"memory": "2MB"},
    {"suffix": "_r", "sample": False},
)
AFTER: tuple[Callable[[DataFrame], DataFrame], ...] = (
    lambda frame: frame.drop("unused", "unused_right", "unused_r"),
    lambda frame: frame.select("s"),
    lambda frame: frame.where("x > 20 AND s <> 'p3'").select("id", "f"),
    lambda frame: frame.where(f"`{frame.columns[-2]}` IS NOT NULL AND x + k > 7").select(frame.columns[-2], "x"),
    lambda frame: frame.groupBy("k").agg(F.count("*").alias("n"), F.max(frame.columns[-2]).alias("most")),
    lambda frame: frame.select(F.lit(1).alias("one")),
    lambda frame: frame.distinct().select("x") if "map" not in str(frame.dtypes) else frame.select("x"),
)


def random_query(rng: random.Random, frames: Frames) -> tuple[str, Callable[[], DataFrame]]:
    on, how, options, after = rng.choice(CONDITIONS), rng.choice(TYPES), rng.choice(OPTIONS), rng.choice(AFTER)
    name = f"{on} {how} {options} {AFTER.index(after)}"
    return name, lambda: after(dovetail.join(*frames, on, how, **options))


@pytest.mark.parametrize("seed", range(repeat(20)))
def test_random_queries(seed: int, frames: Frames, spark: SparkSession) -> None:
    rng = seeded(seed)
    queries = dict(random_query(rng, frames) for _ in range(6))
    with no_jobs(spark):
        lazily = {name: query() for name, query in queries.items()}
    found = of_each(lazily)
    with at_once(spark):
        expected = of_each({name: query() for name, query in queries.items()})
    for name in queries:
        assert found[name] == expected[name], name
