"""`columns=` on DataFrames whose join is planned at the call: the same rows, with fewer columns transferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import some

import dovetail
from dovetail.spark.session.settings import AT_ONCE

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions", "at_once")]

HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
CONDITIONS = (
    "l.x BETWEEN r.lo AND r.hi",
    "l.k = r.k",
    "l.k = r.k AND l.x < r.lo",
    "l.x < r.lo AND levenshtein(l.s, r.s) < 3",
    "soundex(l.s) = soundex(r.s) AND l.m < r.m",
)
CHOSEN = (["s"], ["s_right", "id_right"], ["hi", "x", "m"], [], ["k_right", "k"])


@pytest.fixture(scope="module")
def at_once(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(AT_ONCE, "true")
    yield
    spark.conf.unset(AT_ONCE)


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    month = "make_ym_interval(0, CAST(id % 5 AS INT)) AS m"
    left = spark.range(40).selectExpr("id", "id * 7 % 31 AS x", "id % 6 AS k", "concat('p', id % 9) AS s", month)
    right = spark.range(30).selectExpr(
        "id", "id * 5 % 31 AS lo", "id * 5 % 31 + 4 AS hi", "id % 5 AS k", "concat('p', id % 8) AS s", month
    )
    return left, right


def rows_of_each(frames: dict[str, DataFrame]) -> dict[str, Counter[str]]:
    """The rows of each DataFrame, in one job."""
    found: dict[str, Counter[str]] = {name: Counter() for name in frames}
    texts = [
        frame.select(F.lit(name), F.concat_ws("|", F.lit("row"), *(F.col(c).cast("string") for c in frame.columns)))
        for name, frame in frames.items()
    ]
    for name, row in reduce(DataFrame.union, texts).collect():
        found[name][row] += 1
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", HOW)
def test_they_are_those_of_the_whole_result(how: str, frames: tuple[DataFrame, DataFrame]) -> None:
    ours, expected = {}, {}
    for on in some(CONDITIONS, 0, of=2):
        options: dict[str, Any] = {"sample": False, "cells": 2}
        whole = dovetail.join(*frames, on, how, **options)
        for chosen in some([names for names in CHOSEN if set(names) <= set(whole.columns)], 0, of=2):
            name = f"{on} {chosen}"
            ours[name] = dovetail.join(*frames, on, how, columns=chosen, **options)
            expected[name] = whole.select(chosen)
            assert ours[name].columns == chosen
    assert rows_of_each(ours) == rows_of_each(expected)


def test_what_is_not_needed_is_not_sent(frames: tuple[DataFrame, DataFrame]) -> None:
    joined = dovetail.join(*frames, "l.x BETWEEN r.lo AND r.hi", columns=["hi"], sample=False)
    plan = joined._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[attr-defined]
    assert "concat" not in plan
    assert "interval" not in plan
    explained = str(dovetail.explain(*frames, "l.x BETWEEN r.lo AND r.hi", columns=["hi"], sample=False))
    assert "columns    1 of 11 are in the result; l.x, r.lo read for the condition" in explained


def test_shared_columns_once(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    options: dict[str, Any] = {"on": ["k"], "how": "full", "indicator": True, "sample": False, "cells": 2}
    chosen = ["_merge", "k", "lo"]
    found = rows_of_each(
        {
            "chosen": dovetail.join(left, right, columns=chosen, **options),
            "whole": dovetail.join(left, right, **options).select(chosen),
        }
    )
    assert found["chosen"] == found["whole"]
