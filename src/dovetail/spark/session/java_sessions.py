"""Python objects for sessions of Java, and a session through which the driver sends rows."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import SparkSession

# Rows become tasks instead of a part of the plan, which Spark would send to each task row by row. Batches stay whole.
FOR_ROWS = {
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 30),
    "spark.sql.session.timeZone": "UTC",
}

_for_rows: WeakKeyDictionary[SparkContext, SparkSession] = WeakKeyDictionary()


def python_session(spark: SparkSession, java_session: Any) -> SparkSession:
    """The Python object for a session of the same context."""
    own: Any = spark
    if own._jsparkSession.equals(java_session):
        return spark
    made: Any = SparkSession.__new__(SparkSession)  # its __init__ would make it the session of RDD.toDF
    made._sc, made._jsc, made._jvm, made._jsparkSession = own._sc, own._jsc, own._jvm, java_session
    return made  # type: ignore[no-any-return]


def session_for_rows(spark: SparkSession) -> SparkSession:
    """A session of the same context for `createDataFrame`."""
    context = spark.sparkContext
    if context not in _for_rows:
        java: Any = spark._jsparkSession
        made = python_session(spark, java.newSession())
        for name, value in FOR_ROWS.items():
            made.conf.set(name, value)
        _for_rows[context] = made
    return _for_rows[context]
