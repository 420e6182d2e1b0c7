"""Joins of plain Parquet reads, with files read by the tasks: the same rows as from tables in process."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import some
from tests.seed import generator

import dovetail

pytestmark = pytest.mark.spark

HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]
CONDITIONS = [
    "l.k = r.k",
    "l.x < r.x AND l.y > r.y",
    "abs(l.x - r.x) <= 3",
    "l.x BETWEEN r.x AND r.y",
    "l.at >= r.at AND l.at < r.till",
    "l.k = r.k AND l.x < r.y",
    "l.k = r.k OR l.name = r.name",
    "l.name = upper(r.name) AND l.y != r.y",
    "abs(l.x - r.x) <= 3 AND abs(l.y - r.y) <= 5",
    "l.name < r.name AND l.y + r.y > 90",
]


def table(rows: int, key: str) -> pa.Table:
    rng = generator("files", key)
    at = [datetime(2024, 3, 30) + timedelta(minutes=int(m)) for m in rng.integers(0, 5000, rows)]
    floats = rng.normal(0, 20, rows)
    floats[rng.random(rows) < 0.05] = np.nan
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int32()),
            "k": pa.array(rng.integers(0, 40, rows), mask=rng.random(rows) < 0.1),
            "x": pa.array(rng.integers(-50, 50, rows), mask=rng.random(rows) < 0.1),
            "y": pa.array(floats),
            "name": pa.array(rng.choice(["A", "B", "c", "", "Ü"], rows), mask=rng.random(rows) < 0.1),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "till": pa.array([t + timedelta(minutes=30) for t in at], pa.timestamp("us", "UTC")),
            "year": pa.array(rng.choice([2023, 2024], rows), pa.int32()),
        }
    )


def written(spark: SparkSession, path: Path, rows: pa.Table) -> DataFrame:
    """Files partitioned by year, with at least three row groups each."""
    for year in (2023, 2024):
        part = rows.filter(pa.compute.equal(rows["year"], year)).drop_columns("year")
        (path / f"year={year}").mkdir(parents=True)
        pq.write_table(part, path / f"year={year}" / "part.parquet", row_group_size=50)
    return spark.read.parquet(str(path))


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    tables = table(400, "l"), table(300, "r")
    place = tmp_path_factory.mktemp("files")
    return tables, tuple(written(spark, place / name, rows) for name, rows in zip("lr", tables, strict=True))


def pairs(rows: list[Any]) -> Counter[Any]:
    return Counter(rows)


def test_equals_tables_in_process(sides: tuple[Any, ...]) -> None:
    tables, frames = sides
    asked = list(some([(on, how) for on in CONDITIONS for how in HOW], of=6, key="file rows"))
    found = []
    for number, (on, how) in enumerate(asked):
        joined = dovetail.join(*frames, on, how, cells=3)
        right = F.col("id_right") if "id_right" in joined.columns else F.lit(None).cast("int")
        found.append(joined.select(F.lit(number).alias("join"), "id", right.alias("other")))
    rows = pairs([tuple(row) for row in reduce(DataFrame.unionAll, found).collect()])
    for number, (on, how) in enumerate(asked):
        known = dovetail.join(*tables, on, how)
        others = known["id_right"].to_pylist() if "id_right" in known.column_names else [None] * known.num_rows
        expected = pairs([(number, *pair) for pair in zip(known["id"].to_pylist(), others, strict=True)])
        assert Counter({row: n for row, n in rows.items() if row[0] == number}) == expected, (on, how)


def test_filters_columns_and_partitions(sides: tuple[Any, ...]) -> None:
    tables, frames = sides
    left = frames[0].where("year = 2024 AND x > -20").select("id", F.col("x").alias("ex"), "at", "x")
    right = frames[1].where(F.col("name").isin("A", "B")).select("at", "till", "name", "x", "y")
    on = "l.ex >= r.x AND l.ex <= r.x + 4"
    assert "tasks read the Parquet files of l and r" in str(dovetail.explain(left, right, on, "left", cells=3))
    found = Counter(
        tuple(row) for row in dovetail.join(left, right, on, "left", cells=3).select("id", "name").collect()
    )
    kept = tables[0].filter((pa.compute.field("year") == 2024) & (pa.compute.field("x") > -20))
    other = tables[1].filter(pa.compute.field("name").isin(["A", "B"]))
    known = dovetail.join(kept, other, "l.x >= r.x AND l.x <= r.x + 4", "left").select(["id", "name_right"])
    assert found == Counter(zip(*(column.to_pylist() for column in known.columns), strict=True))


def test_rows_that_are_only_counted(sides: tuple[Any, ...]) -> None:
    tables, frames = sides
    on = "l.x < r.x AND l.y > r.y"
    assert "tasks read the Parquet files of l and r" in str(dovetail.explain(*frames, on, columns=[], cells=3))
    marked = frames[0].withColumn("true", F.lit(True)), frames[1].withColumn("not", F.lit(False))
    assert "tasks read the Parquet files of l\n" in str(dovetail.explain(*marked, on, cells=3))
    found = dovetail.join(*marked, on, columns=["true", "not"], cells=3).groupBy("true", "not").count().collect()
    assert [tuple(row) for row in found] == [(True, False, dovetail.count(*tables, on))]


def test_one_side_of_files(spark: SparkSession, sides: tuple[Any, ...]) -> None:
    tables, frames = sides
    computed = frames[1].withColumn("x", F.col("x") * 2)
    plan = str(dovetail.explain(frames[0], computed, "l.x < r.x AND l.y > r.y"))
    assert "tasks read the Parquet files of l\n" in plan
    doubled = tables[1].set_column(2, "x", pa.compute.multiply(tables[1]["x"], 2))
    on = "l.x < r.x AND l.y > r.y"
    assert dovetail.join(frames[0], computed, on).count() == dovetail.count(tables[0], doubled, on)
    assert dovetail.count(*frames, on) == dovetail.count(*tables, on)


def test_files_that_are_written_again_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    frames = [written(spark, tmp_path / name, table(60, name)) for name in "lr"]
    spark.conf.set("spark.dovetail.joinAtOnce", "true")
    try:
        joined = dovetail.join(*frames, "l.x < r.x AND l.y > r.y")
    finally:
        spark.conf.unset("spark.dovetail.joinAtOnce")
    pq.write_table(table(10, "z").drop_columns("year"), tmp_path / "l" / "year=2024" / "part.parquet")
    with pytest.raises(Exception, match="changed since the join was planned"):
        joined.count()
