"""A condition with its sides exchanged: it has the same pairs, swapped."""

from __future__ import annotations

from dataclasses import replace

from dovetail.condition.expression import Call, Column, Expression, Literal, Opaque, quote_name
from dovetail.condition.literals import negate
from dovetail.condition.predicates import (
    Band,
    Condition,
    Distance,
    Equal,
    Interval,
    Less,
    NotEqual,
    Overlap,
    Predicate,
    Rectangles,
)
from dovetail.condition.sql import with_columns


def mirrored(condition: Condition) -> Condition:
    """The condition on (left, right) as a condition on (right, left)."""
    return replace(
        condition,
        predicates=tuple(_predicate(p) for p in condition.predicates),
        filters=(_all(condition.filters[1]), _all(condition.filters[0])),
        residual=_all(condition.residual),
        schemas=(condition.schemas[1], condition.schemas[0]),
        alternatives=tuple(mirrored(one) for one in condition.alternatives),
    )


def mirrored_expression(expression: Expression) -> Expression:
    """The same expression over the columns of the other side."""
    match expression:
        case Column(side):
            return replace(expression, side=side.other)
        case Call(_, args):
            return replace(expression, args=_all(args))
        case Opaque(_, columns):
            text = with_columns(expression, lambda c: f"{c.side.other.alias}.{quote_name(c.name)}")
            return replace(expression, sql=text, columns=tuple(replace(c, side=c.side.other) for c in columns))
    return expression


def _all(expressions: tuple[Expression, ...]) -> tuple[Expression, ...]:
    return tuple(mirrored_expression(e) for e in expressions)


def _predicate(predicate: Predicate) -> Predicate:
    source = _all(predicate.source)
    match predicate:
        case Equal(left, right):
            return Equal(mirrored_expression(right), mirrored_expression(left), source)
        case NotEqual(left, right):
            return NotEqual(mirrored_expression(right), mirrored_expression(left), source)
        case Less():
            return _less(predicate, source)
        case Band():
            return _band(predicate, source)
        case Overlap():
            return _overlap(predicate)
        case Rectangles(x, y):
            return Rectangles(_overlap(x), _overlap(y), source)
        case Distance(left, right, radius, closed):
            return Distance(_all(right), _all(left), radius, closed, source)


def _less(less: Less, source: tuple[Expression, ...]) -> Less:
    left, right = mirrored_expression(less.right), mirrored_expression(less.left)
    match less.operator:
        case "<":
            return Less(left, ">", right, source)
        case "<=":
            return Less(left, ">=", right, source)
        case ">":
            return Less(left, "<", right, source)
        case ">=":
            return Less(left, "<=", right, source)


def _band(band: Band, source: tuple[Expression, ...]) -> Band:
    """low <= l - r <= high as -high <= r - l <= -low."""
    return Band(
        mirrored_expression(band.right),
        mirrored_expression(band.left),
        _negate_bound(band.high),
        _negate_bound(band.low),
        band.high_closed,
        band.low_closed,
        source,
    )


def _negate_bound(bound: Expression) -> Literal:
    assert isinstance(bound, Literal)
    return negate(bound)


def _overlap(overlap: Overlap) -> Overlap:
    """l.low < r.high as r.high > l.low."""
    return Overlap(
        _interval(overlap.right),
        _interval(overlap.left),
        overlap.left_high_closed,
        overlap.left_low_closed,
        _all(overlap.source),
    )


def _interval(interval: Interval) -> Interval:
    return Interval(mirrored_expression(interval.low), mirrored_expression(interval.high))
