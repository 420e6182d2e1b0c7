"""Bands: two inequalities that keep l.x - r.x between two constants.

    abs(l.x - r.x) <= 5        l.x - r.x BETWEEN -3 AND 5        l.x >= r.x - 3 AND l.x <= r.x + 5

Exact types get exact bounds. For doubles the band finds candidates and the source decides. A floating-point difference
that is bounded on one side only (l.x - r.x <= 5.0) stays a residual: moving the constant would round differently, and
l.x - r.x >= 5.0 even holds for every NaN. Written as l.x <= r.x + 5.0 it is an ordinary inequality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.bind import Binder
from dovetail.condition.casts import PER_SECOND, WIDE
from dovetail.condition.expression import Call, Expression, Literal, sides_of, type_of
from dovetail.condition.linear import DAY, FLIPPED, LEFT, RIGHT, flip, in_days, inwards, leaves_room, separate_sides
from dovetail.condition.literals import negate, retype_literal, scalar
from dovetail.condition.predicates import Band, Equal, Less, Predicate
from dovetail.condition.unify import to_type, unify

t = pa.types


def closed_bounds(band: Band) -> tuple[int, int] | tuple[float, float]:
    """Bounds for low <= code(left) - code(right) <= high, over `keys.order_codes` of the operands: inclusive integers.

    For doubles the bounds are floats over the values themselves, and the band's source decides.
    """
    type_ = type_of(band.left)
    if t.is_floating(type_):
        return float(_literal(band.low).value), float(_literal(band.high).value)
    low, high = (_steps(_literal(bound), type_) for bound in (band.low, band.high))
    return low + (not band.low_closed), high - (not band.high_closed)


def _steps(bound: Literal, type_: pa.DataType) -> int:
    """The bound as a multiple of the smallest step of the type."""
    if t.is_decimal(type_):
        return int(WIDE.scaleb(bound.value, type_.scale))
    if t.is_date(type_):
        return int(bound.value // DAY)
    if t.is_timestamp(type_) or t.is_duration(type_):
        return int(scalar(bound).cast(pa.duration(type_.unit)).value)
    return int(bound.value)


def fit_band(band: Band, binder: Binder) -> Band:
    """The band with operands of one type and bounds that are exact in that type."""
    left, right = unify((band.left, band.right), binder.zone)
    if t.is_floating(type_of(left)):
        operands = (to_type(left, types.DOUBLE), to_type(right, types.DOUBLE))
        low, high = (Literal(float(_literal(b).value), types.DOUBLE) for b in (band.low, band.high))
        return replace(band, left=operands[0], right=operands[1], low=low, high=high)
    if t.is_integer(type_of(left)):
        return _on_steps(replace(band, left=left, right=right), 1, types.INT64)
    if t.is_date(type_of(left)):
        return _on_steps(replace(band, left=left, right=right), DAY, types.DAY)
    type_, bound_type = _common_types(type_of(left), _literal(band.low), _literal(band.high))
    low, high = (_exactly(_literal(b), bound_type) for b in (band.low, band.high))
    return replace(band, left=to_type(left, type_), right=to_type(right, type_), low=low, high=high)


def _literal(expression: Expression) -> Literal:
    assert isinstance(expression, Literal)
    return expression


def _on_steps(band: Band, step: int | timedelta, type_: pa.DataType) -> Band:
    """Integers and dates differ by whole steps: a bound between two steps is moved inwards to the nearest one."""
    lower, low = inwards(">=" if band.low_closed else ">", _literal(band.low).value, step)
    upper, high = inwards("<=" if band.high_closed else "<", _literal(band.high).value, step)
    return replace(
        band,
        low=Literal(low, type_),
        high=Literal(high, type_),
        low_closed=lower == ">=",
        high_closed=upper == "<=",
    )


def _common_types(type_: pa.DataType, low: Literal, high: Literal) -> tuple[pa.DataType, pa.DataType]:
    """The operands' type, widened until it can represent the bounds, and the type of the bounds."""
    if t.is_decimal(type_):
        scale = max(type_.scale, *(_scale(bound.value) for bound in (low, high)))
        whole = type_.precision - type_.scale
        return types.decimal(whole + scale, scale, whole + scale), types.decimal(types.WIDEST, scale, types.WIDEST)
    units = [type_.unit]
    for bound in (low, high):
        units += [unit for unit in types.UNITS if retype_literal(bound, pa.duration(unit)) is not None][:1]
    unit = max(units, key=PER_SECOND.__getitem__)
    return (pa.timestamp(unit, type_.tz) if t.is_timestamp(type_) else pa.duration(unit)), pa.duration(unit)


