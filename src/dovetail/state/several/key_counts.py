"""How often each key has come, in little memory: a count-min sketch of codes (Cormode, Muthukrishnan, 2005).

Two lines of small counters; a code has one counter in each, and what it came is at most the smaller of the two. When a
counter is full, all are halved, so that what came long ago counts less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.hashing import hash_codes
from dovetail.state.several.links import Codes

LINES = 2
BYTES = 2  # of a counter
FULL = 2**15
UNSEEN = 0.5  # times that a key is taken to have come which has not


class KeyCounts:
    def __init__(self, width: int) -> None:
        self._counts = np.zeros((LINES, width), np.uint16)
        self._total = 0

    def add(self, codes: Codes) -> None:
        codes, times = np.unique(codes, return_counts=True)
        places = self._places(codes)
        # Conservative: no counter gets larger than the code that raises it can have come.
        counted = np.min([line[at] for line, at in zip(self._counts, places, strict=True)], axis=0) + times
        for line, at in zip(self._counts, places, strict=True):
            np.maximum.at(line, at, counted.astype(np.uint16))
        self._total += int(times.sum())
        if self._counts.max() >= FULL:
            self._counts >>= 1
            self._total //= 2

    def share(self, codes: Codes) -> NDArray[np.float64]:
        """The share of rows to come that each code can be expected to have."""
        found = np.min([line[places] for line, places in zip(self._counts, self._places(codes), strict=True)], axis=0)
        share: NDArray[np.float64] = (found + UNSEEN) / (self._total + 1)
        return share

    def _places(self, codes: Codes) -> list[NDArray[np.int64]]:
        hashes = hash_codes(np.ascontiguousarray(codes)).view(np.uint64)
        width = np.uint64(self._counts.shape[1])
        return [(half % width).astype(np.int64) for half in (hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF))]
