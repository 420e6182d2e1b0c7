"""Diag-Join on Spark: slices of Parquet files give the same result as Spark's own join of the files."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from tests.effort import ALL, some

import dovetail
from dovetail.core.join_types import JoinType
from dovetail.errors import InputError, PlanError
from dovetail.spark.diag import clusteredness
from dovetail.spark.diag import join as diagonal
from dovetail.spark.frames.parquet_frames import plain_read

pytestmark = pytest.mark.spark

ORDERS, ITEMS = 3000, 12000
ON = "l.id = r.order_id"
HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]


def tables(spread: int = 150, seed: int = 0, **changes: Any) -> tuple[pa.Table, pa.Table]:
    """Orders, and items that refer to orders at about the same relative position; some refer to none."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(10 * ORDERS)[:ORDERS]
    beside = np.arange(ITEMS) * ORDERS // ITEMS + rng.integers(-spread, spread + 1, ITEMS)
    refers = pa.array(ids[np.clip(beside, 0, ORDERS - 1)])
    draws = rng.random(ITEMS)
    refers = pa.array(np.where(draws < 0.001, -1, refers), mask=draws > 0.999)
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


SELECTIVE = "l.order_id = r.id AND l.price > 0.5 AND l.n % 3 != length(r.who) % 2"


@pytest.mark.parametrize(
    ("on", "options"), [(SELECTIVE, {"share": 0.05, "cells": 3}), pytest.param(ON, {}, marks=pytest.mark.slow)]
)
def test_every_join_type(clustered: tuple[DataFrame, DataFrame], on: str, options: dict[str, Any]) -> None:
    """All join types in one job."""
    left, right = clustered if on == ON else clustered[::-1]
    hows = HOW if ALL else ("right", "left_anti")  # the other tests here do not cover this
    found = {how: dovetail.join(left, right, on, how, algorithm="diag", **options) for how in hows}
    expected = {how: left.alias("l").join(right.alias("r"), F.expr(on), how) for how in hows}
    assert {how: f.columns for how, f in found.items()} == {how: f.columns for how, f in expected.items()}
    assert rows(all_of(found)) == rows(all_of(expected))


def all_of(joined: dict[str, DataFrame]) -> DataFrame:
    """The rows of several joins, each with its join type."""
    frames = (frame.withColumn("how", F.lit(how)) for how, frame in joined.items())
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


