"""DataFrames and results without columns still have rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dovetail
from dovetail.errors import InputError

pytestmark = pytest.mark.spark


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bare", ["left", "both"])
def test_rows_are_counted(spark: SparkSession, two_partitions: None, bare: str) -> None:
    numbers = spark.range(3)
    left, right = numbers.select(), numbers.select() if bare == "both" else numbers
    for on, how, expected in (("true", "inner", 9), ("true", "left_semi", 3), ("false", "full", 6)):
        joined = dovetail.join(left, right, on, how)
        assert joined.columns == (["id"] if bare == "left" and how != "left_semi" else [])
        assert joined.count() == expected
    assert dovetail.count(left, right, "true") == 9
    assert dovetail.aggregate(left, right, "true", {"n": "count(*)"}).collect()[0].n == 9
    steps = list(dovetail.progressive(left, right, "true"))
    assert sum(step.batch.num_rows for step in steps) == 9
    assert steps[-1].results == 9
    assert {tuple(step.batch.schema.names) for step in steps} == {("id",) if bare == "left" else ()}


def test_nothing_to_write(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no columns"):
        dovetail.write(spark.range(3).select(), tmp_path / "out")
