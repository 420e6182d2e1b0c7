"""The nearest interval: reads the condition and the order, and runs one sweep over sorted intervals.

greatest(r.start - l.end, l.start - r.end, 0)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition, Equal, Literal, matching
from dovetail.condition.best import Best
from dovetail.condition.expression import Call, Expression, sides_of, type_of
from dovetail.condition.predicates import KeyPair
from dovetail.core.rows import Rows, Side
from dovetail.kernels import as_of, nearest_intervals
from dovetail.kernels.band import code_floats
from dovetail.kernels.sorting import pick, put_in_order
from dovetail.matching.key_numbers import number_keys
from dovetail.matching.nearest_in_order import pair_of
from dovetail.matching.preparation import Batches, read_operands


class Intervals(NamedTuple):
    """The operands of the distance: left end and right start, left start and right end."""

    behind: KeyPair
    before: KeyPair
    within: tuple[Expression, ...]


def read_intervals(condition: Condition, best: Best) -> Intervals | None:
    """The operands, if the distance is all that the condition and order have."""
    if best.top != 1 or best.ties != "any" or len(best.order) != 1 or not best.is_distance or condition.alternatives:
        return None
    value, descending, _ = best.order[0]
    match value:
        case Call("greatest", (Call("-", first), Call("-", second), Literal() as zero)) if not descending:
            if sides_of(first[0]) != {Side.RIGHT} or sides_of(second[0]) != {Side.LEFT}:
                return None
            behind, before = pair_of(*first), pair_of(*second)
        case _:
            return None
    if behind is None or before is None or type_of(behind[0]) != type_of(before[0]) or zero.value:
        return None
    if any(not isinstance(predicate, Equal) for predicate in condition.predicates):
        return None
    within = condition.residual
    if any(not (isinstance(e, Call) and e.function == "<=" and e.args[0] == value) for e in within):
        return None
    return Intervals(behind, before, within)


def near_intervals(condition: Condition, best: Best, batches: Batches) -> Rows | None:
    """The partner of each left row, -1 without one; None if a sweep cannot find it."""
    found = read_intervals(condition, best)
    assert found is not None
    operands = read_operands(condition, batches, condition.strategy.equal_keys, [found.behind, found.before], True)
    if not operands.complete:
        return None
    (left_ends, right_starts), (left_starts, right_ends) = operands.ordered
    is_float = pa.types.is_floating(type_of(found.behind[0]))
    if is_float and not all(np.isfinite(code_floats(codes)).all() for pair in operands.ordered for codes in pair):
        return None
    if (left_ends < left_starts).any() or (right_ends < right_starts).any():
        return None
    keys = None
    if operands.equal is not None:
        keys = number_keys(operands.equal)
        if keys is None:
            return None
    numbers, size = (None, None) if keys is None else keys.numbers, 0 if keys is None else keys.size
    lefts, left_places = put_in_order(left_ends)
    rights, right_places = put_in_order(right_starts)
    left = as_of.timeline(lefts, left_places, numbers[0])
    right = as_of.timeline(rights, right_places, numbers[1])
    starts, ends = _at(left_starts, left_places), _at(right_ends, right_places)
    near = nearest_intervals.last_to_end(left.times, right.times, ends, (left.keys, right.keys), size)
    behind = as_of.first_after(left, right, size, strict=True)
    if is_float:
        floats = [code_floats(codes) for codes in (starts, left.times, right.times, ends)]
        nearest_intervals.nearer_floats(floats[0], floats[1], floats[2], floats[3], near, behind)
    else:
        nearest_intervals.nearer(starts, left.times, right.times, ends, near, behind)
    near = as_of.by_row(near, left_places, right_places)
    near = _checked(found, near, operands.rows, batches)
    return as_of.in_batches(near, operands.rows, batches[0].num_rows, batches[1].num_rows)


def _at(codes: as_of.Words, places: Rows | None) -> as_of.Words:
    return codes if places is None else pick(codes, places)


def _checked(found: Intervals, near: Rows, rows: tuple[Rows, Rows], batches: Batches) -> Rows:
    """The partners without those that are too far away."""
    if not found.within:
        return near
    some = np.flatnonzero(near >= 0)
    good = matching(found.within, batches[0], rows[0][some], batches[1], rows[1][near[some]])
    near[some[~good]] = as_of.NONE
    return near
