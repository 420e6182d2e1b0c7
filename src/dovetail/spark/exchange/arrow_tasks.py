"""Tasks in Arrow: mapInArrow over rows, or tasks that get nothing but their number.

Decimals of results are sent to Spark as integers, up to 18 digits, and Spark restores the scale. For each decimal that
Spark reads from Arrow it creates an object, which can take longer than the join. Restoring the scale copies the row, so
it is worth it only if many columns are decimals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from dovetail.core.buffers import decimal_words
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.session.workers import freeze_modules

Part = Callable[[int], Iterator[pa.RecordBatch]]
"""Maps the number of a partition to its batches."""

MOST_DIGITS = 18  # decimal digits that fit in 64 bits
PAYS = 1 / 3  # share of decimal columns from which on integers are sent


def in_tasks(spark: SparkSession, tasks: int, part: Part, schema: StructType | str) -> DataFrame:
    """One task per part, without a shuffle."""
    numbers = spark.range(0, tasks, 1, tasks)
    return map_in_arrow(numbers, _parts(part), schema)


def _parts(part: Part) -> Rewrite:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from part(number)
        freeze_modules()

    return run


def map_in_arrow(frame: DataFrame, rewrite: Rewrite, schema: StructType | str) -> DataFrame:
    """Like frame.mapInArrow, but faster for decimals."""
    small = [] if isinstance(schema, str) else [_is_small(field) for field in schema.fields]
    if isinstance(schema, str) or sum(small) < max(1, PAYS * len(small)) or not hasattr(frame, "_jdf"):
        return frame.mapInArrow(rewrite, schema)
    sent = [
        StructField(f"c{i}", LongType() if small[i] else field.dataType, field.nullable, field.metadata)
        for i, field in enumerate(schema.fields)
    ]
    numbers = frame.mapInArrow(_unscaling(rewrite, small), StructType(sent))
    columns = [
        _decimal_column(frame, name, field.dataType)
        if isinstance(field.dataType, DecimalType) and is_small
        else F.col(name)
        for name, field, is_small in zip(numbers.columns, schema.fields, small, strict=True)
    ]
    return numbers.select(*columns).toDF(*schema.names)


def _is_small(field: StructField) -> bool:
    return isinstance(field.dataType, DecimalType) and field.dataType.precision <= MOST_DIGITS


def _unscaling(rewrite: Rewrite, small: list[bool]) -> Rewrite:
    names = [f"c{i}" for i in range(len(small))]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rewrite(batches):
            columns = [
                unscaled_integers(c) if is_small else c for c, is_small in zip(batch.columns, small, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names)

    return run


def unscaled_integers(column: pa.Array) -> pa.Array:
    """The unscaled integers of small decimals: the lower half of each 128 bits."""
    lower = decimal_words(column)[::2]
    return pa.array(lower, mask=np.asarray(column.is_null()) if column.null_count else None)


def _decimal_column(frame: DataFrame, name: str, type_: DecimalType) -> Column:
    """A decimal from its unscaled integer. Spark has an expression for it, but no public function."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
    number = columns.expression(F.col(name)._jc)
    made = jvm.org.apache.spark.sql.catalyst.expressions.MakeDecimal(number, type_.precision, type_.scale, False)
    return ClassicColumn(columns.column(made)).alias(name)
