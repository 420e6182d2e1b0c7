"""What the settings of a session say: how many tasks, which names are the same, where checkpoints are."""

from __future__ import annotations

import os

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

MANY_CORES = 1 << 10  # where their number is not known


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once; a Connect session does not know."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return MANY_CORES


def shuffle_partitions(frame: DataFrame) -> int:
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)


def ignores_case(spark: SparkSession) -> bool:
    """Whether names that differ in case only are the same."""
    return spark.conf.get("spark.sql.caseSensitive") != "true"


def beside_checkpoints(spark: SparkSession) -> str | None:
    """Where state is kept by default, as a path or URI; None if the session has no place for checkpoints."""
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    return os.path.join(checkpoints, "dovetail-state") if checkpoints else None