def _scale(value: int | Decimal) -> int:
    exponent = Decimal(value).normalize(WIDE).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _exactly(literal: Literal, type_: pa.DataType) -> Literal:
    """The literal in the bounds' type; unchanged if it has more digits than the type."""
    return retype_literal(literal, type_) or literal


FLOAT_STEP = 2.0**-22  # relative error of a float32 difference, with a margin
LARGEST_FLOAT = float(np.finfo(np.float32).max)
INEQUALITIES = ("<", "<=", ">", ">=")

Edge = tuple[Expression, Expression, bool]  # left - right, and whether it is bounded from above


class Half(NamedTuple):
    """left - right op bound: one edge of a band."""

    left: Expression
    right: Expression
    operator: str
    bound: Literal
    source: tuple[Expression, ...]
    less: Less | None = None  # the predicate it becomes without a partner; None: a residual
    excludes_nan: bool = False  # a difference written with < or <=, which no NaN satisfies

    @property
    def is_upper(self) -> bool:
        return self.operator in ("<", "<=")

    @property
    def is_closed(self) -> bool:
        return self.operator in ("<=", ">=")


def bands(
    predicates: Sequence[Predicate], residual: Sequence[Expression], binder: Binder
) -> tuple[list[Predicate], list[Expression]]:
    """The same conjunction with its bands recognised. Everything else is unchanged."""
    found: list[Predicate] = []
    left_over: list[Expression] = []
    offered: list[Half] = []
    waiting: dict[Edge, list[Half]] = {}

    def offer(half: Half) -> None:
        opposite = waiting.get((half.left, half.right, not half.is_upper), [])
        partner = next((w for w in opposite if _are_partners(w, half)), None)
        if partner is None:
            offered.append(half)
            waiting.setdefault((half.left, half.right, half.is_upper), []).append(half)
        else:
            opposite.remove(partner)
            offered.remove(partner)
            found.append(_band(partner, half, partner.source + half.source, binder))

    for predicate in predicates:
        half = _half(predicate, binder) if isinstance(predicate, Less) else None
        if half is None:
            found.append(predicate)
        else:
            offer(half)
    for conjunct in residual:
        whole = _absolute(conjunct, binder) or _float_equal(conjunct)
        half = None if whole else _float_half(conjunct)
        found += whole
        if half is not None:
            offer(half)
        elif not whole:
            left_over.append(conjunct)
    found += [half.less for half in offered if half.less is not None]
    left_over += [source for half in offered if half.less is None for source in half.source]
    return found, left_over


def _are_partners(a: Half, b: Half) -> bool:
    """Whether two edges bound one difference from both sides. A band would miss NaN that satisfies the source."""
    safe = (a.less is not None and b.less is not None) or a.excludes_nan or b.excludes_nan
    return safe and a.is_upper != b.is_upper and (a.left, a.right) == (b.left, b.right)


def _band(a: Half, b: Half, source: tuple[Expression, ...], binder: Binder) -> Band | Equal:
    low, high = (b, a) if a.is_upper else (a, b)
    band = Band(low.left, low.right, low.bound, high.bound, low.is_closed, high.is_closed, source)
    is_point = low.is_closed and high.is_closed and not low.bound.value and not high.bound.value
    fits = fit_band(band, binder)
    if is_point and low.less is not None and high.less is not None:
        return Equal(fits.left, fits.right, source)
    return fits


