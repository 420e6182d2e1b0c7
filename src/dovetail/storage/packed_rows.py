"""Stores resident rows without gaps: append batches, take rows by position, remove rows by position.

    positions   0 1 2 3 4 5 6 …                 in the order of arrival; rows after a removed one move up
    rows        [ part ][ part ][ part …        each of bounded size: a removal copies one part at a time

Removed rows take up no memory, and removal needs temporary memory for at most one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import empty_batch, slices
from dovetail.columns.row_store import MOST_BYTES, RowStore
from dovetail.columns.scattering import Place, Source, scatter
from dovetail.columns.taking import take_rows
from dovetail.core.rows import Rows
from dovetail.storage.allocator import trim_heap

SMALLEST_PART = 1 << 18  # bytes; the time for many parts outweighs the memory of their copies
RETURNED_BYTES = 1 << 23  # copied by removals, before freed memory is returned again
FEW_PARTS = 1 << 16
WORTH_A_PART = 1024  # rows for which a separate batch is worth it
MANY = 4  # times fewer positions than rows: many of them may be equal

Flags = NDArray[np.bool_]


def packed_part_bytes(share: int) -> int:
    """The size of a part, for a share of the memory. A removal holds two copies of one part."""
    return min(max(share, SMALLEST_PART), MOST_BYTES)


class PackedRows:
    def __init__(self, schema: pa.Schema, part_bytes: int = MOST_BYTES) -> None:
        self.schema = schema
        self._part_bytes = part_bytes
        self._parts: list[_Part] = []
        self._firsts: list[int] = []  # the position of each part's first row
        self._rows = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """All rows, in order."""
        return [part.batch for part in self._parts]

    def column(self, read: Callable[[pa.RecordBatch], NDArray[Any]]) -> NDArray[Any]:
        """The values that `read` returns for each row, computed part by part."""
        found = [read(part) for part in self.parts]
        return found[0] if len(found) == 1 else np.concatenate(found or [read(empty_batch(self.schema))])

    def append(self, batch: pa.RecordBatch) -> None:
        most = max(1, int(batch.num_rows * self._part_bytes // max(1, batch.nbytes)))
        for piece in slices(batch, most):
            if not self._parts or not self._parts[-1].fits(piece):
                self._parts.append(_Part(RowStore(self.schema, self._part_bytes)))
                self._firsts.append(self._rows)
            self.nbytes += self._parts[-1].append(piece)
            self._rows += piece.num_rows

    def located(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """The location of the rows: (which of `positions`, the part's rows, their numbers in it)."""
        for place in self._located(positions):
            yield place.chosen, place.source.batch, place.rows

    def gathered(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """Like `located`, but a few rows from many parts are copied together."""
        if len(self._parts) < 2 or len(positions) >= WORTH_A_PART * len(self._parts):
            yield from self.located(positions)
        elif len(positions):
            yield slice(None), *self.copied(positions)

    def copied(self, positions: Rows, names: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Rows]:
        """The rows at these positions, copied once if many are equal; and the index of each position in the copy."""
        if MANY * len(positions) < len(self):
            return self.take(positions, names), np.arange(len(positions))
        places = np.zeros(len(self), np.int32)
        places[positions] = 1
        different = np.flatnonzero(places)
        places[different] = np.arange(len(different))
        return self.take(different, names), places[positions]

    def take(self, positions: Rows, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows at these positions, in this order; all columns, or only the given ones."""
        if not self._parts or not len(positions):
            return empty_batch(self.schema)
        return self._copied(list(self._located(positions)), len(positions), names)

    def remove(self, gone: Flags) -> None:
        """Remove the marked rows. The rows after them move up."""
        old, firsts = self._parts[::-1], self._firsts[::-1]
        self._parts, self._firsts, self._rows, self.nbytes = [], [], 0, 0
        copied = 0
        while old:
            part, first = old.pop(), firsts.pop()
            stay = np.flatnonzero(~gone[first : first + len(part)])
            if len(stay) < len(part):
                places, before = [], 0
                last = self._parts[-1] if self._parts else None
                if last is not None and last.nbytes + part.nbytes * len(stay) // len(part) <= self._part_bytes:
                    self._pop()  # both are small: merge them
                    before = len(last)
                    places.append(Place(np.arange(before), last.source, np.arange(before)))
                places.append(Place(np.arange(before, before + len(stay)), part.source, stay))
                part = _Part(self._copied(places, before + len(stay)))
                copied += part.nbytes
            if copied > RETURNED_BYTES:  # else all could be there twice: copies do not fit in freed gaps
                copied = 0
                trim_heap()
            if len(part):
                self._parts.append(part)
                self._firsts.append(self._rows)
                self._rows += len(part)
                self.nbytes += part.nbytes

    def _pop(self) -> None:
        last = self._parts.pop()
        self._firsts.pop()
        self._rows -= len(last)
        self.nbytes -= last.nbytes

    def _located(self, positions: Rows) -> Iterator[Place]:
        if len(self._parts) == 1:
            yield Place(slice(None), self._parts[0].source, positions)
            return
        if not len(positions):
            return
        numbers = np.searchsorted(self._firsts, positions, side="right") - 1
        if len(self._parts) <= FEW_PARTS:
            numbers = numbers.astype(np.uint16)  # NumPy sorts it by counting
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, chosen in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            yield Place(chosen, self._parts[number].source, positions[chosen] - self._firsts[number])

    def _copied(self, places: Sequence[Place], rows: int, names: Sequence[str] | None = None) -> pa.RecordBatch:
        if len(places) == 1:
            batch = places[0].source.batch
            return take_rows(batch if names is None else batch.select(names), places[0].rows)
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        numbers = [self.schema.get_field_index(field.name) for field in schema] if names else range(len(schema))
        return scatter(places, numbers, schema, rows)


class _Part:
    """Consecutive rows: a growing part, or a single batch."""

    def __init__(self, rows: RowStore | pa.RecordBatch) -> None:
        self._rows = rows
        self._source: Source | None = None
        self.nbytes = int(rows.nbytes)

    def __len__(self) -> int:
        return len(self._rows) if isinstance(self._rows, RowStore) else int(self._rows.num_rows)

    @property
    def batch(self) -> pa.RecordBatch:
        return self._rows.view() if isinstance(self._rows, RowStore) else self._rows

    @property
    def source(self) -> Source:
        if self._source is None:
            self._source = Source(self.batch)
        return self._source

    def fits(self, batch: pa.RecordBatch) -> bool:
        return isinstance(self._rows, RowStore) and self._rows.fits(batch)

    def append(self, batch: pa.RecordBatch) -> int:
        """Append rows. Returns by how many bytes it has grown."""
        assert isinstance(self._rows, RowStore)
        before = self.nbytes
        self._rows.append(batch)
        self.nbytes, self._source = self._rows.nbytes, None
        return self.nbytes - before
