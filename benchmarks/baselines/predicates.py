"""The predicates of the baselines: one comparison per key, and the position of its partners among sorted keys.

    stored keys   y y y y y y y y y y y y
    place         - - - 0 0 0 0 0 + + + +        for one probing key x; the same for every operator
                        ^start    ^end

`!=` has the places of `=`, and its partners are all other keys. Bands compare the computed difference, which never
increases with y, so that a search finds exactly the keys for which |x - y| < width holds as computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.work import COMPARISONS, Counts
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, NOT_EQUAL

Floats = NDArray[np.float64]
Words = NDArray[np.int64]

BAND, BAND_EQUAL = 6, 7  # |x - y| < width, |x - y| <= width
OPERATORS = {
    "<": LESS,
    "<=": LESS_EQUAL,
    ">": GREATER,
    ">=": GREATER_EQUAL,
    "=": EQUAL,
    "!=": NOT_EQUAL,
    "band<": BAND,
    "band<=": BAND_EQUAL,
}
MIRRORED = {LESS: GREATER, LESS_EQUAL: GREATER_EQUAL, GREATER: LESS, GREATER_EQUAL: LESS_EQUAL}
INDEXED = 2  # predicates handled by a structure; any others are checked on the rows it finds


class Predicate(NamedTuple):
    """Left key, operator, right key."""

    operator: int
    width: float = 0.0  # for bands

    @property
    def mirrored(self) -> Predicate:
        """The same predicate with the right key first."""
        return Predicate(MIRRORED.get(self.operator, self.operator), self.width)


class Tests(NamedTuple):
    """Predicates for kernels, with the probing key first."""

    operators: Words
    widths: Floats


class Query(NamedTuple):
    """A conjunction: the k-th predicate compares the k-th keys of both rows."""

    predicates: tuple[Predicate, ...]
    self_join: bool = False
    once: bool = False  # symmetric self-joins: each unordered pair once, with the later row on the left

    @classmethod
    def of(cls, *operators: str, width: float = 0.0, self_join: bool = False, once: bool = False) -> Query:
        """A query from operator names in `OPERATORS`; all bands have the same width."""
        return cls(tuple(Predicate(OPERATORS[name], width) for name in operators), self_join, once)

    def tests(self, left_probes: bool) -> Tests:
        """The predicates for probing with a left or with a right row."""
        asked = [each if left_probes else each.mirrored for each in self.predicates]
        return Tests(np.array([each.operator for each in asked]), np.array([each.width for each in asked]))


def as_keys(row: Sequence[float | None]) -> Floats:
    """Convert to keys; nulls become NaN, which never matches."""
    return np.array([math.nan if value is None else value for value in row], np.float64)


@kernel
def place(operator: int, width: float, x: float, y: float) -> int:
    """The place of a stored key y: -1 before the partners of x, 0 among them, 1 after them; != is treated as =."""
    if operator == LESS:
        return 0 if y > x else -1
    if operator == LESS_EQUAL:
        return 0 if y >= x else -1
    if operator == GREATER:
        return 0 if y < x else 1
    if operator == GREATER_EQUAL:
        return 0 if y <= x else 1
    if operator == BAND:
        return -1 if x - y >= width else (0 if x - y > -width else 1)  # inf - inf is NaN: no partner
    if operator == BAND_EQUAL:
        return -1 if x - y > width else (0 if x - y >= -width else 1)
    return -1 if y < x else (1 if y > x else 0)


@kernel
def holds(operator: int, width: float, x: float, y: float) -> bool:
    return bool((place(operator, width, x, y) == 0) != (operator == NOT_EQUAL))


@kernel
def find_range(keys: Floats, operator: int, width: float, x: float, counts: Counts) -> tuple[int, int]:
    """Start and end of the partners in sorted keys, by binary search; with !=, of the keys that do not match."""
    return _first(keys, operator, width, x, 0, counts), _first(keys, operator, width, x, 1, counts)


@kernel
def _first(keys: Floats, operator: int, width: float, x: float, least: int, counts: Counts) -> int:
    """The first position whose place is at least this."""
    low = 0
    high = len(keys)
    while low < high:
        middle = (low + high) >> 1
        counts[COMPARISONS] += 1
        if place(operator, width, x, keys[middle]) < least:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def check_rows(stored: Floats, tests: Tests, keys: Floats, skipped: int, counts: Counts) -> NDArray[np.bool_]:
    """The stored rows that satisfy all predicates except the first `skipped`."""
    good = np.ones(len(stored), np.bool_)
    for row in range(len(stored)):
        for k in range(skipped, len(keys)):
            counts[COMPARISONS] += 1
            if not holds(tests.operators[k], tests.widths[k], keys[k], stored[row, k]):
                good[row] = False
                break
    return good