def _half(less: Less, binder: Binder) -> Half | None:
    """Rewrites base + a < base' + b as base - base' < b - a."""
    if less.left.type is None or not (types.is_exact(less.left.type) or t.is_floating(less.left.type)):
        return None
    (left, a), (right, b) = offset(less.left), offset(less.right)
    if a is not None and b is not None:
        if t.is_floating(less.left.type):
            return None  # two roundings, at magnitudes that the band does not show
        bound = binder.call("-", b, a)
    elif a is not None:
        bound = binder.call("neg", a)
    else:
        bound = b or _zero(less.left.type)
    if not isinstance(bound, Literal) or (t.is_floating(type_of(bound)) and not _is_finite(bound)):
        return None
    return Half(left, right, less.operator, bound, less.source, less)


def _is_finite(bound: Expression) -> bool:
    """Whether the bound is a finite number: NaN and infinities do not bound a band."""
    return isinstance(bound, Literal) and isinstance(bound.value, float) and math.isfinite(bound.value)


def _zero(type_: pa.DataType) -> Literal:
    if types.is_instant(type_) or t.is_duration(type_):
        return Literal(timedelta(0), pa.duration("us"))
    return Literal(0.0, types.DOUBLE) if t.is_floating(type_) else Literal(0, types.INT64)


def bare(expression: Expression) -> Expression:
    """The expression without casts that keep every value."""
    match expression:
        case Call("cast", (inner,), target) if inner.type is not None and target is not None:
            if types.is_lossless(inner.type, target) or (t.is_float32(inner.type) and target == types.DOUBLE):
                return bare(inner)
    return expression


def offset(expression: Expression) -> tuple[Expression, Literal | None]:
    """Splits x + 5 into (x, 5): the added constant, if there is one."""
    inner = bare(expression)
    type_ = inner.type
    if type_ is None or t.is_float32(type_) or (t.is_decimal(type_) and type_.precision >= types.MOST_DIGITS):
        return inner, None
    match inner:
        case Call("+" | "-", (a, b)) if any(isinstance(c, Literal) and types.is_instant(type_of(c)) for c in (a, b)):
            return inner, None  # a point in time cannot be negated
        case Call("+", (x, Literal() as c)) | Call("+", (Literal() as c, x)):
            return bare(x), c
        case Call("-", (x, Literal() as c)) if c.value is not None:
            return bare(x), negate(c)
        case Call("-", (Literal() as c, x)) if types.is_number(type_):
            return Call("neg", (x,), x.type), c
    return inner, None


def _absolute(conjunct: Expression, binder: Binder) -> list[Predicate]:
    """abs(x - y) <= bound as a band; with a bound that varies, as two inequalities."""
    if not isinstance(conjunct, Call) or conjunct.function not in INEQUALITIES:
        return []
    comparison = conjunct if conjunct.function in ("<", "<=") else flip(conjunct)
    operator, (inside, bound) = comparison.function, comparison.args
    match bare(inside):
        case Call("abs", (difference,)):
            pass
        case _:
            return []
    if t.is_floating(type_of(difference)):
        return _absolute_float(conjunct, operator, difference, bound)
    if isinstance(bound, Literal) and not leaves_room(bound):
        return []
    difference, bound = in_days(bare(difference), bound, binder)
    if t.is_duration(type_of(difference)) and isinstance(bound, Literal):
        operator, bound = _in_whole_days(operator, difference, bound)
    upper = separate_sides(_comparison(binder, operator, difference, bound), binder)
    lower = separate_sides(_comparison(binder, FLIPPED[operator], difference, binder.call("neg", bound)), binder)
    if upper is None or lower is None:
        return []
    edges = [less_of(upper, (upper,)), less_of(lower, (lower,))]
    high, low = (_half(edge, binder) for edge in edges)
    if high is not None and low is not None and _are_partners(high, low):
        return [_band(high, low, (conjunct,), binder)]
    return list(edges)


