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
from functools import cache
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
ENOUGH = 1 << 16  # matches of the rows that are compared
MOST_TESTED = 1 << 14  # of them
FEWEST = 8  # matches that say anything
PARTS = (16, 64, 256)  # of each side
LEAST = 1.0  # matches in a band, on average
ERRORS = 6.0  # standard errors: there are some hundred bands, and the test is repeated
CELLS = 16  # of each side of the grid
OVERDISPERSED = 4.0  # times the variance by chance: even with one dominating key, it varies by half only
SHUFFLES = 64


def fitting_rows(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch, matches: int) -> int:
    """How many rows of each side have about this number of matches, to judge by these."""
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
        listed = list(build_matcher(condition, *batches).pairs(ENOUGH))
        lefts, rights = (np.concatenate([np.empty(0, np.int64), *(pairs[side] for pairs in listed)]) for side in (0, 1))
        return cls(places, rows, lefts, rights)

    @classmethod
    def of_first_rows(cls, condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> PlacedMatches:
        """Those of rows that arrived one after the other, on both sides at the same time."""
        most = min(FIRST_ROWS, fitting_rows(condition, left, right, ENOUGH))
        batches = left.slice(0, most), right.slice(0, most)
        rows = batches[0].num_rows, batches[1].num_rows
        return cls.between(condition, batches, (np.arange(rows[0]), np.arange(rows[1])), rows)

    @property
    def depend(self) -> bool:
        """Whether the orders do, so certainly that chance is out of the question."""
        if len(self.lefts) < FEWEST:
            return False
        some = self._thin(MOST_TESTED)
        return some._has_line() or some._has_band() or some._has_patches()

    def _thin(self, most: int) -> PlacedMatches:
        """About this number of matches: those of fewer left rows, with all right rows."""
        if len(self.lefts) <= most:
            return self
        rows = max(1, len(self.places[0]) * most // len(self.lefts))
        kept = np.flatnonzero(self.lefts < rows)
        return self._replace(
            places=(self.places[0][:rows], self.places[1]), lefts=self.lefts[kept], rights=self.rights[kept]
        )

    def _has_line(self) -> bool:
        lefts, rights = self.places[0][self.lefts], self.places[1][self.rights]
        likely = len(lefts) / max(map(len, self.places))  # at most: a line has a row of the shorter sample once
        for lines in (lefts - rights, lefts + rights):
            lines = np.sort(lines)
            starts = np.flatnonzero(np.diff(lines, prepend=lines[0] - 1))
            most = int(np.diff(starts, append=len(lines)).max())
            if most >= FEWEST and _log_tail(most, 2 * likely) + math.log(sum(self.rows)) < -(ERRORS**2) / 2:
                return True
        return False

    def _has_band(self) -> bool:
        for parts in PARTS:
            if len(self.lefts) < LEAST * parts:
                return False
            lefts, rights = self._parts(parts)
            mine, theirs = (np.bincount(part, minlength=parts) / math.sqrt(len(lefts)) for part in (lefts, rights))
            one, other = np.fft.rfft(mine), np.fft.rfft(theirs)
            for distances, product in ((rights - lefts, one.conj() * other), (rights + lefts, one * other)):
                observed = np.bincount(distances % parts, minlength=parts)
                expected = np.maximum(0.0, np.fft.irfft(product, parts))  # for each distance, by what each part has
                errors = np.abs(2 * (np.sqrt(observed + 0.375) - np.sqrt(expected + 0.375)))  # Anscombe's, for few
                if errors.max() > ERRORS * max(1.0, float(np.median(errors)) / 0.6745):
                    return True
        return False

    def _has_patches(self) -> bool:
        if len(self.lefts) < LEAST * CELLS**2:
            return False
        lefts, rights = self._parts(CELLS)
        observed = np.bincount(lefts * CELLS + rights, minlength=CELLS**2).reshape(CELLS, CELLS).astype(np.float64)
        expected = observed.sum(axis=1, keepdims=True) * observed.sum(axis=0) / observed.sum()
        rest: Numbers = (observed - expected) / np.sqrt(np.maximum(expected, 1e-9))
        if (rest**2).sum() > OVERDISPERSED * (CELLS - 1) ** 2:
            return True
        rows, columns = _shuffles()
        by_chance = _likeness(rest[rows[:, :, None], columns[:, None, :]])
        return bool(_likeness(rest) - by_chance.mean() > ERRORS * by_chance.std())

    def _parts(self, parts: int) -> tuple[Words, Words]:
        """In which part of its side each match has its left row, and its right row."""
        lefts, rights = self.places[0][self.lefts], self.places[1][self.rights]
        return lefts * parts // self.rows[0], rights * parts // self.rows[1]


@cache
def _shuffles() -> tuple[Words, Words]:
    """Orders of the rows and columns of the grid."""
    orders = np.tile(np.arange(CELLS), (2, SHUFFLES, 1))
    rows, columns = np.random.default_rng(0).permuted(orders, axis=2)
    return rows, columns


def _likeness(rest: Numbers) -> Numbers:
    """How alike neighbours in the grid are, or in each of several grids."""
    pairs = (
        rest[..., 1:, :] * rest[..., :-1, :],
        rest[..., 1:] * rest[..., :-1],
        rest[..., 1:, 1:] * rest[..., :-1, :-1],
        rest[..., 1:, :-1] * rest[..., :-1, 1:],
    )
    return np.asarray(sum(each.sum(axis=(-2, -1)) for each in pairs))


def _log_tail(count: int, expected: float) -> float:
    """A bound of the logarithm of the probability of `count` or more, where `expected` are expected (Chernoff's)."""
    if count <= expected:
        return 0.0
    return count - expected - (count * math.log(count / expected) if expected else math.inf)
