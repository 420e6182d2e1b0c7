"""dovetail.write: reading returns what was written, and nothing is visible before all of it is."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.errors import InputError
from dovetail.spark.exchange.publishing import commit
from dovetail.spark.frames.sink import _write_part
from dovetail.storage.open_store import open_store

pytestmark = pytest.mark.spark

DIED = r"Python worker exited unexpectedly|crashed"

TYPES = [
    "id",
    "cast(id AS decimal(9, 2)) AS d",
    "cast(id AS string) AS s",
    "timestamp_micros(id) AS t",
    "timestamp_ntz '2024-03-31 02:30:00' AS local",
    "date '2024-03-30' AS day",
    "cast(null AS array<int>) AS a",
    "map('x', named_struct('y', id)) AS m",
    "interval '3' day AS i",
]


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1000, 1, 3).selectExpr(*TYPES)


def same(found: DataFrame, expected: DataFrame) -> bool:
    both = [Counter(map(str, map(tuple, each.collect()))) for each in (found, expected)]
    return both[0] == both[1] and found.dtypes == expected.dtypes


@pytest.mark.one_in(3)
def test_modes(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert dovetail.write(frame, path) == (3, 1000)
    assert same(spark.read.parquet(str(path)), frame)
    with pytest.raises(InputError, match="exists: give another path"):
        dovetail.write(frame, path)
    dovetail.write(frame, path.as_uri(), mode="append")
    assert same(spark.read.parquet(str(path)), frame.unionAll(frame))
    dovetail.write(spark.read.parquet(str(path)).limit(7), path, mode="overwrite")  # a part of itself
    assert spark.read.parquet(str(path)).count() == 7
    assert dovetail.write(frame.where("id < 0"), tmp_path / "none").rows == 0
    assert spark.read.parquet(str(tmp_path / "none")).schema.names == frame.schema.names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["none", "out"]


def test_what_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode must be one of"):
        dovetail.write(spark.range(3), tmp_path / "out", mode="ignore")
    with pytest.raises(InputError, match="column v is of the Spark type void"):
        dovetail.write(spark.sql("SELECT null AS v"), tmp_path / "out")
    with pytest.raises(InputError, match="takes a Spark DataFrame"):
        dovetail.write(pa.table({"a": [1]}), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.one_in(3)
def test_a_worker_that_is_killed_leaves_nothing(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "out"
    dovetail.write(frame.limit(5), path)

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 999 in batch.column("id").to_pylist():
                os.kill(os.getpid(), signal.SIGKILL)

    breaking = spark.range(0, 1000, 1, 3).mapInArrow(dying, "id bigint")
    for mode in ("overwrite", "append"):
        with pytest.raises(Exception, match=DIED):
            dovetail.write(breaking, path, mode)
        assert spark.read.parquet(str(path)).count() == 5
    with pytest.raises(Exception, match=DIED):
        dovetail.write(breaking, tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert len(list(path.glob("*.parquet"))) == 1


def test_only_files_of_the_manifest_are_committed(spark: SparkSession, tmp_path: Path) -> None:
    """An attempt whose task is retried, or that Spark runs twice, writes a file that stays invisible."""
    stage = tmp_path / "stage"
    stage.mkdir()
    batches = [pa.RecordBatch.from_pydict({"id": list(range(10))})]
    schema = spark.range(1).schema
    attempts = [next(_write_part(open_store(stage), 0, batches, schema)) for _ in range(2)]
    assert len(list(stage.glob("*.parquet"))) == 2
    commit(open_store(tmp_path / "out"), open_store(stage), attempts[1].column("file").to_pylist(), "error")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 10
    assert not stage.exists()


@pytest.mark.parametrize("how", ["left_semi", pytest.param("full", marks=pytest.mark.slow)])
def test_a_join_along_the_diagonal_is_written_by_its_tasks(spark: SparkSession, tmp_path: Path, how: str) -> None:
    spark.range(0, 2000, 1, 1).selectExpr("id", "cast(id AS string) AS s").write.parquet(str(tmp_path / "l"))
    spark.range(0, 8000, 1, 2).selectExpr("id DIV 4 + IF(id % 3000 = 5, 1900, 0) AS k", "id AS n").write.parquet(
        str(tmp_path / "r")
    )
    left, right = (spark.read.parquet(str(tmp_path / name)) for name in "lr")
    joined = dovetail.join(left, right, "l.id = r.k", how, algorithm="diag", share=0.05)
    written = dovetail.write(joined, tmp_path / "out")
    assert same(spark.read.parquet(str(tmp_path / "out")), joined)
    assert written.rows == joined.count()
