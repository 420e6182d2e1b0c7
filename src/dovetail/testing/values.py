"""Join keys with the distributions of the DINER and RPJ experiments.

Each is an array of integers in the order of arrival; `rng` is the only source of randomness, so a seed reproduces it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.sources.paced import Seconds

Values = NDArray[np.int64]
Shares = NDArray[np.float64]
Random = np.random.Generator

PARTITIONS = 20


def zipf_shares(size: int, skew: float) -> Shares:
    """The share of each of `size` values, the most frequent first: proportional to 1 / rank ** skew, with sum 1."""
    return _normalise_shares(np.arange(1.0, size + 1) ** -skew)


def draw_positions(rows: int, shares: Shares, rng: Random) -> Values:
    """Positions in `shares`, as often as their shares say."""
    ends = np.cumsum(shares)
    found: Values = np.searchsorted(ends, rng.random(rows) * ends[-1], side="right")
    return found


def zipf(rows: int, rng: Random, *, skew: float = 1.0, low: int = 1, high: int = 999) -> Values:
    """Zipf values on [low, high]; low is the most frequent."""
    return low + draw_positions(rows, zipf_shares(high - low + 1, skew), rng)


def normal(rows: int, rng: Random, *, mean: float = 500.0, variance: float = 50.0) -> Values:
    """Rounded normal values: real numbers would hardly ever be equal."""
    return np.rint(rng.normal(mean, np.sqrt(variance), rows)).astype(np.int64)


def shifting_mean(
    seconds: Seconds, rng: Random, *, shift: float, mean: float = 75.0, variance: float = 15.0, period_s: float = 10.0
) -> Values:
    """Normal values whose mean moves by `shift` from each of ten periods of arrival to the next."""
    period = np.minimum(np.floor(seconds / period_s), 9)
    return np.rint(rng.normal(mean + shift * period, np.sqrt(variance))).astype(np.int64)


def partially_sorted(values: Values, order: NDArray[np.integer]) -> Values:
    """The values sorted and cut into as many intervals as `order` has entries; interval order[0] arrives first."""
    intervals = np.array_split(np.sort(values), len(order))
    return np.concatenate([intervals[i] for i in order])


def harmony(partitions: int = PARTITIONS) -> Shares:
    """RPJ: partition j of both relations has 1 % + (8/19) % (j - 1), for 20 partitions; ascending."""
    return _normalise_shares(1.0 + 8.0 * np.arange(partitions) / max(1, partitions - 1))


def reverse(partitions: int = PARTITIONS) -> Shares:
    """RPJ: the shares of the second relation, if partition j of one is like partition n + 1 - j of the other.

    The paper prints n - j, which does not exist for j = n.
    """
    return harmony(partitions)[::-1]


def partitioned(rows: int, rng: Random, shares: Shares, *, domain: int = 10_000) -> Values:
    """RPJ: values on [1, domain]; the partition (value mod partitions) by its share, uniform within it."""
    partition = draw_positions(rows, shares, rng)
    return 1 + partition + len(shares) * rng.integers(0, domain // len(shares), rows)


def _normalise_shares(weights: NDArray[np.float64]) -> Shares:
    shares: Shares = weights / weights.sum()
    return shares
