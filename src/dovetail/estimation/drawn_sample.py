"""Estimates from rows drawn at random from all rows of both sides: unbiased in any order of arrival.

All pairs of the s left and s' right rows drawn are compared. A pair counts 1 (or a value) if it matches, else 0; y is
the mean. The error of T y has three parts: some left rows have more partners than others (L), so have right rows (R),
and the rest is chance (W):

    variance of y = L (1/s - 1/left rows) + R (1/s' - 1/right rows) + W (1/(s s') - 1/T)

The mean over a drawn left row's pairs has variance L + W/s', that over a right row's R + W/s, and a single pair V = L +
R + W: three equations for three unknowns. (Hoeffding, as in estimate.py; but there, a block has few of the pairs.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dovetail.core.metrics import Estimate
from dovetail.estimation.order import PlacedMatches

UNSEEN = 1.0  # rows of each side, per number of known rows, that may be unlike all of them: the least doubt
FEWEST_MATCHES = 30  # with fewer, their number is too far from a normal distribution

Numbers = NDArray[np.float64]


class DrawnSample:
    """`values`: one per match, for sums."""

    def __init__(self, found: PlacedMatches, values: Mapping[str, Numbers] | None = None) -> None:
        self.found = found
        self.matches = len(found.lefts)
        self._values = values or {}
        self._drawn = len(found.places[0]), len(found.places[1])
        self._pairs = self._drawn[0] * self._drawn[1]
        self._size = found.rows[0] * found.rows[1]
        self._total = self._size * self.matches / self._pairs
        self._error = self._error_of(np.ones(self.matches))

    def estimate(self, confidence: float) -> Estimate | None:
        """Estimate the number of results; None while there are too few matches."""
        return self._bounded(self._total, self._error, confidence, 1.0)

    def sum(self, name: str, confidence: float) -> Estimate | None:
        """Estimate the sum of a value over all results."""
        values = self._values[name]
        return self._bounded(self._size * float(values.sum()) / self._pairs, self._error_of(values), confidence)

    def average(self, name: str, count: str | None, confidence: float) -> Estimate | None:
        """Estimate an average over all results, with the error of its residuals. `count`: the number of values."""
        values, there = self._values[name], np.ones(self.matches) if count is None else self._values[count]
        if not (number := float(there.sum())):
            return None
        average = float(values.sum()) / number
        error = self._error_of(values - average * there) * self._pairs / (self._size * number)
        return self._bounded(average, error, confidence)

    def errors_from(self, total: float, error: float) -> float:
        """The distance of another estimate of the number of results from this one, in standard errors of both."""
        if self.matches >= FEWEST_MATCHES:
            return abs(self._total - total) / math.hypot(error, self._error)
        share = self._pairs / self._size
        fewer = self.matches < share * total
        expected = share * max(0.0, total - error if fewer else total + error)
        apart = 2 * (math.sqrt(expected + 0.375) - math.sqrt(self.matches + 0.375))  # Anscombe, for small counts
        return max(0.0, apart if fewer else -apart)

    def _bounded(self, total: float, error: float, confidence: float, least: float = 0.0) -> Estimate | None:
        unseen = UNSEEN * sum(1 / rows for rows in self._drawn) * (1 - self._pairs / self._size)
        margin = max(NormalDist().inv_cdf((1 + confidence) / 2) * error, unseen * abs(total), least)
        if self.matches < FEWEST_MATCHES or not margin:
            return None
        return Estimate(total, total - margin, total + margin, confidence)

    def _error_of(self, values: Numbers) -> float:
        """The standard error of the sum of these values over all pairs."""
        if not self.matches or min(self._drawn) < 2:
            return 0.0
        mean = float(values.sum()) / self._pairs
        each = max(0.0, float((values**2).sum()) / self._pairs - mean**2)
        lefts, rights = (
            float(np.bincount(rows, values, self._drawn[side]).var(ddof=1)) / self._drawn[1 - side] ** 2
            for side, rows in ((0, self.found.lefts), (1, self.found.rights))
        )
        rest = each
        for _ in range(3):  # L and R follow from W, and W from them; in most joins, W is nearly all
            left, right = max(0.0, lefts - rest / self._drawn[1]), max(0.0, rights - rest / self._drawn[0])
            rest = max(0.0, each - left - right)
        to_come = [1 / drawn - 1 / rows for drawn, rows in zip(self._drawn, self.found.rows, strict=True)]
        variance = left * to_come[0] + right * to_come[1] + rest * (1 / self._pairs - 1 / self._size)
        return self._size * math.sqrt(variance)
