"""Converts pandas DataFrames to Arrow tables, and results back to DataFrames whose columns have their original types.

    numpy numbers    unchanged; integers and booleans that an outer join pads become nullable (Int64, boolean)
    nullable, Arrow-backed, string, period, interval, sparse    unchanged
    categories       unchanged and in their order, including those that no row has
    objects          text, bytes, dates and decimals; lists as lists, arrays as arrays

`Form` records what a column was. Nothing is converted via float, which has only 53 bits.

A named level of the index is a column; other levels are not part of the join, as in `DataFrame.merge`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.errors import InputError

NULLABLE = {
    **{f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "boolean",
}
"""pandas' nullable types of numbers and booleans, by Arrow type."""


NOTES = b"pandas"  # the key in a schema's metadata
NOTED = frozenset([*NULLABLE.values(), "Float32", "Float64", "string"])


class Form(NamedTuple):
    """What a DataFrame's column was before its conversion to Arrow."""

    label: Hashable
    dtype: Any
    has_arrays: bool = False  # for objects: the values are arrays, where Arrow has lists


def table_of(frame: Any) -> pa.Table:
    """The DataFrame as an Arrow table."""
    levels = _levels(frame)
    tables = [_table(part) for part in (levels, frame) if part is not None]
    notes = [note for table in tables for note, _ in _notes(table.schema, table.column_names)]
    whole = tables[0]
    for field, column in zip(tables[1].schema, tables[1].columns, strict=True) if levels is not None else ():
        whole = whole.append_column(field, column)
    return whole.replace_schema_metadata(_metadata(notes)) if whole.num_columns else whole  # else its rows are lost


def joined_notes(sides: Sequence[tuple[pa.Schema, Sequence[str], bool]]) -> dict[bytes, bytes] | None:
    """pyarrow's schema metadata for `to_pandas()`, so that it restores nullable types. It describes the columns of
    several DataFrames under their new names. With True, the columns of a side can be padded with nulls.

    Only nullable types are noted: for some others, pyarrow writes names that it cannot read.
    """
    columns = [
        {**note, "name": name, "field_name": name, "numpy_type": dtype}
        for schema, names, padded in sides
        for note, name in _notes(schema, names)
        if (dtype := _nullable(note, padded)) is not None
    ]
    return _metadata(columns)


def _metadata(columns: list[dict[str, Any]]) -> dict[bytes, bytes] | None:
    notes = {"index_columns": [], "column_indexes": [], "columns": columns}
    return {NOTES: json.dumps(notes).encode()} if columns else None


