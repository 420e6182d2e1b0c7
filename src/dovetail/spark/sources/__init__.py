"""Remote sources that may stall and fail, as Spark tables and streams; and the state of streaming joins, as tables.

    dovetail.spark.sources.register(spark)      # once per session; `local_session` does it itself

    spark.readStream.format("dovetail-flight").option("location", "grpc://host:8815").option("dataset", "orders").load()
    spark.readStream.format("dovetail-postgresql").option("dsn", "postgresql://host/db").option("table", "orders") …
    spark.read.format("dovetail-state").load("/shared/dovetail")

A thread on the driver prefetches the rows of a stream. A micro-batch takes the rows that have arrived:

    server --thread--> prefetch.py --arrived rows--> micro-batch --Arrow--> rows
                                 \\-- after a restart, ranges are read again --/
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from dovetail.spark.sources.remote import FlightFormat, PostgresFormat
from dovetail.spark.sources.stored_state import StateFormat
from dovetail.spark.worker_python import prepare_workers

__all__ = ["register"]

FORMATS = (FlightFormat, PostgresFormat, StateFormat)


def register(spark: SparkSession) -> SparkSession:
    """Register the formats dovetail-flight, dovetail-postgresql and dovetail-state. Returns the session."""
    prepare_workers(spark)
    for made in FORMATS:
        spark.dataSource.register(made)
    return spark
