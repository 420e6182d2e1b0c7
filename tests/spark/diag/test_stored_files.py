"""Diag-Join of tables in an object store, or in partitions: tasks read the files directly, Spark only lists them.

For Spark, a directory is mounted under the name of a bucket (a Hadoop view), and a server on loopback has the same
objects. So no cloud connector is needed, and Dovetail reads through requests that sometimes fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.diag.test_join import ON, check, rows, tables, written
from tests.storage.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, Faults, Object, S3Server, s3_server

import dovetail
from dovetail.errors import PlanError
from dovetail.spark.diag import clusteredness
from dovetail.spark.diag import join as diagonal
from dovetail.spark.frames.file_systems import ConfiguredS3
from dovetail.spark.frames.parquet_frames import NotPlainError, plain_read

pytestmark = pytest.mark.spark

VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


class Bucket:
    """A directory that Spark sees as a bucket, and a server with the files uploaded from it."""

    def __init__(self, server: S3Server, directory: Path) -> None:
        self.server, self.directory = server, directory

    def upload(self, name: str) -> None:
        for file in (self.directory / name).rglob("*.parquet"):
            key = f"tables/{file.relative_to(self.directory)}"
            self.server.objects[key] = Object(file.read_bytes(), file.stat().st_mtime)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.read.parquet(f"s3a://{BUCKET}/tables/{name}")


@pytest.fixture(scope="module")
def bucket(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Credentials and address are in Spark's configuration, as on a cluster."""
    directory = tmp_path_factory.mktemp("bucket")
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    with s3_server() as server:
        known = {
            "fs.s3a.impl": VIEW,
            "fs.viewfs.overload.scheme.target.s3a.impl": VIEW,
            f"fs.viewfs.mounttable.{BUCKET}.link./tables": directory.as_uri(),
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
            f"fs.s3a.bucket.{BUCKET}.endpoint": f"http://{server.endpoint}",
        }
        for name, value in known.items():
            settings.set(name, value)
        yield Bucket(server, directory)
        for name in known:
            settings.unset(name)


@pytest.fixture(scope="module")
def stored(spark: SparkSession, bucket: Bucket) -> tuple[DataFrame, DataFrame]:
    for name, table in zip(("orders", "items"), tables(), strict=True):
        written(spark, bucket.directory / name, table)
        bucket.upload(name)
    return bucket.read(spark, "orders"), bucket.read(spark, "items")


def test_tasks_read_tables_of_a_store(stored: tuple[DataFrame, DataFrame], bucket: Bucket) -> None:
    server = bucket.server
    server.requests.clear()
    server.faults = Faults(2, error=0.05, drop=0.03, lose=0.05)
    check(*stored, "full", share=0.05, cells=3)
    server.faults = Faults()
    assert server.failed > 0
    assert server.requests["GET"] > 20
    assert set(server.requests) <= {"GET", "HEAD"}


