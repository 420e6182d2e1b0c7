"""As-of and nearest joins in one dimension: reads the condition and the order, and sweeps over both sorted sides.

    l.k = r.k AND l.t >= r.t                          r.t DESC          the last one up to l.t
    l.k = r.k AND l.t <= r.t AND r.t <= l.t + 5       r.t               the first one from l.t on, at most 5 away
    l.k = r.k                                         abs(l.t - r.t)    the nearer one of the two

The best partner of a left row is its neighbour in time; if that one is too far away, all others are too.
"""

from __future__ import annotations

from typing import Literal as OneOf
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.condition import Band, Condition, Equal, Less, NotEqual, closed_bounds, evaluate, matching
from dovetail.condition.bands import bare
from dovetail.condition.best import Best
from dovetail.condition.expression import Call, Expression, sides_of, type_of
from dovetail.condition.predicates import KeyPair, Predicate
from dovetail.condition.unify import unify
from dovetail.core.codes import LEAST, MOST, add_saturating, is_fixed
from dovetail.core.rows import Rows, Side
from dovetail.core.threads import both
from dovetail.errors import ConditionError
from dovetail.kernels import as_of
from dovetail.kernels.band import code_floats
from dovetail.kernels.sorting import put_in_order
from dovetail.matching.key_numbers import number_keys
from dovetail.matching.preparation import Batches, read_operands

Direction = OneOf["before", "after", "both"]


class InOrder(NamedTuple):
    """The values that are compared, and the direction of the best partner."""

    values: KeyPair
    direction: Direction
    strict: bool  # whether equal times do not match
    band: Band | None = None
    differs: bool = False  # whether the order is a difference


def is_in_order(condition: Condition, best: Best) -> bool:
    """Whether a sweep can find the partners."""
    return read_order(condition, best) is not None


def read_order(condition: Condition, best: Best) -> InOrder | None:
    """The values to compare, if neighbours in their order are the best partners."""
    if best.top != 1 or best.ties != "any" or len(best.order) != 1 or condition.residual or condition.alternatives:
        return None
    others = [predicate for predicate in condition.predicates if not isinstance(predicate, Equal)]
    if len(others) > 1:
        return None
    key = best.order[0]
    wish = _wish(key.value, key.descending)
    if wish is None or key.nulls_first:
        return None
    values, direction = wish
    if not others:
        return (
            InOrder(values, "both", False, differs=True) if isinstance(values, tuple) and direction == "both" else None
        )
    return _with_predicate(others[0], values, direction)


def _wish(value: Expression, descending: bool) -> tuple[KeyPair | Expression, Direction] | None:
    """The values to compare, and the direction of the first in the order; only the right value, if it is alone."""
    match value:
        case Call("abs", (Call("-", (first, second)),)) if not descending:
            pair = pair_of(first, second)
            return None if pair is None else (pair, "both")
        case Call("-", (first, second)):
            pair = pair_of(first, second)
            if pair is None:
                return None
            rises = (Side.RIGHT in sides_of(first)) != descending  # whether the difference rises with the right value
            return pair, "after" if rises else "before"
    if sides_of(value) == {Side.RIGHT}:
        return value, "before" if descending else "after"
    return None


def pair_of(first: Expression, second: Expression) -> KeyPair | None:
    """A left and a right expression of one type that has codes."""
    if sides_of(first) == {Side.RIGHT}:
        first, second = second, first
    if sides_of(first) != {Side.LEFT} or sides_of(second) != {Side.RIGHT}:
        return None
    try:
        left, right = unify((first, second), None)
    except ConditionError:
        return None
    return (left, right) if type_of(left) == type_of(right) and is_fixed(type_of(left)) else None


def _with_predicate(predicate: Predicate, values: KeyPair | Expression, direction: Direction) -> InOrder | None:
    if not isinstance(predicate, Less | Band | NotEqual):
        return None
    pair = (predicate.left, predicate.right)
    wished = values if isinstance(values, tuple) else (pair[0], values)
    if tuple(map(bare, pair)) != tuple(map(bare, wished)):
        return None
    differs = isinstance(values, tuple)
    match predicate:
        case NotEqual():
            return InOrder(pair, "both", True, differs=True) if direction == "both" else None
        case Less(_, operator):
            way: Direction = "before" if operator in (">", ">=") else "after"
            is_same = direction in (way, "both")
            return InOrder(pair, way, operator in ("<", ">"), differs=differs) if is_same else None
    low, high = closed_bounds(predicate)
    if isinstance(low, float):
        if low == 0 and direction in ("before", "both"):
            return InOrder(pair, "before", not predicate.low_closed, predicate, differs)
        if high == 0 and direction in ("after", "both"):
            return InOrder(pair, "after", not predicate.high_closed, predicate, differs)
        return InOrder(pair, "both", False, predicate, differs) if direction == "both" and low == -high else None
    if direction != "both":
        return InOrder(pair, direction, False, predicate, differs)
    if low >= 0 or high <= 0:
        return InOrder(pair, "before" if low >= 0 else "after", False, predicate, differs)
    return InOrder(pair, "both", False, predicate, differs) if low == -high else None


