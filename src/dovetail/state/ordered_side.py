"""The rows of one side that are in memory, of which some leave every now and then, by key.

    position      0   1   2   3   4   5   6  …       in the order of arrival
    alive         x   x       x           x          rows that left are holes until the rows are packed
    code, arrived, marks                             per position
    rows          [ part ][ part ][ part …           packing copies one part at a time

Partners are found by hash where keys must be equal, else by the order of the codes. Packing numbers the positions anew
and keeps their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Rows, Side, take_rows
from dovetail.state.hash_table import HashTable
from dovetail.state.order_keys import Keyed, OrderKeys
from dovetail.state.ordered_index import OrderedIndex
from dovetail.state.row_store import MOST_BYTES, RowStore

Words = NDArray[np.int64]
Marks = NDArray[np.int32]
Number = TypeVar("Number", np.int64, np.int32, np.bool_)

PER_POSITION = 8 + 8 + 4 + 1  # bytes: code, arrived, marks, alive
PER_ENTRY = 24  # bytes of an ordered index for a new row, with room to mark it as deleted
FEW = 64  # holes that are not worth packing


class OrderedSide:
    def __init__(self, side: Side, schema: pa.Schema, keys: OrderKeys, part_bytes: int = MOST_BYTES) -> None:
        self.side = side
        self.codes = np.empty(0, np.int64)
        self.arrived = np.empty(0, np.int64)
        self.marks: Marks = np.empty(0, np.int32)  # in how many results a row took part, as far as a policy counts
        self.alive = np.empty(0, np.bool_)
        self.positions = 0
        self.rows = 0
        self._schema = schema
        self._keys = keys
        self._part_bytes = part_bytes
        self._parts: list[RowStore] = []
        self._starts: list[int] = []
        self._row_bytes = 0
        self._table = HashTable()
        self._index = OrderedIndex()

    @property
    def nbytes(self) -> int:
        index = self._table.nbytes if self._keys.by_hash else self._index.nbytes
        return self._row_bytes + index + PER_POSITION * self.positions

    @property
    def row_bytes(self) -> float:
        """What a row takes up by itself, on average."""
        return self._row_bytes / self.positions if self.positions else 0.0

    @property
    def wasted_bytes(self) -> int:
        """About what packing would set free."""
        holes = self.positions - self.rows
        return int(holes * (self.row_bytes + PER_POSITION)) if holes else 0

    def nbytes_for(self, batch: pa.RecordBatch) -> int:
        """How many bytes more it takes to keep the batch."""
        rows: int = batch.num_rows
        index = self._table.nbytes_with(rows) - self._table.nbytes if self._keys.by_hash else PER_ENTRY * rows
        return int(batch.nbytes) + PER_POSITION * rows + index

    def insert(self, batch: pa.RecordBatch, keyed: Keyed, arrived: int | Words, marks: Marks) -> None:
        """Keep all rows of the batch, of which `keyed` has the codes and hashes."""
        first, end = self.positions, self.positions + batch.num_rows
        if end == first:
            return
        self._append(batch)
        self._grow(end)
        self.codes[first:end] = keyed.codes
        self.arrived[first:end] = arrived
        self.marks[first:end] = marks
        self.alive[first:end] = True
        self.positions = end
        self.rows += end - first
        if keyed.hashes is not None:
            self._table.insert(keyed.hashes)
        else:
            self._index.insert(self.codes[first:end].copy(), np.arange(first, end))

    def find(self, keyed: Keyed, most: int) -> Iterator[tuple[Rows, Rows]]:
        """Candidates (probing row of the other side, position), in pieces of about `most`."""
        if not self.rows:
            return
        if keyed.hashes is None:
            yield from self._index.find(*self._keys.reach(self.side.other, keyed.codes), most=most)
            return
        for probing, positions in self._table.find(keyed.hashes, most):
            if self.rows == self.positions:
                yield probing, positions
            else:
                alive = self.alive[positions]
                yield probing[alive], positions[alive]

    def located(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """Where the rows are: (which of `positions`, rows of a part, their numbers in it)."""
        if len(self._parts) == 1:
            yield slice(None), self._parts[0].view(), positions
            return
        parts = np.searchsorted(self._starts, positions, side="right") - 1
        for part in np.unique(parts).tolist():
            chosen = np.flatnonzero(parts == part)
            yield chosen, self._parts[part].view(), positions[chosen] - self._starts[part]

    def living(self) -> Rows:
        """The positions of all rows, ascending."""
        return np.flatnonzero(self.alive[: self.positions])

    def take(self, positions: Rows) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        if len(self._parts) == 1:
            return take_rows(self._parts[0].view(), positions)
        found = list(self.located(positions))
        if not found:
            return self._none()
        rows = pa.concat_batches([take_rows(batch, numbers) for _, batch, numbers in found])
        return take_rows(rows, np.argsort(np.concatenate([chosen for chosen, _, _ in found])))

    def hashes(self, positions: Rows) -> Words:
        return self._table.hashes[positions]

    def remove(self, positions: Rows) -> None:
        """Forget these rows. Their memory is free after packing only, which is done by itself if they are many."""
        self.alive[positions] = False
        self.rows -= len(positions)
        if not self._keys.by_hash:
            self._index.delete(positions)
        if self.positions - self.rows > max(self.rows, FEW):
            self.pack()

    def pack(self) -> None:
        """Fill the holes."""
        kept = self.living()
        hashes = self.hashes(kept) if self._keys.by_hash else None
        codes, arrived, marks = self.codes[kept], self.arrived[kept], self.marks[kept]
        old, starts = self._parts[::-1], [*self._starts, self.positions]
        self._parts, self._starts, self._row_bytes, self.positions = [], [], 0, 0
        for first, end in pairwise(starts):
            part = old.pop()  # gone when it is copied
            inside = kept[np.searchsorted(kept, first) : np.searchsorted(kept, end)]
            if len(inside):
                self._append(take_rows(part.view(), inside - first))
                self.positions += len(inside)
        self._grow(self.positions)
        self.codes[: self.positions], self.arrived[: self.positions] = codes, arrived
        self.marks[: self.positions], self.alive[: self.positions] = marks, True
        self._index_anew(hashes)

    def code_again(self) -> None:
        """The keys are coded in another way than when the rows came."""
        whole = self.all_rows()
        if whole.num_rows:
            self.codes[: self.positions] = self._keys.read(self.side, whole).codes
        if not self._keys.by_hash:
            self._index_anew(None)

    def all_rows(self) -> pa.RecordBatch:
        """All rows by position, packed."""
        if self.rows < self.positions:
            self.pack()
        if len(self._parts) == 1:
            return self._parts[0].view()
        return pa.concat_batches([part.view() for part in self._parts]) if self._parts else self._none()

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def _append(self, batch: pa.RecordBatch) -> None:
        if not self._parts or not self._parts[-1].fits(batch):
            self._parts.append(RowStore(self._schema, self._part_bytes))
            self._starts.append(self.positions)
        part = self._parts[-1]
        self._row_bytes -= part.nbytes
        part.append(batch)
        self._row_bytes += part.nbytes

    def _index_anew(self, hashes: Words | None) -> None:
        self._table, self._index = HashTable(), OrderedIndex()
        if hashes is not None:
            self._table.insert(hashes)
        else:
            self._index.insert(self.codes[: self.positions].copy(), np.arange(self.positions))

    def _grow(self, size: int) -> None:
        if size > len(self.codes):
            room = max(size, 2 * len(self.codes))
            self.codes, self.arrived = _longer(self.codes, room), _longer(self.arrived, room)
            self.marks, self.alive = _longer(self.marks, room), _longer(self.alive, room)


def _longer(column: NDArray[Number], size: int) -> NDArray[Number]:
    longer = np.zeros(size, column.dtype)
    longer[: len(column)] = column
    return longer
