"""The k nearest vectors in many dimensions: all distances by a matrix product, then the best ones again, exactly.

    |l - r|² = |l|² + |r|² - 2 l·r         off by a rounding error with a known bound

A few more candidates than needed are computed exactly, as sums of squares from the first dimension to the last. If the
first one left out may be as near as the last one kept, the whole row is computed that way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.int64]

SPARE = 8  # extra candidates
CELLS = 1 << 22  # distances at a time
ROUNDING = 2.0**-50  # relative error of a product, per dimension


def nearest(left: Floats, right: Floats, k: int, most: float) -> tuple[Words, Words]:
    """The rows of the nearest right vectors of each left one, ascending by distance, and their number."""
    rows, sizes = np.zeros((len(left), k), np.int64), np.zeros(len(left), np.int64)
    kept = np.flatnonzero(np.isfinite(right).all(axis=1))
    right = right[kept]
    if not len(kept):
        return rows, sizes
    lengths = np.einsum("ij,ij->i", right, right)
    lines = max(1, CELLS // len(right))
    some = np.flatnonzero(np.isfinite(left).all(axis=1))
    for start in range(0, len(some), lines):
        part = some[start : start + lines]
        places, sums = _best(left[part], right, lengths, min(k, len(right)))
        good = (sums <= most) & (sums < np.inf)
        rows[part, : places.shape[1]] = kept[places]
        sizes[part] = good.sum(axis=1)
    return rows, sizes


def _best(left: Floats, right: Floats, lengths: Floats, k: int) -> tuple[Words, Floats]:
    """The nearest of all, and their sums of squares."""
    with np.errstate(over="ignore", invalid="ignore"):
        mine = np.einsum("ij,ij->i", left, left)
        roughly = mine[:, None] + lengths - 2.0 * (left @ right.T)
    count = min(k + SPARE, len(right))
    if count == len(right):
        return _first(np.broadcast_to(np.arange(count), (len(left), count)), left, right, k)
    order = np.argpartition(roughly, count - 1, axis=1)
    places, sums = _first(order[:, :count].copy(), left, right, k)
    left_out = np.take_along_axis(roughly, order[:, count - 1 : count], axis=1)[:, 0]
    error = ROUNDING * left.shape[1] * (mine + lengths.max())
    for line in np.flatnonzero(~(sums[:, -1] <= left_out - error)):
        places[line], sums[line] = _of_all(left[line], right, k)
    return places, sums


def _of_all(point: Floats, right: Floats, k: int) -> tuple[Words, Floats]:
    """The same for one left vector, with all distances computed by definition."""
    with np.errstate(over="ignore"):
        apart = right - point
        apart *= apart
        sums = np.add.accumulate(apart, axis=1)[:, -1]  # from the first dimension to the last
    some = np.argpartition(sums, k - 1)[:k]
    some = some[np.argsort(sums[some], kind="stable")]
    return some, sums[some]


def _first(places: Words, left: Floats, right: Floats, k: int) -> tuple[Words, Floats]:
    """The k nearest of these, with sums computed by definition."""
    sums = np.zeros(places.shape)
    with np.errstate(over="ignore"):
        for d in range(left.shape[1]):
            apart = left[:, d : d + 1] - right[places, d]
            sums += apart * apart
    order = np.argsort(sums, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(sums, order, axis=1)
