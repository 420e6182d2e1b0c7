"""Derives dimensions from a condition: ranges in which partners lie, along which rows are assigned to cells.

    l.t >= r.s AND l.t < r.e     l is a point at t, r an interval from s to e
    abs(l.x - r.x) <= 3          l is a point at x, r reaches from x - 3 to x + 3; or the other way round
    a distance, two bands        two dimensions
    l.s < r.e AND r.s < l.e      rows of both sides are intervals

Rows of the side with points are in only one cell, so outer, semi and anti joins that track its rows are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Band, Distance, Expression, Less, Literal, Overlap, Strategy, closed_bounds, evaluate
from dovetail.condition.expression import type_of
from dovetail.core.codes import numbers
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side

Floats = NDArray[np.float64]
DIMENSIONS = 2  # at most: each further one doubles the copies
SLACK = 1e-12  # relative error of sums of doubles


class Axis(NamedTuple):
    """One dimension. Rows of the other side reach from `low + below` to `high + above`."""

    point: Side  # the side with points
    at: Expression
    low: Expression
    high: Expression
    below: float = 0.0
    above: float = 0.0
    end: Expression | None = None  # for intervals on this side: they reach from `at` to `end`

    @property
    def length(self) -> float | None:
        """How far each row of the other side reaches. None if that depends on the row."""
        return self.above - self.below if self.low == self.high else None

    @property
    def places(self) -> tuple[Expression, ...]:
        """The expressions that are computed for rows."""
        return (self.at, self.low, self.high, *(() if self.end is None else (self.end,)))

    def place_points(self, batch: pa.RecordBatch) -> Floats:
        return _places(self.at, self.point, batch)

    def place_ends(self, batch: pa.RecordBatch) -> Floats | None:
        return None if self.end is None else _places(self.end, self.point, batch)

    def place_reaches(self, batch: pa.RecordBatch) -> tuple[Floats, Floats]:
        other = self.point.other
        return _places(self.low, other, batch) + self.below, _places(self.high, other, batch) + self.above


def axes_of(strategy: Strategy, how: JoinType, larger: Side) -> tuple[Axis, ...]:
    """The dimensions of a condition. Empty if it has none, or if the join type tracks rows that would be copied."""
    points: Iterable[Side] = (larger, larger.other) if not how.tracked else how.tracked
    if len(how.tracked) > 1:
        return ()
    found = [axes for point in points if (axes := _axes(strategy, point)) and _have_places(axes)]
    pointed = [axes for axes in found if all(axis.end is None for axis in axes)]
    return next(iter(pointed or ([] if how.tracked else found)), ())


def _have_places(axes: tuple[Axis, ...]) -> bool:
    return all(_has_place(key) for axis in axes for key in axis.places)


def _axes(strategy: Strategy, point: Side) -> tuple[Axis, ...]:
    found: list[Axis | None] = []
    if strategy.kind == "two_inequalities":
        return _between([p for p in strategy.predicates if isinstance(p, Less)], point)
    for predicate in strategy.predicates:
        match predicate:
            case Band():
                found.append(_of_band(predicate, point))
            case Overlap():
                found.append(_of_overlap(predicate, point))
            case Distance():
                found += _of_distance(predicate, point)
            case _:
                return ()
    axes = tuple(axis for axis in found if axis is not None)
    if len(axes) < len(found) or (len(axes) > 1 and any(axis.end is not None for axis in axes)):
        return ()
    return axes[:DIMENSIONS]


def _between(inequalities: list[Less], point: Side) -> tuple[Axis, ...]:
    """Two inequalities with one point between them: low <= at and at <= high."""
    lows: dict[Expression, Expression] = {}
    highs: dict[Expression, Expression] = {}
    for one in inequalities:
        at, end = (one.left, one.right) if point is Side.LEFT else (one.right, one.left)
        is_low = one.operator.startswith(">") == (point is Side.LEFT)
        (lows if is_low else highs).setdefault(at, end)
    return tuple(Axis(point, at, lows[at], highs[at]) for at in lows if at in highs)[:1]


def _of_band(band: Band, point: Side) -> Axis | None:
    """low <= left - right <= high."""
    low, high = (bound / steps_in_place(type_of(band.left)) for bound in closed_bounds(band))
    if not np.isfinite([low, high]).all():
        return None
    if point is Side.LEFT:
        return Axis(point, band.left, band.right, band.right, low, high)
    return Axis(point, band.right, band.left, band.left, -high, -low)


def _of_overlap(overlap: Overlap, point: Side) -> Axis:
    """Intervals on both sides. Those of one side may be points."""
    mine, theirs = (overlap.left, overlap.right) if point is Side.LEFT else (overlap.right, overlap.left)
    end = mine.high if mine.low != mine.high else None
    return Axis(point, mine.low, theirs.low, theirs.high, end=end)


def _of_distance(distance: Distance, point: Side) -> list[Axis | None]:
    radius = distance.radius.value if isinstance(distance.radius, Literal) else None
    if radius is None or not np.isfinite(float(radius)) or len(distance.left) < DIMENSIONS:
        return [None]
    reach = float(radius)
    pairs = list(zip(distance.left, distance.right, strict=True))[:DIMENSIONS]
    return [Axis(point, pair[point], pair[point.other], pair[point.other], -reach, reach) for pair in pairs]


# Places: numbers in the order of the values.


def steps_in_place(type_: pa.DataType) -> float:
    """The number of steps of the type in one unit of a place."""
    return 10.0**type_.scale if pa.types.is_decimal(type_) else 1.0


def _places(key: Expression, side: Side, batch: pa.RecordBatch) -> Floats:
    """The places of a sample's rows. NaN if there is no value."""
    column = evaluate(key, batch, None) if side is Side.LEFT else evaluate(key, None, batch)
    places = np.full(len(column), np.nan)
    valid = np.asarray(column.is_valid())
    known = column.drop_null()
    exact = known.cast(pa.float64()) if pa.types.is_decimal(known.type) else None
    places[valid] = numbers(known) if exact is None else np.asarray(exact)
    return places


def _has_place(key: Expression) -> bool:
    return place_sql("", type_of(key)) is not None


def place_sql(text: str, type_: pa.DataType) -> str | None:
    """The place of a value, as a DOUBLE in Spark. None for types without distances."""
    t = pa.types
    if t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_):
        return f"CAST({text} AS DOUBLE)"
    if t.is_date(type_):
        return f"CAST(unix_date({text}) AS DOUBLE)"
    if t.is_timestamp(type_) and type_.tz is not None:
        return f"CAST(unix_micros({text}) AS DOUBLE)"
    if t.is_timestamp(type_):  # wall-clock time: as instants, an hour would occur twice a year
        seconds = f"unix_date(CAST({text} AS DATE)) * 86400D + hour({text}) * 3600 + minute({text}) * 60"
        return f"(({seconds} + extract(SECOND FROM {text})) * 1000000D)"
    return None
