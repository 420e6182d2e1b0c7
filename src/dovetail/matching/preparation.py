"""The kernel of each class of predicate, prepared for the rows of two sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import (
    Band,
    Distance,
    Less,
    Literal,
    Overlap,
    Predicate,
    Rectangles,
    closed_bounds,
    columns_of,
    matching,
    types,
)
from dovetail.condition.expression import type_of
from dovetail.condition.strategy import Strategy
from dovetail.core.rows import Rows, Side
from dovetail.kernels import (
    band,
    band2d,
    candidates,
    cross,
    distance,
    one_inequality,
    rectangles,
    similarity,
    two_inequalities,
    windows,
)
from dovetail.kernels.listing import Check
from dovetail.kernels.windows import Windows
from dovetail.matching.kernel_pairs import All, Flags, Listed, Others, Prepared
from dovetail.matching.operands import Batches, CodePair, Operands

OPERATORS = {"<": cross.LESS, "<=": cross.LESS_EQUAL, ">": cross.GREATER, ">=": cross.GREATER_EQUAL}
PLANE_AND_SPACE = (2, 3)  # dimensions
DOUBLE, SINGLE = 2.0**-50, 2.0**-20  # relative errors, with room to spare
HUGE = 2.0**60


def prepare_kernel(strategy: Strategy, operands: Operands, batches: Batches) -> Listed:
    """The kernel of the class, prepared for the rows of the operands."""
    match strategy.predicates:
        case []:
            return All(len(operands.rows[0]), len(operands.rows[1]))
        case [Rectangles() as predicate]:
            return Prepared(rectangles, _rectangles(predicate, operands.ordered))
        case [Distance() as predicate]:
            return Prepared(candidates, _distance(predicate, operands, batches))
        case [Band() as x, Band() as y]:
            both = (_band(x, 0, operands, batches), _band(y, 1, operands, batches))
            return Prepared(candidates, band2d.prepare(*both))
        case [Band() as predicate]:
            return Prepared(windows, _band(predicate, 0, operands, batches))
        case [Overlap() as predicate]:
            return _two(overlap_operators(predicate), operands.ordered[0], operands.ordered[1])
        case [Less(_, operator)]:
            return Prepared(one_inequality, one_inequality.prepare(*operands.ordered[0], OPERATORS[operator]))
        case [Less(_, first), Less(_, second)]:
            return _two((OPERATORS[first], OPERATORS[second]), operands.ordered[0], operands.ordered[1])
    return Others(band.prepare(*operands.ordered[0], 0, 0))


def overlap_operators(overlap: Overlap) -> tuple[int, int]:
    """l.low (1) r.high and l.high (2) r.low."""
    return (
        cross.LESS_EQUAL if overlap.left_low_closed else cross.LESS,
        cross.GREATER_EQUAL if overlap.left_high_closed else cross.GREATER,
    )


def _two(operators: tuple[int, int], first: CodePair, second: CodePair) -> Listed:
    join = two_inequalities.prepare((first[0], second[0]), (first[1], second[1]), operators)
    return Prepared(two_inequalities, join)


def _rectangles(predicate: Rectangles, ordered: tuple[CodePair, ...]) -> rectangles.Rectangles:
    (x_low, other_x_high), (x_high, other_x_low), (y_low, other_y_high), (y_high, other_y_low) = ordered
    closed = (rectangles.Closed(p.left_low_closed, p.left_high_closed) for p in (predicate.x, predicate.y))
    left = rectangles.Sides(x_low, x_high, y_low, y_high)
    right = rectangles.Sides(other_x_low, other_x_high, other_y_low, other_y_high)
    return rectangles.prepare(left, right, *closed)


def _distance(predicate: Distance, operands: Operands, batches: Batches) -> candidates.Candidates:
    """Points nearer than the radius; what is so near to it that rounding may decide is asked about, as written."""
    points = [tuple(map(band.code_floats, pair)) if pair[0].ndim == 1 else pair for pair in operands.ordered]
    left, right = ([column[side] for column in points] for side in Side)
    assert isinstance(predicate.radius, Literal)
    radius = float(predicate.radius.value)
    ask = _as_written(predicate, operands, batches)
    slack = _slack(predicate, radius, [*left, *right])
    if len(left) in PLANE_AND_SPACE and left[0].ndim == 1:
        return distance.prepare(left, right, radius, predicate.closed, ask, slack)
    lines = [points[0] if points[0].ndim == 2 else np.stack(points, axis=1) for points in (left, right)]
    return similarity.prepare(lines[0], lines[1], radius, predicate.closed, ask, slack)


def _slack(predicate: Distance, radius: float, columns: Sequence[NDArray[np.float64]]) -> float:
    """How far a distance may be from the one of doubles, because differences were taken in another type."""
    read = [type_of(c) for source in predicate.source for c in columns_of(source)]
    if all(pa.types.is_float64(type_) or types.is_list(type_) for type_ in read):
        return 0.0
    largest = max(float(np.abs(column).max(initial=0.0, where=np.isfinite(column))) for column in columns)
    slack = len(columns) * largest * DOUBLE
    if any(pa.types.is_float32(type_) or pa.types.is_float16(type_) for type_ in read):
        # Squares beyond these sizes overflow or vanish in single precision.
        slack += radius * SINGLE + 1 / HUGE if radius < HUGE else 2 * radius
    return slack


def _as_written(predicate: Predicate, operands: Operands, batches: Batches) -> Check:
    def check(lefts: Rows, rights: Rows) -> Flags:
        rows = operands.rows
        return matching(predicate.source, batches[0], rows[0][lefts], batches[1], rows[1][rights])

    return check


def _band(predicate: Band, key: int, operands: Operands, batches: Batches) -> Windows:
    low, high = closed_bounds(predicate)
    left, right = operands.ordered[key]
    if isinstance(low, int) and isinstance(high, int):
        return band.prepare(left, right, low, high)
    columns = [c for source in predicate.source for c in columns_of(source)]
    single = any(pa.types.is_float32(type_of(c)) or pa.types.is_float16(type_of(c)) for c in columns)
    step = band.SINGLE_STEP if single else band.DOUBLE_STEP
    ask = _as_written(predicate, operands, batches)
    return band.prepare_checked(band.code_floats(left), band.code_floats(right), low, high, ask, step)
