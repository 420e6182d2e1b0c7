"""The nearest points: reads the condition and the order, and searches with a grid, a tree or a matrix product.

distance(l.x, l.y, r.x, r.y)      in the plane by a grid, with keys and in space by a tree
distance(l.v, r.v)                lists: by a matrix product, unless they are short
abs(l.x - r.x)                    on a line, by a tree
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import Band, Condition, Distance, Equal, Literal, closed_bounds, evaluate, matching, types
from dovetail.condition.bands import bare
from dovetail.condition.best import Best
from dovetail.condition.expression import Call, Expression, sides_of, type_of
from dovetail.condition.predicates import KeyPair
from dovetail.core.codes import list_lengths
from dovetail.core.rows import Rows, Side
from dovetail.kernels import nearest_in_plane, nearest_points, nearest_vectors
from dovetail.kernels.band import code_floats
from dovetail.matching.key_numbers import number_keys
from dovetail.matching.nearest_in_order import pair_of
from dovetail.matching.preparation import Batches, CodePair, read_operands

Floats = NDArray[np.float64]
Words = NDArray[np.int64]

PLANE = 2
SHORT = 8  # dimensions up to which a tree is efficient
TINY, HUGE = 1e-100, 1e150  # doubles between these have differences whose squares neither overflow nor underflow
WIDEST = 2**50  # from the first integer to the last
MARGIN = 1 + 2.0**-40  # around a radius, for rounding


class Points(NamedTuple):
    """The coordinates of both sides, or a list on each, and the maximal distance."""

    left: tuple[Expression, ...]
    right: tuple[Expression, ...]
    within: Distance | Band | None
    on_line: bool = False


def read_points(condition: Condition, best: Best) -> Points | None:
    """The operands, if the distance is all that the condition and order have."""
    if best.ties != "any" or len(best.order) != 1 or condition.residual or condition.alternatives:
        return None
    match best.order[0]:
        case (Call("distance", args), False, False):
            half = len(args) // 2
            left, right = tuple(args[:half]), tuple(args[half:])
        case (Call("abs", (Call("-", (first, second)),)), False, False) if best.is_distance:
            return _on_line(condition, pair_of(first, second))
        case _:
            return None
    if {s for e in left for s in sides_of(e)} != {Side.LEFT} or {s for e in right for s in sides_of(e)} != {Side.RIGHT}:
        return None
    others = [predicate for predicate in condition.predicates if not isinstance(predicate, Equal)]
    if not others:
        return Points(left, right, None)
    (within, *more) = others
    if more or not isinstance(within, Distance) or (within.left, within.right) != (left, right):
        return None
    return Points(left, right, within)


def _on_line(condition: Condition, pair: KeyPair | None) -> Points | None:
    others = [predicate for predicate in condition.predicates if not isinstance(predicate, Equal)]
    if pair is None or len(others) > 1:
        return None
    within = others[0] if others else None
    if within is not None:
        if not isinstance(within, Band) or (bare(within.left), bare(within.right)) != (bare(pair[0]), bare(pair[1])):
            return None
        low, high = closed_bounds(within)
        if low != -high:
            return None
        pair = (within.left, within.right)
    return Points((pair[0],), (pair[1],), within, on_line=True)


def near_points(condition: Condition, best: Best, batches: Batches) -> tuple[Words, Words] | None:
    """The rows of the nearest right points of each left row, and their number; None if this method cannot tell."""
    found = read_points(condition, best)
    assert found is not None
    pairs = [(found.left[0], found.right[0])] if found.on_line else []
    operands = read_operands(condition, batches, condition.strategy.equal_keys, pairs, found.on_line)
    if not operands.complete:
        return None
    left, right = (
        _places_on_line(operands.ordered[0], pa.types.is_floating(type_of(found.left[0])))
        if found.on_line
        else (_coordinates(found.left, Side.LEFT, batches[0]), _coordinates(found.right, Side.RIGHT, batches[1]))
    )
    if left is None or right is None or (left.shape[1] != right.shape[1] and len(left) and len(right)):
        return None
    if not best.is_distance and not (np.isfinite(left).all() and np.isfinite(right).all()):
        return None
    keys = None
    if operands.equal is not None:
        keys = number_keys(operands.equal)
        if keys is None:
            return None
    rows = operands.rows
    if not found.on_line:
        left, right = _taken(left, rows[0]), _taken(right, rows[1])
    most = np.inf
    if isinstance(found.within, Distance):
        assert isinstance(found.within.radius, Literal)
        most = max(float(found.within.radius.value), 0.0) * MARGIN
        most = most * most * MARGIN + np.finfo(np.float64).tiny
    if not len(left) or not len(right):
        near, sizes = np.zeros((len(left), best.top), np.int64), np.zeros(len(left), np.int64)
    elif keys is not None or (left.shape[1] <= SHORT and left.shape[1] != PLANE):
        numbers, size = (None, 0) if keys is None else keys
        near, sizes = nearest_points.nearest(left, right, numbers, size, best.top, most)
    elif left.shape[1] == PLANE:
        near, sizes = nearest_in_plane.nearest(left, right, best.top, most)
    else:
        near, sizes = nearest_vectors.nearest(left, right, best.top, most)
    return _by_row(found, near, sizes, rows, batches)


def _by_row(found: Points, near: Words, sizes: Words, rows: tuple[Rows, Rows], batches: Batches) -> tuple[Words, Words]:
    """Row numbers in place of positions, without points that are too far away by the condition as written."""
    inside = np.arange(near.shape[1]) < sizes[:, None]
    near = np.where(inside, near, 0)
    if len(rows[1]) != batches[1].num_rows and len(rows[1]):
        near = rows[1][near]
    if found.within is not None:
        places = np.flatnonzero(inside.ravel())
        lefts = rows[0][places // near.shape[1]]
        good = matching(found.within.source, batches[0], lefts, batches[1], near.ravel()[places])
        sizes = np.bincount((places // near.shape[1])[good], minlength=len(sizes))  # the near ones come first
    if len(rows[0]) == batches[0].num_rows:
        return near, sizes
    all_near = np.zeros((batches[0].num_rows, near.shape[1]), np.int64)
    all_sizes = np.zeros(batches[0].num_rows, np.int64)
    all_near[rows[0]], all_sizes[rows[0]] = near, sizes
    return all_near, all_sizes


def _taken(points: Floats, rows: Rows) -> Floats:
    return points if len(rows) == len(points) else points[rows]


def _coordinates(expressions: Sequence[Expression], side: Side, batch: pa.RecordBatch) -> Floats | None:
    """A row of doubles per row; null is NaN. None if lists have different lengths."""
    columns = [evaluate(e, *((batch, None) if side is Side.LEFT else (None, batch))) for e in expressions]
    if not types.is_list(type_of(expressions[0])):
        return np.stack([_numbers(column) for column in columns], axis=1)
    (lists,) = columns
    valid = np.asarray(lists.is_valid())
    some = lists.drop_null()
    lengths = list_lengths(some)
    if len(lengths) and (lengths != lengths[0]).any():
        return None
    width = int(lengths[0]) if len(lengths) else 1
    points = np.full((len(lists), width), np.nan)
    points[valid] = _numbers(some.flatten()).reshape(len(some), width)
    return points


def _places_on_line(codes: CodePair, is_float: bool) -> tuple[Floats | None, Floats | None]:
    """Numbers whose differences and squares of these are exact enough; None if they are not."""
    if is_float:
        left, right = (code_floats(one)[:, None] for one in codes)
        sizes = np.abs(np.concatenate([left, right]))
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        return (None, None) if len(sizes) and (sizes.min() < TINY or sizes.max() > HUGE) else (left, right)
    both = [int(bound) for one in codes if len(one) for bound in (one.min(), one.max())]
    if both and max(both) - min(both) > WIDEST:
        return None, None
    low = np.int64(min(both, default=0))
    return (codes[0] - low).astype(np.float64)[:, None], (codes[1] - low).astype(np.float64)[:, None]


def _numbers(column: pa.Array) -> Floats:
    return np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan))
