"""How many rows of RN do not find their partner in the window (Diag-Join, section 4.2, equations 10 to 18).

A row at its expected place looks at the tables around the middle one. With deviations that are normal with mean 0 and
standard deviation sigma, in rows of R1, the mean over all places in the middle table is

    Pr = 1/h sum over j = floor(l/2) h + 1 … ceil(l/2) h of 1 - N(1, m, j, sigma)            (18)

for l tables of h rows, m = l h. In print the exponent of (11) lacks its minus, and (18) adds up one place too many.
Positions are integers, so that the integral runs from 1/2 to m + 1/2.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_P = 0.3275911  # Abramowitz and Stegun 7.1.26: right to 1.5e-7
_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def normal_between(low: Floats, high: Floats, sigma: float) -> Floats:
    """N(low, high, 0, sigma): how likely a normal deviation is in between (12)."""
    return _cumulative(high / sigma) - _cumulative(low / sigma)


def _cumulative(x: Floats) -> Floats:
    z = np.abs(x) / sqrt(2)
    t = 1 / (1 + _P * z)
    error = 1 - t * (_A[0] + t * (_A[1] + t * (_A[2] + t * (_A[3] + t * _A[4])))) * np.exp(-z * z)
    return 0.5 * (1 + np.sign(x) * error)


def normal_mishits(tables: int, table_rows: int, sigma: float) -> float:
    """The mean probability of a mishit where deviations are normal (18)."""
    before = tables // 2 * table_rows
    places = np.arange(before + 1, before + table_rows + 1, dtype=np.float64)
    window = tables * table_rows
    return float(np.mean(1 - normal_between(0.5 - places, window + 0.5 - places, sigma)))


def expected_mishits(tables: int, table_rows: int, deviations: NDArray[np.int64]) -> float:
    """The same for deviations as they are, of any shape: the place in the middle table is equally likely everywhere.

    The window reaches (u + floor(l/2) h) rows back and (h - 1 - u + floor(l/2) h) ahead of place u of the middle table.
    """
    if not len(deviations):
        return 0.0
    half = tables // 2
    ahead = half - (tables % 2 == 0)  # an even number of tables has one less after the middle
    reach = np.where(deviations < 0, half, ahead)
    hit = np.clip(reach + 1 - np.abs(deviations) / table_rows, 0, 1)
    return float(1 - hit.mean())


def sufficient_rows(tables: int, deviations: NDArray[np.int64], accept: float) -> int:
    """The smallest number of rows per table with no more than such a share of mishits (section 3.5)."""
    low, high = 1, 1 + int(np.abs(deviations).max(initial=0))
    while low < high:
        between = (low + high) // 2
        if expected_mishits(tables, between, deviations) <= accept:
            high = between
        else:
            low = between + 1
    return low
