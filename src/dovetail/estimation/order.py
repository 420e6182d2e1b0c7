"""Tests whether the orders of two inputs depend on each other, as in tables that were filled together.

    places of matching rows      independent     the same order    shifted         blocks
    of a sample of both sides    . : .  . .      \\                  \\              ##
                                 :.  . : .         \\                  \\                 ##
                                 .  : .  .           \\           \\                  ##

Each side alone may be in perfectly random order. If the orders are independent, all positions are equally likely: some
rows have more partners than others, but these are not at any particular position of the other side. Four statistics
detect dependence:

    lines      matches along a diagonal or an anti-diagonal, at any distance from it: exact positions
    bands      the same with positions in 16, 64, 256 parts, for nearly equal orders and inputs of unequal length
    cells      how much the cells of a grid differ from what its rows and columns predict
    patches    whether neighbouring cells are alike

Patches are compared with the same grid after shuffling its rows and columns.
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

FIRST_ROWS = 4096  # arriving rows by which orders are compared
FEW_ROWS = 512  # to estimate the number of matches
ENOUGH = 1 << 16  # a sufficient number of matches
MOST_TESTED = 1 << 14  # matches that are tested
FEWEST = 8  # with fewer matches there is no result
PARTS = (16, 64, 256)  # per side
LEAST = 1.0  # matches per band, on average
ERRORS = 6.0  # standard errors: there are some hundred bands, and the test is repeated
CELLS = 16  # per side of the grid
OVERDISPERSED = 4.0  # times the variance by chance: even with one dominating key, it varies by only half
SHUFFLES = 64


def fitting_rows(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch, matches: int) -> int:
    """The number of rows of each side that have about this number of matches, judging by the first rows."""
    left, right = left.slice(0, FEW_ROWS), right.slice(0, FEW_ROWS)
    found = build_matcher(condition, left, right).count()
    return math.isqrt(matches * max(1, left.num_rows * right.num_rows) // max(1, found))


class PlacedMatches(NamedTuple):
    """Matches between samples of left and right rows, by their positions in the order of arrival."""

    places: tuple[Words, Words]  # positions of the sampled rows
    rows: tuple[int, int]  # numbers of all rows
    lefts: Words  # for each match, its row in the sample
    rights: Words

    @classmethod
    def between(
        cls,
        condition: Condition,
        batches: tuple[pa.RecordBatch, pa.RecordBatch],
        places: tuple[Words, Words],
        rows: tuple[int, int],
    ) -> PlacedMatches:
        """The matches of two batches whose rows have these positions."""
        listed = list(build_matcher(condition, *batches).pairs(ENOUGH))
        lefts, rights = (np.concatenate([np.empty(0, np.int64), *(pairs[side] for pairs in listed)]) for side in (0, 1))
        return cls(places, rows, lefts, rights)

    @classmethod
    def of_first_rows(cls, condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> PlacedMatches:
        """The matches among rows that arrived consecutively, on both sides at the same time."""
        most = min(FIRST_ROWS, fitting_rows(condition, left, right, ENOUGH))
        batches = left.slice(0, most), right.slice(0, most)
        rows = batches[0].num_rows, batches[1].num_rows
        return cls.between(condition, batches, (np.arange(rows[0]), np.arange(rows[1])), rows)

    @property
    def depend(self) -> bool:
        """Whether the orders depend on each other beyond any reasonable chance."""
        if len(self.lefts) < FEWEST:
            return False
        some = self._thin(MOST_TESTED)
        return some._has_line() or some._has_band() or some._has_patches()

    def _thin(self, most: int) -> PlacedMatches:
        """About this number of matches: those of fewer left rows with all right rows."""
        if len(self.lefts) <= most:
            return self
        rows = max(1, len(self.places[0]) * most // len(self.lefts))
        kept = np.flatnonzero(self.lefts < rows)
        return self._replace(
            places=(self.places[0][:rows], self.places[1]), lefts=self.lefts[kept], rights=self.rights[kept]
        )

    def _has_line(self) -> bool:
        lefts, rights = self.places[0][self.lefts], self.places[1][self.rights]
        likely = len(lefts) / max(map(len, self.places))  # at most: a line has each row of the shorter sample once
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
                expected = np.maximum(0.0, np.fft.irfft(product, parts))  # for each distance, by the parts' sizes
                errors = np.abs(2 * (np.sqrt(observed + 0.375) - np.sqrt(expected + 0.375)))  # Anscombe, for few
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
        """For each match, the part of its left row and the part of its right row."""
        lefts, rights = self.places[0][self.lefts], self.places[1][self.rights]
        return lefts * parts // self.rows[0], rights * parts // self.rows[1]


@cache
def _shuffles() -> tuple[Words, Words]:
    """Random orders of the rows and columns of the grid."""
    orders = np.tile(np.arange(CELLS), (2, SHUFFLES, 1))
    rows, columns = np.random.default_rng(0).permuted(orders, axis=2)
    return rows, columns


def _likeness(rest: Numbers) -> Numbers:
    """How alike neighbouring cells are, in a grid or in each of several."""
    pairs = (
        rest[..., 1:, :] * rest[..., :-1, :],
        rest[..., 1:] * rest[..., :-1],
        rest[..., 1:, 1:] * rest[..., :-1, :-1],
        rest[..., 1:, :-1] * rest[..., :-1, 1:],
    )
    return np.asarray(sum(each.sum(axis=(-2, -1)) for each in pairs))


def _log_tail(count: int, expected: float) -> float:
    """An upper bound of the log probability of `count` or more, given the expected number (Chernoff's bound)."""
    if count <= expected:
        return 0.0
    return count - expected - (count * math.log(count / expected) if expected else math.inf)
