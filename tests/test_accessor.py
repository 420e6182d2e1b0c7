"""Joins as methods of DataFrames, with either library imported first."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dovetail
from dovetail.accessor import Joins

ORDERS = {"id": [1, 2, 3], "due": [10, 20, 30]}
PAYMENTS = {"order_id": [1, 3, 4], "paid": [12, 25, 1]}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_chains_stay_in_their_library(kind: type) -> None:
    orders, payments = kind(ORDERS), kind(PAYMENTS)
    joined = orders.dovetail.join(payments, "l.id = r.order_id", "left")
    assert isinstance(joined, kind)
    assert sorted(joined.columns) == ["due", "id", "order_id", "paid"]
    assert len(joined) == 3
    assert isinstance(orders.dovetail.join(payments, "l.due < r.paid", to="reader"), pa.RecordBatchReader)
    counted = orders.dovetail.aggregate(payments, "l.due < r.paid", {"n": "count(*)"}, by="l.id")
    assert isinstance(counted, kind)
    assert orders.dovetail.count(payments, "l.due < r.paid") == 3
    assert sum(step.batch.num_rows for step in orders.dovetail.progressive(payments, "l.due < r.paid")) == 3
    assert "l.due < r.paid" in str(orders.dovetail.explain(payments, "l.due < r.paid"))
    with pytest.raises(TypeError, match="Did you mean 'threads'"):
        orders.dovetail.join(payments, "l.due < r.paid", treads=2)
    with pytest.raises(dovetail.DovetailError, match="takes a Spark DataFrame"):
        orders.dovetail.write("somewhere")


@pytest.mark.parametrize("first", ["dovetail", "pandas, polars, pyspark.sql"])
def test_any_order_of_imports(first: str) -> None:
    """pandas also keeps its own loader, so that tools can read its source."""
    script = f"""
import {first}
import sys
if {first == "dovetail"}:
    assert not {{"pandas", "polars", "pyspark"}} & sys.modules.keys()
import dovetail, pandas, polars, inspect
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as Classic
assert pandas.DataFrame.dovetail and polars.DataFrame.dovetail and DataFrame.dovetail is Classic.dovetail
assert "api" in inspect.getsource(pandas)
assert type(pandas.__loader__).__name__ == "SourceFileLoader"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_it_says_what_it_can() -> None:
    said = repr(pd.DataFrame(ORDERS).dovetail)
    assert all(name in said for name in vars(Joins) if not name.startswith("_"))
