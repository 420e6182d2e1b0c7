"""Reads Parquet files larger than memory, a few pages of a row group at a time.

The files of a directory are read in the order of names. Columns in directory names (`year=2026/`) are constants of
their files.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from dovetail.core.file_formats import format_of, input_path
from dovetail.core.tables import PARQUET, dataset_of, plain_schema, read_table
from dovetail.errors import DovetailError, InputError, SourceError, StateError
from dovetail.sources.protocol import Piece, Place, conform_schema
from dovetail.storage.store import Entry, Store

BATCH_ROWS, BATCH_BYTES = 1 << 15, 1 << 22  # of a source, at most; bytes are estimated from the files' statistics
VARIABLE = frozenset(type_.id for type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.null()))
FAR = 1 << 62
FIRST_ROWS = 64  # read to estimate the length of texts
BUFFER_BYTES = 1 << 20  # per column of a local file
LOOKED_UP = 8  # files checked in an object store


class ParquetSource:
    """A source at rest: the number of rows is known, and reading can start at any position."""

    resumable = True

    def __init__(self, dataset: ds.Dataset, name: str, columns: Sequence[str] | None = None) -> None:
        if not isinstance(dataset, ds.FileSystemDataset) or not isinstance(dataset.format, ds.ParquetFileFormat):
            raise InputError(f"{name} is not a dataset of Parquet files.")
        self.name = name
        self._fragments = list(dataset.get_fragments())
        self._counts = [fragment.metadata.num_rows for fragment in self._fragments]
        self._starts = list(accumulate(self._counts, initial=0))
        self.rows: int = self._starts[-1]
        schema = dataset.schema if columns is None else pa.schema([_field(dataset.schema, c, name) for c in columns])
        self.schema: pa.Schema = plain_schema(schema)

    @cached_property
    def _row_bytes(self) -> int:
        """From the statistics of the first row group. Long texts have none, so some of them are read."""
        files = [fragment.metadata for fragment in self._fragments]
        known = row_bytes(files, self.schema)
        if not self.rows or _has_statistics(files, self.schema):
            return known
        first = next(self.places(FIRST_ROWS)).batch
        return max(known, int(first.nbytes // first.num_rows))

    def total_bytes(self) -> int:
        return self.rows * self._row_bytes

    def with_columns(self, columns: Sequence[str]) -> ParquetSource:
        """The same rows with only these columns, in this order."""
        chosen = copy(self)
        chosen.__dict__.pop("_row_bytes", None)
        chosen.schema = pa.schema([self.schema.field(name) for name in columns], self.schema.metadata)
        return chosen

    def select(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name in columns])

    def places(self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0) -> Iterator[Place]:
        schema = self.schema if columns is None else self.select(columns)
        first = max(0, bisect_right(self._starts, start) - 1)
        for number in range(first, len(self._fragments)):
            for position, batch in _read_fragment(
                self._fragments[number], schema, most_rows, start - self._starts[number], self._counts[number]
            ):
                yield Place(self._starts[number] + position, batch)
                del batch  # freed before the next one is read
            start = self._starts[number + 1]

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        schema = self.schema if columns is None else self.select(columns)
        return pa.Table.from_batches((place.batch for place in self.places(1 << 20, columns)), schema)

    def open(self, position: int | None = None) -> Generator[Piece, None, None]:
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, self._row_bytes)))
        for place in self.places(rows, start=position or 0):
            yield Piece(place.batch, place.position + place.batch.num_rows)
            del place


def row_bytes(files: Iterable[pq.FileMetaData], schema: pa.Schema) -> int:
    """Approximate bytes per row of these columns, from the statistics of the first row group."""
    group = next((file.row_group(0) for file in files if file.num_row_groups), None)
    if group is None:
        return 0
    leaves = [group.column(number) for number in range(group.num_columns)]
    return sum(
        _width(field, [leaf for leaf in leaves if leaf.path_in_schema.split(".")[0] == field.name]) for field in schema
    )


def _width(field: pa.Field, leaves: list[Any]) -> int:
    """Approximate bytes per value. Texts may be encoded in fewer bytes; minimum and maximum show their length."""
    type_ = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if not pa.types.is_nested(type_) and type_.id not in VARIABLE:
        return 1 + int(type_.bit_width) // 8
    ends = [end for leaf in leaves if leaf.statistics is not None for end in (leaf.statistics.min, leaf.statistics.max)]
    texts = [len(end) for end in ends if isinstance(end, str | bytes)]
    written: int = sum(leaf.total_uncompressed_size // max(1, leaf.num_values) for leaf in leaves)
    return 8 + max([written, *texts])


def _has_statistics(files: Iterable[pq.FileMetaData], schema: pa.Schema) -> bool:
    """Whether statistics show the length of texts. Arrow writes none for long ones, and a dictionary may hold them
    once.
    """
    group = next(file.row_group(0) for file in files if file.num_rows)
    return all(
        leaf.statistics is not None and leaf.statistics.has_min_max
        for leaf in map(group.column, range(group.num_columns))
        if leaf.physical_type == "BYTE_ARRAY" and leaf.path_in_schema.split(".")[0] in schema.names
    )


def _read_fragment(fragment: Any, schema: pa.Schema, most_rows: int, skip: int, rows: int) -> Iterator[Place]:
    """The rows of a file after the first `skip`. Their number must be the same as when the source was made."""
    constants = ds.get_partition_keys(fragment.partition_expression)
    names = [name for name in schema.names if name not in constants]
    remote = not isinstance(fragment.filesystem, LocalFileSystem)
    options = _reading(fragment.format, remote=remote)
    with pq.ParquetFile(fragment.path, filesystem=fragment.filesystem, **options) as file:
        if (found := sum(group_sizes(file.metadata))) != rows:
            raise _other_rows(fragment.path, found, rows)
        for position, batch in read_rows(file, fragment.path, names, most_rows, skip, by_group=remote):
            yield Place(position, conform_schema(_complete(batch, constants, schema), schema))
            del batch


def _reading(format_: ds.ParquetFileFormat, *, remote: bool) -> dict[str, Any]:
    """Options for reading a file, with the types of a dataset of this format.

    By default Arrow reads ahead all row groups, and whole columns. If every read is a request, one row group is read
    ahead.
    """
    ahead = {"pre_buffer": True} if remote else {"pre_buffer": False, "buffer_size": BUFFER_BYTES}
    return {
        "coerce_int96_timestamp_unit": format_.read_options.coerce_int96_timestamp_unit,
        "arrow_extensions_enabled": format_.default_fragment_scan_options.arrow_extensions_enabled,
        **ahead,
    }


def _complete(batch: pa.RecordBatch, constants: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """The columns in the order of the schema, including constant ones."""
    arrays = [
        pa.array([constants[field.name]] * batch.num_rows, field.type)
        if field.name in constants
        else batch.column(field.name)
        for field in schema
    ]
    if not arrays:
        return batch
    fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))


def _field(schema: pa.Schema, column: str, name: str) -> pa.Field:
    if column not in schema.names:
        raise InputError(f"{name} has no column {column!r}; it has {', '.join(schema.names)}.")
    return schema.field(column)


def parquet_source(rows: Any, columns: Sequence[str] | None = None) -> ParquetSource | None:
    """A path or a dataset as a source. None for anything else. Only Parquet can be read in pieces."""
    if isinstance(rows, ds.Dataset):
        return ParquetSource(rows, "dataset", columns)
    if not isinstance(rows, str | os.PathLike):
        return None
    path = input_path(rows)
    if format_of(path) != "parquet":
        raise InputError(f"{path} is not Parquet: dovetail.join and the others take its path as an input.")
    return ParquetSource(dataset_of(path), str(path), columns)


def file_rows(rows: Any) -> ParquetSource | pa.Table | None:
    """A path as an input: Parquet as a source, other formats as a table. None if it is not a path.

    CSV, JSON, Arrow and ORC files are read whole, because their rows cannot be read by position.
    """
    if isinstance(rows, str | os.PathLike) and format_of(path := input_path(rows)) != "parquet":
        return read_table(path)
    return parquet_source(rows)


def group_sizes(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """The number of rows in each row group of a file."""
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def read_rows(
    file: pq.ParquetFile,
    name: str,
    columns: Sequence[str],
    most_rows: int,
    start: int = 0,
    stop: int = FAR,
    *,
    use_threads: bool = True,
    by_group: bool = False,
) -> Iterator[Place]:
    """Rows [start, stop) of a file, in order. `by_group`: read ahead one row group instead of all of them.

    If the pages have fewer rows than the footer announces, this is an error here, but not in Arrow.
    """
    groups: list[int] = []
    first = position = 0
    for number, rows in enumerate(group_sizes(file.metadata)):
        if position < stop and start < position + rows:
            first = first if groups else position
            groups.append(number)
        position += rows
    announced = sum(file.metadata.row_group(number).num_rows for number in groups)
    position = first
    together = [[group] for group in groups] if by_group else [groups] if groups else []
    for batch in (b for some in together for b in file.iter_batches(most_rows, some, columns, use_threads=use_threads)):
        low, high = max(start, position), min(stop, position + batch.num_rows)
        if low < high:
            yield Place(low, batch.slice(low - position, high - low))
        position += batch.num_rows
        del batch
    if position - first != announced:
        raise _other_rows(name, position - first, announced)


def _other_rows(name: str, found: int, announced: int) -> SourceError:
    return SourceError(
        f"{name} has {found:,} rows where {announced:,} were announced: it is damaged, or it was replaced while it was "
        "read. Write it again, and join it when it is complete."
    )


Stamp = tuple[int, int]
"""The size of a file, and its modification time in nanoseconds."""


@dataclass(frozen=True, slots=True)
class File:
    store: Store
    name: str  # in the store
    groups: tuple[int, ...]  # rows of its row groups
    stamp: Stamp
    constants: Mapping[str, Any] = field(default_factory=dict)  # columns that are not stored in the file

    def __str__(self) -> str:
        return str(self.store / self.name)

    @property
    def rows(self) -> int:
        return sum(self.groups)

    def find_stamp(self) -> Stamp | None:
        found = self.store.find(self.name)
        return None if found is None else stamp_of(found)


class Footer(NamedTuple):
    """The footer of a Parquet file."""

    metadata: pq.FileMetaData
    stamp: Stamp


def read_footer(store: Store, name: str) -> Footer:
    entry, file = store.open_parts(name)
    with file, pq.ParquetFile(file) as opened:
        return Footer(opened.metadata, stamp_of(entry))


def stamp_of(entry: Entry) -> Stamp:
    return entry.nbytes, round(entry.written * 1e9)


class ParquetRows:
    """A scan that can be sent to other processes: names and sizes, no open file.

    Positions count the rows of all files, in the given order of files. Reading checks that the files have not changed
    since the scan was made. `columns` are the names in the files; the names in the schema are those of the join.
    """

    name = "Parquet files"

    def __init__(
        self,
        files: Sequence[File],
        columns: Sequence[str],
        schema: pa.Schema,
        row_bytes: int,
        without_nulls: Sequence[bool] | None = None,
    ) -> None:
        self.files = tuple(files)
        self.schema = schema
        self.without_nulls = tuple(without_nulls or [False] * len(columns))  # by column: known to have no nulls
        self._columns = tuple(columns)
        self._row_bytes = row_bytes
        self._starts = tuple(accumulate((file.rows for file in self.files), initial=0))
        self.rows: int = self._starts[-1]

    @property
    def group_starts(self) -> list[int]:
        """The position of the first row of each row group, and the total number of rows."""
        return list(accumulate((rows for file in self.files for rows in file.groups), initial=0))

    def cut(self, wanted: int) -> list[tuple[int, int]]:
        """Divide the rows into about this many parts that start at row groups, so that no row is decoded twice."""
        starts = np.array(self.group_starts)
        near = np.searchsorted(starts, np.linspace(0, self.rows, wanted + 1))
        return list(pairwise(np.unique(starts[near]).tolist()))

    def total_bytes(self) -> int:
        return self.rows * self._row_bytes

    def is_unchanged(self) -> bool:
        """Whether the files are unchanged. In an object store, where each check is a request, only some are checked."""
        remote = [file for file in self.files if file.store.path is None]
        looked_up = [file for file in self.files if file.store.path is not None]
        looked_up += remote[:: max(1, len(remote) // LOOKED_UP)]
        try:
            return all(file.find_stamp() == file.stamp for file in looked_up)
        except (OSError, DovetailError):
            return False

    def places(
        self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0, stop: int = FAR
    ) -> Iterator[Place]:
        """Rows [start, stop) in order; only the given columns, in the order of the schema, or all."""
        fields = [field for field in self.schema if columns is None or field.name in columns]
        names = [self._columns[self.schema.names.index(field.name)] for field in fields]
        schema = pa.schema(fields)
        for file, low in zip(self.files, self._starts, strict=False):
            if low < stop and start < low + file.rows:
                stored = [name for name in names if name not in file.constants]
                for position, batch in _read_file(file, stored, most_rows, start - low, stop - low):
                    yield Place(low + position, _rename_columns(batch, names, schema, file.constants))

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        schema = pa.schema([field for field in self.schema if columns is None or field.name in columns])
        return pa.Table.from_batches((place.batch for place in self.places(1 << 20, columns)), schema)


def _read_file(file: File, names: list[str], most_rows: int, start: int, stop: int) -> Iterator[Place]:
    remote = file.store.path is None
    try:
        entry, parts = file.store.open_parts(file.name)
    except (OSError, StateError) as error:
        raise SourceError(f"{file} can no longer be read: {error}") from error
    with parts:
        if stamp_of(entry) != file.stamp:
            raise SourceError(f"{file} has changed since the join was planned: join the new files again.")
        try:
            with pq.ParquetFile(parts, **_reading(PARQUET, remote=remote)) as opened:
                yield from read_rows(
                    opened, str(file), names, most_rows, start, stop, use_threads=False, by_group=remote
                )
        except StateError as error:
            raise SourceError(f"{file} can no longer be read: {error}") from error


def _rename_columns(
    batch: pa.RecordBatch, names: list[str], schema: pa.Schema, constants: Mapping[str, Any]
) -> pa.RecordBatch:
    """The columns with the names and types of the schema, including constant ones."""
    if not names:
        return batch
    columns = [
        pa.repeat(pa.scalar(constants[name], field.type), batch.num_rows) if name in constants else batch.column(name)
        for name, field in zip(names, schema, strict=True)
    ]
    columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
