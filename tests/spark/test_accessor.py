"""Joins as methods of Spark's DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_chain_on_spark(spark: SparkSession) -> None:
    orders = spark.createDataFrame(pa.table({"id": [1, 2, 3], "due": [10, 20, 30]}))
    payments = spark.createDataFrame(pa.table({"order_id": [1, 3, 4], "paid": [12, 25, 1]}))
    joined = orders.dovetail.join(payments, "l.due < r.paid").where("due < 20").select("id", "paid")
    assert sorted(map(tuple, joined.collect())) == [(1, 12), (1, 25)]
    with pytest.raises(dovetail.DovetailError, match="Did you mean 'cells'"):
        orders.dovetail.join(payments, "l.due < r.paid", cels=3)
