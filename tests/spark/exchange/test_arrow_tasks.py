"""Decimals in results: small ones are returned from Python as integers."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import dovetail
from dovetail.spark.exchange.arrow_tasks import unscaled_integers


def test_whole_numbers_of_decimals() -> None:
    numbers = [Decimal("1.50"), None, Decimal("-0.01"), Decimal("9999999999999999.99"), Decimal("-9999999999999999.99")]
    column = pa.array(numbers, pa.decimal128(18, 2))
    wanted = [150, None, -1, 10**18 - 1, 1 - 10**18]
    assert unscaled_integers(column).to_pylist() == wanted
    assert unscaled_integers(column.slice(2)).to_pylist() == wanted[2:]
    assert unscaled_integers(column.slice(2, 1)).null_count == 0
    assert unscaled_integers(column.slice(5)).to_pylist() == []


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_results_with_many_decimals(spark: SparkSession) -> None:
    made = "id AS k", "CAST(id AS DECIMAL(15,2)) / 4 AS wide", "CAST(nullif(id, 3) - 5 AS DECIMAL(9,3)) AS small"
    left = spark.range(10).selectExpr(*made, "CAST(-id * 0.001 AS DECIMAL(18,18)) AS `odd name`")
    right = spark.range(8).selectExpr("id AS k", "CAST(id AS DECIMAL(18,0)) AS big")
    for how in ("inner", "left"):
        spark.conf.set("spark.dovetail.joinAtOnce", "true")
        try:
            joined = dovetail.join(left, right, "l.k = r.k", how=how, cells=2)
        finally:
            spark.conf.unset("spark.dovetail.joinAtOnce")
        wanted = left.join(right, left.k == right.k, how)
        assert joined.schema.simpleString().replace("k_right", "k") == wanted.schema.simpleString()
        assert sorted(map(tuple, joined.collect()), key=str) == sorted(map(tuple, wanted.collect()), key=str)
        assert "makedecimal" in joined._jdf.queryExecution().optimizedPlan().toString().lower()