def _notes(schema: pa.Schema, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
    noted = json.loads((schema.metadata or {}).get(NOTES, b"{}")).get("columns", ())
    by_field = {note.get("field_name", note.get("name")): note for note in noted}
    return ((by_field[old], new) for old, new in zip(schema.names, names, strict=True) if old in by_field)


def _nullable(note: dict[str, Any], padded: bool) -> str | None:
    dtype, values = note["numpy_type"], note["pandas_type"]
    if dtype in NOTED or re.fullmatch(r"\w+\[pyarrow\]", dtype):
        return str(dtype)
    return NULLABLE.get(values) if padded or dtype == "object" else None


def _table(frame: Any) -> pa.Table:
    if not len(frame.columns):
        return pa.table({"": pa.nulls(len(frame))}).select([])
    sparse = {label: dtype.subtype for label, dtype in frame.dtypes.items() if type(dtype).__name__ == "SparseDtype"}
    frame = frame.astype(sparse) if sparse else frame  # Arrow has no sparse types
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        said = "; ".join(str(part).rstrip(". ") for part in reversed(error.args))
        raise InputError(f"the DataFrame cannot be read as columns of one type each: {said}.") from error


def _levels(frame: Any) -> Any:
    """The named levels of the index, as a DataFrame; None if there are none."""
    index = frame.index
    named = [number for number, name in enumerate(index.names) if name is not None]
    there = {str(label) for label in frame.columns}
    kept = []
    for number in named:
        name, values = index.names[number], index.get_level_values(number)
        if str(name) not in there:
            kept.append(number)
        elif name not in frame.columns or not values.equals(type(values)(frame[name])):
            raise InputError(
                f"a level of the index and a column are both called {str(name)!r}, and differ: rename one of them, or "
                "drop the index."
            )
    return index.to_frame(index=False).iloc[:, kept] if kept else None


def forms_of(frame: Any) -> list[Form]:
    """The forms of the columns that `table_of` returns."""
    levels = _levels(frame)
    frames = [frame] if levels is None else [levels, frame]
    return [_form(part.columns[i], part.iloc[:, i]) for part in frames for i in range(len(part.columns))]


def _form(label: Hashable, column: Any) -> Form:
    if column.dtype != np.dtype(object):
        return Form(label, column.dtype)
    value = next((value for value in column.array if value is not None), None)
    return Form(label, column.dtype, isinstance(value, np.ndarray))


def frame_of(table: pa.Table, forms: Sequence[Form | None], pandas: Any) -> Any:
    """The table as a DataFrame. Columns without a form get a type that holds all their values."""
    columns = [_restored(column, form, pandas) for column, form in zip(table.columns, forms, strict=True)]
    frame = pandas.DataFrame(dict(enumerate(columns)), index=pandas.RangeIndex(table.num_rows))
    names = [_label(name, form) for name, form in zip(table.column_names, forms, strict=True)]
    frame.columns = pandas.Index(names, tupleize_cols=False)
    return frame


def _label(name: str, form: Form | None) -> Hashable:
    """The column's original label, unless the join has renamed it."""
    return form.label if form is not None and str(form.label) == name else name


def _restored(column: pa.ChunkedArray, form: Form | None, pandas: Any) -> Any:
    dtype = None if form is None else form.dtype
    if form is not None and dtype == np.dtype(object):
        return _objects(column, form, pandas)
    if isinstance(dtype, pandas.ArrowDtype):
        return pandas.arrays.ArrowExtensionArray(column.cast(dtype.pyarrow_dtype))
    if isinstance(dtype, pandas.IntervalDtype) and column.null_count and dtype.subtype.kind in "iu":
        return _padded_intervals(column, dtype, pandas)
    if dtype is not None and hasattr(dtype, "__from_arrow__"):
        return dtype.__from_arrow__(column)
    if column.null_count and (nullable := NULLABLE.get(str(column.type))):
        return pandas.api.types.pandas_dtype(nullable).__from_arrow__(column)
    values = column.to_pandas()
    return values if dtype is None or values.dtype == dtype else values.astype(dtype)


def _padded_intervals(column: pa.ChunkedArray, dtype: Any, pandas: Any) -> Any:
    """Intervals of integers cannot be null. As in `merge`, they become intervals of floats, if these are exact."""
    bounds = pa.chunked_array([chunk.storage for chunk in column.chunks]).combine_chunks()
    try:
        ends = [bound.cast(pa.float64()).to_numpy(zero_copy_only=False) for bound in bounds.flatten()]
    except pa.ArrowInvalid:
        pairs = zip(*(bound.to_pylist() for bound in bounds.flatten()), strict=True)
        return pandas.Series(
            [None if left is None else pandas.Interval(left, right, dtype.closed) for left, right in pairs],
            dtype=object,
        )
    return pandas.arrays.IntervalArray.from_arrays(*ends, closed=dtype.closed)


def _objects(column: pa.ChunkedArray, form: Form, pandas: Any) -> Any:
    """Python objects. Arrow's own conversion is faster, but turns lists into arrays, and numbers into NumPy numbers."""
    t = pa.types
    text = t.is_string(column.type) or t.is_large_string(column.type)
    if form.has_arrays or text or t.is_date(column.type) or t.is_decimal(column.type) or t.is_null(column.type):
        return column.to_pandas().astype(object)
    return pandas.Series(column.to_pylist(), dtype=object)
