"""The resident rows of one side of a spilling hash join, by partition.

    rows      in the order of arrival, of all partitions                         (storage/packed_rows.py)
    table     one hash table over all rows, so that a batch probes all partitions at once

A partition is a range of hashes, so equal keys are in the same partition on both sides. Hashes are not stored if they
can be computed from the rows: they are computed again for candidates, and for all rows when some are evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate
from dovetail.columns.row_store import MOST_BYTES
from dovetail.columns.taking import take_rows
from dovetail.core.rows import Rows
from dovetail.kernels.hashing import partitions_of
from dovetail.kernels.sorting import sort_codes
from dovetail.storage.hash_table import CompactTable
from dovetail.storage.packed_rows import PackedRows
from dovetail.storage.residence import NEVER, ArrivalTicks, Ticks

Hashes = NDArray[np.int64]
Counts = NDArray[np.int64]

Rehash = Callable[[pa.RecordBatch, Rows | None], Hashes]
"""Computes the hashes of rows of a batch, or of some of them."""


class Stayed(NamedTuple):
    """Rows with their hashes and their ticks of arrival and eviction."""

    batch: pa.RecordBatch
    hashes: Hashes
    arrived: Ticks
    left: Ticks

    def slice(self, start: int, stop: int) -> Stayed:
        columns = (column[start:stop] for column in self[1:])
        return Stayed(self.batch.slice(start, stop - start), *columns)

    def take(self, rows: Rows) -> Stayed:
        return Stayed(take_rows(self.batch, rows), *(column[rows] for column in self[1:]))


def concat_rows(parts: list[Stayed]) -> Stayed:
    if len(parts) == 1:
        return parts[0]
    columns = (np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True))
    return Stayed(concatenate([part.batch for part in parts]), *columns)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Rows of a partition that are being evicted, in the order of their hashes, with their ticks of arrival."""

    hashes: Hashes
    arrived: Ticks
    left: int
    _rows: PackedRows
    _positions: Rows

    def __len__(self) -> int:
        return len(self.hashes)

    def chunks(self, most_rows: int) -> Iterator[Stayed]:
        """Copies of the rows, some at a time."""
        for start in range(0, len(self), most_rows):
            some = slice(start, start + most_rows)
            hashes = self.hashes[some]
            left = np.full(len(hashes), self.left)
            yield Stayed(self._rows.take(self._positions[some]), hashes, self.arrived[some], left)


