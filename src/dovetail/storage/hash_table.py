"""Growing hash tables from 64-bit hashes to rows: a fast one, and one that takes few bytes per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Rows
from dovetail.kernels import compact_table as compact
from dovetail.kernels import hash_table as kernels

Hashes = NDArray[np.int64]

SMALLEST = 1024  # buckets; a power of two
GROWTH = 4  # of the links: untouched memory costs nothing, copying does


class HashTable:
    """Rows are numbered 0, 1, 2, … in the order of insertion. There are at least twice as many buckets as rows."""

    def __init__(self) -> None:
        self._heads = np.zeros(SMALLEST, np.int32)
        self._links = np.empty(2 * SMALLEST, np.int64)
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        return self.nbytes_with(0)

    def nbytes_with(self, more: int) -> int:
        """The size in bytes after `more` more rows."""
        rows = self._rows + more
        return 4 * _buckets(rows, len(self._heads)) + 16 * rows

    @property
    def hashes(self) -> Hashes:
        """The hashes of all rows."""
        return self._links[: 2 * self._rows : 2]

    def insert(self, hashes: Hashes) -> None:
        """Append rows with these hashes."""
        rows = self._rows + len(hashes)
        if 2 * rows > len(self._links):
            longer = np.empty(max(2 * rows, GROWTH * len(self._links)), np.int64)
            longer[: 2 * self._rows] = self._links[: 2 * self._rows]
            self._links = longer
        if 2 * rows > len(self._heads):
            self._heads = np.zeros(_buckets(rows, len(self._heads)), np.int32)
            kernels.relink(self._heads, self._links, self._rows)
        kernels.append(self._heads, self._links, hashes, self._rows)
        self._rows = rows

    def find(self, hashes: Hashes, most_pairs: int) -> Iterator[tuple[Rows, Rows]]:
        """Pairs (probing row, resident row) with equal hashes, in pieces of `most_pairs`, or one per probing row."""
        probing, entries = kernels.start(self._heads, hashes)
        active = len(probing)
        capacity = max(len(hashes), SMALLEST)  # enough for unique keys; grows only if keys repeat
        while active:
            capacity = max(active, min(2 * capacity, most_pairs))
            mine, theirs, active = kernels.walk(self._links, hashes, probing[:active], entries[:active], capacity)
            if len(mine):
                yield mine, theirs


def _buckets(rows: int, now: int) -> int:
    return now if 2 * rows <= now else 1 << (4 * rows - 1).bit_length()


Flags = NDArray[np.bool_]

Again = Callable[[], Iterable[Hashes]]

FULLEST = 4.0  # rows per bucket at which buckets are added
FRESH = 2.8  # rows per bucket after that
EMPTIEST = 0.5  # rows per bucket at which buckets are removed
FEWEST_BUCKETS = 64
LINK_BYTES = 5  # per row: the next row of its bucket, and a tag


class CompactTable:
    """Takes about eight bytes per row. It finds candidates: all rows with an equal hash, and one in hundreds with
    another.

    Rows are numbered without gaps, 0, 1, 2, … in the order of insertion. When rows are removed, the rows after them
    move up. Hashes are not stored: `again` returns those of all rows, in order, when the number of buckets changes.
    """

    def __init__(self) -> None:
        self._heads = np.zeros(FEWEST_BUCKETS, np.int32)
        self._nexts = np.empty(FEWEST_BUCKETS, np.int32)
        self._tags = np.empty(FEWEST_BUCKETS, np.uint8)
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        return 4 * len(self._heads) + LINK_BYTES * len(self._nexts)

    def nbytes_with(self, more: int) -> int:
        """The size in bytes after `more` more rows."""
        rows = self._rows + more
        return 4 * self._buckets(rows) + LINK_BYTES * self._capacity(rows)

    def insert(self, hashes: Hashes, again: Again) -> None:
        """Append rows with these hashes."""
        first, rows = self._rows, self._rows + len(hashes)
        capacity, buckets = self._capacity(rows), self._buckets(rows)
        if capacity > len(self._nexts):
            self._nexts, self._tags = _longer(self._nexts, capacity), _longer(self._tags, capacity)
        if buckets != len(self._heads):
            self._relink(buckets, again)
        compact.append(self._heads, self._nexts, self._tags, hashes, first)
        self._rows = rows

    def remove(self, gone: Flags, again: Again) -> None:
        """Remove the marked rows. `again` returns the hashes of the others."""
        compact.remove(self._heads, self._nexts, self._tags, gone)
        self._rows -= int(np.count_nonzero(gone))
        if self._rows < EMPTIEST * len(self._heads) and len(self._heads) > FEWEST_BUCKETS:
            size = max(FEWEST_BUCKETS, self._rows)
            self._nexts, self._tags = self._nexts[:size].copy(), self._tags[:size].copy()
            self._relink(max(FEWEST_BUCKETS, int(self._rows / FRESH)), again)

    def find(self, hashes: Hashes, most_pairs: int) -> Iterator[tuple[Rows, Rows]]:
        """Candidates (probing row, resident row), in pieces of at most `most_pairs`, or one per probing row."""
        probing, entries = compact.start(self._heads, hashes)
        active = len(probing)
        capacity = max(len(hashes), SMALLEST)  # enough for unique keys; grows only if keys repeat
        while active:
            capacity = max(active, min(2 * capacity, most_pairs))
            walks = probing[:active], entries[:active]
            mine, theirs, active = compact.walk(self._nexts, self._tags, hashes, *walks, capacity)
            if len(mine):
                yield mine, theirs

    def _relink(self, buckets: int, again: Again) -> None:
        self._heads = np.zeros(buckets, np.int32)
        row = 0
        for hashes in again():
            known = hashes[: self._rows - row]  # the table may have rows that are not inserted yet
            compact.append(self._heads, self._nexts, self._tags, known, row)
            row += len(known)

    def _buckets(self, rows: int) -> int:
        return len(self._heads) if rows <= FULLEST * len(self._heads) else int(rows / FRESH)

    def _capacity(self, rows: int) -> int:
        """The number of rows to allocate links for: a few more than needed, so that not every batch copies them."""
        return len(self._nexts) if rows <= len(self._nexts) else rows + rows // 32


def _longer(links: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.empty(size, links.dtype)
    longer[: len(links)] = links
    return longer
