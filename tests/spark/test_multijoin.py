"""dovetail.multijoin of DataFrames."""

from collections import Counter

import numpy as np
import pyarrow as pa
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


@pytest.mark.parametrize("options", [{}, {"cells": 6}, {"sample": False, "algorithm": "miner"}])
def test_the_same_as_in_process(spark: SparkSession, options: dict[str, object]) -> None:
    inputs = tables()
    frames = {alias: spark.createDataFrame(table) for alias, table in inputs.items()}
    joined = dovetail.multijoin(frames, ON, **options)  # type: ignore[arg-type]
    expected = dovetail.multijoin(inputs, ON)
    assert joined.columns == expected.column_names
    assert rows_of(joined.toArrow()) == rows_of(expected)


def test_what_spark_alone_compares_is_refused(spark: SparkSession) -> None:
    frames = {alias: spark.sql("SELECT 1 AS k, 'a' COLLATE UTF8_LCASE AS s") for alias in "abc"}
    with pytest.raises(PlanError, match=r"a\.s is compared by rules"):
        dovetail.multijoin(frames, "a.s = b.s AND b.k = c.k")
    streams = {alias: spark.readStream.format("rate").load() for alias in "abc"}
    with pytest.raises(PlanError, match="at rest"):
        dovetail.multijoin(streams, "a.value = b.value AND b.value = c.value")
    assert dovetail.multijoin(frames, "a.k = b.k AND b.k = c.k").count() == 1
