"""Joins on equal keys alone are left to Spark, unless an option needs Dovetail."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import dovetail

pytestmark = pytest.mark.spark

HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
ON = "l.k = r.k AND l.x = r.x"
NAN = float("nan")


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    values = [0.0, -0.0, NAN, None, 1.5]
    rows = [(n, n % 7 if n % 11 else None, values[n % 5]) for n in range(60)]
    left = spark.createDataFrame(rows, "id int, k int, x double")
    return left, spark.createDataFrame(rows[::2], "number long, k long, x double")


def tagged(joined: DataFrame, how: str) -> DataFrame:
    columns = [f"c{n}" for n in range(len(joined.columns))]
    texts = [F.col(column).cast("string") for column in columns]
    return joined.toDF(*columns).select(F.lit(how).alias("how"), F.concat_ws("|", *map(_shown, texts)).alias("row"))


def _shown(text: Any) -> Any:
    return F.coalesce(F.when(text == "-0.0", F.lit("0.0")).otherwise(text), F.lit("null"))


def all_rows(frames: tuple[DataFrame, DataFrame], **options: Any) -> Counter[tuple[str, str]]:
    joined = [tagged(dovetail.join(*frames, ON, how, **options), how) for how in HOW]
    return Counter((row.how, row.row) for row in reduce(DataFrame.unionAll, joined).collect())


def test_the_same_rows_in_the_jvm_and_in_cells(frames: tuple[DataFrame, DataFrame]) -> None:
    by_spark = all_rows(frames)
    assert by_spark == all_rows(frames, cells=2)
    assert {how for how, _ in by_spark} == set(HOW)


def test_no_row_leaves_the_jvm(frames: tuple[DataFrame, DataFrame], capsys: pytest.CaptureFixture[str]) -> None:
    joined = dovetail.join(*frames, "l.k = r.k AND l.x + r.x > 1")
    joined.explain()
    shown = capsys.readouterr().out
    assert "Join" in shown
    assert "MapInArrow" not in shown
    assert joined.columns == ["id", "k", "x", "number", "k_right", "x_right"]


@pytest.mark.parametrize(
    ("on", "options", "is_native"),
    [
        (ON, {}, True),
        (["k"], {"how": "full"}, True),
        (ON, {"memory": "1MB"}, False),
        (ON, {"cells": 3}, False),
        (ON, {"sample": False}, False),
        (ON, {"algorithm": "shj"}, False),
        ("l.k = r.k AND l.id < r.number", {}, False),
        ("l.k = r.k OR l.x = r.x", {}, False),
    ],
)
def test_explain_says_so(frames: tuple[DataFrame, DataFrame], on: Any, options: Any, is_native: bool) -> None:
    plan = dovetail.explain(*frames, on, **options)
    assert (plan.operator.name == "spark") is is_native
    assert ("Spark's own join: for equal keys alone" in str(plan)) is is_native
