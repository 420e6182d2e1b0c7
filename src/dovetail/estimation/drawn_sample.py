"""Estimates from rows that were drawn by chance from all rows of both sides: fair in whatever order they are.

All pairs of s left and s' right rows that were drawn have been looked at, and a share y of them matches. How wrong T y
is has three parts: some left rows have more partners than others (L), so have right rows (R), and for the rest (W)
chance decides:

    variance of y = L (1/s - 1/left rows) + R (1/s' - 1/right rows) + W (1/(s s') - 1/T)

The share of its pairs in which a drawn left row matches varies by L + W/s', that of a right row by R + W/s, and a
single pair by L + R + W = y (1 - y): three equations for three unknowns. (Hoeffding, as in estimate.py; but there, a
block has few of the pairs.)
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from dovetail.core.metrics import Estimate
from dovetail.estimation.order import PlacedMatches

UNSEEN = 1.0  # row of each side, for as many as are known, that is unlike all of them: the least there is to doubt
FEWEST_MATCHES = 30  # with fewer, their number is too far from being normally distributed


class DrawnSample:
    def __init__(self, found: PlacedMatches) -> None:
        self.found = found
        self.matches = len(found.lefts)
        drawn = [len(places) for places in found.places]
        self.pairs = drawn[0] * drawn[1]
        share = self.matches / self.pairs
        self._share, self._error = share, 0.0
        if not self.matches:
            return
        by_left, by_right = (
            float(np.bincount(rows, minlength=drawn[side]).var(ddof=1)) / drawn[1 - side] ** 2
            if drawn[side] > 1
            else 0.0
            for side, rows in ((0, found.lefts), (1, found.rights))
        )
        rest = share * (1 - share)
        for _ in range(3):  # L and R follow from W, and W from them; W is all but the whole in most joins
            left, right = max(0.0, by_left - rest / drawn[1]), max(0.0, by_right - rest / drawn[0])
            rest = max(0.0, share * (1 - share) - left - right)
        size = found.rows[0] * found.rows[1]
        self._error = math.sqrt(
            left * (1 / drawn[0] - 1 / found.rows[0])
            + right * (1 / drawn[1] - 1 / found.rows[1])
            + rest * (1 / self.pairs - 1 / size)
        )

    def estimate(self, confidence: float) -> Estimate | None:
        """Of the number of results; None while there are too few matches."""
        if self.matches < FEWEST_MATCHES:
            return None
        size = self.found.rows[0] * self.found.rows[1]
        drawn = (len(places) for places in self.found.places)
        unseen = UNSEEN * sum(1 / count for count in drawn)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        total = size * self._share
        margin = max(size * z * self._error, unseen * total * (1 - self.pairs / size), 1.0)
        return Estimate(total, total - margin, total + margin, confidence)

    def errors_from(self, total: float, error: float) -> float:
        """How far another estimate, with its standard error, is from this one, in standard errors of both."""
        size = self.found.rows[0] * self.found.rows[1]
        if self.matches >= FEWEST_MATCHES:
            return abs(size * self._share - total) / math.hypot(error, size * self._error)
        share = self.pairs / size
        fewer = self.matches < share * total
        expected = share * max(0.0, total - error if fewer else total + error)
        apart = 2 * (math.sqrt(expected + 0.375) - math.sqrt(self.matches + 0.375))  # Anscombe's, for few of them
        return max(0.0, apart if fewer else -apart)
