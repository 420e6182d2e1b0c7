"""Two inequalities on Spark, two cores: against Spark's own plan, which compares all pairs, and with growing inputs.

y follows x with a little noise, so that only neighbours match. The amount of noise determines the number of results.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dovetail
from dovetail.spark.session.session import local_session

ON = "l.x < r.x AND l.y > r.y"
TIGHT = 1.5  # found by trial

Timed = tuple[int, float]


class Frames(NamedTuple):
    left: DataFrame
    right: DataFrame
    pairs: int  # counted in process


def tables(rows: int, results: int, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    noise = 4 * TIGHT * results / rows**2

    def side() -> pa.Table:
        x = rng.random(rows)
        return pa.table({"id": np.arange(rows), "x": x, "y": x + noise * rng.random(rows)})

    return side(), side()


def frames(rows: int, results: int) -> Frames:
    return _frames(rows, results)


def two_sizes(small: int, large: int, results: int) -> dict[str, Frames]:
    return {"small": _frames(small, results), "large": _frames(large, results)}


def small_driver(rows: int, results: int) -> Frames:
    """A session whose JVM has 2 GB for everything."""
    return _frames(rows, results, {"spark.driver.memory": "2g"})


def _frames(rows: int, results: int, conf: dict[str, str] | None = None) -> Frames:
    spark = local_session("benchmark", conf={"spark.sql.shuffle.partitions": "8", **(conf or {})})
    left, right = tables(rows, results)
    counted = dovetail.count(left, right, ON)
    held = [spark.createDataFrame(table).repartition(2).cache() for table in (left, right)]
    for frame in held:
        frame.count()
    return Frames(held[0], held[1], counted)


def _checked(data: Frames, found: int, started: float) -> Timed:
    seconds = time.perf_counter() - started
    if found != data.pairs:
        raise AssertionError(f"{found} results, {data.pairs} expected")
    return found, seconds


def dovetail_count(data: Frames) -> Timed:
    started = time.perf_counter()
    return _checked(data, dovetail.join(data.left, data.right, ON).count(), started)


def dovetail_aggregate(data: Frames) -> Timed:
    started = time.perf_counter()
    return _checked(data, dovetail.count(data.left, data.right, ON), started)


def spark_count(data: Frames) -> Timed:
    started = time.perf_counter()
    return _checked(data, _by_spark(data).count(), started)


def dovetail_write(data: Frames) -> Timed:
    return _written(data, lambda: dovetail.join(data.left, data.right, ON))


def spark_write(data: Frames) -> Timed:
    return _written(data, lambda: _by_spark(data))


def growth_small(data: dict[str, Frames]) -> tuple[bool, float]:
    return True, dovetail_write(data["small"])[1]


def growth_large(data: dict[str, Frames]) -> tuple[bool, float]:
    return True, dovetail_write(data["large"])[1]


def _by_spark(data: Frames) -> DataFrame:
    right = data.right.toDF("id_right", "x_right", "y_right")
    return data.left.join(right, F.expr("x < x_right AND y > y_right"))


def _written(data: Frames, join: Callable[[], DataFrame]) -> Timed:
    directory = Path(tempfile.mkdtemp(prefix="dovetail-benchmark-"))
    try:
        started = time.perf_counter()
        join().write.parquet(str(directory / "result"))
        seconds = time.perf_counter() - started
        found = data.left.sparkSession.read.parquet(str(directory / "result")).count()
        return _checked(data, found, time.perf_counter())[0], seconds
    finally:
        shutil.rmtree(directory, ignore_errors=True)
