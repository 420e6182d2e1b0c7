"""Every join type and class of predicate on DataFrames at rest, against Spark's own join; counts and aggregates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import cases_of, some
from tests.spark.join_cases import CONDITIONS, random_rows, rows_by_type, rows_of

import dovetail

pytestmark = pytest.mark.spark

HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
AT_ONCE = 16  # joins in one job


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left, right = (spark.createDataFrame(random_rows(*size)).repartition(2).cache() for size in ((400, 1), (150, 2)))
    return left, right


@pytest.fixture(scope="module")
def pairs(frames: tuple[DataFrame, DataFrame]) -> dict[str, list[tuple[int, int]]]:
    """The pairs of each condition, computed by Spark with a single cross join."""
    left, right = frames[0].alias("l"), frames[1].alias("r")
    holds = [F.expr(on).alias(name) for name, on in CONDITIONS.items()]
    found = left.crossJoin(right).select(F.col("l.id").alias("i"), F.col("r.id").alias("j"), *holds).toArrow()
    return {
        name: list(zip(*(found.filter(found[name])[side].to_pylist() for side in "ij"), strict=True))
        for name in CONDITIONS
    }


@pytest.fixture(scope="module")
def contents(frames: tuple[DataFrame, DataFrame]) -> list[dict[int, tuple[Any, ...]]]:
    """The rows of both sides by their number."""
    return [{row.id: tuple(row) for row in frame.collect()} for frame in frames]


def types_of(name: str, tried: Sequence[str]) -> Sequence[str]:
    """Join types for a condition, in turn or all; with enough conditions, each type is tried."""
    return some(HOW, tried.index(name), of=len(HOW))


@pytest.fixture(scope="module")
def joined(frames: tuple[DataFrame, DataFrame], request: pytest.FixtureRequest) -> dict[tuple[str, str], Counter[str]]:
    """The rows of each condition and join type, with many joins per job."""
    width = dict.fromkeys(HOW[:4], 22)
    tried = cases_of(request, "test_the_same_rows_as_spark", "name")
    cases = [(name, how) for name in tried for how in types_of(name, tried)]
    found: dict[tuple[str, str], Counter[str]] = {case: Counter() for case in cases}
    for start in range(0, len(cases), AT_ONCE):
        parts = []
        for name, how in cases[start : start + AT_ONCE]:
            rows = dovetail.join(*frames, CONDITIONS[name], how, cells=1 + len(name) % 6)
            numbered = rows.toDF(*(f"c{n}" for n in range(width.get(how, 11))))
            parts.append(numbered.withColumns({"name": F.lit(name), "how": F.lit(how)}))
        for row in reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts).collect():
            found[row["name"], row.how][str(tuple(row[f"c{n}"] for n in range(width.get(row.how, 11))))] += 1
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONDITIONS)
def test_the_same_rows_as_spark(
    joined: dict[tuple[str, str], Counter[str]],
    request: pytest.FixtureRequest,
    name: str,
    pairs: dict[str, list[tuple[int, int]]],
    contents: list[dict[int, tuple[Any, ...]]],
) -> None:
    expected = rows_by_type(pairs[name], contents)
    for how in types_of(name, cases_of(request, "test_the_same_rows_as_spark", "name")):
        assert joined[name, how] == expected[how], how
    assert expected["inner"], "the case shows nothing"
    assert name == "unequal" or expected["left_anti"], "the case shows nothing"


@pytest.mark.parametrize("name", some(list(CONDITIONS), 0, of=5))
def test_counts(frames: tuple[DataFrame, DataFrame], name: str, pairs: dict[str, list[tuple[int, int]]]) -> None:
    assert dovetail.count(*frames, CONDITIONS[name]) == len(pairs[name])


# By default one grouped by the left side, and one by the right side of a condition that Spark filters.
AGGREGATED = ("two_inequalities", "hash", "band", "spark_only", "nested_loop", "union")
GROUPS: tuple[Any, ...] = (None, "l.h", ["r.g", "r.s"])


@pytest.mark.parametrize(
    ("name", "by"),
    [
        pytest.param(name, by, marks=() if n in (1, 11) else pytest.mark.slow)
        for n, (name, by) in enumerate(product(AGGREGATED, GROUPS))
    ],
)
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


@pytest.mark.one_in(3)
def test_small_budgets_spill(
    frames: tuple[DataFrame, DataFrame],
    pairs: dict[str, list[tuple[int, int]]],
    contents: list[dict[int, tuple[Any, ...]]],
) -> None:
    left, right = frames
    ours = dovetail.join(left, right, CONDITIONS["two_inequalities"], "full", memory=70_000, cells=1)
    assert rows_of(ours) == rows_by_type(pairs["two_inequalities"], contents)["full"]


@pytest.mark.one_in(3)
def test_empty_sides(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    nothing = right.where("id < 0")
    for on in some((CONDITIONS["band"], CONDITIONS["hash"]), 0, of=2):
        outer = dovetail.join(left, nothing, on, "left").select("id", F.lit("left"))
        full = dovetail.join(nothing, left, on, "full").toDF(*(f"c{n}" for n in range(22))).select("c11", F.lit("full"))
        semi = dovetail.join(left, nothing, on, "left_semi").select("id", F.lit("semi"))
        found = sorted(map(tuple, outer.union(full).union(semi).collect()))
        assert found == sorted(product(range(400), ("left", "full")))
        assert dovetail.count(nothing, left, on) == 0
    assert dovetail.aggregate(left, nothing, "l.x < r.x", {"n": "count(*)", "most": "max(l.x)"}).collect()[0] == (
        0,
        None,
    )


@pytest.mark.slow
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
