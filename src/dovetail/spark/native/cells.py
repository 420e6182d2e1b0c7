"""Chooses the width of cells along one dimension, from the cost of a join in them.

    points     each in one cell                            |  .  | ... |     |  .  |
    the other  a copy in every cell that it reaches           [=====|==]
    long ones  the same in cells 64 times as wide, where points are looked up as well

If both sides are intervals, each is copied into its cells, on one level.

Narrow cells cause many copies, wide ones many candidates that do not match. The cost of a width is estimated from
samples of both sides. For any width, every pair has exactly one cell: values outside the sampled range are in the first
or last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.planning.statistics import LENGTHS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEP = 6  # bits between levels
MOST_COPIES = 1 << STEP  # per row, except on the last level
MOST_CELLS = 1 << 40
MOST_LEVELS = 7
FIRST_STEP = 4  # halvings of the width tried first; then those in between
ONE_LEVEL = 1 << 20  # number of cells, and so the maximum copies of a row, with one level

# CPU seconds that Spark takes, measured by benchmarks/by_hand.py. Their ratios matter.
PROBE = 0.5e-6  # scan a point, and look it up on one level
COPY = 0.7e-6  # of a row, in the hash table
CANDIDATE = 0.11e-6


class Cells(NamedTuple):
    """Cells of equal width, starting at a first value."""

    first: float
    width: float
    number: int
    levels: tuple[int, ...]
    copies: float  # total number of row copies
    candidates: float

    @property
    def seconds(self) -> float:
        return COPY * self.copies + CANDIDATE * self.candidates

    def sql(self, place: str) -> str:
        """SQL for the cell of a place on the lowest level. NaN is greater than every number."""
        cell = (
            f"greatest(0D, least({self.number - 1}D, ({place} - {number_sql(self.first)}) / {number_sql(self.width)}))"
        )
        return f"CAST(floor({cell}) AS BIGINT)"


class Sampled(NamedTuple):
    """Sampled places, and the number of rows that each represents."""

    points: Floats
    lows: Floats
    highs: Floats
    weights: tuple[float, float]  # of a point, and of a row of the other side
    share: float = 1.0  # share of the pairs in a cell that also have equal keys
    longest: float | None = None  # longest reach of all rows, if known
    ends: Floats | None = None  # of points that are intervals themselves
    by_length: tuple[Lengths | None, Lengths | None] = (None, None)  # of all rows, in the order of weights


class Lengths(NamedTuple):
    """How many intervals of a side have about which length, if all have been measured."""

    counts: Integers  # for each of LENGTHS
    steps: float  # steps of the keys' type per unit of a place

    def unseen_copies(self, lows: Floats, highs: Floats, width: float, number: int) -> float:
        """Copies of rows longer than all finite sampled ones. A few long rows may cause most of the copies."""
        places = LENGTHS / self.steps
        finite = np.isfinite(lows) & np.isfinite(highs)
        with np.errstate(over="ignore"):
            unseen = places > np.max(np.abs(highs[finite] - lows[finite]), initial=0.0)
        return float(self.counts[unseen] @ np.minimum(places[unseen] / width, number))


def choose_cells(sampled: Sampled, most_levels: int = MOST_LEVELS) -> Cells:
    """The cells with the lowest cost."""
    points = np.sort(sampled.points[np.isfinite(sampled.points)])
    known = ~(np.isnan(sampled.lows) | np.isnan(sampled.highs)) & (sampled.lows <= sampled.highs)
    lows, highs = sampled.lows[known], sampled.highs[known]
    if not len(points) or not len(lows):
        return Cells(0.0, 1.0, 1, (0,), float(len(lows)) * sampled.weights[1], 0.0)
    first, last = float(points[0]), float(points[-1])
    span = max(last - first, float(np.finfo(np.float64).tiny), abs(first) * 1e-9)
    most = MOST_CELLS if most_levels > 1 and sampled.ends is None else ONE_LEVEL
    rows = len(sampled.points) * sampled.weights[0]

    def tried(halvings: int) -> Cells:
        width = span * 0.5**halvings
        if sampled.ends is not None:
            return _cells_of_both(sampled, first, span, width)
        return _cells(points, lows, highs, sampled, (first, span), width, most_levels)

    def seconds(halvings: int) -> float:
        cells = tried(halvings)
        return cells.seconds + PROBE * rows * len(cells.levels)

    finest = most.bit_length() - 1
    near = min(range(0, finest + 1, FIRST_STEP), key=seconds)
    return tried(min(range(max(0, near - FIRST_STEP + 1), min(finest, near + FIRST_STEP - 1) + 1), key=seconds))


def _cells_of_both(sampled: Sampled, first: float, span: float, width: float) -> Cells:
    """Cells if rows of both sides are copied. Two rows that share several cells are candidates in each."""
    number = min(ONE_LEVEL, int(span / width) + 1)
    assert sampled.ends is not None
    inside, copies = [], 0.0
    reaches = ((sampled.points, sampled.ends), (sampled.lows, sampled.highs))
    for (low, high), weight, lengths in zip(reaches, sampled.weights, sampled.by_length, strict=True):
        known = ~(np.isnan(low) | np.isnan(high))
        begins, ends = (_cell(f(low, high)[known], first, width, number) for f in (np.minimum, np.maximum))
        change = np.bincount(begins, minlength=number + 1) - np.bincount(ends + 1, minlength=number + 1)
        inside.append(np.cumsum(change[:number]).astype(np.float64) * weight)
        copies += float((ends - begins + 1).sum()) * weight
        if lengths is not None:
            copies += lengths.unseen_copies(low[known], high[known], width, number)
    candidates = float(inside[0] @ inside[1]) * sampled.share
    return Cells(first, width, number, (0,), copies, candidates)


def _cells(
    points: Floats,
    lows: Floats,
    highs: Floats,
    sampled: Sampled,
    domain: tuple[float, float],
    width: float,
    most_levels: int,
) -> Cells:
    first, span = domain
    number = min(MOST_CELLS, int(span / width) + 1)
    begins, ends = (_cell(places, first, width, number) for places in (lows, highs))
    level = np.zeros(len(lows), np.int64)
    for higher in range(1, most_levels):
        shift = STEP * (higher - 1)
        level[(ends >> shift) - (begins >> shift) >= MOST_COPIES] = higher
    reached = min(_level_of(sampled.longest, span, width), most_levels - 1)
    levels = {*np.unique(level).tolist(), max(reached, int(level.max()))}
    shifts = STEP * level
    begins, ends = begins >> shifts, ends >> shifts
    lower, upper = (first + width * np.ldexp(cell.astype(np.float64), shifts) for cell in (begins, ends + 1))
    # The first cell includes all smaller values, the last one all larger values.
    lower[begins == 0], upper[ends >= (number - 1) >> shifts] = -np.inf, np.inf
    found = np.searchsorted(points, upper) - np.searchsorted(points, lower)
    of_point, of_other = sampled.weights
    copies = float((ends - begins + 1).sum()) * of_other
    if most_levels == 1 and (lengths := sampled.by_length[1]) is not None:
        copies += lengths.unseen_copies(lows, highs, width, number)
    candidates = float(found.sum()) * of_point * of_other * sampled.share
    return Cells(first, width, number, tuple(sorted(levels)), copies, candidates)


def _cell(places: Floats, first: float, width: float, number: int) -> Integers:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.floor(np.clip((places - first) / width, 0, number - 1)).astype(np.int64)


def _level_of(longest: float | None, span: float, width: float) -> int:
    """The level on which a row with this reach has few copies. The whole domain, if the reach is unknown."""
    cells = (span if longest is None else min(longest, span)) / width
    return int(max(0.0, np.ceil(np.log2(max(1.0, cells / MOST_COPIES)) / STEP)))


def number_sql(value: float) -> str:
    return f"({float(value)!r}D)"
