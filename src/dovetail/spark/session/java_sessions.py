"""Python objects for sessions of Java, and rows of the driver as a DataFrame."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.types import StructType

from dovetail.spark.versions import arrow_type

LOCAL_ROWS = "spark.sql.execution.arrow.localRelationThreshold"

_for_rows: WeakKeyDictionary[SparkContext, SparkSession] = WeakKeyDictionary()


def python_session(spark: SparkSession, java_session: Any) -> SparkSession:
    """The Python object for a session of the same context."""
    own: Any = spark
    if own._jsparkSession.equals(java_session):
        return spark
    made: Any = SparkSession.__new__(SparkSession)  # its __init__ would make it the session of RDD.toDF
    made._sc, made._jsc, made._jvm, made._jsparkSession = own._sc, own._jsc, own._jvm, java_session
    return made  # type: ignore[no-any-return]


def frame_of_table(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A DataFrame with a task for each batch of the table.

    `createDataFrame` would make small tables rows of the plan, which Spark's optimizer visits and sends to tasks one by
    one. It also makes its session the active one of the process.
    """
    session: Any = _session_for_rows(spark)
    context, jvm = session._sc, session._jvm
    utils = jvm.PythonSQLUtils
    fields = [pa.field(field.name, arrow_type(field.dataType, "UTC"), field.nullable) for field in schema]
    batches = table.cast(pa.schema(fields)).to_batches()  # Java expects these types
    sent = context._serialize_to_jvm(
        batches, ArrowStreamSerializer(), utils.readArrowStreamFromFile, lambda: jvm.ArrowIteratorServer()
    )
    return DataFrame(utils.toDataFrame(sent, schema.json(), session._jsparkSession), session)


def _session_for_rows(spark: SparkSession) -> SparkSession:
    """A session in which tables of the driver do not become rows of the plan."""
    context = spark.sparkContext
    if context not in _for_rows:
        java: Any = spark._jsparkSession
        made = python_session(spark, java.newSession())
        made.conf.set(LOCAL_ROWS, "0")
        _for_rows[context] = made
    return _for_rows[context]
