"""Axes along which rows that match are near each other."""

from __future__ import annotations

import pyarrow as pa

from dovetail.batch import Side
from dovetail.condition import Band, Distance, Expression, Literal, Predicate, closed_bounds, columns_of
from dovetail.condition.expression import type_of
from dovetail.routers.grid import DOUBLE, SINGLE, Window


def band_axis(band: Band, home: Side) -> Window:
    low, high = (float(bound) for bound in closed_bounds(band))
    return _axis(home, (band.left, band.right), low, high, _slack(band))


def distance_axis(distance: Distance, home: Side, key: int, element: int | None) -> Window:
    """One coordinate: a key of each side, and which of its elements, if keys are lists."""
    assert isinstance(distance.radius, Literal)
    reach = float(distance.radius.value) * (1 + SINGLE)
    return _axis(home, (distance.left[key], distance.right[key]), -reach, reach, _slack(distance), element)


def _axis(
    home: Side, keys: tuple[Expression, Expression], low: float, high: float, slack: float, element: int | None = None
) -> Window:
    """low <= left - right <= high, seen from the side that is at home."""
    other = keys[home.other]
    if home is Side.RIGHT:
        low, high = -high, -low
    return Window(home, keys[home], other, other, low, high, slack, element)


def _slack(predicate: Predicate) -> float:
    read = [type_of(column) for source in predicate.source for column in columns_of(source)]
    return SINGLE if any(pa.types.is_float32(t) or pa.types.is_float16(t) for t in read) else DOUBLE
