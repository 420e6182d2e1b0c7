"""Replacements for what PySpark 4.0 and 4.1 lack.

repartitionById             since 4.1     repartition by labels whose hashes give the partitions (exchange/labels.py)
geographic types, times     since 4.1     such columns do not exist
Arrow types in a time zone  since 4.2     UTC is replaced
offsets and limits that
  a stream reader is given  since 4.2     streams of dovetail-flight and dovetail-postgresql are refused
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.errors import InputError

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_STREAM_OFFSETS = True
except ModuleNotFoundError:
    HAS_STREAM_OFFSETS = False
    ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = type("Missing", (), {})  # type: ignore[misc, assignment]

_HAS_ZONES = "timezone" in inspect.signature(to_arrow_type).parameters

__all__ = [
    "HAS_STREAM_OFFSETS",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_type",
    "check_stream_offsets",
    "types_named",
    "utc_schema",
]


def types_named(*names: str) -> tuple[type[Any], ...]:
    """The Spark types of these names that this version has."""
    return tuple(getattr(types, name) for name in names if hasattr(types, name))


def arrow_type(type_: types.DataType, zone: str) -> pa.DataType:
    """The Arrow type of a column, with timestamps in this time zone. Raises PySparkException if there is none."""
    if _HAS_ZONES:
        return to_arrow_type(type_, timezone=zone, error_on_duplicated_field_names_in_struct=True)
    return _in_zone(to_arrow_type(type_, error_on_duplicated_field_names_in_struct=True), zone)


def utc_schema(schema: types.StructType) -> pa.Schema:
    """The Arrow schema for the rows of a source."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType, "UTC"), field.nullable) for field in schema])


def _in_zone(type_: pa.DataType, zone: str) -> pa.DataType:
    """The same type, with UTC replaced by the time zone."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, zone)
    if pa.types.is_map(type_):
        key, item = (field.with_type(_in_zone(field.type, zone)) for field in (type_.key_field, type_.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_zone(type_.value_type, zone)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in type_])
    return type_


def check_stream_offsets() -> None:
    if not HAS_STREAM_OFFSETS:
        raise InputError(
            "streams of dovetail-flight and dovetail-postgresql need PySpark 4.2 or newer, which tells a source where "
            f"it stopped; this is {pyspark.__version__}. Tables of both can be read."
        )
