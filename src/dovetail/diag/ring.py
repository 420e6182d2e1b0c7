"""A ring of hash tables over a window of one input; the window slides as the other input is scanned.

    R1     . . . . [ k-2 | k-1 |  k  | k+1 | k+2 ] . . . .      the window: tables of consecutive rows
    RN     . . . . . . . . . . . ^ position                    its expected partner is in table k, the middle one

A table is full when it reaches its number of rows or bytes. It knows the range of positions that it covers, including
filtered rows. Loading the next table clears the oldest one. A table is hashed when it is first probed: tables that the
other input skips are never hashed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import one_batch
from dovetail.core.rows import Rows
from dovetail.kernels.compact_table import mark_seen
from dovetail.storage.hash_table import Hashes, HashTable

Positions = NDArray[np.int64]

ROW_BYTES = 64  # per row of a table, at most: hash table, hash and position
TABLE_BYTES = 4096  # size of the smallest hash table
FOREVER = np.iinfo(np.int64).max
SLOTS = 1.4  # slots per hash


class KeyedRows(NamedTuple):
    """Rows that can match, with their hashes and positions."""

    batch: pa.RecordBatch
    hashes: Hashes
    positions: Positions

    def slice(self, start: int, stop: int) -> KeyedRows:
        return KeyedRows(self.batch.slice(start, stop - start), self.hashes[start:stop], self.positions[start:stop])


@dataclass(slots=True)
class RingTable:
    """Consecutive rows of an input that can match, and the range of positions [low, high) they come from."""

    batch: pa.RecordBatch
    positions: Positions
    hashes: Hashes
    low: int
    high: int
    dead: NDArray[np.bool_] | None = None  # rows that must not be found
    _index: HashTable | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """Bytes including the hash table, even if it is not built yet."""
        return int(self.batch.nbytes) + 16 * len(self) + HashTable().nbytes_with(len(self))

    def forget(self, hashes: Hashes) -> None:
        """Stop finding rows with these hashes."""
        gone = np.isin(self.hashes, hashes)
        if gone.any():
            self.dead = gone if self.dead is None else self.dead | gone

    def find(self, hashes: Hashes) -> tuple[Rows, Rows]:
        """Pairs (probing row, row of this table) with equal hashes; hashes of live rows are unique."""
        if self._index is None:
            self._index = HashTable()
            self._index.insert(self.hashes)
        found = list(self._index.find(hashes, len(hashes)))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        probing, mine = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        if self.dead is not None:
            alive = ~self.dead[mine]
            probing, mine = probing[alive], mine[alive]
        return probing, mine


def cut_tables(
    read: Iterator[KeyedRows], total: int, rows: int, most_bytes: int, hold: Callable[[int, int], None]
) -> Iterator[RingTable]:
    """Splits an input of `total` rows into tables of a number of rows or bytes; `hold` is called with the pending rows
    of the next table."""
    waiting: list[KeyedRows] = []
    waiting_rows, waiting_bytes, low = 0, TABLE_BYTES, 0
    for keyed in read:
        start = 0
        while start < len(keyed.hashes):
            piece = keyed.slice(start, start + rows - waiting_rows)
            start += len(piece.hashes)
            waiting.append(piece)
            waiting_rows += len(piece.hashes)
            waiting_bytes += piece.batch.nbytes + ROW_BYTES * len(piece.hashes)
            hold(waiting_rows, waiting_bytes)
            if waiting_rows == rows or waiting_bytes > most_bytes:
                high = int(piece.positions[-1]) + 1
                hold(0, 0)
                yield _table(waiting, low, high)
                waiting, waiting_rows, waiting_bytes, low = [], 0, TABLE_BYTES, high
    hold(0, 0)
    if waiting:
        yield _table(waiting, low, total)


def _table(pieces: list[KeyedRows], low: int, high: int) -> RingTable:
    batch = one_batch([piece.batch for piece in pieces], pieces[0].batch.schema)
    hashes = np.concatenate([piece.hashes for piece in pieces])
    return RingTable(batch, np.concatenate([piece.positions for piece in pieces]), hashes, low, high)


class Hit(NamedTuple):
    """Rows of a probing batch whose partner was found in a table."""

    table: RingTable
    probing: Rows
    rows: Rows


class Stay(NamedTuple):
    """A table that begins at `low` was in the ring for probing positions [since, until)."""

    low: int
    since: int
    until: int


@dataclass(slots=True)
class Ring:
    """At most `size` consecutive tables, taken from `tables` in order."""

    size: int
    tables: Iterator[RingTable]
    stays: list[Stay] = field(default_factory=list)  # for all tables that were ever in the ring
    searched: int = 0  # lookups, one per row and table
    _resident: deque[RingTable] = field(default_factory=deque)
    _loaded: int = 0
    _middle: int = 0
    _exhausted: bool = False

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._resident)

    @property
    def rows(self) -> int:
        return sum(map(len, self._resident))

    @property
    def resident(self) -> tuple[RingTable, ...]:
        """The tables in the ring, oldest first."""
        return tuple(self._resident)

    @property
    def reach(self) -> int:
        """The first position of the window's input that requires moving the ring again."""
        last = self._middle == len(self._resident) - 1
        return FOREVER if not self._resident or (last and self._exhausted) else self._resident[self._middle].high

    def follow(
        self, probing: KeyedRows, ones: int, many: int, loaded: Callable[[RingTable, int], None]
    ) -> Iterator[KeyedRows]:
        """The probing rows in pieces; for each piece, the ring is in the right position.

        `ones` and `many` are the sizes of both inputs; `loaded` is called with each table and the probing position.
        """
        start = 0
        while start < len(probing.hashes):
            position = int(probing.positions[start])
            for table in self.advance(position * ones // many, position):
                loaded(table, position)
            stop = int(np.searchsorted(probing.positions, -(-self.reach * many // max(1, ones))))
            yield probing.slice(start, stop)
            start = stop

    def advance(self, target: int, now: int) -> Iterator[RingTable]:
        """Slide until the table that covers `target` is in the middle; yields each table just loaded.

        `now`: the probing position from which the new state of the ring applies.
        """
        ahead = (self.size + 1) // 2 - 1  # tables after the middle one: at the start, the first one is the middle
        while True:
            middle = next((k for k, table in enumerate(self._resident) if table.high > target), None)
            if self._exhausted or (middle is not None and len(self._resident) - 1 - middle >= ahead):
                break
            table = next(self.tables, None)
            if table is None:
                self._exhausted = True  # no more tables are cleared: the last rows keep the last tables
                continue
            if len(self._resident) == self.size:
                self._clear(now)
            self._resident.append(table)
            self.stays.append(Stay(table.low, now, FOREVER))
            self._loaded += 1
            yield table
        self._middle = len(self._resident) - 1 if middle is None else middle

    def drain(self, now: int) -> Iterator[RingTable]:
        """The remaining tables; they are not kept in the ring."""
        for table in self.tables:
            self.stays.append(Stay(table.low, now, now))
            yield table

    def clear(self) -> None:
        """Remove all tables; the record of when each was in the ring remains."""
        self._resident.clear()

    def _clear(self, now: int) -> None:
        self._resident.popleft()
        number = self._loaded - self.size
        self.stays[number] = self.stays[number]._replace(until=now)

    def search(self, hashes: Hashes) -> tuple[list[Hit], Rows]:
        """Probe tables in a zigzag from the middle outwards; only rows without a partner probe the next table."""
        hits: list[Hit] = []
        missing = np.arange(len(hashes))
        for number in zigzag(self._middle, len(self._resident)):
            if not len(missing):
                break
            self.searched += len(missing)
            table = self._resident[number]
            probing, rows = table.find(hashes if len(missing) == len(hashes) else hashes[missing])
            if len(probing):
                hits.append(Hit(table, missing[probing], rows))
                left = np.ones(len(missing), np.bool_)
                left[probing] = False
                missing = missing[left]
        return hits, missing


def zigzag(middle: int, size: int) -> Iterator[int]:
    """middle, middle + 1, middle - 1, middle + 2, … within the number of tables."""
    if size:
        yield middle
    for distance in range(1, size):
        for number in (middle + distance, middle - distance):
            if 0 <= number < size:
                yield number


class Met(NamedTuple):
    """Pairs already joined: probing rows with hash[i] at positions [since[i], until[i]) were joined with first[i]."""

    hashes: Hashes  # sorted
    first: Positions
    since: Positions
    until: Positions

    @classmethod
    def nothing(cls) -> Met:
        return cls(*(np.empty(0, np.int64) for _ in cls._fields))

    @property
    def earliest(self) -> int:
        """The first position of a row that was already joined; a large number if none was."""
        return int(self.since[self.since < self.until].min(initial=FOREVER))

    def position_of(self, hashes: Hashes, positions: Positions) -> Positions:
        """For each row, the position of the row it was joined with, or -1."""
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        met = (self.hashes[at] == hashes) & (self.since[at] <= positions) & (positions < self.until[at])
        return np.where(met, self.first[at], -1)


class Repeats:
    """Detects repeated hashes on the side whose keys should be unique, and records when each one repeats.

    Every hash is registered when its row is loaded. Once a hash repeats, its rows are hidden from the ring: later
    probes for it are mishits and are joined with all of its rows at the end. Results of earlier probes remain. These
    were joined only with the first row of that hash, and are identified by position: between loading the first row's
    table and that moment, or clearing the table.

    In rare cases a hash is suspected wrongly; this costs a second probe and changes no result.
    """

    def __init__(self, rows: int) -> None:
        self._slots = np.zeros(int(SLOTS * rows) + 16, np.uint32)
        self._hashes = self._noticed = np.empty(0, np.int64)  # sorted suspects; the position from which each is hidden
        self._first = np.empty(0, np.int64)  # row of each, as far as the second pass has got

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def nbytes(self) -> int:
        return int(self._slots.nbytes) + 24 * len(self)

    @staticmethod
    def nbytes_for(rows: int) -> int:
        return int(4 * SLOTS * rows) + 64

    def note(self, hashes: Hashes, now: int) -> Hashes:
        """The hashes that occurred before. They are hidden from probing position `now` on, or from an earlier one."""
        again = np.unique(hashes[mark_seen(self._slots, hashes)])
        new = again[~np.isin(again, self._hashes)] if len(self) else again
        if len(new):
            places = np.searchsorted(self._hashes, new)
            self._hashes = np.insert(self._hashes, places, new)
            self._noticed = np.insert(self._noticed, places, now)
        return again

    def look(self, hashes: Hashes, positions: Positions) -> None:
        """A second pass over all rows of the side, in order: finds the first row of each suspected key."""
        if len(self._first) < len(self):
            self._first = np.full(len(self), -1)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        rows = np.flatnonzero(self._hashes[at] == hashes)
        suspects, first = np.unique(at[rows], return_index=True)
        new = self._first[suspects] < 0
        self._first[suspects[new]] = positions[rows[first[new]]]

    def resolved_probes(self, stays: Sequence[Stay]) -> Met:
        """The pairs already joined, once the second pass is complete."""
        lows, since, until = (np.array(column, np.int64) for column in zip(*stays, strict=True))
        table = np.searchsorted(lows, self._first, "right") - 1
        return Met(self._hashes, self._first, since[table], np.minimum(until[table], self._noticed))
