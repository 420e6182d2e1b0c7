"""Rows that were dropped instead of written, by their hashes: enough to count every result that is missed for it.

A pair is missed if one row comes after the other was dropped. So each arriving row is looked up among the dropped ones
of the other side. Where equal hashes have to be checked, it is candidates that are counted.

Besides what was missed there is what one would expect, by the statistics that choose the rows to drop: an arriving row
is in partition j with probability p[j] and has one of its keys, all alike. Where the two part, the statistics are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.int64]
Shares = NDArray[np.float64]


class Dropped:
    """How many rows of one side were dropped with each hash."""

    def __init__(self, partitions: int) -> None:
        self._hashes: Hashes = np.empty(0, np.int64)  # ascending
        self._by_partition = np.zeros(partitions, np.int64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._counts.nbytes

    def add(self, partition: int, hashes: Hashes) -> None:
        self._by_partition[partition] += len(hashes)
        merged = np.concatenate([self._hashes, hashes])
        counts = np.concatenate([self._counts, np.ones(len(hashes), np.int64)])
        self._hashes, places = np.unique(merged, return_inverse=True)
        self._counts = np.bincount(places, counts, len(self._hashes)).astype(np.int64)

    def missed(self, hashes: Hashes) -> int:
        """With how many dropped rows these would have met."""
        if not len(self._hashes):
            return 0
        places = np.searchsorted(self._hashes, hashes).clip(max=len(self._hashes) - 1)
        return int(self._counts[places][self._hashes[places] == hashes].sum())

    def expected(self, rows: int, shares: Shares, keys: Shares) -> float:
        """With how many dropped rows so many would meet: which share of them is in each partition, and its keys."""
        return float(rows * (self._by_partition * shares / keys).sum())

    def to_json(self) -> dict[str, Any]:
        counts = {"counts": self._counts.tolist(), "by_partition": self._by_partition.tolist()}
        return {"hashes": self._hashes.tolist(), **counts}

    def restore(self, fields: Mapping[str, Any]) -> None:
        names = ("hashes", "counts", "by_partition")
        self._hashes, self._counts, self._by_partition = (np.array(fields[name], np.int64) for name in names)
