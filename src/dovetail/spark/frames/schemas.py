"""Converts Spark schemas to Arrow schemas, as in mapInArrow, and handles types that Arrow does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from dovetail.errors import InputError
from dovetail.spark.versions import arrow_type

Encoding = tuple[str, str]
"""SQL that converts a column for Arrow, and SQL that restores its type."""

DELAY_MS = "spark.watermarkDelayMs"  # where Spark stores the delay of a watermark
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark stores that a string column is declared as char(n)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types of a DataFrame's columns. Types that Arrow does not have are encoded."""
    names = Counter(frame.columns)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise InputError(f"an input has several columns called {', '.join(twice)}. Rename them before the join.")
    zone = session_zone(frame)
    return pa.schema([_field(field, zone) for field in frame.schema])


def session_zone(frame: DataFrame) -> str:
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return zone if zone is not None else "UTC"


def _field(field: StructField, zone: str) -> pa.Field:
    if encoding(field.dataType) is not None:
        return pa.field(field.name, pa.string(), field.nullable)
    try:
        return pa.field(field.name, arrow_type(_with_nullable_voids(field.dataType), zone), field.nullable)
    except PySparkException as error:
        raise InputError(
            f"column {field.name} is of the Spark type {field.dataType.simpleString()}, which Arrow does not "
            f"support. Cast it before the join."
        ) from error


def result_fields(inputs: tuple[DataFrame, DataFrame], output: pa.Schema) -> list[StructField]:
    """The fields of the result: those of both sides, or only of the left one, with the names of the output."""
    fields = [*inputs[0].schema.fields, *inputs[1].schema.fields][: len(output)]
    return [
        StructField(out.name, f.dataType, f.nullable or out.nullable, f.metadata)
        for out, f in zip(output, fields, strict=True)
    ]


def carried_schema(fields: list[StructField]) -> StructType:
    """The schema of rows as they are returned from Arrow."""
    return StructType([StructField(f.name, _arrow_type(f.dataType), f.nullable, f.metadata) for f in fields])


def encoding(type_: DataType) -> Encoding | None:
    """How to encode a type that Arrow cannot hold: as text. None: no encoding is needed."""
    if isinstance(type_, YearMonthIntervalType | CalendarIntervalType):
        return "CAST({} AS STRING)", f"CAST({{}} AS {type_.simpleString()})"
    return None


def encodings(fields: Iterable[StructField]) -> list[Encoding | None]:
    """The encodings of the columns of a DataFrame."""
    return [encoding(field.dataType) for field in fields]


def is_window(field: StructField) -> bool:
    """Whether a column contains structs with the start and end of a window, as from `window(…)`."""
    return isinstance(field.dataType, StructType) and field.dataType.names == ["start", "end"]


def only_spark_compares(field: StructField) -> bool:
    """Whether Spark compares values of this column by rules that Arrow does not have.

    This holds for strings with a collation, char(n), which is padded first, and intervals of months.
    """
    if re.search(r"\bchar\(", field.metadata.get(CHAR_TYPE, "")):  # also inside a struct or an array
        return True
    return any(
        (isinstance(part, StringType) and not part.isUTF8BinaryCollation()) or encoding(part) is not None
        for part in parts_of(field.dataType)
    )


def _arrow_type(type_: DataType) -> DataType:
    return StringType() if encoding(type_) is not None else _with_nullable_voids(type_)


def _with_nullable_voids(type_: DataType) -> DataType:
    """The type, but array() may contain nulls: Arrow requires void elements to be nullable."""
    match type_:
        case ArrayType():
            void = isinstance(type_.elementType, NullType)
            return ArrayType(_with_nullable_voids(type_.elementType), type_.containsNull or void)
        case MapType():
            void = isinstance(type_.valueType, NullType)
            key, value = _with_nullable_voids(type_.keyType), _with_nullable_voids(type_.valueType)
            return MapType(key, value, type_.valueContainsNull or void)
        case StructType():
            return StructType(
                [
                    StructField(f.name, _with_nullable_voids(f.dataType), f.nullable or _is_void(f), f.metadata)
                    for f in type_.fields
                ]
            )
    return type_


def _is_void(field: StructField) -> bool:
    return isinstance(field.dataType, NullType)


def parts_of(type_: DataType) -> Iterator[DataType]:
    """The type and every type inside it."""
    yield type_
    match type_:
        case ArrayType():
            yield from parts_of(type_.elementType)
        case MapType():
            yield from parts_of(type_.keyType)
            yield from parts_of(type_.valueType)
        case StructType():
            for field in type_.fields:
                yield from parts_of(field.dataType)
