"""Grid router: rows visit the cells that they touch, and any two matching rows share exactly one.

Each axis is cut into slabs, by values of a sample. There are two kinds of axes:

    Window   r.x + low <= l.x <= r.x + high       Rows of one side (home) are in the slab of their value. A row of the
             bands, distances                     other side visits every slab in which a partner can be.

    CellSpan     l.low < r.high and l.high > r.low    Of two overlapping intervals, one begins inside the other. Its
             overlaps, rectangles                 start is the reference point: the pair is found in that slab.

        slab     1     |     2     |     3
        left        |------------------|          part 0: left rows where they begin, right rows in all their slabs
        right          |     |---|     |          part 1: left rows in all slabs but the first, right rows where they
                                                          begin
    On a span every slab has two parts, so the reference point needs no check. If both sides were in all slabs that they
    touch, a pair would be found in every slab that both touch. With several axes a cell is one slab and part of each.

An overloaded cell is split: one side is distributed over its pieces, the other visits all of them.

Dittrich, Seeger, Data redundancy and duplicate detection in spatial join processing, ICDE 2000 (reference points);
DeWitt, Naughton, Schneider, An evaluation of non-equijoin algorithms, VLDB 1991 (ranges with neighbours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import (
    Band,
    Condition,
    Distance,
    Expression,
    Interval,
    Literal,
    Predicate,
    closed_bounds,
    columns_of,
    keyed_rows,
)
from dovetail.condition.expression import type_of
from dovetail.core.codes import Floats, Words, list_lengths, numbers, rough_codes
from dovetail.core.rows import Rows, Side
from dovetail.kernels.boxes import ranges
from dovetail.routing.routers import Spread, Visits

Slabs = NDArray[np.int64]
Cuts = NDArray[Any]  # starts of the slabs, except for the first: doubles for windows, codes for spans
Range = tuple[Slabs, Slabs]  # the first and the last slab of each row; empty if last < first

DOUBLE, SINGLE = 2.0**-48, 2.0**-20  # relative errors of sums, with a margin


def _no_cuts() -> Cuts:
    return np.empty(0)


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """Rows of side `home` are in one slab, by `at`. Others visit all slabs with first + low <= at <= last + high."""

    home: Side
    at: Expression
    first: Expression  # of the other side, like `last`
    last: Expression
    low: float
    high: float
    slack: float = DOUBLE  # relative error of sums; a larger value only costs a few visits
    element: int | None = None  # of list keys
    cuts: Cuts = field(default_factory=_no_cuts)

    parts = 1

    @property
    def slabs(self) -> int:
        return len(self.cuts) + 1

    def keys(self, side: Side) -> list[Expression]:
        return [self.at] if side is self.home else [self.first, self.last]

    def places(self, columns: list[pa.Array]) -> Floats:
        """The positions of rows on this axis, by the first of their keys."""
        return numbers(columns[0]) if self.element is None else element_of(columns[0], self.element)

    def ranges(self, side: Side, columns: list[pa.Array]) -> list[Range]:
        if side is self.home:
            slabs = ranges(self.places(columns), self.cuts)
            return [(slabs, slabs)]
        low, high = self.reach(columns)
        begin = np.where(np.isfinite(low), ranges(low, self.cuts), 0)
        end = np.where(np.isfinite(high), ranges(high, self.cuts), len(self.cuts))
        return [(begin, end)]

    def reach(self, columns: list[pa.Array]) -> tuple[Floats, Floats]:
        """The range of values in which the partners of rows of the other side can be."""
        first, last = self.places(columns), self.places(columns[1:])
        with np.errstate(invalid="ignore", over="ignore"):
            low = first + self.low - self.slack * (np.abs(first) + abs(self.low))
            high = last + self.high + self.slack * (np.abs(last) + abs(self.high))
        return low, high


@dataclass(frozen=True, slots=True)
class CellSpan:
    """Intervals that overlap. One that ends before it starts is treated as the point where it ends."""

    left: Interval
    right: Interval
    cuts: Cuts = field(default_factory=_no_cuts)

    parts = 2

    @property
    def slabs(self) -> int:
        return len(self.cuts) + 1

    def keys(self, side: Side) -> list[Expression]:
        interval = self.left if side is Side.LEFT else self.right
        return [interval.low, interval.high]

    def places(self, columns: list[pa.Array]) -> Words:
        """The positions where rows start."""
        return np.minimum(rough_codes(columns[0]), rough_codes(columns[1]))

    def ranges(self, side: Side, columns: list[pa.Array]) -> list[Range]:
        begin = ranges(self.places(columns), self.cuts)
        end = ranges(rough_codes(columns[1]), self.cuts)
        if side is Side.LEFT:
            return [(begin, begin), (begin + 1, end)]
        return [(begin, end), (begin, begin)]


Axis = WindowAxis | CellSpan


@dataclass(frozen=True, slots=True)
class GridRouter:
    condition: Condition
    axes: tuple[Axis, ...]
    pieces: NDArray[np.int64] | None = None  # per cell of the grid; None: one each
    dealt: Side = Side.LEFT  # the side whose rows are distributed over the pieces of a cell

    @property
    def grid_cells(self) -> int:
        return int(np.prod([axis.slabs * axis.parts for axis in self.axes]))

    @property
    def cells(self) -> int:
        return self.grid_cells if self.pieces is None else int(self.pieces.sum())

    @property
    def needs_spread(self) -> bool:
        return self.pieces is not None

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        keys = [axis.keys(side) for axis in self.axes]
        alive, columns = keyed_rows(self.condition, side, batch, [key for group in keys for key in group])
        rows = np.arange(batch.num_rows) if alive is None else alive
        slabs = []
        for axis, group in zip(self.axes, keys, strict=True):
            mine, columns = columns[: len(group)], columns[len(group) :]
            slabs.append(axis.ranges(side, mine))
        visits = [self._visits(rows, chosen) for chosen in product(*(list(enumerate(s)) for s in slabs))]
        found = Visits(np.concatenate([v.rows for v in visits]), np.concatenate([v.cells for v in visits]))
        return found if self.pieces is None else self._in_pieces(side, found, spread, self.pieces)

    def _visits(self, rows: Rows, chosen: Sequence[tuple[int, Range]]) -> Visits:
        """All cells of the chosen part of each axis whose slabs are in the row's ranges."""
        places, cells = np.arange(len(rows)), np.zeros(len(rows), np.int64)
        for axis, (part, (first, last)) in zip(self.axes, chosen, strict=True):
            if first is last and len(places) == len(first):  # at home: one slab each
                cells = (cells * axis.parts + part) * axis.slabs + first
                continue
            first, last = first[places], last[places]
            counts = np.maximum(last - first + 1, 0)
            offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            slabs = np.repeat(first, counts) + offsets
            places = np.repeat(places, counts)
            cells = (np.repeat(cells, counts) * axis.parts + part) * axis.slabs + slabs
        return Visits(rows[places], cells.astype(np.int32))

    def _in_pieces(self, side: Side, visits: Visits, spread: Spread, pieces: NDArray[np.int64]) -> Visits:
        starts = (np.cumsum(pieces) - pieces)[visits.cells]
        counts = pieces[visits.cells]
        if side is self.dealt:
            return Visits(visits.rows, (starts + spread[visits.rows] % counts).astype(np.int32))
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return Visits(np.repeat(visits.rows, counts), (np.repeat(starts, counts) + offsets).astype(np.int32))


