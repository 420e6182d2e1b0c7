"""The types of + - * / %: which casts the operands need and what comes out."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.expression import Call, Expression, Literal, type_of
from dovetail.condition.literals import retype_literal
from dovetail.condition.unify import describe, to_type, unify
from dovetail.errors import ConditionError

t = pa.types

VERBS = {"+": "added to", "-": "subtracted from", "*": "multiplied by"}
DAY = timedelta(days=1)


def arithmetic(function: str, left: Expression, right: Expression, zone: str | None) -> Expression:
    """`left function right`, bound."""
    if left.type is None or right.type is None:
        return Call(function, (left, right))
    left, right = _typed_null(left, right), _typed_null(right, left)
    a, b = type_of(left), type_of(right)
    if types.is_number(a) and types.is_number(b):
        return _numbers(function, left, right)
    if function == "+" and types.is_instant(b) and not types.is_instant(a):
        return _instants(function, right, left, zone)
    if types.is_instant(a):
        return _instants(function, left, right, zone)
    if t.is_duration(a) or t.is_duration(b):
        return _durations(function, left, right)
    raise _impossible(function, left, right)


def _typed_null(arg: Expression, other: Expression) -> Expression:
    if not t.is_null(type_of(arg)):
        return arg
    type_ = type_of(other)
    return to_type(arg, pa.int32() if t.is_null(type_) or types.is_instant(type_) else type_)


def _impossible(function: str, left: Expression, right: Expression) -> ConditionError:
    first, second = (right, left) if function in "+-" else (left, right)
    return ConditionError(
        f"{describe(first)} cannot be {VERBS.get(function, 'divided by')} {describe(second)}. Cast one of them."
    )


def _numbers(function: str, left: Expression, right: Expression) -> Expression:
    if function == "div":
        return _whole_division(left, right)
    sides = (type_of(left), type_of(right))
    if any(t.is_floating(side) for side in sides):
        small = all(t.is_float32(side) for side in sides) and function != "/"
        return _same(function, left, right, pa.float32() if small else types.DOUBLE)
    if any(t.is_decimal(side) or t.is_uint64(side) for side in sides):
        return _decimals(function, left, right)
    return _same(function, left, right, types.DOUBLE if function == "/" else types.INT64)


def _whole_division(left: Expression, right: Expression) -> Expression:
    for side in (left, right):
        if not t.is_integer(type_of(side)):
            raise ConditionError(f"DIV needs whole numbers; {describe(side)} is not one. Use floor(x / y).")
    return _same("div", left, right, types.INT64)


def _same(function: str, left: Expression, right: Expression, type_: pa.DataType) -> Expression:
    return Call(function, (to_type(left, type_), to_type(right, type_)), type_)


def _decimals(function: str, left: Expression, right: Expression) -> Expression:
    a, b = _decimal_type(left), _decimal_type(right)
    return Call(function, (to_type(left, a), to_type(right, b)), types.decimal_arithmetic(function, a, b))


def _decimal_type(arg: Expression) -> pa.DataType:
    """An integer constant counts its digits; an integer column has room for all of its type."""
    if isinstance(arg, Literal) and isinstance(arg.value, int):
        return pa.decimal128(len(str(abs(arg.value))), 0)
    return types.as_decimal(type_of(arg))


def _instants(function: str, left: Expression, right: Expression, zone: str | None) -> Expression:
    """A date or timestamp minus another one, or plus or minus a length of time."""
    by = type_of(right)
    if function == "-" and (types.is_instant(by) or (isinstance(right, Literal) and types.is_text(by))):
        left, right = unify((left, right), zone)
        type_ = type_of(left)
        return Call("-", (left, right), types.DAY if t.is_date(type_) else pa.duration(type_.unit))
    if function not in "+-" or not (t.is_integer(by) or t.is_duration(by)):
        raise _impossible(function, left, right)
    if t.is_integer(by):
        return _date_and_days(function, left, right)
    if t.is_date(type_of(left)):
        if _is_whole_days(right):
            return Call(function, (left, to_type(right, types.DAY)), types.DATE)
        left = to_type(left, pa.timestamp("us"))
    return _timestamp_and_duration(function, left, right)


def _timestamp_and_duration(function: str, left: Expression, right: Expression) -> Expression:
    type_ = type_of(left)
    unit = type_.unit
    if not isinstance(right, Literal) or retype_literal(right, pa.duration(unit)) is None:
        unit = types.finest(unit, type_of(right).unit)
    type_ = pa.timestamp(unit, type_.tz)
    return Call(function, (to_type(left, type_), to_type(right, pa.duration(unit))), type_)


def _date_and_days(function: str, left: Expression, right: Expression) -> Expression:
    if not t.is_date(type_of(left)):
        raise ConditionError(
            f"{describe(right)} cannot be {VERBS[function]} {describe(left)}. Write an interval: INTERVAL 5 MINUTES."
        )
    if isinstance(right, Literal):
        days = None if right.value is None else right.value * DAY
        return Call(function, (left, Literal(days, types.DAY)), types.DATE)
    return Call(function, (left, to_type(right, types.INT64)), types.DATE)


def _is_whole_days(arg: Expression) -> bool:
    """A difference of dates, or a constant that is a number of days."""
    match arg:
        case Literal(None):
            return True
        case Literal(timedelta() as value):
            return not value % DAY
        case Call("-", (a, b)):
            return bool(t.is_date(type_of(a)) and t.is_date(type_of(b)))
    return False


def _durations(function: str, left: Expression, right: Expression) -> Expression:
    a, b = type_of(left), type_of(right)
    if function in "+-" and t.is_duration(a) and t.is_duration(b):
        left, right = unify((left, right), None)
        return Call(function, (left, right), left.type)
    if function == "*" and t.is_duration(a) and t.is_integer(b):
        return Call("*", (left, to_type(right, types.INT64)), a)
    if function == "*" and t.is_integer(a):
        return Call("*", (right, to_type(left, types.INT64)), b)
    raise _impossible(function, left, right)
