"""Tables from other libraries as Arrow tables."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.condition.casts import cast
from dovetail.errors import InputError


def arrow_table(table: Any) -> pa.Table:
    """A pyarrow, pandas or Polars table (or anything with an Arrow stream) as a pyarrow Table."""
    found = _as_table(table)
    for i, column in enumerate(found.columns):
        if pa.types.is_run_end_encoded(column.type):
            column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
            found = found.set_column(i, found.field(i).with_type(column.type), column)
        target = _without_views(column.type)
        if target != column.type:
            found = found.set_column(i, found.field(i).with_type(target), _converted(column, target))
    return found


def _converted(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_nested(target):
        return column.cast(target)
    # Arrow 26 loses lists of a list view behind a null, and gives structs of slices a wrong length.
    return pa.chunked_array([cast(chunk, target) for chunk in column.chunks], target)


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        return pa.Table.from_pandas(table, preserve_index=False)
    if hasattr(table, "__arrow_c_stream__"):
        return pa.table(table)
    kind = f"{type(table).__module__}.{type(table).__qualname__}"
    raise InputError(f"cannot join a {kind}. Give a Spark DataFrame, or a pyarrow, pandas or Polars table.")


def _without_views(type_: pa.DataType) -> pa.DataType:
    """The type with views (Polars exports those of strings) as what they show: Arrow cannot take rows from them all."""
    t = pa.types
    if t.is_string_view(type_):
        return pa.large_string()
    if t.is_binary_view(type_):
        return pa.large_binary()
    if t.is_list(type_) or t.is_list_view(type_):
        return pa.list_(_field_without_views(type_.value_field))
    if t.is_large_list(type_) or t.is_large_list_view(type_):
        return pa.large_list(_field_without_views(type_.value_field))
    if t.is_fixed_size_list(type_):
        return pa.list_(_field_without_views(type_.value_field), type_.list_size)
    if t.is_struct(type_):
        return pa.struct([_field_without_views(type_.field(i)) for i in range(type_.num_fields)])
    return type_


def _field_without_views(field: pa.Field) -> pa.Field:
    return field.with_type(_without_views(field.type))
