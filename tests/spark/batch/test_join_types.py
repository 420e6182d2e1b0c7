"""Every join type and class of predicate on DataFrames at rest, against Spark's own join; counts and aggregates."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

import dovetail

pytestmark = pytest.mark.spark

HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
CONDITIONS = {
    "hash": "l.k = r.k",
    "heavy": "l.h = r.h AND l.x < r.x - 40",
    "one_inequality": "l.x > r.x + 45",
    "two_inequalities": "l.x < r.x AND l.y > r.y + 30 AND l.id <> r.id",
    "text": "l.s < r.s AND l.x > r.x + 20",
    "band": "abs(l.x - r.x) <= 0.5",
    "two_bands": "l.x BETWEEN r.x - 2 AND r.x + 1 AND abs(l.y - r.y) < 2",
    "overlap": "l.start_at <= r.end_at AND l.end_at > r.start_at",
    "rectangles": "l.start_at < r.end_at AND l.end_at > r.start_at AND l.ymin <= r.ymax AND l.ymax >= r.ymin",
    "distance": "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) <= 2",
    "unequal": "l.g != r.g",
    "nested_loop": "l.k = r.k OR l.x + r.x < -30",
    "union": "l.k = r.k AND l.y > 0 OR abs(l.x - r.x) <= 0.1",
    "null_safe": "l.k <=> r.k AND l.y < 0",
    "union_checked": "(l.k = r.k OR l.s = r.s OR l.x > r.x + 45) AND l.x * r.y > 10",
    "spark_only": "levenshtein(l.s, r.s) < 2 AND l.x > r.x",
}


def random_rows(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 20, rows), rng.normal(0, 20, rows)
    start = rng.integers(0, 400, rows)
    nowhere = rng.random(rows) < 0.1
    return pa.table(
        {
            "id": np.arange(rows),
            "k": pa.array(rng.integers(0, 60, rows), mask=nowhere),
            "h": np.where(rng.random(rows) < 0.7, 7, rng.integers(0, 30, rows)),
            "g": pa.array(np.where(rng.random(rows) < 0.99, 1, 2)),
            "x": pa.array(x, mask=nowhere),
            "y": np.where(rng.random(rows) < 0.02, np.nan, y),
            "s": [f"{'' if i % 7 else 'longprefix'}{'abcdef'[i % 6]}{i % 5}" for i in range(rows)],
            "start_at": pa.array(start * 1_000_000, pa.timestamp("us", "UTC")),
            "end_at": pa.array((start + rng.integers(-2, 12, rows)) * 1_000_000, pa.timestamp("us", "UTC")),
            "ymin": y,
            "ymax": y + rng.random(rows) * 6,
        }
    )


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left, right = (spark.createDataFrame(random_rows(*size)).repartition(2).cache() for size in ((400, 1), (150, 2)))
    return left, right


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(str(tuple(row)) for row in frame.collect())


def both(jobs: list[Any]) -> list[Any]:
    """Two jobs at a time, because small ones keep no core busy."""
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda job: job(), jobs))


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_same_rows_as_spark(frames: tuple[DataFrame, DataFrame], name: str) -> None:
    left, right = frames
    on = CONDITIONS[name]
    cells = 1 + len(name) % 6
    ours = both([lambda how=how: rows_of(dovetail.join(left, right, on, how, cells=cells)) for how in HOW])
    theirs = both([lambda how=how: rows_of(left.alias("l").join(right.alias("r"), F.expr(on), how)) for how in HOW])
    for how, found, expected in zip(HOW, ours, theirs, strict=True):
        assert found == expected, how
    assert ours[0], "the case shows nothing"
    assert name == "unequal" or ours[HOW.index("left_anti")], "the case shows nothing"
    assert dovetail.count(left, right, on) == ours[0].total()


@pytest.mark.parametrize("name", ["two_inequalities", "hash", "band", "spark_only", "nested_loop", "union"])
@pytest.mark.parametrize("by", [None, "l.h", ["r.g", "r.s"]])
def test_aggregates_are_spark_aggregates(frames: tuple[DataFrame, DataFrame], name: str, by: Any) -> None:
    left, right = frames
    on = CONDITIONS[name]
    wanted = {
        "n": "count(*)",
        "known": "count(r.k)",
        "total": "sum(r.id)",
        "mean": "avg(l.id)",
        "least": "min(r.start_at)",
        "last": "max(l.s)",
    }
    ours = dovetail.aggregate(left, right, on, wanted, by=by)
    keys = [by] if isinstance(by, str) else by or []
    joined = left.alias("l").join(right.alias("r"), F.expr(on)).groupBy(*keys)
    theirs = joined.agg(*(F.expr(text).alias(name) for name, text in wanted.items()))
    assert ours.columns == [key.split(".")[1] for key in keys] + list(wanted)
    assert [f.dataType for f in ours.schema] == [f.dataType for f in theirs.schema]
    assert rows_of(ours) == rows_of(theirs)


def test_small_budgets_spill(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    for how in ("left", "full"):
        ours = dovetail.join(left, right, CONDITIONS["two_inequalities"], how, memory=70_000, cells=1)
        theirs = left.alias("l").join(right.alias("r"), F.expr(CONDITIONS["two_inequalities"]), how)
        assert rows_of(ours) == rows_of(theirs)


def test_empty_sides(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    nothing = right.where("id < 0")
    for on in (CONDITIONS["band"], CONDITIONS["hash"], CONDITIONS["overlap"]):
        assert dovetail.join(left, nothing, on, "left").count() == 400
        assert dovetail.join(nothing, left, on, "full").count() == 400
        assert dovetail.join(left, nothing, on, "left_semi").count() == 0
        assert dovetail.count(nothing, left, on) == 0
    assert dovetail.aggregate(left, nothing, "l.x < r.x", {"n": "count(*)", "most": "max(l.x)"}).collect()[0] == (
        0,
        None,
    )


def test_disjunctions_in_waves_and_of_several_inputs(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    on = "l.k = r.k OR l.s = r.s AND l.x < r.x"
    expected = left.alias("l").join(right.alias("r"), F.expr(on)).select("l.id", "r.id")
    steps = dovetail.progressive(left, right, on, cells=8)
    found = Counter(pair for s in steps for pair in zip(s.batch["id"], s.batch["id_right"], strict=True))
    assert Counter((one.as_py(), other.as_py()) for one, other in found.elements()) == Counter(
        tuple(row) for row in expected.collect()
    )
    few = left.where("id < 40")
    three = dovetail.multijoin({"l": left, "r": right, "f": few}, f"({on}) AND (f.k <=> r.k OR f.g != r.g)")
    theirs = (
        left.alias("l").join(right.alias("r"), F.expr(on)).join(few.alias("f"), F.expr("f.k <=> r.k OR f.g != r.g"))
    )
    assert three.count() == theirs.count()
