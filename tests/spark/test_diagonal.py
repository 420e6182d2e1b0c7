"""Diag-Join on Spark: slices of Parquet files give what Spark's own join of the same files gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

import dovetail

pytestmark = pytest.mark.spark

ORDERS, ITEMS = 3000, 12000
ON = "l.id = r.order_id"
HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]


def tables(spread: int = 150, seed: int = 0, **changes: Any) -> tuple[pa.Table, pa.Table]:
    """Orders, and items that refer to orders at about the same share of their table; some to none."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(10 * ORDERS)[:ORDERS]
    beside = np.arange(ITEMS) * ORDERS // ITEMS + rng.integers(-spread, spread + 1, ITEMS)
    refers = pa.array(ids[np.clip(beside, 0, ORDERS - 1)])
    nobody = rng.random(ITEMS)
    refers = pa.array(np.where(nobody < 0.001, -1, refers), mask=nobody > 0.999)
    orders = {"id": pa.array(ids, mask=rng.random(ORDERS) > 0.999), "who": [f"c{i % 97}" for i in range(ORDERS)]}
    items = {
        "order_id": refers,
        "n": pa.array(np.arange(ITEMS, dtype=np.int32)),
        "price": pa.array(rng.random(ITEMS), mask=rng.random(ITEMS) > 0.9),
        "text": [f"some text {i % 13}" for i in range(ITEMS)],
    }
    return pa.table(orders | changes.get("orders", {})), pa.table(items | changes.get("items", {}))


def written(spark: SparkSession, path: Path, table: pa.Table, files: int = 3, group: int = 400) -> DataFrame:
    path.mkdir()
    rows = -(-table.num_rows // files)
    for file in range(files):
        pq.write_table(table.slice(file * rows, rows), path / f"part-{file}.parquet", row_group_size=group)
    return spark.read.parquet(str(path))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def clustered(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    orders, items = tables()
    return written(spark, place / "orders", orders), written(spark, place / "items", items)


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, frame.collect()))


def check(left: DataFrame, right: DataFrame, how: str = "inner", on: str = ON, **options: Any) -> DataFrame:
    found = dovetail.join(left, right, on, how, algorithm="diag", **options)
    expected = left.alias("l").join(right.alias("r"), F.expr(on), how)
    assert rows(found) == rows(expected)
    assert found.columns == expected.columns
    return found


@pytest.mark.parametrize("how", HOW)
def test_every_join_type(clustered: tuple[DataFrame, DataFrame], how: str) -> None:
    check(*clustered, how)
    orders, items = clustered
    check(
        items, orders, how, "l.order_id = r.id AND l.price > 0.5 AND l.n % 3 != length(r.who) % 2", share=0.05, cells=3
    )