def nearest_in_order(condition: Condition, best: Best, batches: Batches) -> Rows | None:
    """The partner of each left row, -1 without one; None if a sweep cannot handle the values."""
    found = read_order(condition, best)
    assert found is not None
    if found.differs and not best.is_distance and _has_gaps(found.values, batches):
        return None
    operands = read_operands(
        condition, batches, condition.strategy.equal_keys, [found.values], found.direction == "both"
    )
    if not operands.complete:
        return None
    keys = None
    if operands.equal is not None:
        keys = number_keys(operands.equal)
        if keys is None:
            return None
    lefts, rights = operands.ordered[0]
    shifted = _shifted(found, lefts)
    if shifted is None:
        return None
    ordered = both(lambda: put_in_order(shifted), lambda: put_in_order(rights))
    numbers = (None, None) if keys is None else keys.numbers
    left, right = (as_of.timeline(*ordered[side], numbers[side]) for side in Side)
    near = _search(found, left, right, 0 if keys is None else keys.size, type_of(found.values[0]))
    near = as_of.by_row(near, ordered[0][1], ordered[1][1])
    if found.band is not None and pa.types.is_floating(type_of(found.values[0])):
        near = _checked(found, near, operands.rows, batches)
    if all(rows is None for rows in operands.alive):  # all rows: positions are row numbers
        return near
    return as_of.in_batches(near, operands.rows, batches[0].num_rows, batches[1].num_rows)


def _has_gaps(values: KeyPair, batches: Batches) -> bool:
    """Whether some values have no finite difference: null, NaN or infinity."""
    for side in Side:
        column = evaluate(values[side], *((batches[0], None) if side is Side.LEFT else (None, batches[1])))
        if column.null_count:
            return True
        if pa.types.is_floating(column.type) and not np.isfinite(np.asarray(column.cast(pa.float64()))).all():
            return True
    return False


def _shifted(found: InOrder, lefts: np.ndarray) -> np.ndarray | None:
    """Left codes moved to the edge of the band nearer to the partners; None if that overflows 64 bits."""
    if found.band is None or found.direction == "both":
        return lefts
    low, high = closed_bounds(found.band)
    if isinstance(low, float):
        return lefts
    by = -int(low if found.direction == "before" else high)
    if by == 0 or not len(lefts):
        return lefts
    if int(lefts.max()) + by > MOST or int(lefts.min()) + by < LEAST:
        return None
    return add_saturating(lefts, by)


def _search(found: InOrder, left: as_of.Timeline, right: as_of.Timeline, keys: int, type_: pa.DataType) -> Rows:
    """Search by position."""
    is_float = pa.types.is_floating(type_)
    if found.direction == "after":
        near = as_of.first_after(left, right, keys, found.strict)
    else:
        near = as_of.last_before(left, right, keys, found.strict)
    if found.direction == "both":
        after = as_of.first_after(left, right, keys, found.strict)
        if is_float:
            as_of.nearer_floats(code_floats(left.times), code_floats(right.times), near, after)
        else:
            as_of.nearer(left.times, right.times, near, after)
    if found.band is not None and not is_float:
        low, high = closed_bounds(found.band)
        span = int(high) if found.direction == "both" else int(high) - int(low)
        if span < 0:
            near[:] = as_of.NONE
        else:
            as_of.keep_near(left.times, right.times, near, np.uint64(min(span, 2**64 - 1)))
    return near


def _checked(found: InOrder, near: Rows, rows: tuple[Rows, Rows], batches: Batches) -> Rows:
    """The partners without those that a band of doubles excludes, as written."""
    assert found.band is not None
    some = np.flatnonzero(near >= 0)
    good = matching(found.band.source, batches[0], rows[0][some], batches[1], rows[1][near[some]])
    near[some[~good]] = -1
    return near
