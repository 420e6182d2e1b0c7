"""Rows at rest: how many there are is known, and they can be read again, always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from dovetail.core.rows import one_batch


class Place(NamedTuple):
    """Consecutive rows, and the position of the first of them."""

    position: int
    batch: pa.RecordBatch


@runtime_checkable
class Scan(Protocol):
    name: str
    """A name for error messages."""
    rows: int

    @property
    def schema(self) -> pa.Schema: ...

    def total_bytes(self) -> int:
        """About how much all of them take in memory."""

    def places(self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0) -> Iterator[Place]:
        """Rows from a position on, in order; of some columns, in the order of the schema, or of all."""

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table: ...


class TableScan:
    """A table in memory."""

    name = "table"

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.rows: int = table.num_rows
        self.schema: pa.Schema = table.schema

    def total_bytes(self) -> int:
        return int(self._table.nbytes)

    def places(self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0) -> Iterator[Place]:
        for batch in self.to_table(columns).slice(start).to_batches(max_chunksize=most_rows):
            yield Place(start, batch)
            start += batch.num_rows

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._table if columns is None else self._table.select(list(columns))


def as_scan(rows: Any) -> Scan | None:
    """The rows as a scan, if they are at rest."""
    return TableScan(rows) if isinstance(rows, pa.Table) else rows if isinstance(rows, Scan) else None


def read_some(scan: Scan, columns: Sequence[str], starts: Sequence[int], rows: int) -> Iterator[Place]:
    """So many consecutive rows at each of these positions."""
    for start in starts:
        wanted, found = rows, []
        for _, batch in scan.places(rows, columns, start):
            found.append(batch.slice(0, wanted))
            wanted -= found[-1].num_rows
            if not wanted:
                break
        if found:
            yield Place(start, one_batch(found, found[0].schema))
