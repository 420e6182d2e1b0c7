"""Joins with Spark's own operators in cells return the rows of a nested loop, for any values and cells."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from random import Random
from typing import Any

import pyarrow as pa
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
START = datetime(2024, 10, 27)  # summer time ends on this day in many zones
SCHEMA = {
    "id": (pa.int32(), "int"),
    "k": (pa.int32(), "int"),
    "x": (pa.float64(), "double"),
    "y": (pa.float64(), "double"),
    "n": (pa.int64(), "bigint"),
    "m": (pa.int64(), "bigint"),
    "d": (pa.decimal128(12, 3), "decimal(12,3)"),
    "day": (pa.date32(), "date"),
    "at": (pa.timestamp("us", "UTC"), "timestamp"),
    "wall": (pa.timestamp("us"), "timestamp_ntz"),
}
IN_SPARK = ", ".join(f"{name} {kind}" for name, (_, kind) in SCHEMA.items())
FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 1e-300, None]
LONGS = [0, -1, 2**61, -(2**61), 2**53 + 1, None]  # chosen so that differences do not overflow

IN_INTERVAL = [
    "l.x >= r.x AND l.x < r.y",
    "l.x BETWEEN r.x AND r.y",
    "r.n < l.n AND r.m >= l.n",
    "l.k = r.k AND l.n BETWEEN r.n AND r.m",
    "l.x BETWEEN r.x AND r.y AND l.id + r.id > 40",
    "r.x BETWEEN l.x AND l.y",
]
OVERLAPS = [
    "l.x < r.y AND r.x < l.y",
    "l.n <= r.m AND r.n <= l.m AND l.k = r.k",
    "l.at <= r.at + INTERVAL 2 HOURS AND r.at <= l.at + INTERVAL 90 MINUTES",
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
SAMPLES = [20, 2, 4096]
HOW = ["inner", "left", "right", "left_semi", "left_anti"]


def random_table(rng: Random, scale: float) -> pa.Table:
    """Rows with long and short intervals, and with every value that is hard to place on an axis."""

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
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(next(columns), kind) for name, (kind, _) in SCHEMA.items()})


def table(spark: SparkSession, rng: Random, scale: float) -> DataFrame:
    return spark.createDataFrame(random_table(rng, scale), IN_SPARK)


def answers(joined: DataFrame, number: int) -> DataFrame:
    right = F.col("id_right") if "id_right" in joined.columns else F.lit(None).cast("int")
    return joined.select(F.lit(number).alias("join"), F.col("id").alias("l"), right.alias("r"))


def cases() -> list[tuple[str, str]]:
    """Conditions, each with the join types for which it has a native plan."""
    kinds = {
        on: ("inner", "right") if on.startswith("r.x") else ("inner", "left", "left_semi", "left_anti")
        for on in IN_INTERVAL
    }
    kinds |= dict.fromkeys(OVERLAPS, ("inner",))
    return [(on, how) for on in [*IN_INTERVAL, *OVERLAPS, *BANDS] for how in kinds.get(on, HOW)]


def native(left: DataFrame, right: DataFrame, on: str, how: str) -> DataFrame:
    return dovetail.join(left, right, on, how, algorithm="native")


def by_nested_loop(left: DataFrame, right: DataFrame, on: str, how: str) -> DataFrame:
    other = right.toDF(*(f"{name}_right" for name in right.columns))
    text = on.replace("l.", "")
    for name in sorted(right.columns, key=len, reverse=True):
        text = text.replace(f"r.{name}", f"{name}_right")
    return left.join(other.hint("broadcast"), F.expr(text), how)


def collected(joined: list[DataFrame], sampled: int | None = None) -> Counter[tuple[Any, ...]]:
    """Joins are planned when they run. With a small sample, most values are outside the sampled range."""
    with pytest.MonkeyPatch.context() as patch:
        if sampled is not None:
            patch.setattr(sampling.sample_sides, "__defaults__", (sampled, (None, None)))
        return Counter(tuple(row) for row in reduce(DataFrame.unionAll, joined).collect())


def of_case(found: Counter[tuple[Any, ...]], number: int) -> dict[tuple[Any, ...], int]:
    return {row: n for row, n in found.items() if row[0] == number}


def test_equals_spark(spark: SparkSession) -> None:
    rng = seeded("native joins")
    asked = cases()
    rng.shuffle(asked)
    asked = asked[: repeat(19 * 16)]
    ours: list[DataFrame] = []
    plain: list[DataFrame] = []
    for number, (on, how) in enumerate(asked):
        left, right = table(spark, rng, rng.choice([0.1, 1, 100])), table(spark, rng, 1)
        ours.append(answers(native(left, right, on, how), number))
        plain.append(answers(by_nested_loop(left, right, on, how), number))
    found, known = collected(ours, rng.choice(SAMPLES)), collected(plain)
    for number, case in enumerate(asked):
        assert of_case(found, number) == of_case(known, number), case


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(50))
def test_equals_kernels(spark: SparkSession, turn: int) -> None:
    """40 cases per turn: with empty sides, and with adaptive execution on and off."""
    rng = seeded(f"native joins and kernels {turn}")
    asked = rng.choices(cases(), k=40)
    ours: list[DataFrame] = []
    known: Counter[tuple[Any, ...]] = Counter()
    for number, (on, how) in enumerate(asked):
        left, right = random_table(rng, rng.choice([0.1, 1, 100])), random_table(rng, 1)
        empty = rng.choice(["neither"] * 8 + ["left", "right"])
        left, right = (rows.slice(0, 0) if side == empty else rows for side, rows in (("left", left), ("right", right)))
        frames = [spark.createDataFrame(rows, IN_SPARK) for rows in (left, right)]
        ours.append(answers(native(*frames, on, how), number))
        joined = dovetail.join(left, right, on, how)
        ids = joined["id_right"].to_pylist() if "id_right" in joined.column_names else [None] * joined.num_rows
        known += Counter((number, mine, theirs) for mine, theirs in zip(joined["id"].to_pylist(), ids, strict=True))
    before = str(spark.conf.get("spark.sql.adaptive.enabled"))
    spark.conf.set("spark.sql.adaptive.enabled", str(turn % 2 == 0).lower())
    try:
        found = collected(ours, SAMPLES[turn % 3])
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    for number, case in enumerate(asked):
        assert of_case(found, number) == of_case(known, number), case


@pytest.mark.parametrize("how", ["inner", "left"])
def test_levels(spark: SparkSession, how: str) -> None:
    """Very short intervals, and intervals of nearly the whole domain: each on its level, and each pair once."""
    points = spark.range(20_000).selectExpr("id", "cast(id * 37 % 1000000 as double) AS t")
    starts = spark.range(3_000).selectExpr("id", "cast(id * 331 % 1000000 as double) AS s")
    ranges = starts.selectExpr("id", "s", "CASE WHEN id % 500 = 0 THEN s + 900000 ELSE s + 20 END AS e")
    on = "l.t >= r.s AND l.t < r.e"
    plan = str(dovetail.explain(points, ranges, on, how, algorithm="native"))
    assert ("times as wide" in plan) == (how == "inner")  # a point without partners would be emitted twice
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