def test_secrets_are_in_nothing_that_is_printed(
    stored: tuple[DataFrame, DataFrame], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = str(dovetail.explain(*stored, ON, algorithm="diag"))
    opener = ConfiguredS3((("access_key", ACCESS_KEY), ("secret_key", SECRET_KEY)))
    key = "tables/orders/part-1.parquet"
    joined = dovetail.join(*stored, ON, algorithm="diag", share=0.1)
    kept = bucket.server.objects.pop(key)
    with pytest.raises(Exception, match="can no longer be read") as raised:
        joined.collect()
    bucket.server.objects[key] = kept
    for text in (plan, str(raised.value), repr(opener), repr(plain_read(stored[0]).rows.files)):
        assert ACCESS_KEY not in text
        assert SECRET_KEY not in text


def test_an_object_that_was_replaced_is_noticed(stored: tuple[DataFrame, DataFrame], bucket: Bucket) -> None:
    joined = dovetail.join(*stored, ON, algorithm="diag", share=0.1)
    key = "tables/items/part-2.parquet"
    kept = bucket.server.objects[key]
    bucket.server.objects[key] = kept._replace(written=kept.written + 5)
    with pytest.raises(Exception, match="has changed since the join was planned"):
        joined.collect()
    bucket.server.objects[key] = kept


def test_a_store_that_cannot_be_reached_is_left_to_spark(
    stored: tuple[DataFrame, DataFrame], bucket: Bucket, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects do not exist: an error if diag is requested, otherwise Spark's own join."""
    written(spark, bucket.directory / "elsewhere", tables()[1])
    monkeypatch.setattr(diagonal, "LEAST_ROWS", 100)
    elsewhere = bucket.read(spark, "elsewhere")
    with pytest.raises(PlanError, match=r"s3a://bucket/tables/elsewhere/part-0.parquet cannot be read here"):
        dovetail.join(stored[0], elsewhere, ON, algorithm="diag")
    assert dovetail.explain(stored[0], elsewhere, ON).operator.name == "spark"
    with pytest.raises(NotPlainError, match="it has 3 files"):
        plain_read(stored[0], most_files=2)


@pytest.mark.one_in(3)
def test_early_results_in_tasks(
    stored: tuple[DataFrame, DataFrame], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are buffered in the store, and nothing is left there."""
    monkeypatch.setattr(clusteredness, "HERE", 100)
    bucket.server.faults = Faults(3, error=0.02, lose=0.02)
    work = bucket.server.uri("work")
    steps = list(dovetail.progressive(*stored, ON, algorithm="diag", share=0.02, cells=6, work_dir=work))
    bucket.server.faults = Faults()
    expected = stored[0].alias("l").join(stored[1].alias("r"), F.expr(ON))
    assert Counter(tuple(row.values()) for step in steps for row in step.batch.to_pylist()) == rows(expected)
    assert steps[0].batch.schema.equals(steps[-1].batch.schema)
    assert [steps[0].phase, steps[-1].phase] == ["arriving", "cleanup"]
    assert steps[0].done < steps[-1].done == 1
    assert not bucket.server.names("work")


@pytest.mark.one_in(3)
def test_early_results_are_left_at_any_time(stored: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    steps = dovetail.progressive(*stored, ON, algorithm="diag", share=0.1, cells=6, work_dir=str(tmp_path))
    assert next(iter(steps)).results > 0
    steps.close()
    assert not list(tmp_path.iterdir())


def partitioned(spark: SparkSession, path: Path, table: pa.Table) -> DataFrame:
    """Partitioned by day and by a string with special characters for directories; day 10 must sort after day 2.

    Files are in the order of the rows.
    """
    parts = 12
    size = -(-table.num_rows // parts)
    for number in range(parts):
        directory = path / f"day={number}" / ("kind=a%2Fb" if number % 2 else "kind=__HIVE_DEFAULT_PARTITION__")
        directory.mkdir(parents=True)
        pq.write_table(table.slice(number * size, size), directory / "part-0.parquet", row_group_size=400)
    return spark.read.parquet(str(path))


@pytest.mark.one_in(3)
def test_partitioned_tables(spark: SparkSession, place: Path) -> None:
    orders, items = tables()
    left = partitioned(spark, place / "by_day", orders)
    right = partitioned(spark, place / "items_by_day", items).withColumnsRenamed({"day": "of", "kind": "sort"})
    days = plain_read(left).rows
    assert days.to_table(["day"])["day"].to_pylist() == sorted(days.to_table(["day"])["day"].to_pylist())
    found = check(left, right, "left", share=0.05, cells=4)
    assert {"day", "kind", "of", "sort"} <= set(found.columns)
    on = "l.id = r.order_id AND l.day = r.of AND l.kind IS NOT NULL"
    check(left.select("kind", "day", "id"), right, "full", on, share=0.05, cells=4)


@pytest.mark.one_in(3)
def test_filters_of_partitions_leave_out_files(spark: SparkSession, place: Path) -> None:
    orders, items = tables()
    left = partitioned(spark, place / "some_days", orders)
    right = written(spark, place / "of_some_days", items)
    some = left.where("day >= 2 AND day <= 10 AND kind = 'a/b'")
    assert [f.constants["day"] for f in plain_read(some).rows.files] == [3, 5, 7, 9]
    assert plain_read(some).filters == ()
    check(some, right, "left_anti", share=0.2, cells=3)  # left_anti rejects filters that files do not settle
    hidden = left.where("day > 6").select("id", "who")
    assert len(plain_read(hidden).rows.files) == 5
    check(hidden.where("who != 'c3'"), right, share=0.2, cells=3)
    empty = left.where("day > 100")
    with pytest.raises(NotPlainError, match="its filters leave no files"):
        plain_read(empty)


@pytest.mark.one_in(3)
def test_types_of_partitions(spark: SparkSession, place: Path) -> None:
    columns = [
        "id",
        "cast(id % 3 AS decimal(5, 2)) AS d",
        "date_add(date'2024-02-28', cast(id % 3 AS int)) AS day",
        "timestamp'2024-03-31 01:30:00' + make_interval(0, 0, 0, cast(id % 3 AS int)) AS at",
        "id % 2 = 0 AS even",
    ]
    frame = spark.range(0, 90, 1, 1).selectExpr(*columns)
    frame.write.partitionBy("d", "day", "at", "even").saveAsTable("typed", path=str(place / "typed"), format="parquet")
    try:
        table = spark.table("typed")
        read = plain_read(table.select("day", "id", "at", "d", "even")).rows.to_table()
        found = Counter(tuple(row.values()) for row in read.to_pylist())
        expected: Any = table.select("day", "id", "at", "d", "even").toArrow()
        assert found == Counter(tuple(row.values()) for row in expected.to_pylist())
    finally:
        spark.sql("DROP TABLE typed")


def test_a_column_that_only_directories_have(spark: SparkSession, place: Path) -> None:
    """Only the number of rows is read from the files."""
    left = partitioned(spark, place / "only_days", pa.table({"x": np.arange(120)}))
    assert plain_read(left.select("day")).rows.to_table()["day"].to_pylist() == [i // 10 for i in range(120)]
