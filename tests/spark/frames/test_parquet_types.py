"""Columns of Parquet files that tasks read without Spark: the same values as Spark reads, or a reason not to."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import dovetail
from dovetail.spark.frames.parquet_frames import NotPlainError, plain_read
from dovetail.spark.frames.schemas import arrow_schema

pytestmark = pytest.mark.spark

TIMES = ("0001-01-03 00:00:00", "1883-11-18 12:03:58.000001", "1969-12-31 23:59:59.999999", "2024-03-31 01:30:00")
LATE = "9999-12-31 00:00:00"
COLUMNS = """
    id, at, to_timestamp_ntz(at) AS wall, to_date(at) AS day,
    named_struct('at', at, 'n', n) AS s, array(at, NULL) AS times,
    map('a', named_struct('d', CAST(n AS DECIMAL(30, 3)), 't', at), concat('k', id), NULL) AS m,
    array(named_struct('x', array(n, id), 'y', map(id, array(encode(concat(id), 'utf-8'))))) AS deep,
    IF(id % 3 = 0, NULL, named_struct('o', IF(id % 3 = 1, NULL, named_struct('p', n)))) AS o
"""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """Its zone is not UTC."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


def written(session: SparkSession, place: Path) -> DataFrame:
    values = ", ".join(f"({i}, TIMESTAMP'{at}', {i % 2 or 'NULL'})" for i, at in enumerate([*TIMES, LATE]))
    rows = session.sql(f"SELECT {COLUMNS} FROM VALUES {values}, (9, NULL, NULL) AS v(id, at, n)")
    rows.coalesce(1).write.parquet(str(place))
    return session.read.parquet(str(place))


def check(frame: DataFrame) -> None:
    read = plain_read(frame).rows.to_table()
    read.validate(full=True)
    assert read.schema.equals(arrow_schema(frame))
    expected = frame.toArrow().to_pylist()
    for row in read.to_pylist():  # Spark reads files in another order
        expected.remove(row)
    assert not expected


@pytest.mark.parametrize("unit", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_files_of_spark(session: SparkSession, tmp_path: Path, unit: str) -> None:
    """Spark's default for instants is INT96, without a zone or a unit."""
    session.conf.set("spark.sql.parquet.outputTimestampType", unit)
    frame = written(session, tmp_path / "rows")
    check(frame)
    check(frame.select("m", F.col("s").alias("t"), "id"))
    explained = dovetail.explain(frame, frame.select("at", "deep"), "l.at <= r.at", cells=2)
    assert "tasks read the Parquet files of l and r" in str(explained)
    joined = dovetail.join(frame, frame.select("at", "id", "deep"), "l.at <= r.at", cells=2)
    spark = frame.alias("l").join(frame.select("at", "id", "deep").alias("r"), F.expr("l.at <= r.at"))
    assert sorted(map(str, joined.collect())) == sorted(str(row) for row in spark.toDF(*joined.columns).collect())


def test_files_of_others(session: SparkSession, tmp_path: Path) -> None:
    """Arrow stores its own types with the file: dictionaries, large texts, lists of fixed size."""
    words = pa.array(["a", "b", None, "a"]).dictionary_encode()
    table = pa.table(
        {
            "s": pa.StructArray.from_arrays([words, pa.array(range(4), pa.timestamp("ms"))], names=["w", "t"]),
            "l": pa.array([["x"], None, [], [None]], pa.list_(pa.large_string())),
            "f": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int32(), 2)),
            "d": pa.array(
                [[(Decimal("1.50"), "u")], None, [], [(Decimal(2), None)]], pa.map_(pa.decimal128(9, 2), "string")
            ),
            "w": words,
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = session.read.parquet(str(tmp_path / "rows.parquet"))
    check(frame)
    check(frame.select("d", "w"))


@pytest.mark.parametrize(
    ("schema", "known"),
    [
        ("s struct<a: bigint, b: string>", "struct<a: int64, b: string>"),
        ("s struct<b: string, a: int>", "struct<b: string, a: int32>"),
        ("s struct<a: int>", "struct<a: int32>"),
        ("m map<string, bigint>", "map<string, int64>"),
        ("t timestamp_ntz", "timestamp[us]"),
    ],
)
def test_what_spark_reads_otherwise(session: SparkSession, tmp_path: Path, schema: str, known: str) -> None:
    columns = "named_struct('a', 1, 'b', 'x') AS s, map('k', 1) AS m, TIMESTAMP'2024-01-01 00:00:00' AS t"
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    session.sql(f"SELECT {columns}").write.parquet(str(tmp_path / "rows"))
    with pytest.raises(NotPlainError, match=re.escape(f".parquet, and {known} in Spark")):
        plain_read(session.read.schema(schema).parquet(str(tmp_path / "rows")))


@pytest.mark.parametrize("version", ["2.4.8", "3.0.3", "3.1.0", None])
def test_calendars(session: SparkSession, tmp_path: Path, version: str | None) -> None:
    """Earlier releases of Spark wrote dates in the calendar of their time, and Spark converts them."""
    known = {} if version is None else {"org.apache.spark.version": version}
    table = pa.table({"day": pa.array([datetime(1500, 1, 1).date()]), "n": [1]}).replace_schema_metadata(known)
    pq.write_table(table, tmp_path / "days.parquet")
    frame = session.read.parquet(str(tmp_path / "days.parquet"))
    if version in ("2.4.8", "3.0.3"):
        with pytest.raises(NotPlainError, match="dates in an old calendar"):
            plain_read(frame)
        return
    check(frame)
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "Legacy")
    try:
        with pytest.raises(NotPlainError, match=r"by spark\.sql\.parquet\.datetimeRebaseModeInRead"):
            plain_read(frame)
        check(frame.select("n"))
    finally:
        session.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_columns_that_were_added_later(session: SparkSession, tmp_path: Path) -> None:
    """Files that do not have them are full of nulls there."""
    for number, more in enumerate([{}, {"n": [7, None], "s": [{"a": 1}, None]}, {"N": [8, 9]}]):
        pq.write_table(pa.table({"id": [2 * number, 2 * number + 1], **more}), tmp_path / f"{number}.parquet")
    read = session.read.schema("id bigint, n bigint, s struct<a: bigint>")
    frame = read.parquet(*(str(tmp_path / f"{number}.parquet") for number in range(2)))
    check(frame)
    check(frame.select("s"))
    joined = dovetail.join(frame, frame.where("n IS NULL"), "l.id >= r.id", "left", cells=2)
    spark = frame.alias("l").join(frame.where("n IS NULL").alias("r"), F.expr("l.id >= r.id"), "left")
    assert sorted(map(str, joined.collect())) == sorted(str(row) for row in spark.toDF(*joined.columns).collect())
    pq.write_table(pa.table({"id": [6], "text": ["x" * 1000]}), tmp_path / "6.parquet")
    wide = session.read.schema("id bigint, text string").parquet(
        str(tmp_path / "0.parquet"), str(tmp_path / "6.parquet")
    )
    assert plain_read(wide).rows.total_bytes() > 3000  # else batches would be too large
    with pytest.raises(NotPlainError, match=r"2\.parquet has no column called exactly n"):  # Spark reads N
        plain_read(read.parquet(str(tmp_path)))
