"""A typical user script, with inputs whose queries Spark plans more than once. Warnings are errors.

python larger_inputs.py <left rows> <right rows> <directory> <ways …>
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.spark.session import local_session

MODULUS = 1_000_003
QUERY = "SELECT band % 10 AS g, count(*) AS n FROM points {} JOIN bands ON x BETWEEN lo AND hi GROUP BY g"


def main(left_rows: int, right_rows: int, place: Path, ways: list[str]) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("default", category=ResourceWarning)
    warnings.filterwarnings("default", category=DeprecationWarning)
    x = np.arange(left_rows) * 7919 % MODULUS
    lo = np.arange(right_rows) * 104729 % MODULUS
    spark = local_session()
    points = spark.createDataFrame(pd.DataFrame({"id": np.arange(left_rows), "x": x}))
    bands = spark.createDataFrame(pd.DataFrame({"band": np.arange(right_rows), "lo": lo, "hi": lo + 30}))
    sides = (points, bands)
    for way in ways:
        adaptive, how, kind = way.split("-")
        spark.conf.set("spark.sql.adaptive.enabled", str(adaptive == "adaptive").lower())
        for frame, name in zip(KINDS[kind](spark, sides, place), ("points", "bands"), strict=True):
            frame.createOrReplaceTempView(name)
        with dovetail.enable(spark):
            query = spark.sql(QUERY.format(how))
            found = sum(row.n for row in query.collect())
        counted = np.searchsorted(np.sort(x), lo + 30, "right") - np.searchsorted(np.sort(x), lo, "left")
        partners = np.sort(lo)
        alone = np.searchsorted(partners, x, "right") == np.searchsorted(partners, x - 30, "left")
        assert found == counted.sum() + (alone.sum() if how == "left" else 0), way
        assert "DovetailJoin" in query._jdf.queryExecution().executedPlan().toString(), way
        spark.catalog.clearCache()


def written(spark: SparkSession, sides: tuple[DataFrame, DataFrame], place: Path) -> tuple[DataFrame, DataFrame]:
    for side, name in zip(sides, ("points", "bands"), strict=True):
        side.write.mode("overwrite").parquet(str(place / name))
    return spark.read.parquet(str(place / "points")), spark.read.parquet(str(place / "bands"))


def shuffled(spark: SparkSession, sides: tuple[DataFrame, DataFrame], place: Path) -> tuple[DataFrame, DataFrame]:
    return sides[0].repartition(3, "x"), sides[1].groupBy("lo", "hi").agg({"band": "max"}).toDF("lo", "hi", "band")


Kind = Callable[[SparkSession, tuple[DataFrame, DataFrame], Path], tuple[DataFrame, DataFrame]]
KINDS: dict[str, Kind] = {
    "views": lambda spark, sides, place: sides,
    "parquet": written,
    "cached": lambda spark, sides, place: (sides[0].cache(), sides[1].cache()),
    "shuffled": shuffled,
}

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
