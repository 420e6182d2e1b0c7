"""Processes units of work in a weighted random order, and estimates the total from those done so far.

    weights    5  1  1  3 …         the expected yield of each unit
    order      0  3  1  2 …         drawn without replacement, each time in proportion to the remaining weights

So results are found early, and the estimate from the units done so far is unbiased even if the expectations are wrong;
they only affect its variance. After the k-th draw,

    e_k = what the first k - 1 units gave + what unit k gave * (weight of all that were left) / (weight of unit k)

estimates the total. All e_k have the right mean and are uncorrelated, so their sample variance gives bounds for their
average.

D. Raj, Some estimators in sampling with varying probabilities without replacement, JASA 51, 1956.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.core.metrics import Estimate
from dovetail.estimation.estimate import CONFIDENCE, student_t

FEWEST = 3  # draws before there is an estimate
LEAST_ERROR = 0.05  # relative error of an expectation

Numbers = NDArray[np.float64]


class WeightedSample:
    """Units by number, in the order in which they are drawn."""

    def __init__(self, weights: Sequence[float] | Numbers, seed: int = 0) -> None:
        self.weights = np.asarray(weights, np.float64)
        if not (self.weights > 0).all():
            raise ValueError("weights must be positive: a unit of weight 0 would never be drawn")
        # The smallest of exponential times with the weights as rates is a weighted draw, and so is the next smallest.
        times = np.random.default_rng(seed).exponential(size=len(self.weights)) / self.weights
        self.order = np.argsort(times, kind="stable")

    def __len__(self) -> int:
        return len(self.weights)

    def total(
        self, given: Sequence[float] | Numbers, confidence: float = CONFIDENCE, known: float = 0.0
    ) -> Estimate | None:
        """Estimate what all units yield, from the yields of the first ones, in order; None while too few are done.

        `known` is added to the total.
        """
        values = np.asarray(given, np.float64)
        found = known + float(values.sum())
        if len(values) == len(self):
            return Estimate(found, found, found, confidence)
        if len(values) < FEWEST:
            return None
        estimates = known + self._estimates(values)
        mean = float(estimates.mean())
        below, above = _margins(estimates, mean, confidence)
        return Estimate(mean, mean - below, mean + above, confidence) if below + above else None

    def count(
        self, given: Sequence[float] | Numbers, confidence: float = CONFIDENCE, known: float = 0.0
    ) -> Estimate | None:
        """Like `total`, for a number that never decreases: it is at least what has been found."""
        estimate = self.total(given, confidence, known)
        if estimate is None or not np.any(np.asarray(given) > 0):
            return estimate if estimate is not None and len(given) == len(self) else None
        found = known + float(np.sum(given))
        total, high = max(found, estimate.total), max(found, estimate.high)
        return Estimate(total, min(total, max(found, estimate.low)), high, confidence)

    def ratio(
        self,
        numerators: Sequence[float] | Numbers,
        denominators: Sequence[float] | Numbers,
        confidence: float = CONFIDENCE,
        known: tuple[float, float] = (0.0, 0.0),
    ) -> Estimate | None:
        """Estimate the ratio of two totals, for example an average, with the error of the residuals of each unit."""
        above, below = self.total(numerators, known=known[0]), self.total(denominators, known=known[1])
        if above is None or below is None or below.total <= 0:
            return None
        ratio = above.total / below.total
        rest = np.asarray(numerators, np.float64) - ratio * np.asarray(denominators, np.float64)
        if len(rest) == len(self):
            return Estimate(ratio, ratio, ratio, confidence)
        less, more = _margins(self._estimates(rest), above.total, confidence)
        if not less + more:
            return None
        return Estimate(ratio, ratio - less / below.total, ratio + more / below.total, confidence)

    def _estimates(self, values: Numbers) -> Numbers:
        """One estimate of the total per draw."""
        weights = self.weights[self.order]
        left = np.cumsum(weights[::-1])[::-1][: len(values)]  # the weight of all units not drawn before
        before = np.cumsum(values) - values
        estimates: Numbers = before + values * left / weights[: len(values)]
        return estimates


def _margins(estimates: Numbers, total: float, confidence: float) -> tuple[float, float]:
    """How far the truth may be below and above their mean; further on the side where the distribution has a tail.

    L. Chen, Testing the mean of skewed distributions, JASA 90, 1995. Draws that agree completely do so by chance: the
    minimal error of an expectation is assumed for them.
    """
    count = len(estimates)
    deviations = estimates - estimates.mean()
    variance = max(float(estimates.var(ddof=1)), (LEAST_ERROR * total) ** 2)
    if variance == 0:
        return 0.0, 0.0
    error, t = math.sqrt(variance / count), student_t(count - 1, confidence)
    third = float((deviations**3).sum()) * count / ((count - 1) * (count - 2))
    tail = third / variance**1.5 / (6 * math.sqrt(count)) * (1 + 2 * t * t) * error
    return t * error + max(0.0, -tail), t * error + max(0.0, tail)
