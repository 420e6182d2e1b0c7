"""The resident rows of one side, of which some are evicted from time to time, by key.

    position     0   1   2   3   4   5   6  …        in the order of arrival, without gaps
    rows         [ part ][ part ][ part …            (storage/packed_rows.py)
    beside       a link and a tag in a hash table, a bit whether it gave a result; ticks of arrival per batch

Partners are found by hash where keys must be equal, else by the order of the codes. What can be computed from a row is
not kept beside it: codes and hashes are computed again, for candidates and whenever rows leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side
from dovetail.operators.diner.keys import Keyed, OrderKeys
from dovetail.storage.hash_table import CompactTable
from dovetail.storage.ordered_index import OrderedIndex
from dovetail.storage.packed_rows import PackedRows
from dovetail.storage.residence import ArrivalTicks
from dovetail.storage.resident_snapshot import Held, Marks, Survivors
from dovetail.storage.row_marks import RowMarks
from dovetail.storage.row_store import MOST_BYTES

ARRIVED = "__arrived"

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]

PER_ENTRY = 12  # bytes of an ordered index for a row


class Candidates(NamedTuple):
    """Rows that may match: the probing row, the resident's position, and where the resident is."""

    probing: Rows
    positions: Rows
    batch: pa.RecordBatch
    rows: Rows
    codes: Words  # of the residents

    def only(self, chosen: Flags) -> Candidates:
        probing, positions, _, rows, codes = self
        return Candidates(probing[chosen], positions[chosen], self.batch, rows[chosen], codes[chosen])


class OrderedSide:
    def __init__(
        self, side: Side, schema: pa.Schema, keys: OrderKeys, part_bytes: int = MOST_BYTES, counted: bool = False
    ) -> None:
        self.side = side
        self.arrived = ArrivalTicks()
        self.marks = RowMarks(counted)
        self._survivors = Survivors()
        self._schema = schema
        self._keys = keys
        self._rows = PackedRows(schema, part_bytes)
        self._table = CompactTable()
        self._index = OrderedIndex()

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        index = self._table.nbytes if self._keys.by_hash else self._index.nbytes
        return self._rows.nbytes + index + self.arrived.nbytes + self.marks.nbytes + self._survivors.nbytes

    @property
    def row_bytes(self) -> float:
        """What a row takes up by itself, on average."""
        return self._rows.nbytes / self.rows if self.rows else 0.0

    def nbytes_for(self, batch: pa.RecordBatch) -> int:
        """How many bytes more it takes to keep the batch."""
        rows: int = batch.num_rows
        index = self._table.nbytes_with(rows) - self._table.nbytes if self._keys.by_hash else PER_ENTRY * rows
        return int(batch.nbytes) + index + self.marks.nbytes_with(rows) - self.marks.nbytes

    def insert(self, batch: pa.RecordBatch, keyed: Keyed, arrived: int | Words, marks: Marks | Flags) -> None:
        """Keep all rows of the batch, of which `keyed` has the codes and hashes."""
        first, rows = self.rows, batch.num_rows
        if not rows:
            return
        self._rows.append(batch)
        self.arrived.append(arrived, rows)
        self.marks.append(marks)
        if keyed.hashes is not None:
            self._table.insert(keyed.hashes, self._hashes)
        else:
            self._index.insert(keyed.codes, np.arange(first, first + rows))

    def find(self, keyed: Keyed, most: int) -> Iterator[Candidates]:
        """Candidates of the other side's rows, in pieces of about `most`: equal hashes, or codes within reach."""
        if keyed.hashes is None:
            found = self._index.find(*self._keys.reach(self.side.other, keyed.codes), most=most)
        else:
            found = self._table.find(keyed.hashes, most)
        for probing, positions in found:
            for chosen, batch, rows in self._rows.gathered(positions):
                mine = probing[chosen]
                if keyed.hashes is not None and not self._keys.exact_codes:
                    # The condition is checked as it was written, whatever the codes are.
                    yield Candidates(mine, positions[chosen], batch, rows, keyed.codes[mine])
                    continue
                candidates = Candidates(mine, positions[chosen], batch, rows, self._keys.codes(self.side, batch, rows))
                if keyed.hashes is not None:
                    candidates = candidates.only(candidates.codes == keyed.codes[mine])
                yield candidates

    def codes(self) -> Words:
        """The codes of all rows."""
        return self._rows.column(lambda part: self._keys.codes(self.side, part))

    def block(self, positions: Rows) -> tuple[pa.RecordBatch, Keyed]:
        """The rows at these positions, in this order, with their codes and hashes."""
        batch = self._rows.take(positions)
        hashes = self._keys.hashes(self.side, batch) if self._keys.by_hash else None
        return batch, Keyed(None, self._keys.codes(self.side, batch), hashes)

    def take(self, positions: Rows) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        return self._rows.take(positions)

    def held(self) -> Held:
        """All rows, with the time of their arrival as one more column."""
        schema = with_arrival(self._schema)

        def take(page: slice) -> pa.RecordBatch:
            rows = np.arange(page.start, page.stop)
            return pa.RecordBatch.from_arrays([*self.take(rows).columns, pa.array(self.arrived[rows])], schema=schema)

        return Held(self._survivors.all(), self.marks.all().astype(np.int32), take)

    def saved(self) -> None:
        """A snapshot has all rows."""
        self._survivors.restart(self.rows)

    def remove(self, positions: Rows) -> None:
        """Forget these rows; those behind them move up."""
        gone = np.zeros(self.rows, np.bool_)
        gone[positions] = True
        self._rows.remove(gone)
        self.arrived.remove(gone)
        self.marks.remove(gone)
        self._survivors.remove(gone)
        if self._keys.by_hash:
            self._table.remove(gone, self._hashes)
        else:
            self._index.renumber(np.where(gone, -1, np.cumsum(~gone) - 1))

    def code_again(self) -> None:
        """The keys are coded in another way than when the rows came."""
        if not self._keys.by_hash:
            self._index = OrderedIndex()
            self._index.insert(self.codes(), np.arange(self.rows))

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """All rows."""
        return self._rows.parts

    def _hashes(self) -> Iterator[Words]:
        return (self._keys.hashes(self.side, part) for part in self._rows.parts)


def with_arrival(schema: pa.Schema) -> pa.Schema:
    """The schema of rows with the time of their arrival."""
    return schema.append(pa.field(ARRIVED, pa.int64()))
