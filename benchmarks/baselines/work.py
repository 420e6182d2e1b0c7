"""Counts the work of a join, in operations that do not depend on the machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]  # one number per kind of operation; kernels add to it

COMPARISONS, KEYS, BITS, WORDS, HASHED = range(5)
KINDS = 5


class Work:
    """Counters by kind."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(KINDS, np.int64)

    def __add__(self, other: Work) -> Work:
        total = Work()
        total.counts[:] = self.counts + other.counts
        return total

    def __iadd__(self, other: Work) -> Work:
        self.counts += other.counts
        return self

    def __repr__(self) -> str:
        return (
            f"Work(comparisons={self.comparisons}, keys={self.keys}, bits={self.bits}, words={self.words}, "
            f"hashed={self.hashed})"
        )

    @property
    def comparisons(self) -> int:
        """Key comparisons of searches and scans."""
        return int(self.counts[COMPARISONS])

    @property
    def keys(self) -> int:
        """Stored keys read from a range, or moved by a merge."""
        return int(self.counts[KEYS])

    @property
    def bits(self) -> int:
        """Single bits set."""
        return int(self.counts[BITS])

    @property
    def words(self) -> int:
        """64-bit words of bit arrays read."""
        return int(self.counts[WORDS])

    @property
    def hashed(self) -> int:
        """Entries put into or looked up in hash tables."""
        return int(self.counts[HASHED])

    @property
    def touched(self) -> int:
        """Everything except comparisons: a scan needs one per key, a lookup a few."""
        return self.total - self.comparisons

    @property
    def total(self) -> int:
        return int(self.counts.sum())
