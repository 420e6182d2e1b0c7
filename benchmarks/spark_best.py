"""As-of joins on Spark against the usual hand-written plan: union, and the last right row in a window.

    python -m benchmarks.spark_best [rows of a side] [keys | heavy | none …]

CPU of driver, JVM and workers together, in turn; with a ratio above 1 Dovetail is faster. `heavy`: one key has half of
all rows. Without keys the hand-written plan has a single task.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import dovetail
from benchmarks.spark_pruning import timed, to_nowhere
from dovetail.spark.session.session import local_session

RUNS = 3
ROWS = 10_000_000
KEYS = 1000
SPREAD = 10**9


def main(rows: int, kinds: list[str]) -> None:
    spark = local_session("benchmark")
    for kind in kinds:
        directory = tempfile.mkdtemp(prefix="dovetail-benchmark-")
        left, right = (_side(spark, directory, rows, kind, name) for name in ("bid", "ask"))
        by = None if kind == "none" else "k"
        ours, theirs = [], []
        for _ in range(RUNS + 1):  # the first compiles
            theirs.append(timed(partial(_run_by_hand, left, right))[1])
            ours.append(timed(partial(_run, left, right, by))[1])
        ours_s, theirs_s = statistics.median(ours[1:]), statistics.median(theirs[1:])
        print(f"{kind:<6} by hand {theirs_s:6.1f} s   Dovetail {ours_s:6.1f} s   {theirs_s / ours_s:.2f}", flush=True)
    spark.stop()


def _run_by_hand(left: DataFrame, right: DataFrame) -> int:
    return to_nowhere(by_hand(left, right))


def _run(left: DataFrame, right: DataFrame, by: str | None) -> int:
    return to_nowhere(dovetail.asof(left, right, "ts", by=by))


def _side(spark: SparkSession, directory: str, rows: int, kind: str, name: str) -> DataFrame:
    seed = len(name) + ord(name[0])
    some = (F.rand(seed) * KEYS).cast("int")
    keys: dict[str, Column] = {
        "keys": some,
        "heavy": F.when(F.rand(seed + 1) < 0.5, 7).otherwise(some),
        "none": F.lit(0),
    }
    path = f"{directory}/{name}"
    times = (F.rand(seed + 2) * SPREAD).cast("long")
    made = spark.range(rows).withColumns({"ts": times, name: F.rand(seed + 3), "k": keys[kind]})
    made.write.parquet(path)
    return spark.read.parquet(path)


def by_hand(left: DataFrame, right: DataFrame) -> DataFrame:
    mates = right.select("ts", "k", F.lit(False).alias("is_left"), F.struct("*").alias("mate"))
    rows = left.withColumn("is_left", F.lit(True)).unionByName(mates, allowMissingColumns=True)
    window = Window.partitionBy("k").orderBy("ts", "is_left").rowsBetween(Window.unboundedPreceding, 0)
    seen = rows.withColumn("found", F.last("mate", ignorenulls=True).over(window)).where("is_left")
    return seen.select(*left.columns, *(F.col(f"found.{name}").alias(f"{name}_right") for name in right.columns))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else ROWS, given[1:] or ["keys", "heavy", "none"])
