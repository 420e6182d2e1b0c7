"""Filters on one input: Spark applies them before workers see the rows, unless that could cause an error."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.core.rows import Side
from dovetail.spark.frames.binding import bind_frames

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def left(spark: SparkSession) -> DataFrame:
    rows = [("", i % 5, float(i % 3), None if i % 7 == 0 else ("straße", "Ada", "x_y")[i % 3]) for i in range(60)]
    return spark.createDataFrame(rows, "unread string, k int, x double, `a b` string")


@pytest.fixture(scope="module")
def right(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(i % 6, i) for i in range(30)], "k int, w int")


@pytest.mark.parametrize(
    ("condition", "passed"),
    [
        ("upper(l.`a b`) = 'STRASSE'", "upper(l.`a b`) = 'STRASSE'"),
        ("l.k IN (1, 2) AND l.`a b` LIKE 'A%'", "l.k IN (1, 2) AND l.`a b` LIKE 'A%'"),
        ("(length(l.`a b`) > 3 OR l.`a b` IS NULL)", "length(l.`a b`) > 3 OR l.`a b` IS NULL"),
        ("l.x != 0 AND 1 / l.x > 0.7", "l.x != 0"),  # 1 / 0 fails in Spark, so workers evaluate the second part
        ("floor(l.x) = 1", "TRUE"),  # so does the floor of a huge number
        (r"l.`a b` LIKE 'x\\_y'", "TRUE"),  # so does a backslash before a letter
        ("l.x + 1 > 2", "TRUE"),
    ],
)
def test_what_spark_leaves_out(left: DataFrame, right: DataFrame, condition: str, passed: str) -> None:
    bound = bind_frames(f"l.k < r.k AND {condition}", left, right)
    wanted = left.alias("l").where(passed).count()
    assert bound.passing(Side.LEFT).count() == wanted
    assert bound.passing(Side.RIGHT) is bound.frames[Side.RIGHT]
    assert bound.with_columns((("k", "x", "a b"), ("k",))).passing(Side.LEFT).count() == wanted


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi", "left_anti"])
def test_join_types(left: DataFrame, right: DataFrame, how: str) -> None:
    on = "l.k < r.k AND upper(l.`a b`) = 'STRASSE' AND r.w BETWEEN 5 AND 20"
    left.createOrReplaceTempView("one")
    right.createOrReplaceTempView("other")
    columns = "l.*" if how.startswith("left_") else "l.*, r.*"
    wanted = left.sparkSession.sql(f"SELECT {columns} FROM one l {how.replace('_', ' ')} JOIN other r ON {on}")
    found = dovetail.join(left, right, on=on, how=how, cells=3)
    assert sorted(map(repr, map(tuple, found.collect()))) == sorted(map(repr, map(tuple, wanted.collect())))
