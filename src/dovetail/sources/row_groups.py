"""Rows of a Parquet file by position: only row groups that have some of them are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

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
