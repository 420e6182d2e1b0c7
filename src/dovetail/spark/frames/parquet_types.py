"""Whether Arrow reads the columns of a Parquet file as Spark does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from dovetail.core.tables import INT96

INSTANT = pa.timestamp(INT96, "UTC")
WHOLE = ("us", "ms")  # time units that Spark's microseconds can represent
LEGACY = b"org.apache.spark.legacy"  # keys of files with dates in the old calendar, which Spark converts
WRITER = b"org.apache.spark.version"
OLD = (3, 1)  # earlier releases write dates in the old calendar without such a key
CONVERSIONS = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "legacy",
    "spark.sql.parquet.int96RebaseModeInRead": "legacy",
    "spark.sql.parquet.int96TimestampConversion": "true",
}
"""Settings with which Spark changes the dates and times of some files."""


def conversion(spark: SparkSession, schema: pa.Schema) -> str | None:
    """The setting with which Spark may change values of these columns."""
    if not any(map(_has_times, schema.types)):
        return None
    return next((name for name, value in CONVERSIONS.items() if (spark.conf.get(name) or "").lower() == value), None)


def difference(path: str, footer: pq.FileMetaData, columns: Sequence[str], schema: pa.Schema) -> str | None:
    """What Arrow would read otherwise than Spark, whose types of these columns are given. None if nothing."""
    known = footer.metadata or {}
    if any(key.startswith(LEGACY) for key in known) or (WRITER in known and _release(known[WRITER]) < OLD):
        return f"{path} has dates in an old calendar"
    stored = footer.schema.to_arrow_schema()
    absent = absent_columns(footer, columns)
    leaves = (footer.schema.column(number).physical_type for number in range(len(footer.schema.names)))
    types = [_with_instants(field.type, leaves) for field in stored]
    for name, field in zip(columns, schema, strict=True):
        if name in absent:
            continue
        found = stored.get_all_field_indices(name)
        if len(found) != 1:
            return f"{path} has no column called exactly {name}"
        if not _reads_as(types[found[0]], field.type):
            return f"{name} is {types[found[0]]} in {path}, and {field.type} in Spark"
    return None


def absent_columns(footer: pq.FileMetaData, columns: Sequence[str]) -> set[str]:
    """Columns that a file does not have, since they were added to the table later: all nulls for Spark."""
    stored = {name.lower() for name in footer.schema.to_arrow_schema().names}
    return {name for name in columns if name.lower() not in stored}


def _release(version: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in version.decode().split(".")[:2] if part.isdigit())


def _has_times(type_: pa.DataType) -> bool:
    t = pa.types
    if t.is_nested(type_):
        return any(_has_times(type_.field(number).type) for number in range(type_.num_fields))
    return bool(t.is_timestamp(type_) or t.is_date(type_))


def _with_instants(type_: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """The type of a stored column, in which INT96 is an instant, as for Spark. `leaves`: the physical types."""
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        _with_instants(type_.storage_type, leaves)
        return type_
    if t.is_struct(type_):
        return pa.struct([field.with_type(_with_instants(field.type, leaves)) for field in type_])
    if t.is_map(type_):
        key, item = (
            field.with_type(_with_instants(field.type, leaves)) for field in (type_.key_field, type_.item_field)
        )
        return pa.map_(key, item)
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(_with_instants(type_.value_type, leaves)))
    return INSTANT if next(leaves, None) == "INT96" else type_


def _reads_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast gives the values that Spark reads."""
    t = pa.types
    if t.is_dictionary(found):
        found = found.value_type
    if t.is_large_string(found) or t.is_string_view(found):
        found = pa.string()
    if t.is_large_binary(found) or t.is_binary_view(found):
        found = pa.binary()
    if t.is_timestamp(found) and t.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None) and found.unit in WHOLE
    if found.id == wanted.id and t.is_nested(found):
        return found.num_fields == wanted.num_fields and all(
            _field_reads_as(found.field(number), wanted.field(number), named=t.is_struct(found))
            for number in range(found.num_fields)
        )
    return bool(found == wanted)


def _field_reads_as(found: pa.Field, wanted: pa.Field, *, named: bool) -> bool:
    """Parts of lists and maps have names of no meaning."""
    return (
        (found.name == wanted.name or not named)
        and (wanted.nullable or not found.nullable)
        and _reads_as(found.type, wanted.type)
    )
