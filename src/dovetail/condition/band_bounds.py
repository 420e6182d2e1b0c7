"""The bounds of a band in the type of its operands, and as plain numbers for kernels."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.bind import Binder
from dovetail.condition.casts import PER_SECOND, WIDE
from dovetail.condition.expression import Expression, Literal, type_of
from dovetail.condition.linear import DAY, inwards
from dovetail.condition.literals import retyped, scalar
from dovetail.condition.predicates import Band
from dovetail.condition.unify import to_type, unified

t = pa.types


def closed_bounds(band: Band) -> tuple[int, int] | tuple[float, float]:
    """low <= code(left) - code(right) <= high, over `keys.order_codes` of the operands: whole numbers, both included.

    For doubles the bounds are floats over the values themselves, and the band's source has the last word.
    """
    type_ = type_of(band.left)
    if t.is_floating(type_):
        return float(_literal(band.low).value), float(_literal(band.high).value)
    low, high = (_steps(_literal(bound), type_) for bound in (band.low, band.high))
    return low + (not band.low_closed), high - (not band.high_closed)


def _steps(bound: Literal, type_: pa.DataType) -> int:
    """The bound counted in the smallest step of the type."""
    if t.is_decimal(type_):
        return int(WIDE.scaleb(bound.value, type_.scale))
    if t.is_date(type_):
        return int(bound.value // DAY)
    if t.is_timestamp(type_) or t.is_duration(type_):
        return int(scalar(bound).cast(pa.duration(type_.unit)).value)
    return int(bound.value)


def fitted(band: Band, binder: Binder) -> Band:
    """Operands of one type, bounds that are exact in it."""
    left, right = unified((band.left, band.right), binder.zone)
    if t.is_floating(type_of(left)):
        operands = (to_type(left, types.DOUBLE), to_type(right, types.DOUBLE))
        low, high = (Literal(float(_literal(b).value), types.DOUBLE) for b in (band.low, band.high))
        return replace(band, left=operands[0], right=operands[1], low=low, high=high)
    if t.is_integer(type_of(left)):
        return _on_steps(replace(band, left=left, right=right), 1, types.INT64)
    if t.is_date(type_of(left)):
        return _on_steps(replace(band, left=left, right=right), DAY, types.DAY)
    type_, bound_type = _shared(type_of(left), _literal(band.low), _literal(band.high))
    low, high = (_exactly(_literal(b), bound_type) for b in (band.low, band.high))
    return replace(band, left=to_type(left, type_), right=to_type(right, type_), low=low, high=high)


def _literal(expression: Expression) -> Literal:
    assert isinstance(expression, Literal)
    return expression


def _on_steps(band: Band, step: int | timedelta, type_: pa.DataType) -> Band:
    """Integers and dates differ by whole steps: a bound between two steps is moved inwards to the nearest."""
    lower, low = inwards(">=" if band.low_closed else ">", _literal(band.low).value, step)
    upper, high = inwards("<=" if band.high_closed else "<", _literal(band.high).value, step)
    return replace(
        band,
        low=Literal(low, type_),
        high=Literal(high, type_),
        low_closed=lower == ">=",
        high_closed=upper == "<=",
    )


def _shared(type_: pa.DataType, low: Literal, high: Literal) -> tuple[pa.DataType, pa.DataType]:
    """The operands' type, made fine enough for the bounds, and the type of the bounds."""
    if t.is_decimal(type_):
        scale = max(type_.scale, *(_scale(bound.value) for bound in (low, high)))
        whole = type_.precision - type_.scale
        return types.decimal(whole + scale, scale, whole + scale), types.decimal(types.WIDEST, scale, types.WIDEST)
    units = [type_.unit]
    for bound in (low, high):
        units += [unit for unit in types.UNITS if retyped(bound, pa.duration(unit)) is not None][:1]
    unit = max(units, key=PER_SECOND.__getitem__)
    return (pa.timestamp(unit, type_.tz) if t.is_timestamp(type_) else pa.duration(unit)), pa.duration(unit)


def _scale(value: int | Decimal) -> int:
    exponent = Decimal(value).normalize(WIDE).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _exactly(literal: Literal, type_: pa.DataType) -> Literal:
    """In the type of the bounds; as it is, if it has more digits than that."""
    return retyped(literal, type_) or literal
