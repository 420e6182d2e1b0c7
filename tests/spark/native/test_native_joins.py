"""Joins by Spark's own operators in cells: the rows of a nested loop, whatever the values and the cells."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import repeat
from tests.seed import seeded

import dovetail
from dovetail.errors import PlanError
from dovetail.spark.frames import sampling

pytestmark = pytest.mark.spark

ROWS = 60
START = datetime(2024, 10, 27)  # summer time ends in the session's zone, if it has any
SCHEMA = (
    "id int, k int, x double, y double, n bigint, m bigint, d decimal(12,3), day date, at timestamp, wall timestamp_ntz"
)
FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 1e-300, None]
LONGS = [0, -1, 2**61, -(2**61), 2**53 + 1, None]  # whose differences do not overflow

IN_INTERVAL = [
    "l.x >= r.x AND l.x < r.y",
    "l.x BETWEEN r.x AND r.y",
    "r.n < l.n AND r.m >= l.n",
    "l.k = r.k AND l.n BETWEEN r.n AND r.m",
    "l.x BETWEEN r.x AND r.y AND l.id + r.id > 40",
    "r.x BETWEEN l.x AND l.y",
]
BANDS = [
    "l.at >= r.at AND l.at < r.at + INTERVAL 2 HOURS",
    "abs(l.x - r.x) <= 2",
    "l.n - r.n BETWEEN -3 AND 10",
    "abs(l.d - r.d) < 1.5",
    "abs(datediff(l.day, r.day)) <= 1",
    "l.wall BETWEEN r.wall - INTERVAL 10 MINUTES AND r.wall + INTERVAL 1 HOUR",
    "abs(l.x - r.x) <= 2 AND abs(l.y - r.y) <= 3",
    "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) <= 2.5",
]
HOW = ["inner", "left", "right", "left_semi", "left_anti"]


def table(spark: SparkSession, rng: Random, scale: float) -> DataFrame:
    """Rows with long and short intervals, and with every value that is hard to put on a line."""

    def number() -> float | None:
        return rng.choice(FLOATS) if rng.random() < 0.1 else round(rng.gauss(0, 10) * scale, 2)

    def whole() -> int | None:
        return rng.choice(LONGS) if rng.random() < 0.05 else rng.randrange(-100, 100)

    rows: list[tuple[Any, ...]] = []
    for row in range(ROWS):
        x, n = number(), whole()
        reach = rng.choice([0.0, 0.5, 3.0, 1000.0, -1.0])
        y = number() if x is None or rng.random() < 0.2 else x + reach
        m = whole() if n is None or rng.random() < 0.2 else n + int(reach)
        at = None if rng.random() < 0.1 else START + timedelta(minutes=rng.randrange(0, 600))
        price = None if rng.random() < 0.1 else Decimal(rng.randrange(-9000, 9000)) / 1000
        rows.append((row, rng.randrange(4), x, y, n, m, price, date(2024, 10, 20 + rng.randrange(9)), at, at))
    return spark.createDataFrame(rows, SCHEMA)


def answers(joined: DataFrame, number: int) -> DataFrame:
    right = F.col("id_right") if "id_right" in joined.columns else F.lit(None).cast("int")
    return joined.select(F.lit(number).alias("join"), F.col("id").alias("l"), right.alias("r"))


def test_equals_spark(spark: SparkSession) -> None:
    """Plans that are made for small samples, so that most values are outside of what was sampled."""
    rng = seeded("native joins")
    points = {
        on: ("inner", "right") if on.startswith("r.x") else ("inner", "left", "left_semi", "left_anti")
        for on in IN_INTERVAL
    }
    asked = [(on, how) for on in [*IN_INTERVAL, *BANDS] for how in points.get(on, HOW)]
    rng.shuffle(asked)
    native: list[DataFrame] = []
    plain: list[DataFrame] = []
    asked = asked[: repeat(19 * 16)]
    for number, (on, how) in enumerate(asked):
        left, right = table(spark, rng, rng.choice([0.1, 1, 100])), table(spark, rng, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sampling.sample_sides, "__defaults__", (rng.choice([2, 20, 4096]), (None, None)))
            joined = dovetail.join(left, right, on, how, algorithm="native")
        native.append(answers(joined, number))
        other = right.toDF(*(f"{name}_right" for name in right.columns))
        text = on.replace("l.", "")
        for name in sorted(right.columns, key=len, reverse=True):
            text = text.replace(f"r.{name}", f"{name}_right")
        condition = F.expr(text)
        plain.append(answers(left.join(other.hint("broadcast"), condition, how), number))
    found = Counter(tuple(row) for row in reduce(DataFrame.unionAll, native).collect())
    known = Counter(tuple(row) for row in reduce(DataFrame.unionAll, plain).collect())
    for number, case in enumerate(asked):
        ours = {row: n for row, n in found.items() if row[0] == number}
        assert ours == {row: n for row, n in known.items() if row[0] == number}, case


@pytest.mark.parametrize("how", ["inner", "left"])
def test_levels(spark: SparkSession, how: str) -> None:
    """Intervals of a thousandth and of all of the domain: each on its level, and each pair once."""
    points = spark.range(20_000).selectExpr("id", "cast(id * 37 % 1000000 as double) AS t")
    starts = spark.range(3_000).selectExpr("id", "cast(id * 331 % 1000000 as double) AS s")
    ranges = starts.selectExpr("id", "s", "CASE WHEN id % 500 = 0 THEN s + 900000 ELSE s + 20 END AS e")
    on = "l.t >= r.s AND l.t < r.e"
    plan = str(dovetail.explain(points, ranges, on, how, algorithm="native"))
    assert ("times as wide" in plan) == (how == "inner")  # a point without partners would come twice
    expected = points.join(ranges.toDF("i", "s", "e"), F.expr("t >= s AND t < e"), how)
    joined = dovetail.join(points, ranges, on, how, algorithm="native")
    sums = [F.count("*"), F.count("s"), F.sum(F.xxhash64("id", "s").cast("decimal(38,0)"))]
    assert joined.agg(*sums).first() == expected.agg(*sums).first()


@pytest.mark.parametrize(
    ("on", "how", "reason"),
    [
        ("l.x < r.x AND l.y > r.y", "inner", "no dimension"),
        ("l.x BETWEEN r.x AND r.y", "right", "no dimension"),
        ("l.x BETWEEN r.x AND r.y", "full", "no dimension"),
        ("l.x BETWEEN 10 / r.n AND r.y", "inner", "may fail"),
    ],
)
def test_refusals(spark: SparkSession, on: str, how: str, reason: str) -> None:
    frame = table(spark, seeded("refusals"), 1)
    with pytest.raises(PlanError, match=reason):
        dovetail.join(frame, frame, on, how, algorithm="native")
