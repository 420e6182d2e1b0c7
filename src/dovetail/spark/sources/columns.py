"""Converts a server's Arrow columns to Spark columns: the nearest Spark type, values unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from dovetail.errors import InputError
from dovetail.spark.versions import utc_schema

END = "_end"
"""The column that marks the end-of-stream row; null in all other rows."""

WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def spark_schema(schema: pa.Schema, marks_end: bool) -> StructType:
    """The schema of the rows, with a last column that marks the end, if requested."""
    fields = [StructField(field.name, _spark_type(field)) for field in schema]
    if marks_end:
        if END in schema.names:
            raise InputError(f"a column is called {END}, which is reserved for the end-of-stream marker.")
        fields.append(StructField(END, BooleanType()))
    return StructType(fields)


class Columns:
    """Converts batches to the form that Spark expects."""

    def __init__(self, schema: StructType) -> None:
        self._schema = utc_schema(schema)
        self._marks_end = END in schema.names

    def fit_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [*batch.columns, *([pa.nulls(batch.num_rows, pa.bool_())] if self._marks_end else [])]
            cast = [c.cast(field.type) for c, field in zip(columns, self._schema, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, schema=self._schema)

    def end(self) -> pa.RecordBatch:
        """The row that marks the end of the stream."""
        columns = [pa.nulls(1, field.type) for field in self._schema]
        columns[-1] = pa.array([True])
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _spark_type(field: pa.Field) -> DataType:
    try:
        return from_arrow_type(_nearest(field.type), prefer_timestamp_ntz=True)
    except (PySparkException, NotImplementedError) as error:
        raise InputError(f"column {field.name} is of the type {field.type}, which Spark does not have.") from error


def _nearest(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_time(type_):
        return pa.time64("ns")
    if pa.types.is_duration(type_):
        return pa.duration("us")
    if pa.types.is_dictionary(type_):
        return _nearest(type_.value_type)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_nearest(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([part.with_type(_nearest(part.type)) for part in type_])
    return WIDER.get(type_, type_)
