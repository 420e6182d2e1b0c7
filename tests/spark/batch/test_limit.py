"""Limits and orders of joins of DataFrames at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import some
from tests.spark.batch.test_join_types import random_rows, rows_of

import dovetail
from dovetail.errors import InputError, PlanError
from dovetail.spark.batch.cell import limit_task

ON = {
    "operator": ("l.k = r.k", "inner"),
    "kernel": ("l.x < r.x AND l.y > r.y", "inner"),
    "union": ("l.k = r.k OR l.s = r.s", "left"),
    "two_passes": ("l.x > r.x + 20", "full"),
    "semi": ("abs(l.x - r.x) <= 2", "left_semi"),
    "spark_filters": ("levenshtein(l.s, r.s) < 2 AND l.x > r.x", "inner"),
    "spark_joins": ("levenshtein(l.s, r.s) < 2 AND l.x > r.x", "left_anti"),
}


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left, right = (spark.createDataFrame(random_rows(*size)).repartition(2).cache() for size in ((300, 1), (150, 2)))
    return left, right


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_any_rows_of_the_result(frames: tuple[DataFrame, DataFrame]) -> None:
    def check(name: str) -> None:
        on, how = ON[name]
        whole = rows_of(frames[0].alias("l").join(frames[1].alias("r"), F.expr(on), how))
        for limit in some((5, 100_000, 0), list(ON).index(name), of=3):
            found = rows_of(dovetail.join(*frames, on, how, cells=3, limit=limit))
            assert found.total() == min(limit, whole.total()), name
            assert not found - whole, name

    with ThreadPoolExecutor(3) as pool:  # small jobs do not keep a core busy
        list(pool.map(check, ON))


@pytest.mark.spark
def test_steps_end_with_the_last_row(frames: tuple[DataFrame, DataFrame]) -> None:
    steps = list(dovetail.progressive(*frames, "l.x < r.x", limit=77))
    assert sum(step.batch.num_rows for step in steps) == steps[-1].results == 77


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_orders_are_those_of_spark(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    joined = left.alias("l").join(right.alias("r"), F.expr("l.x < r.x"), "left")
    keys = [F.col("r.y").desc(), F.col("l.x").asc(), F.col("l.id").asc(), F.col("r.id").desc_nulls_first()]
    theirs = [(row[0], row[11]) for row in joined.orderBy(*keys).collect()]
    order_by = ["r.y DESC", "l.x", "l.id", "r.id DESC NULLS FIRST"]
    for limit in some((40, None, 0), 0, of=2):
        steps = dovetail.progressive(left, right, "l.x < r.x", "left", order_by=order_by, limit=limit)
        batches = [step.batch for step in steps]
        ours = [pair for b in batches for pair in zip(b["id"].to_pylist(), b["id_right"].to_pylist(), strict=True)]
        assert ours == theirs[:limit]
    tables = [pa.Table.from_batches(frame.toArrow().to_batches()) for frame in frames]
    here = dovetail.progressive(*tables, "l.x < r.x", "left", order_by=order_by, limit=40)
    assert [pair for s in here for pair in zip(s.batch["id"], s.batch["id_right"], strict=True)] == [
        (pa.scalar(one), pa.scalar(other, pa.int64())) for one, other in theirs[:40]
    ]


@pytest.mark.spark
def test_streams_have_no_last_row(spark: SparkSession, frames: tuple[DataFrame, DataFrame]) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(PlanError, match="order_by needs tables at rest"):
        dovetail.progressive(stream, stream, "l.value = r.value", order_by="l.value")
    with pytest.raises(InputError, match="order by columns of that side"):
        dovetail.progressive(*frames, "l.k = r.k", "left_semi", order_by="r.k")


def test_a_task_stops_when_it_has_enough() -> None:
    done: list[int] = []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done.append(batch.num_rows)
            yield batch

    batches = iter([pa.record_batch({"x": [1, 2, 3]})] * 5)
    found: list[Any] = [x for batch in limit_task(work, 4)(batches) for x in batch["x"].to_pylist()]
    assert Counter(found) == Counter([1, 2, 3, 1])
    assert done == [3, 3]
    assert next(batches, None) is None, "input is left unread"
