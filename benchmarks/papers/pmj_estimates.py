"""How often intervals of the estimator hold the true number of results, over many random inputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.estimate import Estimator, Interval

Words = NDArray[np.int64]

VALUES = 1000
BLOCKS = 50  # run pairs of a whole input
ROWS = 10_000  # of each side


def zipf(rng: np.random.Generator, exponent: float) -> Words:
    """Keys of one side; 0 is uniform."""
    weights = np.cumsum(1 / np.arange(1, VALUES + 1) ** exponent)
    return np.searchsorted(weights / weights[-1], rng.random(ROWS))


def matches(left: Words, right: Words) -> int:
    return int(np.bincount(left, minlength=VALUES) @ np.bincount(right, minlength=VALUES))


def after(left: Words, right: Words, blocks: int) -> Estimator:
    """The estimator after so many of the blocks into which both sides are cut."""
    estimator = Estimator()
    size = ROWS // BLOCKS
    for b in range(blocks):
        rows = slice(b * size, (b + 1) * size)
        estimator.add(size, size, matches(left[rows], right[rows]))
    return estimator


def coverage(exponent: float, blocks: int, interval: Interval, repetitions: int = 400) -> float:
    """In which share of all cases the 95 % interval holds the truth."""
    rng = np.random.default_rng(blocks)
    inside = 0
    for _ in range(repetitions):
        left, right = zipf(rng, exponent), zipf(rng, exponent)
        estimate = after(left, right, blocks).estimate(ROWS, ROWS, interval=interval)
        assert estimate is not None
        inside += estimate.low <= matches(left, right) <= estimate.high
    return inside / repetitions


def median_error(blocks: int, repetitions: int = 100) -> float:
    """Relative, of uniform keys."""
    rng = np.random.default_rng(blocks)
    errors = []
    for _ in range(repetitions):
        left, right = zipf(rng, 0), zipf(rng, 0)
        estimate = after(left, right, blocks).estimate(ROWS, ROWS)
        assert estimate is not None
        errors.append(abs(estimate.total / matches(left, right) - 1))
    return float(np.median(errors))
