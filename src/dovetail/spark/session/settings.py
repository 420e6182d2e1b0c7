"""Reads settings of a session: parallelism, case sensitivity of names, the directory of checkpoints."""

from __future__ import annotations

import os

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

AT_ONCE = "spark.dovetail.joinAtOnce"  # "true": joins are planned at the call of dovetail.join
MANY_CORES = 1 << 10  # if their number is unknown


def parallelism(spark: SparkSession) -> int:
    """The number of parallel tasks. A Connect session does not know it."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return MANY_CORES


def shuffle_partitions(frame: DataFrame) -> int:
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)


def plans_at_once(spark: SparkSession) -> bool:
    return str(spark.conf.get(AT_ONCE, "false")).lower() == "true"


def ignores_case(spark: SparkSession) -> bool:
    """Whether names that differ only in case are the same."""
    return spark.conf.get("spark.sql.caseSensitive") != "true"


def beside_checkpoints(spark: SparkSession) -> str | None:
    """The default place for state, as a path or URI. None if the session has no directory for checkpoints."""
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    return os.path.join(checkpoints, "dovetail-state") if checkpoints else None