def _in_whole_days(operator: str, difference: Expression, bound: Literal) -> tuple[str, Literal]:
    match difference:
        case Call("-", (a, _)) if t.is_date(type_of(a)):
            operator, days = inwards(operator, bound.value, DAY)
            return operator, Literal(days, types.DAY)
    return operator, bound


def less_of(comparison: Call, source: tuple[Expression, ...]) -> Less:
    left, right = comparison.args
    match comparison.function:
        case "<" | "<=" | ">" | ">=" as operator:
            return Less(left, operator, right, source)
    raise AssertionError(f"{comparison.function} is no inequality")


def _comparison(binder: Binder, operator: str, left: Expression, right: Expression) -> Call:
    comparison = binder.call(operator, left, right)
    assert isinstance(comparison, Call)
    return comparison


def _absolute_float(conjunct: Expression, operator: str, difference: Expression, bound: Expression) -> list[Predicate]:
    points = _float_difference(difference)
    if points is None or not _is_finite(bound):
        return []
    assert isinstance(bound, Literal)
    reach = _widen(bound.value, difference)
    closed = operator == "<="
    left, right, _ = points
    low, high = Literal(-reach, types.DOUBLE), Literal(reach, types.DOUBLE)
    return [Band(as_double(left), as_double(right), low, high, closed, closed, (conjunct,))]


def _float_equal(conjunct: Expression) -> list[Predicate]:
    """x - y = constant as a band without width."""
    match conjunct:
        case Call("=", (difference, Literal(float(bound)))) | Call("=", (Literal(float(bound)), difference)):
            points = _float_difference(bare(difference))
            if points is None or not math.isfinite(bound):
                return []
            left, right, sign = points
            edges = sorted((sign * bound, sign * _widen(bound, bare(difference))))
            low, high = (Literal(edge, types.DOUBLE) for edge in edges)
            return [Band(as_double(left), as_double(right), low, high, True, True, (conjunct,))]
    return []


def _float_half(conjunct: Expression) -> Half | None:
    """x - y < constant on floating-point numbers."""
    if not isinstance(conjunct, Call) or conjunct.function not in INEQUALITIES:
        return None
    comparison = flip(conjunct) if isinstance(conjunct.args[0], Literal) else conjunct
    operator, (difference, bound) = comparison.function, comparison.args
    points = _float_difference(bare(difference))
    if points is None or not _is_finite(bound):
        return None
    assert isinstance(bound, Literal)
    left, right, sign = points
    is_upper = operator in ("<", "<=")
    outwards = _widen(bound.value, bare(difference)) if (bound.value > 0) == is_upper else bound.value
    literal = Literal(sign * outwards, types.DOUBLE)
    oriented = operator if sign > 0 else FLIPPED[operator]
    return Half(as_double(left), as_double(right), oriented, literal, (conjunct,), None, is_upper)


def _float_difference(expression: Expression) -> tuple[Expression, Expression, int] | None:
    """l.x - r.x as (l.x, r.x, 1), r.x - l.x as (l.x, r.x, -1)."""
    match expression:
        case Call("-", (a, b), type_) if type_ is not None and t.is_floating(type_):
            sides = (sides_of(a), sides_of(b))
            if sides == (LEFT, RIGHT):
                return bare(a), bare(b), 1
            if sides == (RIGHT, LEFT):
                return bare(b), bare(a), -1
    return None


def _widen(bound: float, difference: Expression) -> float:
    """A float32 difference is rounded to 24 bits before comparison. Search that much further, up to the largest float.

    A difference beyond the range of float32 is infinite, and so above every bound.
    """
    if not t.is_float32(type_of(difference)):
        return bound
    return max(-LARGEST_FLOAT, min(bound, LARGEST_FLOAT)) * (1 + FLOAT_STEP)


def as_double(expression: Expression) -> Expression:
    return expression if expression.type == types.DOUBLE else Call("cast", (expression,), types.DOUBLE)
