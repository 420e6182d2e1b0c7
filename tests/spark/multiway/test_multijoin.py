"""dovetail.multijoin of DataFrames."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import dovetail
from dovetail.errors import PlanError

pytestmark = pytest.mark.spark

ON = "o.custkey = c.custkey AND c.nationkey = n.nationkey AND o.day BETWEEN n.since AND n.since + INTERVAL 40 DAYS"


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    return {
        "o": pa.table(
            {
                "id": np.arange(3000),
                "custkey": rng.integers(0, 200, 3000),
                "day": pa.array(rng.integers(19_000, 19_100, 3000).astype("int32"), pa.int32()).cast(pa.date32()),
            }
        ),
        "c": pa.table({"custkey": np.arange(200), "nationkey": rng.integers(0, 10, 200)}),
        "n": pa.table(
            {
                "nationkey": np.arange(10),
                "since": pa.array(rng.integers(19_000, 19_080, 10).astype("int32"), pa.int32()).cast(pa.date32()),
                "name": [f"nation {i}" for i in range(10)],
            }
        ),
    }


def rows_of(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options", [{}, {"sample": False, "algorithm": "miner"}, pytest.param({"cells": 6}, marks=pytest.mark.slow)]
)
def test_the_same_as_in_process(spark: SparkSession, options: dict[str, object]) -> None:
    inputs = tables()
    frames = {alias: spark.createDataFrame(table) for alias, table in inputs.items()}
    joined = dovetail.multijoin(frames, ON, **options)  # type: ignore[arg-type]
    expected = dovetail.multijoin(inputs, ON)
    assert joined.columns == expected.column_names
    assert rows_of(joined.toArrow()) == rows_of(expected)


MARKED = {"o": "id < 0", "c": "custkey < 0", "n": "nationkey < 0"}


@pytest.mark.slow
@pytest.mark.parametrize("end", ["available", MARKED])
def test_streams_that_end(spark: SparkSession, tmp_path: Path, end: Any) -> None:
    """Three streams of files, with or without a row that marks the end."""
    inputs = tables()
    streams = {}
    for alias, table in inputs.items():
        (tmp_path / alias).mkdir()
        rows = table.num_rows
        for number, start in enumerate(range(0, rows, -(-rows // 2))):
            pq.write_table(table.slice(start, -(-rows // 2)), tmp_path / alias / f"{number}.parquet")
        if end != "available":
            last = pa.table({field.name: pa.nulls(1, field.type) for field in table.schema})
            last = last.set_column(0, table.schema.field(0), pa.array([-1]))
            pq.write_table(last, tmp_path / alias / "end.parquet")
            for number in range(2):
                os.utime(tmp_path / alias / f"{number}.parquet", (number, number))  # Spark reads the oldest file first
        schema = spark.createDataFrame(table.slice(0, 1)).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams[alias] = reader.parquet(str(tmp_path / alias))
    joined = dovetail.multijoin(streams, ON, memory="1MB", cells=4, end=end, state_dir=str(tmp_path / "state"))
    name = f"several_{isinstance(end, str)}"
    query = (
        joined.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    dovetail.finish(query)
    assert rows_of(spark.table(name).toArrow()) == rows_of(dovetail.multijoin(inputs, ON))


def test_what_spark_alone_compares_is_refused(spark: SparkSession) -> None:
    frames = {alias: spark.sql("SELECT 1 AS k, 'a' COLLATE UTF8_LCASE AS s") for alias in "abc"}
    with pytest.raises(PlanError, match=r"a\.s is compared by rules"):
        dovetail.multijoin(frames, "a.s = b.s AND b.k = c.k")
    streams = {alias: spark.readStream.format("rate").load() for alias in "abc"}
    with pytest.raises(PlanError, match="cannot run on unbounded streams"):
        dovetail.multijoin(streams, "a.value = b.value AND b.value = c.value")
    assert dovetail.multijoin(frames, "a.k = b.k AND b.k = c.k").count() == 1
