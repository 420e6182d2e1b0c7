"""Resident rows without gaps: append batches, take rows by position, remove rows by position.

    positions   0 1 2 3 4 5 6 …                 in the order of arrival; rows behind a removed one move up
    rows        [ part ][ part ][ part …        each of bounded size: a removal copies one part at a time

So removed rows take up no memory, and removing them takes no more than a part besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import PLAIN, Rows, empty_batch, slices, take_rows
from dovetail.storage.row_store import MOST_BYTES, RowStore

WORTH_A_PART = 1024  # rows that are worth being handed on by themselves

Flags = NDArray[np.bool_]


class PackedRows:
    def __init__(self, schema: pa.Schema, part_bytes: int = MOST_BYTES) -> None:
        self.schema = schema
        self._part_bytes = part_bytes
        self._parts: list[RowStore | pa.RecordBatch] = []
        self._firsts: list[int] = []  # the position of each part's first row
        self._rows = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """All rows, in order."""
        return [part.view() if isinstance(part, RowStore) else part for part in self._parts]

    def column(self, read: Callable[[pa.RecordBatch], NDArray[Any]]) -> NDArray[Any]:
        """What `read` gives for each row, computed part by part."""
        found = [read(part) for part in self.parts]
        return found[0] if len(found) == 1 else np.concatenate(found or [read(empty_batch(self.schema))])

    def append(self, batch: pa.RecordBatch) -> None:
        most = max(1, int(batch.num_rows * self._part_bytes // max(1, batch.nbytes)))
        for piece in slices(batch, most):
            last = self._parts[-1] if self._parts else None
            if not isinstance(last, RowStore) or not last.fits(piece):
                last = RowStore(self.schema, self._part_bytes)
                self._parts.append(last)
                self._firsts.append(self._rows)
            self.nbytes -= last.nbytes
            last.append(piece)
            self.nbytes += last.nbytes
            self._rows += piece.num_rows

    def located(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """Where the rows are: (which of `positions`, rows of a part, their numbers in it)."""
        if len(self._parts) == 1:
            yield slice(None), self.parts[0], positions
            return
        if not len(positions):
            return
        numbers = np.searchsorted(self._firsts, positions, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        parts = self.parts
        for number, chosen in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            yield chosen, parts[number], positions[chosen] - self._firsts[number]

    def gathered(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """As `located`; but a few rows of many parts are copied together."""
        if len(self._parts) < 2 or len(positions) >= WORTH_A_PART * len(self._parts):
            yield from self.located(positions)
        elif len(positions):
            yield slice(None), self.take(positions), np.arange(len(positions))

    def take(self, positions: Rows) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        if not self._parts or not len(positions):
            return empty_batch(self.schema)
        if len(self._parts) == 1 or not len(self.schema):
            return take_rows(self.parts[0], positions) if len(self._parts) == 1 else self._nameless(len(positions))
        located = list(self.located(positions))
        columns = [self._taken(number, field.type, located, len(positions)) for number, field in enumerate(self.schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def remove(self, gone: Flags) -> None:
        """Forget the rows that are marked; those behind them move up."""
        old, firsts = self._parts[::-1], self._firsts[::-1]
        self._parts, self._firsts, self._rows, self.nbytes = [], [], 0, 0
        while old:
            part, first = old.pop(), firsts.pop()
            rows = part.view() if isinstance(part, RowStore) else part
            leaving = gone[first : first + rows.num_rows]
            if leaving.any():
                part = rows = take_rows(rows, np.flatnonzero(~leaving))
            if rows.num_rows:
                self._keep(part)

    def _keep(self, part: RowStore | pa.RecordBatch) -> None:
        """Another part; together with the one before, where both are small."""
        rows = part.view() if isinstance(part, RowStore) else part
        if self._parts:
            last = self._parts[-1]
            if last.nbytes + part.nbytes <= self._part_bytes and not isinstance(part, RowStore):
                before = last.view() if isinstance(last, RowStore) else last
                self._parts.pop()
                self._rows -= before.num_rows
                self.nbytes -= last.nbytes
                self._firsts.pop()
                part = rows = pa.concat_batches([before, rows])
        self._parts.append(part)
        self._firsts.append(self._rows)
        self._rows += rows.num_rows
        self.nbytes += int(part.nbytes)

    def _nameless(self, rows: int) -> pa.RecordBatch:
        """Rows without columns."""
        return take_rows(self.parts[0], np.zeros(rows, np.int64))

    @staticmethod
    def _taken(
        number: int, type_: pa.DataType, located: list[tuple[slice | Rows, pa.RecordBatch, Rows]], rows: int
    ) -> pa.Array:
        columns = [(chosen, part.column(number), local) for chosen, part, local in located]
        if type_ in PLAIN and all(column.null_count == 0 for _, column, _ in columns):
            values: NDArray[Any] | None = None
            for chosen, column, local in columns:
                found = np.asarray(column)[local]
                values = np.empty(rows, found.dtype) if values is None else values
                values[chosen] = found
            return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(values)])
        order = np.empty(rows, np.int64)
        order[np.concatenate([chosen for chosen, _, _ in columns])] = np.arange(rows)
        together = pa.concat_arrays([column.take(pa.array(local)) for _, column, local in columns])
        return together.take(pa.array(order))
