"""The resident rows of one side of a hash join that spills, by partition.

    settled   one batch in the order of partitions, the oldest row of each first      made anew by an eviction
    young     what has arrived since, in the order of arrival                          grows
    table     one hash table over both, so that an arriving batch is probed at once

A partition is a range of hashes, so rows of a key are in one partition of either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, empty_batch, take_rows
from dovetail.storage.hash_table import HashTable
from dovetail.storage.residence import NEVER, Ticks
from dovetail.storage.row_store import MOST_BYTES, RowStore

Hashes = NDArray[np.int64]
Counts = NDArray[np.int64]

TICK_BYTES = 8  # of each row's arrival


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
    return Stayed(pa.concat_batches([part.batch for part in parts]), *columns)


def partitions_of(hashes: Hashes, partitions: int) -> NDArray[np.int64]:
    """The partition of each hash: its place in as many equal ranges."""
    high = hashes.view(np.uint64) >> np.uint64(32)
    return ((high * np.uint64(partitions)) >> np.uint64(32)).view(np.int64)


class HashPartitions:
    def __init__(self, schema: pa.Schema, partitions: int) -> None:
        self._schema = schema
        self._partitions = partitions
        self.sizes: Counts = np.zeros(partitions, np.int64)  # rows of each partition
        self.settling = 0  # how often rows have settled
        self._settled: pa.RecordBatch
        self._starts: Counts  # of each partition in it
        self._settle([])

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return self._settled_bytes + self._young.nbytes + self._table.nbytes + TICK_BYTES * len(self)

    def nbytes_with(self, rows: int, nbytes: int) -> int:
        """What it will take after such a batch."""
        held = self._settled_bytes + self._young.nbytes + nbytes
        return held + self._table.nbytes_with(rows) + TICK_BYTES * (len(self) + rows)

    def fits(self, batch: pa.RecordBatch) -> bool:
        """Whether the side, with these rows, can still be read as one batch."""
        return bool(self._settled_bytes + self._young.nbytes + batch.nbytes <= MOST_BYTES)

    def insert(self, batch: pa.RecordBatch, hashes: Hashes, partitions: NDArray[np.int64], arrived: int) -> None:
        self._young.append(batch)
        self._table.insert(hashes)
        self._arrivals.append((arrived, batch.num_rows))
        self.sizes += np.bincount(partitions, minlength=self._partitions)

    def probe(self, hashes: Hashes, most_pairs: int) -> Iterator[tuple[pa.RecordBatch, Rows, Rows]]:
        """(rows of this side, probing row, row of this side), in pieces of bounded size."""
        settled = len(self._settled)
        for probing, mine in self._table.find(hashes, most_pairs):
            old = mine < settled
            if old.any():
                yield self._settled, probing[old], mine[old]
            if not old.all():
                yield self._young.view(), probing[~old], mine[~old] - settled

    def partition(self, number: int) -> Stayed:
        """The rows of a partition, oldest first."""
        start, stop = self._starts[number], self._starts[number + 1]
        young_rows = np.flatnonzero(partitions_of(self._young_hashes, self._partitions) == number)
        young = self.young
        parts = [self.settled.slice(start, stop)]
        if len(young_rows):
            parts.append(young.take(young_rows))
        return concat_rows([part for part in parts if len(part.hashes)] or parts)

    def evict(self, counts: Mapping[int, int], tick: int) -> Iterator[tuple[int, Stayed]]:
        """Evict the oldest rows of some partitions, the given number of each. The rest is compacted once all are
        taken."""
        order = np.argsort(partitions_of(self._young_hashes, self._partitions), kind="stable")
        young = self.young.take(order)
        settled = self.settled
        self._young, self._table = RowStore(self._schema), HashTable()  # their rows are in `young` now
        young_starts = _starts(partitions_of(young.hashes, self._partitions), self._partitions)
        kept: list[Stayed] = []
        for number in range(self._partitions):
            leaving = counts.get(number, 0)
            out: list[Stayed] = []
            for rows, starts in ((settled, self._starts), (young, young_starts)):
                start, stop = int(starts[number]), int(starts[number + 1])
                cut = min(stop, start + leaving)
                leaving -= cut - start
                if cut > start:
                    out.append(rows.slice(start, cut))
                if stop > cut:
                    kept.append(rows.slice(cut, stop))
            if out:
                gone = concat_rows(out)
                self.sizes[number] -= len(gone.hashes)
                yield number, gone._replace(left=np.full(len(gone.hashes), tick))
                del gone, out
        del settled, young, rows
        self._settled = self._settled.slice(0, 0)
        self._settle(kept)

    @property
    def settled(self) -> Stayed:
        """Rows that stayed when others left last, in the order of partitions."""
        hashes = np.ascontiguousarray(self._table.hashes[: len(self._settled)])
        return Stayed(self._settled, hashes, self._settled_arrived, np.full(len(hashes), NEVER))

    @property
    def young(self) -> Stayed:
        """Rows that have arrived since, in the order of arrival."""
        ticks, rows = np.array(self._arrivals, np.int64).reshape(-1, 2).T
        hashes = self._young_hashes
        return Stayed(self._young.view(), hashes, np.repeat(ticks, rows), np.full(len(hashes), NEVER))

    @property
    def young_rows(self) -> int:
        return len(self._young)

    def restore(self, settled: list[Stayed], young: Iterable[Stayed]) -> None:
        """Take over rows that were settled and young in another instance."""
        self._settle(settled)
        self.sizes = np.diff(self._starts)
        for rows in young:
            ticks, starts = np.unique(rows.arrived, return_index=True)  # ascending, in the order of arrival
            counts = np.diff([*starts, len(rows.arrived)])
            self._young.append(rows.batch)
            self._table.insert(np.ascontiguousarray(rows.hashes))
            self._arrivals += zip(ticks.tolist(), counts.tolist(), strict=True)
            self.sizes += np.bincount(partitions_of(rows.hashes, self._partitions), minlength=self._partitions)

    def _settle(self, kept: list[Stayed]) -> None:
        """Hold exactly these rows. The list is emptied, so that nothing else is held while the table is built."""
        self.settling += 1
        if kept:
            rows = concat_rows(kept)
            kept.clear()
            self._settled, hashes, self._settled_arrived = rows.batch, rows.hashes, rows.arrived
        else:
            self._settled = empty_batch(self._schema)
            hashes = self._settled_arrived = np.empty(0, np.int64)
        self._settled_bytes = int(self._settled.nbytes)
        self._starts = _starts(partitions_of(hashes, self._partitions), self._partitions)
        self._young = RowStore(self._schema)
        self._arrivals: list[tuple[int, int]] = []  # tick and number of rows of each young batch
        self._table = HashTable()
        self._table.insert(hashes)

    @property
    def _young_hashes(self) -> Hashes:
        return np.ascontiguousarray(self._table.hashes[len(self._settled) :])


def _starts(partitions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Where each partition starts in rows that are in the order of partitions."""
    return np.concatenate([[0], np.cumsum(np.bincount(partitions, minlength=count))])
