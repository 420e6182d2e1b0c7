"""Do the orders of two inputs depend on each other? Tables that were filled together have partners at like places.

    places of matching rows      independent     the same order    shifted         blocks
    of a sample of both sides    . : .  . .      \\                  \\              ##
                                 :.  . : .         \\                  \\                 ##
                                 .  : .  .           \\           \\                  ##

Each side alone may be in perfectly random order. If the orders are independent, every place is as good as any other:
rows of a side may have more partners than others, but they are not in any particular place of the other side. Four
statistics tell when they are:

    lines      matches along a diagonal or an anti-diagonal, at any distance from it: of exact places
    bands      the same of places in 16, 64, 256 parts, for orders that are nearly the same and inputs of unequal length
    cells      how much the cells of a grid differ from what its rows and columns say
    patches    whether neighbours in the grid are alike

The last of these is compared with the grid after its rows and columns were shuffled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Condition
from dovetail.matching import build_matcher

Words = NDArray[np.int64]
Numbers = NDArray[np.float64]

FIRST_ROWS = 4096  # of those that arrive, by which orders are compared
FEW_ROWS = 512  # that say how many matches to expect
ROOM = 1 << 16  # matches that are enough
FEWEST = 8  # matches that say anything
PARTS = (16, 64, 256)  # of each side
LEAST = 1.0  # matches in a band, on average
ERRORS = 6.0  # standard errors: there are some hundred bands, and the test is repeated
CELLS = 16  # of each side of the grid
OVERDISPERSED = 4.0  # times the variance by chance: even with one dominating key, it varies by half only
SHUFFLES = 200


def fitting_rows(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch, matches: int) -> int:
    """How many rows of each side have about so many matches, to judge by these."""
    left, right = left.slice(0, FEW_ROWS), right.slice(0, FEW_ROWS)
    found = build_matcher(condition, left, right).count()
    return math.isqrt(matches * max(1, left.num_rows * right.num_rows) // max(1, found))


class PlacedMatches(NamedTuple):
    """Matches of a sample of left rows and a sample of right rows, by their places in the order of arrival."""

    places: tuple[Words, Words]  # of the rows in the sample
    rows: tuple[int, int]  # among which they are
    lefts: Words  # of each match, which row of the sample it is
    rights: Words

    @classmethod
    def between(
        cls,
        condition: Condition,
        batches: tuple[pa.RecordBatch, pa.RecordBatch],
        places: tuple[Words, Words],
        rows: tuple[int, int],
    ) -> PlacedMatches:
        """Those of two batches whose rows have these places."""
        listed = list(build_matcher(condition, *batches).pairs(ROOM))
        lefts, rights = (np.concatenate([np.empty(0, np.int64), *(pairs[side] for pairs in listed)]) for side in (0, 1))
        return cls(places, rows, lefts, rights)

    @classmethod
    def of_first_rows(cls, condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> PlacedMatches:
        """Those of rows that arrived one after the other, on both sides at the same time."""
        most = min(FIRST_ROWS, fitting_rows(condition, left, right, ROOM))
        batches = left.slice(0, most), right.slice(0, most)
        rows = batches[0].num_rows, batches[1].num_rows
        return cls.between(condition, batches, (np.arange(rows[0]), np.arange(rows[1])), rows)

    @property
    def depend(self) -> bool:
        """Whether the orders do, so certainly that chance is out of the question."""
        return len(self.lefts) >= FEWEST and (self._has_line() or self._has_band() or self._has_patches())

    def _has_line(self) -> bool:
        lefts, rights = self.places[0][self.lefts], self.places[1][self.rights]
        density = len(lefts) / (len(self.places[0]) * len(self.places[1]))
        possible = sum(self.rows)
        for sign in (-1, 1):
            lines, counts = np.unique(lefts + sign * rights, return_counts=True)
            most = int(np.argmax(counts))
            others = lines[most] - sign * self.places[1]
            expected = density * len(np.intersect1d(self.places[0], others))
            if (
                counts[most] >= FEWEST
                and _log_tail(int(counts[most]), 2 * expected) + math.log(possible) < -(ERRORS**2) / 2
            ):
                return True
        return False

    def _has_band(self) -> bool:
        for parts in PARTS:
            if len(self.lefts) < LEAST * parts:
                return False
            observed, expected = self._grid(parts)
            errors = np.array(list(_bands(observed, expected)))
            if np.abs(errors).max() > ERRORS * max(1.0, float(np.median(np.abs(errors))) / 0.6745):
                return True
        return False

    def _has_patches(self) -> bool:
        observed, expected = self._grid(CELLS)
        if len(self.lefts) < LEAST * CELLS**2:
            return False
        rest: Numbers = (observed - expected) / np.sqrt(np.maximum(expected, 1e-9))
        if (rest**2).sum() > OVERDISPERSED * (CELLS - 1) ** 2:
            return True
        rng = np.random.default_rng(0)
        by_chance = [_likeness(rest[rng.permutation(CELLS)][:, rng.permutation(CELLS)]) for _ in range(SHUFFLES)]
        return bool(_likeness(rest) - np.mean(by_chance) > ERRORS * np.std(by_chance))

    def _grid(self, parts: int) -> tuple[Numbers, Numbers]:
        """Matches by the part of each side, and what to expect by how many each part has."""
        lefts, rights = (
            self.places[side][matched] * parts // self.rows[side]
            for side, matched in ((0, self.lefts), (1, self.rights))
        )
        observed = np.bincount(lefts * parts + rights, minlength=parts**2).reshape(parts, parts).astype(np.float64)
        expected: Numbers = observed.sum(axis=1, keepdims=True) * observed.sum(axis=0) / observed.sum()
        return observed, expected


def _bands(observed: Numbers, expected: Numbers) -> Iterator[float]:
    """How many standard errors each band has too many; each has all parts of both sides once."""
    parts = len(observed)
    here = np.arange(parts)
    for flipped in (False, True):
        for lag in range(parts):
            there = (lag - here) % parts if flipped else (here + lag) % parts
            found, likely = observed[here, there].sum(), expected[here, there].sum()
            yield 2 * (math.sqrt(found + 0.375) - math.sqrt(likely + 0.375))  # Anscombe's, for few of them


def _likeness(rest: Numbers) -> float:
    """Of neighbours in the grid."""
    return float(
        (rest[1:] * rest[:-1]).sum()
        + (rest[:, 1:] * rest[:, :-1]).sum()
        + (rest[1:, 1:] * rest[:-1, :-1]).sum()
        + (rest[1:, :-1] * rest[:-1, 1:]).sum()
    )


def _log_tail(count: int, expected: float) -> float:
    """A bound of the logarithm of the probability of so many or more, where so many are expected (Chernoff's)."""
    if count <= expected:
        return 0.0
    return count - expected - (count * math.log(count / expected) if expected else math.inf)
