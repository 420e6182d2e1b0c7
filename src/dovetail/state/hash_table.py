"""A growing hash table from 64-bit hashes to the rows of a row store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dovetail.batch import Rows
from dovetail.kernels import hash_table as kernels
from dovetail.state.pieces import pieces_of

Hashes = NDArray[np.int64]

SMALLEST = 1024  # slots; a power of two


class HashTable:
    """Rows are numbered 0, 1, 2, … in the order of insertion; at most half of the slots are ever full."""

    def __init__(self) -> None:
        self._slots = np.zeros(2 * SMALLEST, np.int64)
        self._chain = np.empty(SMALLEST, np.int32)
        self._rows = 0
        self._distinct = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + self._chain.nbytes

    def insert(self, hashes: Hashes) -> None:
        """Append rows with these hashes."""
        rows = self._rows + len(hashes)
        capacity = len(self._slots) // 2
        if 2 * (self._distinct + len(hashes)) > capacity:
            while 2 * (self._distinct + len(hashes)) > capacity:
                capacity *= 4  # by four: each slot then moves a third of a time on average
            larger = np.zeros(2 * capacity, np.int64)
            kernels.resize(self._slots, larger)
            self._slots = larger
        if rows > len(self._chain):
            longer = np.empty(max(rows, 2 * len(self._chain)), np.int32)
            longer[: self._rows] = self._chain[: self._rows]
            self._chain = longer
        self._distinct += kernels.insert(self._slots, self._chain, hashes, self._rows)
        self._rows = rows

    def find(self, hashes: Hashes) -> Matches:
        """The rows with the same hashes."""
        entries, pairs = kernels.find(self._slots, hashes)
        return Matches(entries, self._chain, pairs)


class Matches:
    """The answer to one probe: how many pairs, and the pairs themselves in pieces of bounded size."""

    def __init__(self, entries: Hashes, chain: NDArray[np.int32], pairs: int) -> None:
        self._entries = entries
        self._chain = chain
        self.pairs = pairs

    def pieces(self, most_pairs: int) -> Iterator[tuple[Rows, Rows]]:
        """(probing rows, resident rows); a piece is larger than `most_pairs` only if a single probing row is."""
        for start, end, pairs in pieces_of(self._entries >> 32, self.pairs, most_pairs):
            yield kernels.follow(self._entries, self._chain, start, end, pairs)
