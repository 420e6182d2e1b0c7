"""Orders and line items from Parquet files on Spark, two cores: Diag-Join, and Spark's own joins."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import dovetail
from benchmarks import tpch
from dovetail.spark.session.session import local_session

ON = "l.o_orderkey = r.l_orderkey"
NARROW = (["o_orderkey", "o_custkey"], ["l_orderkey", "l_partkey"])

Timed = tuple[tuple[int, int], float]


class Frames(NamedTuple):
    orders: DataFrame
    items: DataFrame


def narrow(scale: float) -> Frames:
    """Two columns of each side."""
    orders, items = all_columns(scale)
    return Frames(orders.select(*NARROW[0]), items.select(*NARROW[1]))


def all_columns(scale: float) -> Frames:
    spark = local_session("benchmark", conf={"spark.sql.shuffle.partitions": "8"})
    orders, items = (spark.read.parquet(str(file)) for file in tpch.orders_and_items(scale))
    return Frames(orders, items)


def diag_noop(data: Frames) -> Timed:
    """The time includes planning. Checks with Spark's own metrics that hits are not shuffled."""
    _wake(data)
    started = time.perf_counter()
    joined = _diag(data)
    before = shuffled_bytes(data.orders.sparkSession)
    answer, _ = _noop(lambda: joined)
    seconds = time.perf_counter() - started
    shuffled = shuffled_bytes(data.orders.sparkSession) - before
    if shuffled:
        raise AssertionError(f"{shuffled} bytes were shuffled")
    return answer, seconds


def merge_noop(data: Frames) -> Timed:
    return _noop(lambda: _spark(data, "merge"))


def hash_noop(data: Frames) -> Timed:
    return _noop(lambda: _spark(data, "shuffle_hash"))


def diag_write(data: Frames) -> Timed:
    _wake(data)
    return _written(data, lambda path: dovetail.write(_diag(data), path))


def merge_write(data: Frames) -> Timed:
    return _written(data, lambda path: _spark(data, "merge").write.parquet(path))


def hash_write(data: Frames) -> Timed:
    return _written(data, lambda path: _spark(data, "shuffle_hash").write.parquet(path))


def shuffled_bytes(spark: SparkSession) -> int:
    """Shuffle bytes written so far, as counted by Spark."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    executors = context.statusStore().executorList(False)
    return sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size()))


def _wake(data: Frames) -> None:
    """Restart Python workers: Spark ends those that are idle for a minute, as they are during the other runs."""
    _diag(data)


def _diag(data: Frames) -> DataFrame:
    joined: DataFrame = dovetail.join(data.orders, data.items, ON)
    return joined


def _spark(data: Frames, hint: str) -> DataFrame:
    return data.orders.hint(hint).join(data.items, F.expr("o_orderkey = l_orderkey"))


def _noop(join: Callable[[], DataFrame]) -> Timed:
    started = time.perf_counter()
    seen = Observation()
    join().observe(seen, *_digests()).write.format("noop").mode("overwrite").save()
    return (seen.get["rows"], seen.get["digest"]), time.perf_counter() - started


def _written(data: Frames, write: Callable[[str], Any]) -> Timed:
    directory = tempfile.mkdtemp(prefix="dovetail-benchmark-")
    path = f"{directory}/result"
    try:
        started = time.perf_counter()
        write(path)
        seconds = time.perf_counter() - started
        return _digest(data.orders.sparkSession.read.parquet(path)), seconds
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _digest(frame: DataFrame) -> tuple[int, int]:
    found = frame.agg(*_digests()).collect()[0]
    return found["rows"], found["digest"]


def _digests() -> list[Any]:
    """The number of rows, and a checksum of the pairs."""
    return [F.count(F.lit(1)).alias("rows"), F.bit_xor(F.xxhash64("o_custkey", "l_partkey")).alias("digest")]