def element_of(lists: pa.Array, element: int) -> Floats:
    """One coordinate of each list; NaN where there is none."""
    lengths = list_lengths(lists)
    numbers_ = np.asarray(lists.flatten().cast(pa.float64()).fill_null(np.nan))
    starts = np.cumsum(lengths) - lengths
    found = np.full(len(lists), np.nan)
    long = lengths > element
    found[long] = numbers_[starts[long] + element]
    return found


def band_axis(band: Band, home: Side) -> WindowAxis:
    low, high = (float(bound) for bound in closed_bounds(band))
    return _axis(home, (band.left, band.right), low, high, _slack(band))


def distance_axis(distance: Distance, home: Side, key: int, element: int | None) -> WindowAxis:
    """An axis of one coordinate: a key of each side, and its element if keys are lists."""
    assert isinstance(distance.radius, Literal)
    reach = float(distance.radius.value) * (1 + SINGLE)
    return _axis(home, (distance.left[key], distance.right[key]), -reach, reach, _slack(distance), element)


def _axis(
    home: Side, keys: tuple[Expression, Expression], low: float, high: float, slack: float, element: int | None = None
) -> WindowAxis:
    """low <= left - right <= high, seen from the side that is at home."""
    other = keys[home.other]
    if home is Side.RIGHT:
        low, high = -high, -low
    return WindowAxis(home, keys[home], other, other, low, high, slack, element)


def _slack(predicate: Predicate) -> float:
    read = [type_of(column) for source in predicate.source for column in columns_of(source)]
    return SINGLE if any(pa.types.is_float32(t) or pa.types.is_float16(t) for t in read) else DOUBLE
