"""ROW_NUMBER() … = 1 over joins in plain SQL: the join only produces the partners needed, and rows are Spark's."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from tests.effort import repeat
from tests.seed import seeded
from tests.spark.catalyst.queries import plan, rows

import dovetail

pytestmark = pytest.mark.spark

JOINS = [
    "points p JOIN bands b ON p.x BETWEEN b.lo AND b.hi",
    "points p LEFT JOIN bands b ON p.x BETWEEN b.lo AND b.hi AND p.k < b.k",
    "points p, bands b WHERE p.x >= b.lo AND b.band > 20 AND p.id > 30",
    "points p LEFT JOIN (SELECT band, lo + 1 AS lo, f, k, s, day FROM bands) b ON abs(p.x - b.lo) < 60",
]
ORDERS = ["b.lo DESC", "b.k", "b.f DESC NULLS FIRST", "abs(p.x - b.lo)", "b.s DESC, p.k NULLS LAST", "b.day, b.k"]
BOUNDS = ["n = 1", "n <= 3", "n < 3 AND id > 20", "2 >= n"]


def query(join: str, function: str, group: str, order: str, bound: str) -> str:
    number = f"{function}() OVER (PARTITION BY {group} ORDER BY {order}) AS n"
    return f"SELECT * FROM (SELECT p.id, p.s, b.band, b.f, {number} FROM {join}) WHERE {bound}"


@pytest.mark.parametrize("case", range(repeat(24)))
def test_rows_are_those_of_spark(case: int, session: SparkSession) -> None:
    rng = seeded("first rows on Spark", case)
    function = rng.choice(["row_number", "row_number", "rank"])
    order = rng.choice(ORDERS)
    if function == "row_number":
        order += ", b.band, p.id"  # avoids ties, for which several results are correct
    group = rng.choice(["p.id", "p.id, p.x + 1", "p.bucket", "p.k, p.s"])
    text = query(rng.choice(JOINS), function, group, order, rng.choice(BOUNDS))
    expected = rows(session.sql(text))
    with dovetail.enable(session):
        found = session.sql(text)
        assert "of each left row by" in plan(found), text
        assert rows(found) == expected, text
    assert expected.total()


def test_dataframes(enabled: SparkSession) -> None:
    points, bands = enabled.table("points"), enabled.table("bands")

    def first() -> DataFrame:
        joined = points.join(bands, (points.x >= bands.lo) & (points.x < bands.hi), "left").drop(bands.s)
        best = Window.partitionBy("id").orderBy(F.desc("lo"), "band")
        return joined.withColumn("n", F.row_number().over(best)).where("n = 1").drop("n")

    assert "top 1 of each left row by [r.c" in plan(first())
    found = rows(first())
    dovetail.disable(enabled)
    assert "DovetailJoin" not in plan(first())
    assert rows(first()) == found


def test_adaptive_execution_and_what_comes_after(session: SparkSession) -> None:
    text = f"""
        SELECT q.s, count(*), max(q.n) FROM ({query(JOINS[0], "row_number", "p.id", "b.lo, b.band", "n <= 2")}) q
        JOIN (SELECT s, count(*) AS m FROM points GROUP BY s) c ON q.s = c.s GROUP BY q.s
    """
    expected = rows(session.sql(text))
    with dovetail.enable(session):
        found = session.sql(text)
        assert rows(found) == expected
        assert "of each left row by" in plan(found)


@pytest.mark.parametrize(
    ("function", "group", "order", "bound", "join"),
    [
        ("dense_rank", "p.id", "b.lo", "n <= 2", JOINS[0]),
        ("row_number", "b.band", "p.id", "n = 1", JOINS[0]),
        ("row_number", "p.id", "b.lo, b.band", "n >= 2", JOINS[0]),
        ("row_number", "p.id", "struct(b.lo, b.band)", "n = 1", JOINS[0]),
        ("row_number", "p.id", "b.lo, b.band", "n = 1", "points p RIGHT JOIN bands b ON p.x BETWEEN b.lo AND b.hi"),
        ("row_number", "p.id", "b.band", "n = 1", f"{JOINS[1]} WHERE b.f IS NULL OR b.f < 20"),
    ],
)
def test_all_partners_are_made_where_they_matter(
    function: str, group: str, order: str, bound: str, join: str, session: SparkSession
) -> None:
    text = query(join, function, group, order, bound)
    expected = rows(session.sql(text))
    with dovetail.enable(session):
        found = session.sql(text)
        assert "DovetailJoin" in plan(found)
        assert "of each left row by" not in plan(found)
        assert rows(found) == expected
