"""`dovetail.sql` on Spark returns the rows of `spark.sql`, whether or not Dovetail runs the joins."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.effort import repeat
from tests.patience import PATIENCE_S
from tests.seed import seeded

import dovetail
from dovetail.errors import InputError

pytestmark = pytest.mark.spark

POINTS = """
    SELECT id, (id * 7919) % 1009 AS x, IF(id % 7 = 0, NULL, (id * 31) % 53) AS k,
        CAST(id * 1.5 AS DECIMAL(12, 2)) AS d,
        TIMESTAMP '2024-01-01 00:00:00' + make_dt_interval(0, 0, id) AS at, concat('p', id % 17) AS s,
        CASE WHEN id % 11 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 13 = 0 THEN -0.0D ELSE id / 3.0D END AS f,
        named_struct('deep', id % 50) AS st, map('a', id) AS unused
    FROM range(150)
"""
BANDS = """
    SELECT id AS band, (id * 104729) % 1009 AS lo, (id * 104729) % 1009 + 30 AS hi, IF(id % 5 = 0, NULL, id % 53) AS k,
        CAST(id * 1.25 AS DECIMAL(10, 3)) AS d, TIMESTAMP '2024-01-01 00:00:00' + make_dt_interval(0, 0, id * 2) AS at,
        concat('p', id % 13) AS s, CASE WHEN id % 7 = 0 THEN CAST('NaN' AS DOUBLE) ELSE id / 2.0D END AS f
    FROM range(120)