@pytest.mark.one_in(3)
def test_without_mishits_there_is_no_exchange(spark: SparkSession, place: Path) -> None:
    left, right = pa.table({"id": np.arange(2000)}), pa.table({"order_id": np.arange(8000) // 4})
    inputs = written(spark, place / "keys", left, 1), written(spark, place / "refers", right, 2)
    found = check(*inputs)
    assert "Exchange" not in found._jdf.queryExecution().executedPlan().toString()
    every_other = pa.table({"order_id": np.arange(8000) // 8 * 2})
    few = written(spark, place / "every_other", every_other, 2)
    for how in some(("full", "left_semi", "left_anti"), 0, of=3):
        joined = check(inputs[0], few, how)
        assert "Exchange" not in joined._jdf.queryExecution().executedPlan().toString()
    explained = str(dovetail.explain(*inputs, ON, algorithm="diag"))
    for part in ("of 8,000 partners 50% within 0.0", "window     5 tables of", "mishits    hardly any of r", "slices"):
        assert part in explained


@pytest.mark.one_in(3)
def test_data_in_random_order_is_joined_by_hash_and_right_if_forced(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagonal, "LEAST_ROWS", 100)
    orders, items = tables()
    shuffled = items.take(np.random.default_rng(1).permutation(ITEMS))
    inputs = [written(spark, place / f"random{i}", table) for i, table in enumerate((orders, items, shuffled))]
    assert "diag: the files are clustered alike" in str(dovetail.explain(inputs[0], inputs[1], ON))
    refused = str(dovetail.explain(inputs[0], inputs[2], ON))
    monkeypatch.setattr(clusteredness, "HERE", 100)  # tasks measure instead of the driver
    assert [line for line in str(dovetail.explain(inputs[0], inputs[2], ON)).splitlines() if "advice" in line] == [
        line for line in refused.splitlines() if "advice" in line
    ]
    assert "operator   spark" in refused
    assert "not along the diagonal: of 11," in refused
    assert "slices" not in refused
    check(inputs[0], inputs[2], "full", share=0.1)


@pytest.mark.one_in(3)
def test_orders_and_items_of_six_years(spark: SparkSession, place: Path) -> None:
    """As in TPC-H at scale 0.1: chosen automatically, equal to Spark's result, and without a shuffle."""
    rng = np.random.default_rng(0)
    days = np.sort(rng.integers(0, 2406, 150_000)).astype(np.int32)
    keys = rng.permutation(600_000)[: len(days)]
    of = np.repeat(np.arange(len(days)), rng.integers(1, 8, len(days)))
    shipped = days[of] + rng.integers(1, 122, len(of)).astype(np.int32)
    order = np.argsort(shipped, kind="stable")
    orders = pa.table({"key": keys, "day": pa.array(days).cast(pa.date32()), "customer": keys % 9973})
    items = pa.table({"ref": keys[of[order]], "shipped": shipped[order], "n": np.arange(len(of))})
    inputs = written(spark, place / "six", orders, 2, 10_000), written(spark, place / "years", items, 4, 20_000)
    on = "l.key = r.ref"
    assert "diag: the files are clustered alike" in str(dovetail.explain(*inputs, on))
    spark.conf.set("spark.dovetail.joinAtOnce", "true")  # measuring shuffles a little, before the join
    try:
        joined = dovetail.join(*inputs, on)
    finally:
        spark.conf.unset("spark.dovetail.joinAtOnce")
    before = shuffled_bytes(spark)
    seen = Observation()
    digest = [F.count(F.lit(1)).alias("rows"), F.bit_xor(F.xxhash64("key", "customer", "n")).alias("digest")]
    joined.observe(seen, *digest).write.format("noop").mode("overwrite").save()
    assert shuffled_bytes(spark) == before
    expected = inputs[0].hint("merge").join(inputs[1], F.expr("key = ref")).agg(*digest).collect()[0]
    assert shuffled_bytes(spark) > before + 1_000_000
    assert seen.get == expected.asDict()


def shuffled_bytes(spark: SparkSession) -> int:
    """Shuffle bytes written so far, as counted by Spark."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    executors = context.statusStore().executorList(False)
    return sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size()))


@pytest.mark.one_in(3)
def test_repeated_keys(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders, items = tables()
    ids = orders["id"].to_pylist()
    ids[2900], ids[1500] = ids[100], ids[1501]  # one far away, one adjacent
    left = written(spark, place / "twice", orders.set_column(0, "id", pa.array(ids)))
    right = written(spark, place / "of_twice", items)
    check(left, right, "left")
    if ALL:
        check(right, left, "left_anti", "l.order_id = r.id", one="right")
    monkeypatch.setattr(diagonal, "MOST_REPEATED", 1)
    check(left, right)


@pytest.mark.one_in(3)
def test_strings_and_several_keys(spark: SparkSession, place: Path) -> None:
    ids = [None if i % 100 == 7 else f"key-{i // 3}" for i in range(900)]
    left = pa.table({"a": ids, "b": pa.array([i % 3 for i in range(900)], pa.int32())})
    right = pa.table({"a": [f"key-{i // 9}" for i in range(2700)], "b": [i // 3 % 3 for i in range(2700)]})
    inputs = written(spark, place / "texts", left, 1, 100), written(spark, place / "of_texts", right, 4, 111)
    found = dovetail.join(*inputs, "l.a = r.a AND l.b = r.b", "left_semi", algorithm="diag")
    expected = inputs[0].alias("l").join(inputs[1].alias("r"), F.expr("l.a = r.a AND l.b = r.b"), "left_semi")
    assert rows(found) == rows(expected)


@pytest.mark.one_in(3)
def test_columns_without_nulls_are_known_to_be_so(clustered: tuple[DataFrame, DataFrame]) -> None:
    nulls = {
        "inner": {"id", "order_id", "price"},
        "left": {"id", "order_id", "n", "price", "text"},
        "right": {"id", "who", "order_id", "price"},
        "full": {"id", "who", "order_id", "n", "price", "text"},
        "left_semi": {"id"},
    }
    left, right = clustered
    scans = (plain_read(left).rows, plain_read(right).rows)
    for how, nullable in nulls.items():
        fields = left.join(right, F.expr("id = order_id"), how).schema.fields
        known = diagonal._known_whole(fields, scans, JoinType(how))
        assert {field.name for field in known if field.nullable} == nullable


@pytest.mark.parametrize("empty", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_empty_table(spark: SparkSession, place: Path, empty: int) -> None:
    both = list(tables())
    both[empty] = both[empty].slice(0, 0)
    inputs = [written(spark, place / f"empty{empty}{i}", table, 1) for i, table in enumerate(both)]
    check(*inputs, "full")
    assert "not along the diagonal: a side is empty" in str(dovetail.explain(*inputs, ON, algorithm="diag"))


def test_columns_may_be_selected_and_renamed(clustered: tuple[DataFrame, DataFrame]) -> None:
    orders, items = clustered
    left = orders.select("who", F.col("id").alias("key")).withColumnRenamed("who", "w")
    right = items.select("text", "order_id").select(F.col("order_id").alias("ref"), "text")
    check(left, right, on="l.key = r.ref")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda frame: frame.where("n % 3 > 1"), "filtered by .*, which only Spark evaluates"),
        (lambda frame: frame.where("n > 3").select("order_id"), "filtered by n, which is not among its columns"),
        (lambda frame: frame.withColumn("n", F.col("n") + 1), r"computed column, \(n \+ 1\)"),
        (lambda frame: frame.select(F.col("order_id").cast("int"), "n"), "computed column"),
        (lambda frame: frame.limit(5), "has a (GlobalLimit|Limit)"),
        (lambda frame: frame.repartition(2), "has a RepartitionByExpression|has a Repartition"),
    ],
)
def test_what_is_not_a_plain_read_is_refused(clustered: tuple[DataFrame, DataFrame], change: Any, reason: str) -> None:
    with pytest.raises(PlanError, match=f"needs plain reads of Parquet files .* right side, it .*({reason})"):
        dovetail.join(clustered[0], change(clustered[1]), ON, algorithm="diag")


def test_what_is_not_in_the_files_is_refused(
    spark: SparkSession, place: Path, clustered: tuple[DataFrame, DataFrame]
) -> None:
    orders, items = clustered
    cached = items.select("n", "order_id").cache()
    with pytest.raises(PlanError, match="right side, it is not a plain read of files, but has a InMemoryRelation"):
        dovetail.join(orders, cached, ON, algorithm="diag")
    cached.unpersist()
    with pytest.raises(PlanError, match="a part of the condition is computed by Spark"):
        dovetail.join(orders, items, "l.id = r.order_id AND soundex(l.who) != 'C1'", algorithm="diag")
    longer = spark.read.schema("order_id bigint, n bigint").parquet(str(place / "items"))
    with pytest.raises(PlanError, match=r"n is int32 in .*part-0.parquet, and int64 in Spark"):
        dovetail.join(orders, longer, ON, algorithm="diag")


@pytest.mark.one_in(3)
def test_simple_filters_are_applied_by_the_tasks(clustered: tuple[DataFrame, DataFrame]) -> None:
    orders, items = clustered
    left = orders.where("who LIKE 'c1%' OR id IS NULL")
    right = items.where((F.col("n") > 300) & F.col("text").isin("some text 3", "some text 4"))
    cases = [
        (left, right, "inner", ON),
        (orders, right, "left", ON),
        (left, items, "left_semi", "l.id = r.order_id AND r.price < 0.7"),
    ]
    for case in some(cases, 0, of=2):
        check(*case, share=0.05)
    with pytest.raises(PlanError, match="left side, it is filtered, and the join keeps its rows"):
        dovetail.join(left, items, ON, "left_anti", algorithm="diag")


def test_options_of_the_window_belong_to_diag(clustered: tuple[DataFrame, DataFrame]) -> None:
    with pytest.raises(InputError, match="share= is for algorithm='diag'"):
        dovetail.join(*clustered, ON, share=0.1)


@pytest.mark.one_in(3)
def test_early_results_of_dataframes(clustered: tuple[DataFrame, DataFrame]) -> None:
    steps = list(dovetail.progressive(*clustered, ON, algorithm="diag"))
    expected = clustered[0].alias("l").join(clustered[1].alias("r"), F.expr(ON))
    assert Counter(tuple(row.values()) for step in steps for row in step.batch.to_pylist()) == rows(expected)
    assert steps[0].phase == "arriving"


def test_files_that_change_after_planning_are_noticed(spark: SparkSession, place: Path) -> None:
    orders, items = tables()
    inputs = written(spark, place / "before", orders), written(spark, place / "after", items)
    joined = dovetail.join(*inputs, ON, algorithm="diag")
    pq.write_table(orders.slice(0, 10), place / "before" / "part-0.parquet")
    with pytest.raises(Exception, match="has changed since the join was planned"):
        joined.collect()
