"""Three areas of an ordered attribute, and what rows in them were good for.

         lower   |            middle             |   upper
    code <= low  |                               |  code >= up

The lower and the upper area hold about one block each. Before the first flush there are no borders, and everything is
in the middle. Each area counts its rows, and the results that rows of it took part in since the last flush.
DINER and MINER, Adaptive Join Operators, TKDE 2010, sections 3.2 and 4.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.state.links import Codes

LOWER, MIDDLE, UPPER = 0, 1, 2
TIES = (UPPER, LOWER, MIDDLE)  # which area goes first where benefits are equal


class Areas:
    def __init__(self) -> None:
        self.low: int | None = None
        self.up: int | None = None
        self.results = np.zeros(3, np.int64)
        self.rows = np.zeros(3, np.int64)

    def of(self, codes: Codes) -> NDArray[np.int8]:
        """The area of each code."""
        found = np.full(len(codes), MIDDLE, np.int8)
        if self.low is not None:
            found[codes <= self.low] = LOWER
        if self.up is not None:
            found[codes >= self.up] = UPPER
        return found

    def credit(self, codes: Codes) -> None:
        """A result for each code."""
        self.results += self._counts(codes)

    def add(self, codes: Codes) -> None:
        """A row for each code."""
        self.rows += self._counts(codes)

    def benefit(self, area: int) -> float:
        """Results per row; an empty area has none to give away."""
        return float(self.results[area] / self.rows[area]) if self.rows[area] else np.inf

    def flushed(self, codes: Codes, block: int) -> None:
        """Rows have left, these are the others: move the borders, so that edge areas hold a block."""
        if len(codes):
            ordered, size = np.sort(codes), min(block, len(codes))
            self.low, self.up = int(ordered[size - 1]), int(ordered[-size])
        if self.low is not None and self.up is not None and self.low >= self.up:
            # Many equal keys: they are all in the upper area. Codes are whole numbers, so the lower ends before them.
            self.low = self.up - 1 if self.up > np.iinfo(np.int64).min else None
        self.results[:] = 0
        self.rows = self._counts(codes)

    def _counts(self, codes: Codes) -> NDArray[np.int64]:
        return np.bincount(self.of(codes), minlength=3).astype(np.int64)
