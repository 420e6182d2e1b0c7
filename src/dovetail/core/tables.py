"""Reads tables from files and other libraries as Arrow tables."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import csv

from dovetail.core.categories import is_ordered, with_order
from dovetail.core.file_formats import format_of
from dovetail.core.pandas_frames import table_of
from dovetail.core.partitions import partition_types
from dovetail.errors import InputError

CSV = ds.CsvFileFormat(
    default_fragment_scan_options=ds.CsvFragmentScanOptions(
        convert_options=csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
    )
)
"""Parsed as Spark does: an empty field is null, also in quotes and in text columns; "NA" and "null" are text."""
INT96 = "us"
"""The unit of INT96, in which Spark writes instants. Arrow's default are nanoseconds, in which 9999-12-31 overflows."""
PARQUET = ds.ParquetFileFormat(
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=INT96),
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(arrow_extensions_enabled=True),
)
"""With types such as UUID and JSON, as Arrow reads single files."""
_READ_AS = {"csv": CSV, "arrow": "ipc", "parquet": PARQUET}
PART_OF_RESULT = re.compile(r"part-.*\.parquet|part-0\.(arrow|csv|json)|_SUCCESS|\.part-.*\.(crc|tmp)|\._SUCCESS\.crc")
"""Files that Dovetail or Spark writes as results."""
NAMED = 5  # foreign files that a message names


def dataset_of(path: Path) -> ds.Dataset:
    """The file or directory as a dataset; opening it reads only the schema."""
    name = format_of(path)
    try:
        found = ds.dataset(path, format=_READ_AS.get(name, name), partitioning="hive" if path.is_dir() else None)
        types = partition_types(found)
        if types is None:
            return found
        return ds.dataset(path, format=_READ_AS.get(name, name), partitioning=ds.partitioning(types, flavor="hive"))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as {name}: {error}") from error


def read_table(path: Path) -> pa.Table:
    """All rows of a file or directory."""
    found = dataset_of(path)
    try:
        return found.to_table()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as {format_of(path)}: {error}") from error


def is_part_of_result(path: Path) -> bool:
    """Whether the name is that of a file that a join has written: --overwrite may remove it."""
    return path.is_file() and PART_OF_RESULT.fullmatch(path.name) is not None


def check_output(path: Path, *, overwrite: bool) -> None:
    """Check that results can be written there, before any work is done."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; --out takes a directory.")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise InputError(f"{path} is not empty. Give another directory, or --overwrite.")
    foreign = sorted(file.name for file in path.iterdir() if not is_part_of_result(file)) if path.is_dir() else []
    if foreign:
        more = f" and {len(foreign) - NAMED:,} more" if len(foreign) > NAMED else ""
        raise InputError(
            f"{path} contains files that are not results of a join: {', '.join(foreign[:NAMED])}{more}. "
            f"--overwrite replaces results"
            " only. Give another directory, or remove them."
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error.strerror}.") from error


def arrow_table(table: Any) -> pa.Table:
    """A pyarrow, pandas or Polars table (or anything with an Arrow stream) as a pyarrow Table."""
    found = _as_table(collected(table))
    twice = sorted({name for name in found.column_names if found.column_names.count(name) > 1})
    if twice:
        raise _several(twice)
    schema = plain_schema(found.schema)
    for i, field in enumerate(schema):
        column = found.column(i)
        if field.type != column.type or any(map(_hides_nulls, column.chunks)):
            chunks = [_convert_array(chunk, field.type) for chunk in column.chunks]
            column = pa.chunked_array(chunks, field.type)
            found = found.set_column(i, field, column)
        if pa.types.is_dictionary(field.type) and _outgrows_indices(column):
            wide = pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered)
            found = found.set_column(i, field.with_type(wide), column.cast(wide))
        if is_ordered(field.type):
            found = found.set_column(i, with_order(found.schema.field(i), found.column(i)), found.column(i))
    return found


def collected(rows: Any) -> Any:
    """A Polars LazyFrame as a DataFrame; anything else unchanged."""
    polars = sys.modules.get("polars")
    is_lazy = polars is not None and isinstance(rows, polars.LazyFrame)
    return rows.collect() if is_lazy else rows


def _several(names: list[str]) -> InputError:
    return InputError(f"an input has several columns called {', '.join(names)}. Rename them before the join.")


def _outgrows_indices(column: pa.ChunkedArray) -> bool:
    """Whether the chunks' dictionaries, unified into one, have more values than the index type can number."""
    values = [chunk.dictionary for chunk in column.chunks]
    index = column.type.index_type
    most = 1 << (index.bit_width - pa.types.is_signed_integer(index))
    return sum(map(len, values)) > most and bool(len(pa.chunked_array(values).unique()) > most)


def uses_dictionaries(type_: pa.DataType) -> bool:
    """Whether values of this type, or parts of them, are dictionary-encoded."""
    if isinstance(type_, pa.BaseExtensionType):
        return uses_dictionaries(type_.storage_type)
    return bool(pa.types.is_dictionary(type_) or any(uses_dictionaries(field.type) for field in _fields(type_)))


def _hides_nulls(array: pa.Array) -> bool:
    """Whether a dictionary contains null as a value. Arrow cannot unify two such dictionaries, and does not count rows
    that refer to that value as null."""
    if not uses_dictionaries(array.type):
        return False
    if isinstance(array.type, pa.BaseExtensionType):
        return _hides_nulls(array.storage)
    if pa.types.is_dictionary(array.type):
        return bool(array.dictionary.null_count)
    return any(map(_hides_nulls, _parts(array)))


