"""The resident rows of one side, of which some are evicted from time to time, by key.

    position      0   1   2   3   4   5   6  …       in the order of arrival
    alive         x   x       x           x          evicted rows are holes
    code, arrived, marks, serial                     per position; a row's serial number never changes
    rows          [ part ][ part ][ part …           a part is packed by itself, those with most holes first

Partners are found by hash where keys must be equal, else by the order of the codes. Positions stay the same when a part
is packed; when holes are many, all are numbered anew, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side, empty_batch, take_rows
from dovetail.kernels.sorting import invert
from dovetail.operators.diner.keys import Keyed, OrderKeys
from dovetail.storage.hash_table import HashTable
from dovetail.storage.ordered_index import OrderedIndex
from dovetail.storage.resident_snapshot import Held, Marks
from dovetail.storage.row_store import MOST_BYTES, RowStore

ARRIVED = "__arrived"

Words = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.int32, np.bool_)

PER_POSITION = 8 + 8 + 8 + 4 + 1  # bytes: code, arrived, serial, marks, alive
PER_ENTRY = 24  # bytes of an index for a row; of an ordered one with room to mark it as deleted
FEW = 64  # holes that are not worth anything
WORTH_A_PART = 1024  # rows that are worth a batch of their own


@dataclass(slots=True)
class _Part:
    """Rows of consecutive positions; once packed, `places` says where each of those alive is."""

    first: int  # position
    size: int  # positions
    living: int
    held: int  # rows, with those that are dead
    nbytes: int
    rows: RowStore | pa.RecordBatch
    places: NDArray[np.int32] | None = None

    @property
    def holes(self) -> float:
        """Which share of the rows that it holds is dead."""
        return 1 - self.living / self.held if self.held else 0.0

    def view(self) -> pa.RecordBatch:
        return self.rows.view() if isinstance(self.rows, RowStore) else self.rows

    def local(self, positions: Rows) -> Rows:
        """Where the rows at these positions are."""
        places = positions - self.first
        return places if self.places is None else self.places[places]

    def pack(self, alive: NDArray[np.bool_]) -> None:
        inside = np.flatnonzero(alive[self.first : self.first + self.size]) + self.first
        self.rows = take_rows(self.view(), self.local(inside))
        self.places = np.zeros(self.size, np.int32)
        self.places[inside - self.first] = np.arange(len(inside), dtype=np.int32)
        self.held = len(inside)
        self.nbytes = int(self.rows.nbytes) + self.places.nbytes


class OrderedSide:
    def __init__(self, side: Side, schema: pa.Schema, keys: OrderKeys, part_bytes: int = MOST_BYTES) -> None:
        self.side = side
        self.codes = np.empty(0, np.int64)
        self.arrived = np.empty(0, np.int64)
        self.serials = np.empty(0, np.int64)
        self.next_serial = 0
        self.marks: Marks = np.empty(0, np.int32)  # in how many results a row took part, as far as a policy counts
        self.alive = np.empty(0, np.bool_)
        self.positions = 0
        self.rows = 0
        self._schema = schema
        self._keys = keys
        self._part_bytes = part_bytes
        self._parts: list[_Part] = []
        self._row_bytes = 0
        self._table = HashTable()
        self._index = OrderedIndex()

    @property
    def nbytes(self) -> int:
        index = self._table.nbytes if self._keys.by_hash else self._index.nbytes
        return self._row_bytes + index + PER_POSITION * self.positions

    @property
    def wasted_bytes(self) -> int:
        """About what packing would set free."""
        return int(sum(part.nbytes * part.holes for part in self._parts)) if self.rows < self.positions else 0

    @property
    def row_bytes(self) -> float:
        """What a row takes up by itself, on average."""
        rows = sum(part.nbytes * (1 - part.holes) for part in self._parts)
        return rows / self.rows if self.rows else 0.0

    def nbytes_for(self, batch: pa.RecordBatch) -> int:
        """How many bytes more it takes to keep the batch."""
        rows: int = batch.num_rows
        index = self._table.nbytes_with(rows) - self._table.nbytes if self._keys.by_hash else PER_ENTRY * rows
        return int(batch.nbytes) + PER_POSITION * rows + index

    def insert(
        self,
        batch: pa.RecordBatch,
        keyed: Keyed,
        arrived: int | Words,
        marks: Marks,
        serials: Words | None = None,
    ) -> None:
        """Keep all rows of the batch, of which `keyed` has the codes and hashes; `serials` if they have been here."""
        first, end = self.positions, self.positions + batch.num_rows
        if end == first:
            return
        self._append(batch)
        self._grow(end)
        self.codes[first:end] = keyed.codes
        self.arrived[first:end] = arrived
        self.marks[first:end] = marks
        self.serials[first:end] = self.next_serial + np.arange(end - first) if serials is None else serials
        self.next_serial = int(self.serials[end - 1]) + 1
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

    def locate(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """Where the rows are: (which of `positions`, rows of a part, their numbers in it)."""
        if len(self._parts) == 1:
            yield slice(None), self._parts[0].view(), self._parts[0].local(positions)
            return
        if not len(positions):
            return
        parts = self._part_of(positions)
        order = np.argsort(parts, kind="stable")
        found, starts = np.unique(parts[order], return_index=True)
        for part, chosen in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            yield chosen, self._parts[part].view(), self._parts[part].local(positions[chosen])

    def gather(self, positions: Rows) -> Iterator[tuple[slice | Rows, pa.RecordBatch, Rows]]:
        """As `locate`, but a few rows of many parts are copied together."""
        if len(self._parts) < 2 or len(positions) >= WORTH_A_PART * len(self._parts):
            yield from self.locate(positions)
        elif len(positions):
            order, rows = self._copy_rows(positions)
            yield order, rows, np.arange(len(order))

    def living(self) -> Rows:
        """The positions of all rows, ascending."""
        return np.flatnonzero(self.alive[: self.positions])

    def held(self) -> Held:
        """All rows, with the time of their arrival as one more column."""
        living = self.living()
        schema = with_arrival(self._schema)

        def take(page: slice) -> pa.RecordBatch:
            rows = living[page]
            return pa.RecordBatch.from_arrays([*self.take(rows).columns, pa.array(self.arrived[rows])], schema=schema)

        return Held(self.serials[living], self.marks[living], self.next_serial, take)

    def take(self, positions: Rows) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        if len(self._parts) == 1:
            return take_rows(self._parts[0].view(), self._parts[0].local(positions))
        if not len(positions):
            return self._none()
        order, rows = self._copy_rows(positions)
        return take_rows(rows, invert(order))

    def _copy_rows(self, positions: Rows) -> tuple[Rows, pa.RecordBatch]:
        """The rows at these positions, part by part, and in which order they now are."""
        found = list(self.locate(positions))
        rows = pa.concat_batches([take_rows(batch, numbers) for _, batch, numbers in found])
        return np.concatenate([chosen for chosen, _, _ in found]), rows

    def hashes(self, positions: Rows) -> Words:
        return self._table.hashes[positions]

    def remove(self, positions: Rows) -> None:
        """Forget these rows. Their memory is free only after `free`."""
        self.alive[positions] = False
        self.rows -= len(positions)
        for part, gone in enumerate(np.bincount(self._part_of(positions)).tolist()):
            self._parts[part].living -= gone
        if not self._keys.by_hash:
            self._index.delete(positions)
        if self.positions - self.rows > max(self.rows // 2, FEW):
            self._number_anew()

    def free(self, wanted_bytes: int) -> None:
        """Pack parts, those with most holes first, until about so much memory is free; then number all anew."""
        for part in sorted(self._parts, key=lambda p: -p.holes):
            if wanted_bytes <= 0 or not part.holes:
                break
            before = part.nbytes
            part.pack(self.alive)
            self._row_bytes += part.nbytes - before
            wanted_bytes -= before - part.nbytes
        if wanted_bytes > 0 and self.rows < self.positions:
            self._number_anew()

    def _number_anew(self) -> None:
        kept = self.living()
        hashes = self.hashes(kept) if self._keys.by_hash else None
        codes, arrived, marks, serials = self.codes[kept], self.arrived[kept], self.marks[kept], self.serials[kept]
        old = self._parts[::-1]
        self._parts, self._row_bytes, self.positions = [], 0, 0
        while old:
            part = old.pop()
            part.pack(self.alive)
            assert isinstance(part.rows, pa.RecordBatch)
            self._keep_packed(part.rows)
        self._grow(self.positions)
        self.codes[: self.positions], self.arrived[: self.positions] = codes, arrived
        self.marks[: self.positions], self.serials[: self.positions] = marks, serials
        self.alive[: self.positions] = True
        self._index_anew(hashes)

    def _keep_packed(self, rows: pa.RecordBatch) -> None:
        """Append packed rows as a part of their own, or to the part before if both are small."""
        if not rows.num_rows:
            return
        if self._parts:
            last = self._parts[-1]
            if last.nbytes + rows.nbytes <= self._part_bytes // 2:
                self._parts.pop()
                self._row_bytes -= last.nbytes
                self.positions -= last.size
                rows = pa.concat_batches([last.view(), rows])
        count, nbytes = int(rows.num_rows), int(rows.nbytes)
        self._parts.append(_Part(self.positions, count, count, count, nbytes, rows))
        self._row_bytes += nbytes
        self.positions += count

    def code_again(self) -> None:
        """The codes of the keys have changed since the rows arrived."""
        whole = self.all_rows()
        if whole.num_rows:
            self.codes[: self.positions] = self._keys.read(self.side, whole).codes
        if not self._keys.by_hash:
            self._index_anew(None)

    def all_rows(self) -> pa.RecordBatch:
        """All rows; there are no holes after this."""
        if self.rows < self.positions:
            self._number_anew()
        if len(self._parts) == 1:
            return self._parts[0].view()
        return pa.concat_batches([part.view() for part in self._parts]) if self._parts else self._none()

    def _none(self) -> pa.RecordBatch:
        return empty_batch(self._schema)

    def _part_of(self, positions: Rows) -> Rows:
        return np.searchsorted([part.first for part in self._parts], positions, side="right") - 1

    def _append(self, batch: pa.RecordBatch) -> None:
        last = self._parts[-1].rows if self._parts else None
        if not isinstance(last, RowStore) or self._parts[-1].places is not None or not last.fits(batch):
            last = RowStore(self._schema, self._part_bytes)
            self._parts.append(_Part(self.positions, 0, 0, 0, 0, last))
        part = self._parts[-1]
        last.append(batch)
        part.size += batch.num_rows
        part.living += batch.num_rows
        part.held += batch.num_rows
        self._row_bytes += last.nbytes - part.nbytes
        part.nbytes = last.nbytes

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
            self.serials = _longer(self.serials, room)
            self.marks, self.alive = _longer(self.marks, room), _longer(self.alive, room)


def _longer(column: NDArray[Number], size: int) -> NDArray[Number]:
    longer = np.zeros(size, column.dtype)
    longer[: len(column)] = column
    return longer


def with_arrival(schema: pa.Schema) -> pa.Schema:
    """The schema of rows with the time of their arrival."""
    return schema.append(pa.field(ARRIVED, pa.int64()))
