"""A growing hash table from 64-bit hashes to the rows of a row store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Rows
from dovetail.kernels import hash_table as kernels

Hashes = NDArray[np.int64]

SMALLEST = 1024  # buckets; a power of two
GROWTH = 4  # of the links: memory that was never touched costs nothing, copying does


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
        """What it will take after so many more rows."""
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
        """(probing row, resident row) with equal hashes, in pieces of at most `most_pairs`, or one per probing row."""
        probing, entries = kernels.start(self._heads, hashes)
        active = len(probing)
        room = max(len(hashes), SMALLEST)  # what a join of unique keys needs; more only where keys repeat
        while active:
            room = max(active, min(2 * room, most_pairs))
            mine, theirs, active = kernels.walk(self._links, hashes, probing[:active], entries[:active], room)
            if len(mine):
                yield mine, theirs


def _buckets(rows: int, now: int) -> int:
    return now if 2 * rows <= now else 1 << (4 * rows - 1).bit_length()
