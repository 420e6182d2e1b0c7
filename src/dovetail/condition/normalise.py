"""A bound boolean expression to a Condition: what can drive the join, what filters one input, what is left over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.condition import types
from dovetail.condition.alternatives import alternatives
from dovetail.condition.bands import bands, less_of
from dovetail.condition.bind import Binder
from dovetail.condition.condition import Condition
from dovetail.condition.expression import Call, Expression, connect, sides_of
from dovetail.condition.geometry import distance, overlaps
from dovetail.condition.linear import FALSE, FLIPPED, conjuncts, separate_sides, simplify_comparison
from dovetail.condition.predicates import Equal, Less, NotEqual, Predicate
from dovetail.core.rows import Side


def normalise(expression: Expression, binder: Binder) -> Condition:
    """The typed predicates, filters and residual of a condition, and its alternatives, if it is a disjunction."""
    condition = _conjunction([expression], binder)
    found = alternatives(condition, binder, lambda parts: _conjunction(parts, binder))
    return replace(condition, alternatives=found) if found else condition


def _conjunction(parts: Sequence[Expression], binder: Binder) -> Condition:
    filters: tuple[list[Expression], list[Expression]] = ([], [])
    between: list[Expression] = []
    for conjunct in _conjuncts(connect("and", parts, types.BOOLEAN), binder):
        sides = sides_of(conjunct)
        if conjunct == FALSE:
            for side in Side:
                filters[side].append(conjunct)
        elif len(sides) == 1:
            filters[next(iter(sides))].append(conjunct)
        else:
            between.append(conjunct)
    predicates, residual = _predicates(between, binder)
    return Condition(predicates, (tuple(filters[0]), tuple(filters[1])), residual, binder.schemas)


def _conjuncts(expression: Expression, binder: Binder) -> list[Expression]:
    simple = [simplify_comparison(c, binder) if isinstance(c, Call) else c for c in conjuncts(expression)]
    return [FALSE] if FALSE in simple else simple


def _predicates(between: list[Expression], binder: Binder) -> tuple[tuple[Predicate, ...], tuple[Expression, ...]]:
    found: list[Predicate] = []
    left_over: list[Expression] = []
    for conjunct in between:
        predicate = _comparison(conjunct, binder) or distance(conjunct)
        if predicate is None:
            left_over.append(conjunct)
        else:
            found.append(predicate)
    banded, residual = bands(found, left_over, binder)
    return tuple(overlaps(banded, residual)), tuple(residual)


def _comparison(conjunct: Expression, binder: Binder) -> Equal | NotEqual | Less | None:
    if not isinstance(conjunct, Call) or conjunct.function not in FLIPPED:
        return None
    comparison = separate_sides(conjunct, binder)
    if comparison is None:
        return None
    left, right = comparison.args
    match comparison.function:
        case "=":
            return Equal(left, right, (conjunct,))
        case "!=":
            return NotEqual(left, right, (conjunct,))
    return less_of(comparison, (conjunct,))
