"""Small Parquet files are joined by the driver when the query runs: the same rows as from tables in process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import some
from tests.spark.batch.test_file_rows import CONDITIONS, HOW, table

import dovetail
from dovetail.errors import DovetailError

pytestmark = pytest.mark.spark

ON = "l.x < r.x AND l.y > r.y"
HERE = "the driver reads the Parquet files of l and r"
SETTING = "spark.dovetail.smallFiles"
GROUPS = count()


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    tables, place = (table(200, "small l"), table(150, "small r")), tmp_path_factory.mktemp("small")
    for name, rows in zip(("left", "right"), tables, strict=True):
        (place / name).mkdir()
        pq.write_table(rows, place / name / "part.parquet", row_group_size=40)
        spark.read.parquet(str(place / name)).createOrReplaceTempView(f"small_{name}")
    return tables, tuple(spark.read.parquet(str(place / name)) for name in ("left", "right"))


@pytest.fixture(scope="module")
def enabled(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.dovetail.leastPairs", "0")
    with dovetail.enable(spark):
        yield
    spark.conf.unset("spark.dovetail.leastPairs")


def jobs_of(spark: SparkSession, frame: DataFrame) -> tuple[pa.Table, int]:
    """The rows of a query, and the number of jobs that it ran."""
    group = f"small files {next(GROUPS)}"
    spark.sparkContext.setJobGroup(group, "")
    try:
        rows = frame.toArrow()
        return rows, len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def ids(rows: pa.Table) -> Counter[Any]:
    right = rows["id_right"].to_pylist() if "id_right" in rows.column_names else [None] * rows.num_rows
    return Counter(zip(rows["id"].to_pylist(), right, strict=True))


@pytest.mark.parametrize("on", CONDITIONS)
def test_equals_tables_in_process(spark: SparkSession, sides: tuple[Any, ...], on: str) -> None:
    tables, frames = sides
    for how in some(HOW, of=3, key=on):
        assert (HERE in str(dovetail.explain(*frames, on, how))) == (on != "l.k = r.k")  # left to Spark
        found, jobs = jobs_of(spark, dovetail.join(*frames, on, how))
        assert ids(found) == ids(dovetail.join(*tables, on, how)), how
        assert jobs <= (1 if on != "l.k = r.k" else 5)  # the one that returns the rows


def test_columns_filters_and_limits(spark: SparkSession, sides: tuple[Any, ...]) -> None:
    tables, (left, right) = sides
    joined = dovetail.join(left.where("k > 20"), right, ON, "left").where("id < 100").select("id", "at", "till_right")
    expected = dovetail.join(tables[0].filter(pa.compute.field("k") > 20), tables[1], ON, "left")
    expected = expected.filter(pa.compute.field("id") < 100).select(["id", "at", "till_right"])
    rows, jobs = jobs_of(spark, joined)
    assert jobs == 1
    assert Counter(map(str, rows.to_pylist())) == Counter(map(str, expected.to_pylist()))
    assert dovetail.join(left, right, ON, limit=7).count() == 7
    assert dovetail.join(left, right, ON, columns=["name"]).columns == ["name"]


def test_plain_sql_over_views(spark: SparkSession, sides: tuple[Any, ...], enabled: None) -> None:
    """Spark writes the names of views into filters, such as `small_left.x IS NOT NULL`."""
    query = """
        SELECT l.id, r.id AS id_right FROM small_left l JOIN small_right r ON l.x < r.x AND l.y > r.y WHERE l.k > 9
    """
    tables, _ = sides
    rows, jobs = jobs_of(spark, spark.sql(query))
    assert jobs == 1
    assert ids(rows) == ids(dovetail.join(tables[0].filter(pa.compute.field("k") > 9), tables[1], ON))


def test_joins_of_joins(spark: SparkSession, sides: tuple[Any, ...]) -> None:
    """The rows of an inner join come from another session."""
    tables, (left, right) = sides
    on = "l.x = r.x - 1 AND l.y > r.y"
    inner = dovetail.join(left, right, ON).select("id", "x", "y")
    found = dovetail.join(inner, right.withColumnRenamed("id", "id_right"), on).toArrow()
    expected = dovetail.join(dovetail.join(*tables, ON).select(["id", "x", "y"]), tables[1], on)
    assert ids(found) == ids(expected)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_types(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        check_types(spark, tmp_path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def check_types(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(6).selectExpr(
        "id", "CAST(id AS TINYINT) AS b", "CAST(id / 3 AS DECIMAL(20, 5)) AS d", "CAST(id AS FLOAT) AS f",
        "DATE '2024-02-28' + CAST(id AS INT) AS day", "X'00FF' AS bytes",
        "TIMESTAMP '2024-03-31 02:30:00' + make_dt_interval(0, id) AS at", "IF(id = 3, NULL, 'Ü') AS name",
        "TIMESTAMP_NTZ '2024-03-31 02:30:00' AS wall", "array(id, NULL) AS items", "id % 2 = 0 AS even",
    )  # fmt: skip
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    try:
        frame.write.parquet(str(tmp_path / "types"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    frame = spark.read.parquet(str(tmp_path / "types"))
    other, on = frame.toDF(*(f"{name}_2" for name in frame.columns)), "l.id < r.id_2 AND l.f < 3"
    assert HERE in str(dovetail.explain(frame, other, on, "left"))
    joined = dovetail.join(frame, other, on, "left")
    plain = frame.join(other, F.expr("id < id_2 AND f < 3"), "left")
    assert [field.dataType for field in joined.schema] == [field.dataType for field in plain.schema]
    assert Counter(map(str, joined.collect())) == Counter(map(str, plain.collect()))


@pytest.mark.parametrize("size", ["0", "1KB"])
def test_the_size_can_be_set(spark: SparkSession, sides: tuple[Any, ...], size: str) -> None:
    spark.conf.set(SETTING, size)
    try:
        assert HERE not in str(dovetail.explain(*sides[1], ON))
    finally:
        spark.conf.unset(SETTING)


def test_a_size_that_is_none(spark: SparkSession, sides: tuple[Any, ...]) -> None:
    spark.conf.set(SETTING, "lots")
    try:
        with pytest.raises(DovetailError, match=SETTING):
            dovetail.explain(*sides[1], ON)
    finally:
        spark.conf.unset(SETTING)


def test_nothing_is_read_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    spark.range(5).toDF("a").coalesce(1).write.parquet(str(path))
    frame = spark.read.parquet(str(path))
    joined = dovetail.join(frame, frame.toDF("b"), "l.a < r.b")
    (file,) = path.glob("*.parquet")
    file.unlink()
    with pytest.raises(Exception, match=r"(?s)(FileNotFound|cannot be read|not exist)"):
        joined.collect()


def test_the_active_session_stays(spark: SparkSession, sides: tuple[Any, ...]) -> None:
    before = SparkSession.getActiveSession()
    assert dovetail.join(*sides[1], ON).toArrow().num_rows
    assert SparkSession.getActiveSession() is before
    assert spark.sql("SET spark.sql.execution.arrow.localRelationThreshold").first()["value"] != "0"  # type: ignore[index]


@pytest.mark.parametrize("large", ["true", "false"])
def test_large_types_of_arrow(spark: SparkSession, sides: tuple[Any, ...], large: str) -> None:
    tables, frames = sides
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    try:
        found = dovetail.join(*frames, ON).select("id", "id_right", "name").toArrow()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    expected = dovetail.join(*tables, ON)
    columns = ("id", "id_right", "name")
    rows = [Counter(zip(*(t[name].to_pylist() for name in columns), strict=True)) for t in (found, expected)]
    assert rows[0] == rows[1]
