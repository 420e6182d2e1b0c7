"""Join conditions given as PySpark Columns.

A Column is written out as SQL text over l and r, and the SQL reader does the rest, so that a condition means the same
whichever way it was given. What differs between sessions is only how a Column is taken apart:

    (left.a < right.b) & F.expr("x > 1")    -- column_classic (py4j) or column_connect -->
    ((l.`a` < r.`b`) AND (r.`x` > 1))       -- condition.read_sql -->
    Call("and", …)
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from dovetail.condition import Expression, read_sql
from dovetail.spark.column_names import Names
from dovetail.spark.schemas import arrow_schema


def expression_of(on: SparkColumn, left: DataFrame, right: DataFrame) -> Expression:
    """The condition that a Column states about two DataFrames."""
    return read_sql(_text(on, Names(left, right)), (arrow_schema(left), arrow_schema(right)))


def _text(on: Any, names: Names) -> str:
    if type(on).__module__.startswith("pyspark.sql.connect."):
        from dovetail.spark.column_connect import ConnectReader  # needs grpc, which classic sessions do without

        return ConnectReader(names).read(on._expr).text
    from dovetail.spark.column_classic import ClassicReader

    return ClassicReader(names).read(on._jc.node()).text
