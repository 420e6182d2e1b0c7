"""Rows of Parquet files as a value that travels to other processes: names and sizes, no open file.

Positions count the rows of all files, one file after the other in the given order. Reading sees to it that the files
are still those that they were when the value was made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.errors import SourceError
from dovetail.sources.scans import Place

FAR = 1 << 62


def group_sizes(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """How many rows each row group of a file has."""
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def read_rows(
    file: pq.ParquetFile,
    columns: Sequence[str],
    most_rows: int,
    start: int = 0,
    stop: int = FAR,
    *,
    use_threads: bool = True,
) -> Iterator[Place]:
    """Rows [start, stop) of a file, in order."""
    groups: list[int] = []
    first = position = 0
    for number, rows in enumerate(group_sizes(file.metadata)):
        if position < stop and start < position + rows:
            first = first if groups else position
            groups.append(number)
        position += rows
    position = first
    for batch in file.iter_batches(most_rows, groups, columns, use_threads=use_threads) if groups else ():
        low, high = max(start, position), min(stop, position + batch.num_rows)
        if low < high:
            yield Place(low, batch.slice(low - position, high - low))
        position += batch.num_rows


@dataclass(frozen=True, slots=True)
class File:
    path: str
    groups: tuple[int, ...]  # rows of its row groups
    stamp: tuple[int, int]  # its size, and when it was written

    @classmethod
    def from_metadata(cls, path: str, metadata: pq.FileMetaData) -> File:
        return cls(path, group_sizes(metadata), _stamp(path))

    @property
    def rows(self) -> int:
        return sum(self.groups)


class ParquetRows:
    """A scan. `columns` are called in the files what they are called, and in the schema what the join calls them."""

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
        self.without_nulls = tuple(without_nulls or [False] * len(columns))  # by column: whether it is known to be so
        self._columns = tuple(columns)
        self._row_bytes = row_bytes
        self._starts = tuple(accumulate((file.rows for file in self.files), initial=0))
        self.rows: int = self._starts[-1]

    @property
    def group_starts(self) -> list[int]:
        """The position of the first row of each row group, and the number of all rows."""
        return list(accumulate((rows for file in self.files for rows in file.groups), initial=0))

    def total_bytes(self) -> int:
        return self.rows * self._row_bytes

    def is_unchanged(self) -> bool:
        """Whether this process finds the files as they were."""
        try:
            return all(_stamp(file.path) == file.stamp for file in self.files)
        except OSError:
            return False

    def places(
        self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0, stop: int = FAR
    ) -> Iterator[Place]:
        """Rows [start, stop) in order; of some columns, in the order of the schema, or of all."""
        fields = [field for field in self.schema if columns is None or field.name in columns]
        names = [self._columns[self.schema.names.index(field.name)] for field in fields]
        schema = pa.schema(fields)
        for file, low in zip(self.files, self._starts, strict=False):
            if low < stop and start < low + file.rows:
                for position, batch in _read(file, names, most_rows, start - low, stop - low):
                    yield Place(low + position, _rename_columns(batch, names, schema))

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        schema = pa.schema([field for field in self.schema if columns is None or field.name in columns])
        return pa.Table.from_batches((place.batch for place in self.places(1 << 20, columns)), schema)


def _read(file: File, names: list[str], most_rows: int, start: int, stop: int) -> Iterator[Place]:
    try:
        stamp, opened = _stamp(file.path), pq.ParquetFile(file.path)
    except OSError as error:
        raise SourceError(f"{file.path} cannot be read any more: {error}") from error
    with opened:
        if stamp != file.stamp:
            raise SourceError(f"{file.path} has changed since the join was planned: join the new files again.")
        yield from read_rows(opened, names, most_rows, start, stop, use_threads=False)


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _rename_columns(batch: pa.RecordBatch, names: list[str], schema: pa.Schema) -> pa.RecordBatch:
    """The columns under the names and of the types of the schema."""
    if not names:
        return batch
    columns = [batch.column(name) for name in names]
    columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
