"""Distances: sqrt((l.x - r.x)² + (l.y - r.y)² + …) <= e in its usual spellings.

A square may be written pow(d, 2) or d * d, the root may be left out (the radius is then the root of the constant), and
distance(l.x, l.y, r.x, r.y) is the short form. In one dimension the same is a band.
"""

from __future__ import annotations

import math

from dovetail.condition import types
from dovetail.condition.bands import INEQUALITIES, as_double, bare
from dovetail.condition.expression import Call, Expression, Literal, sides_of, type_of
from dovetail.condition.linear import LEFT, RIGHT, flipped
from dovetail.condition.predicates import Band, Distance

Points = tuple[tuple[Expression, ...], tuple[Expression, ...]]


def distance(conjunct: Expression) -> Distance | Band | None:
    if not isinstance(conjunct, Call) or conjunct.function not in INEQUALITIES:
        return None
    comparison = flipped(conjunct) if isinstance(conjunct.args[0], Literal) else conjunct
    operator, (inside, bound) = comparison.function, comparison.args
    if operator not in ("<", "<=") or not isinstance(bound, Literal) or not types.is_number(type_of(bound)):
        return None
    root = _root(_uncast(inside))
    radius = float(bound.value) if root is not None else math.sqrt(max(float(bound.value), 0.0))
    points = _points(_uncast(inside) if root is None else root)
    if points is None or float(bound.value) < 0 or not math.isfinite(radius):
        return None  # nothing is nearer than a negative distance: the residual says so
    left, right = points
    closed = operator == "<="
    if len(left) == 1 and not types.is_list(type_of(left[0])):
        low, high = Literal(-radius, types.DOUBLE), Literal(radius, types.DOUBLE)
        return Band(left[0], right[0], low, high, closed, closed, (conjunct,))
    return Distance(left, right, Literal(radius, types.DOUBLE), closed, (conjunct,))


def _uncast(expression: Expression) -> Expression:
    """Coordinates are doubles in the end, so a cast to double on the way there does not matter."""
    inner = bare(expression)
    match inner:
        case Call("cast", (number,), target) if target == types.DOUBLE and types.is_number(type_of(number)):
            return _uncast(number)
    return inner


def _root(expression: Expression) -> Expression | None:
    match expression:
        case Call("sqrt", (inner,)) | Call("pow", (inner, Literal(0.5))):
            return _uncast(inner)
        case Call("distance"):
            return expression
    return None


def _points(expression: Expression) -> Points | None:
    match expression:
        case Call("distance", args):
            return _given(args)
        case Call("+", (a, b)):
            first, second = _points(_uncast(a)), _points(_uncast(b))
            if first is None or second is None:
                return None
            return (first[0] + second[0], first[1] + second[1])
        case Call("pow", (inner, Literal(2.0))):
            return _coordinate(_uncast(inner))
        case Call("*", (a, b)) if a == b:
            return _coordinate(_uncast(a))
    return None


def _given(args: tuple[Expression, ...]) -> Points | None:
    half = len(args) // 2
    first, second = args[:half], args[half:]
    sides = tuple(frozenset(side for point in points for side in sides_of(point)) for points in (first, second))
    if sides == (LEFT, RIGHT):
        return first, second
    return (second, first) if sides == (RIGHT, LEFT) else None


def _coordinate(difference: Expression) -> Points | None:
    match difference:
        case Call("-", (a, b)):
            sides = (sides_of(a), sides_of(b))
            if sides == (LEFT, RIGHT):
                return (as_double(bare(a)),), (as_double(bare(b)),)
            if sides == (RIGHT, LEFT):
                return (as_double(bare(b)),), (as_double(bare(a)),)
    return None