def _parts(array: pa.Array) -> list[pa.Array]:
    """The children of a nested array."""
    type_ = array.type
    if pa.types.is_struct(type_) or pa.types.is_union(type_):
        return [array.field(i) for i in range(type_.num_fields)]
    return [array.values]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that `arrow_table` gives to a table with this one."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema], schema.metadata)


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        if not table.columns.is_unique:
            raise _several(sorted({str(label) for label in table.columns[table.columns.duplicated()]}))
        return table_of(table)
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(table, polars.DataFrame):
        return _from_polars(table)
    if hasattr(table, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(table)
        except pa.ArrowInvalid:  # a stream of values, not rows
            raise _no_table(table) from None
        return reader.read_all()
    raise _no_table(table)


def _from_polars(frame: Any) -> pa.Table:
    for name, type_ in frame.schema.items():
        if str(type_) in ("Object", "Int128", "UInt128"):  # Polars exports objects as addresses
            raise InputError(f"column {name!r} is {type_}, which Arrow does not have: cast it, or leave it out.")
    return pa.RecordBatchReader.from_stream(frame).read_all()


def _no_table(given: Any) -> InputError:
    kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
    if hasattr(given, "__array__"):
        advice = "it is a column, not a table. Give series.to_frame(), or pa.table({'name': column})."
        return InputError(f"cannot join a value of type {kind}: {advice}")
    if isinstance(given, list | tuple) and given and isinstance(given[0], dict):
        return InputError(
            f"cannot join a {kind} of dictionaries: give pa.Table.from_pylist(rows), or a DataFrame of it."
        )
    return InputError(
        f"cannot join a value of type {kind}. Give a Spark DataFrame, a pyarrow, pandas or Polars table, or a path."
    )


def _plain(type_: pa.DataType) -> pa.DataType:
    """The type without views (which Polars exports) and run-end encoding: Arrow cannot take rows from those.

    Lists, structs, maps, unions and dictionaries can contain them.
    """
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        storage = _plain(type_.storage_type)
        return type_ if storage == type_.storage_type else storage
    if t.is_string_view(type_):
        return pa.large_string()
    if t.is_binary_view(type_):
        return pa.large_binary()
    if t.is_run_end_encoded(type_):
        return _plain(type_.value_type)
    if t.is_dictionary(type_):
        values = _plain(type_.value_type)
        return pa.dictionary(type_.index_type, values, type_.ordered) if _can_unify(values) else values
    if t.is_list(type_) or t.is_list_view(type_):
        return pa.list_(_plain_field(type_.value_field))
    if t.is_large_list(type_) or t.is_large_list_view(type_):
        return pa.large_list(_plain_field(type_.value_field))
    if t.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if t.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field), type_.keys_sorted)
    if t.is_struct(type_):
        return pa.struct([_plain_field(field) for field in _fields(type_)])
    if t.is_union(type_):
        return pa.union([_plain_field(field) for field in _fields(type_)], type_.mode, type_.type_codes)
    return type_


def _can_unify(values: pa.DataType) -> bool:
    """Whether Arrow can unify two dictionaries with such values. (It corrupts halffloats.)"""
    t = pa.types
    return not (t.is_nested(values) or t.is_float16(values) or t.is_null(values))


def _fields(type_: pa.DataType) -> list[pa.Field]:
    return [type_.field(i) for i in range(type_.num_fields)]


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _convert_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array in its plain type. Arrow casts neither unions nor list views, so these are rebuilt by hand."""
    t = pa.types
    type_ = array.type
    if type_ == target and not _hides_nulls(array):
        return array
    if isinstance(type_, pa.BaseExtensionType):
        storage = _convert_array(array.storage, target.storage_type if type_ == target else target)
        return pa.ExtensionArray.from_storage(target, storage) if type_ == target else storage
    if t.is_string_view(type_) or t.is_binary_view(type_):
        return array.cast(target)
    if t.is_run_end_encoded(type_):
        return _convert_array(pc.run_end_decode(array), target)
    if t.is_dictionary(type_) and not t.is_dictionary(target):
        return _convert_array(array.dictionary, target).take(array.indices)
    if t.is_dictionary(type_):
        values, indices = _convert_array(array.dictionary, target.value_type), array.indices
        if values.null_count:
            valid = np.asarray(values.is_valid())
            places = pa.array(np.cumsum(valid) - 1, mask=~valid).cast(target.index_type)
            indices, values = places.take(indices), values.drop_null()
        return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered)
    if t.is_list_view(type_) or t.is_large_list_view(type_):
        return _lists(array, target)
    whole = pa.concat_arrays([array])  # without an offset, which its children would have to follow
    fields = _fields(target)
    children = [_convert_array(part, field.type) for part, field in zip(_parts(whole), fields, strict=True)]
    return pa.Array.from_buffers(target, len(whole), whole.buffers()[: _own_buffers(type_)], children=children)


def _lists(views: pa.Array, target: pa.DataType) -> pa.Array:
    """List views as lists: their elements in sequence, without those of null lists."""
    offsets = np.zeros(len(views) + 1, np.int64 if pa.types.is_large_list(target) else np.int32)
    np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(views), 0)), out=offsets[1:])
    valid = pc.is_valid(views).buffers()[1] if views.null_count else None
    children = [_convert_array(views.flatten(), target.value_type)]
    return pa.Array.from_buffers(target, len(views), [valid, pa.py_buffer(offsets)], children=children)


def _own_buffers(type_: pa.DataType) -> int:
    """How many of a nested array's buffers are its own, not its children's: validity, offsets, codes."""
    t = pa.types
    if t.is_struct(type_) or t.is_fixed_size_list(type_):
        return 1
    return 3 if t.is_union(type_) and type_.mode == "dense" else 2