"""
TAKEN = [
    "SELECT band % 10 AS g, count(*), sum(x) FROM points JOIN bands ON x BETWEEN lo AND hi GROUP BY g ORDER BY g",
    "SELECT p.*, b.* FROM points p LEFT JOIN bands b ON p.x BETWEEN b.lo AND b.hi AND p.k < b.k AND b.band > 9",
    (
        "WITH near AS (SELECT * FROM bands WHERE band < 90), far AS (SELECT id, lo FROM points JOIN near ON x > hi) "
        "SELECT count(*), max(far.id) FROM far JOIN near ON far.lo < near.lo WHERE near.band > 80 AND far.id < 20"
    ),
    (
        "SELECT id, rank() OVER (PARTITION BY band ORDER BY d DESC) r FROM points p "
        "JOIN (SELECT band, f AS g FROM bands) b ON p.f >= b.g AND p.st.deep < b.band "
        "WHERE id IN (SELECT band FROM bands WHERE lo > p.x) "
        "ORDER BY id, r LIMIT 50"
    ),
    (
        "SELECT p.id FROM points p WHERE NOT EXISTS (SELECT 1 FROM bands WHERE x > lo AND x < hi AND band < 9) AND "
        "EXISTS (SELECT band FROM bands b WHERE b.s > p.s AND b.f < 7)"
    ),
    (
        "SELECT id FROM points p FULL JOIN bands b ON p.x < b.lo AND p.d > b.d WHERE band IS NULL OR id % 7 = 3 "
        "UNION ALL SELECT a.id FROM points a, points b, bands c WHERE a.x < b.x AND c.band > b.x AND a.k = c.k"
    ),
]


@pytest.fixture(autouse=True)
def views(spark: SparkSession) -> Iterator[None]:
    spark.sql(POINTS).createOrReplaceTempView("points")
    spark.sql(BANDS).createOrReplaceTempView("bands")
    yield
    for name in ("points", "bands"):
        spark.catalog.dropTempView(name)


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(map(str, map(tuple, frame.collect())))


def is_ours(frame: DataFrame) -> bool:
    plan: Any = frame._jdf.queryExecution()
    return any(sign in plan.optimizedPlan().toString() for sign in ("MapInArrow", "strategy=dovetail", "cells#"))


def same(spark: SparkSession, query: str, *, taken: bool = True) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = dovetail.sql(spark, query)
    expected = spark.sql(query)
    assert found.columns == expected.columns
    assert is_ours(found) == taken, query
    assert rows_of(found) == rows_of(expected), query


@pytest.mark.parametrize("query", TAKEN)
def test_joins_without_an_equality_are_ours(spark: SparkSession, query: str) -> None:
    before = {table.name for table in spark.catalog.listTables()}
    same(spark, query)
    assert {table.name for table in spark.catalog.listTables()} == before


def test_everything_else_is_sparks(spark: SparkSession) -> None:
    same(spark, "SELECT p.id FROM points p JOIN bands b ON p.k = b.k AND p.x < b.lo", taken=False)
    same(spark, "SELECT x FROM points WHERE id < 5 AND s LIKE 'p%'", taken=False)
    assert dovetail.sql(spark, "SET spark.sql.ansi.enabled").count() == 1


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT /*+ BROADCAST(b) */ id FROM points p JOIN bands b ON p.x < b.lo WHERE id < 9", "is a hint to Spark"),
        ("SELECT id FROM points p JOIN bands b ON p.x < b.lo WHERE id < 9 AND rand(3) < 2", "not deterministic"),
        ("SELECT id FROM points p JOIN bands b USING (k) JOIN bands c ON p.x < c.lo WHERE id < 9", "only JOIN … ON"),
        ("SELECT id FROM points p JOIN bands b ON ours(p.x) < b.lo WHERE id < 9", "ours"),
    ],
)
def test_what_is_left_to_spark_is_said(spark: SparkSession, query: str, reason: str) -> None:
    spark.udf.register("ours", lambda x: x, "bigint")
    with pytest.warns(RuntimeWarning, match=f"dovetail.sql leaves a join to Spark: .*{reason}") as warned:
        found = dovetail.sql(spark, query)
    assert warned[0].filename == __file__
    assert rows_of(found) == rows_of(spark.sql(query))


def test_errors_are_sparks(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        dovetail.sql(spark, "SELECT * FROM points JOIN nowhere n ON x < n.y")
    with pytest.raises(Exception, match="AMBIGUOUS_REFERENCE"):
        dovetail.sql(spark, "SELECT s FROM points JOIN bands ON x < lo")


def test_views_can_be_given(spark: SparkSession) -> None:
    few, query = spark.table("points").where("id < 20"), "SELECT p.id, b.band FROM mine p JOIN bands b ON p.x < b.lo"
    expected = rows_of(dovetail.sql(spark, query.replace("mine", "points") + " WHERE p.id < 20"))
    assert rows_of(dovetail.sql(spark, query, mine=few)) == expected
    assert rows_of(dovetail.sql(query, mine=few)) == expected
    with pytest.raises(InputError, match="mine= is a view of the query"):
        dovetail.sql(spark, query, mine=[1])


def test_a_cached_table_and_a_view_over_a_join(spark: SparkSession) -> None:
    spark.sql("CREATE TEMPORARY VIEW close AS SELECT id, x FROM points WHERE x < 500")
    spark.sql("CACHE TABLE bands")
    try:
        same(spark, "SELECT c.id, b.band FROM close c JOIN bands b ON c.x BETWEEN b.lo AND b.hi")
    finally:
        spark.sql("UNCACHE TABLE bands")
        spark.catalog.dropTempView("close")


CONDITIONS = ["{l}.x BETWEEN {r}.lo AND {r}.hi", "{l}.d <= {r}.d AND {l}.k > {r}.k", "{l}.s < {r}.s AND {l}.x > {r}.hi"]
CONDITIONS += ["{l}.at < {r}.at AND {l}.f >= {r}.f", "{l}.k <> {r}.k AND {l}.id < 15", "abs({l}.x - {r}.lo) <= 9"]
FILTERS = ["{l}.id < 60", "{r}.band < 50", "{l}.k IS NOT NULL", "{r}.s <> 'p3'", "{l}.st.deep > 5", "{r}.band IS NULL"]


def random_query(rng: random.Random) -> str:
    def pick(texts: list[str], r: str = "b") -> str:
        return rng.choice(texts).format(l="a", r=r)

    how = rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
    hides = "SEMI" in how or "ANTI" in how
    from_ = f"points a {how} bands b ON {pick(CONDITIONS)}"
    if rng.random() < 0.3:
        from_ += f" AND {pick(FILTERS)}"
    if rng.random() < 0.3:
        from_ += f" {rng.choice(['JOIN', 'LEFT JOIN'])} bands c ON a.k = c.k AND c.band < 30"
    if rng.random() < 0.3:
        from_ += f" LEFT JOIN bands e ON {pick(CONDITIONS, 'e')} AND e.band < 4"
    filters = [one for one in FILTERS if not hides or "{r}" not in one]
    where = [pick(filters) for _ in range(rng.randrange(3))]
    if rng.random() < 0.3:
        where.append(f"NOT EXISTS (SELECT 1 FROM bands g WHERE g.band < 20 AND {pick(CONDITIONS, 'g')})")
    tail = f" WHERE {' AND '.join(where)}" if where else ""
    if rng.random() < 0.4:
        return f"SELECT a.k, count(*), sum(a.x), max(a.at) FROM {from_}{tail} GROUP BY a.k HAVING count(*) > 1"
    return f"SELECT a.id, a.x + 1, {'a.s' if hides else 'b.s'} FROM {from_}{tail}"


@pytest.mark.parametrize("case", range(repeat(40)))
def test_random_queries(spark: SparkSession, case: int) -> None:
    query = random_query(seeded("plain sql", case))
    assert rows_of(dovetail.sql(spark, query)) == rows_of(spark.sql(query)), query


def test_streams_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("points", "bands"):
        spark.table(name).drop("unused").repartition(2).write.parquet(str(tmp_path / name))
        stream = spark.readStream.schema(spark.read.parquet(str(tmp_path / name)).schema).parquet(str(tmp_path / name))
        stream.withWatermark("at", "10 minutes").createOrReplaceTempView(f"{name}_stream")
    query = """SELECT p.id, b.band, p.x - b.lo AS beyond FROM points_stream p JOIN bands_stream b
        ON p.x > b.lo AND p.at >= b.at AND p.at < b.at + INTERVAL 20 SECONDS WHERE b.band > 3 AND p.s <> 'p3'"""
    joined = dovetail.sql(spark, query)
    assert joined.isStreaming
    writer = joined.writeStream.format("parquet").option("path", str(tmp_path / "out")).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    expected = spark.sql(query.replace("_stream", ""))
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == rows_of(expected)
    for name in ("points", "bands"):
        spark.catalog.dropTempView(f"{name}_stream")


@pytest.mark.slow  # its own server, and a second JVM
def test_in_a_connect_session(tmp_path: Path) -> None:
    job = [sys.executable, str(Path(__file__).with_name("plain_sql_job.py")), str(tmp_path)]
    run = subprocess.run(job, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr[-4000:]