class HashPartitions:
    """`rehash`: None if a row's hash cannot be computed from the row, and is stored."""

    def __init__(self, schema: pa.Schema, partitions: int, rehash: Rehash | None, part_bytes: int = MOST_BYTES) -> None:
        self._partitions = partitions
        self._rehash = rehash
        self._rows = PackedRows(schema, part_bytes)
        self._table = CompactTable()
        self._arrived = ArrivalTicks()
        self._hashes: Hashes = np.empty(0, np.int64)  # hashes of all rows, if they are stored, with spare capacity
        self.sizes: Counts = np.zeros(partitions, np.int64)  # rows per partition
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._table.nbytes + self._arrived.nbytes + self._hashes.nbytes

    def nbytes_with(self, rows: int, nbytes: int) -> int:
        """The size after adding such a batch."""
        hashes = 0 if self._rehash is not None else 8 * max(0, len(self) + rows - len(self._hashes))
        return self.nbytes + nbytes + hashes + self._table.nbytes_with(rows) - self._table.nbytes

    def insert(self, batch: pa.RecordBatch, hashes: Hashes, arrived: int | Ticks) -> None:
        first, end = len(self), len(self) + len(hashes)
        if self._rehash is None:
            if end > len(self._hashes):
                longer = np.empty(end + first // 32, np.int64)
                longer[:first] = self._hashes[:first]
                self._hashes = longer
            self._hashes[first:end] = hashes
        self._rows.append(batch)
        self._table.insert(hashes, self._each_hashes)
        self._arrived.append(arrived, len(hashes))
        self.sizes += np.bincount(partitions_of(hashes, self._partitions), minlength=self._partitions)

    def probe(self, hashes: Hashes, most_pairs: int) -> Iterator[tuple[pa.RecordBatch, Rows, Rows]]:
        """(rows of this side, probing row, row of this side) with equal hashes, in pieces of bounded size."""
        for probing, positions in self._table.find(hashes, most_pairs):
            for chosen, batch, rows in self._rows.gathered(positions):
                mine = probing[chosen]
                found = self._hashes[positions[chosen]] if self._rehash is None else self._rehash(batch, rows)
                same = hashes[mine] == found
                yield (batch, mine, rows) if same.all() else (batch, mine[same], rows[same])

    def partition(self, number: int) -> Stayed:
        """The rows of a partition, oldest first."""
        [(rows, hashes)] = self._members([number])
        return Stayed(self._rows.take(rows), hashes, self._arrived[rows], np.full(len(rows), NEVER))

    def evict(self, counts: Mapping[int, int], tick: int) -> Iterator[tuple[int, Leaving]]:
        """Evict the given numbers of oldest rows from some partitions. They stay here until all have been taken."""
        gone = np.zeros(len(self), np.bool_)
        for chosen in self._few(sorted(counts)):
            for number, (rows, hashes) in zip(chosen, self._members(chosen), strict=True):
                order, ascending = sort_codes(hashes[: counts[number]])
                rows = rows[order]
                gone[rows] = True
                yield number, Leaving(ascending, self._arrived[rows], tick, self._rows, rows)
                self.sizes[number] -= len(rows)
        self._rows.remove(gone)
        self._arrived.remove(gone)
        if self._rehash is None:
            self._hashes = self._hashes[: len(gone)][~gone]
        self._table.remove(gone, self._each_hashes)
        self.evictions += 1

    def pages(self, first: int) -> Iterator[Stayed]:
        """All rows from a position on, in the order of arrival, in pages."""
        start = 0
        for part in self._rows.parts:
            stop = start + part.num_rows
            if stop > first:
                rows = np.arange(max(start, first), stop)
                batch = part.slice(int(rows[0]) - start)
                yield Stayed(batch, self._hashes_at(rows), self._arrived[rows], np.full(len(rows), NEVER))
            start = stop

    def restore(self, pages: Iterable[Stayed]) -> None:
        """Take over the rows of another instance."""
        for rows in pages:
            order = np.argsort(rows.arrived, kind="stable")  # earlier releases wrote them by partition
            in_order = rows.take(order)
            self.insert(in_order.batch, in_order.hashes, in_order.arrived)

    def _few(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Partitions with rows, a few at a time, to limit the memory for their hashes."""
        group: list[int] = []
        for number in numbers:
            if self.sizes[number]:
                if group and self.sizes[[*group, number]].sum() > len(self) // 8:
                    yield group
                    group = []
                group.append(number)
        if group:
            yield group

    def _members(self, numbers: Sequence[int]) -> list[tuple[Rows, Hashes]]:
        """The positions, ascending, and the hashes of the rows of each partition."""
        wanted = np.zeros(self._partitions, np.bool_)
        wanted[numbers] = True
        nothing = np.empty(0, np.int64)
        found = [(nothing, nothing, nothing)]  # partition, position, hash
        first = 0
        for hashes in self._each_hashes():
            partitions = partitions_of(hashes, self._partitions)
            rows = np.flatnonzero(wanted[partitions])
            found.append((partitions[rows], rows + first, hashes[rows]))
            first += len(hashes)
        partitions, rows, hashes = (np.concatenate(column) for column in zip(*found, strict=True))
        return [(rows[mine], hashes[mine]) for mine in (np.flatnonzero(partitions == number) for number in numbers)]

    def _each_hashes(self) -> Iterator[Hashes]:
        """The hashes of all rows, in pieces."""
        if self._rehash is None:
            yield self._hashes[: len(self)]
            return
        for part in self._rows.parts:
            yield self._rehash(part, None)

    def _hashes_at(self, positions: Rows) -> Hashes:
        if self._rehash is None:
            return self._hashes[positions]
        hashes = np.empty(len(positions), np.int64)
        for chosen, part, rows in self._rows.located(positions):
            hashes[chosen] = self._rehash(part, rows)
        return hashes
