"""Finds one type for values that are used together: casts are inserted, constants are converted instead.

Also the types of + - * / %: the casts that operands need, and the type of the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import reduce

import numpy as np
import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.casts import can_cast
from dovetail.condition.expression import Call, Expression, Literal, type_of
from dovetail.condition.literals import convert_literal, date_literal, retype_literal, timestamp_literal
from dovetail.condition.render import text_of
from dovetail.errors import ConditionError

t = pa.types

VERBS = {"+": "added to", "-": "subtracted from", "*": "multiplied by"}
DAY = timedelta(days=1)


def unify(args: Sequence[Expression], zone: str | None, verb: str = "compared") -> list[Expression]:
    """The arguments, all of one type. If an opaque argument has no known type, that is left to Spark."""
    if any(arg.type is None for arg in args):
        return list(args)
    args = _with_zones(_text_as_instants(args), zone)
    varying: list[Expression] = [arg for arg in args if not isinstance(arg, Literal)]
    meeting = reduce(lambda a, b: _meet(a, b, zone, verb), varying or [max(args, key=_literal_weight)])
    for arg in args:
        if isinstance(arg, Literal) and not _fits(arg, type_of(meeting)):
            meeting = _meet(meeting, arg, zone, verb)
    return [to_type(arg, type_of(meeting)) for arg in args]


def comparable(args: Sequence[Expression], zone: str | None) -> list[Expression]:
    """The arguments, all of one type that every kernel can compare: structs and lists as sort keys."""
    same = unify(args, zone)
    if all(t.is_null(type_of(arg)) for arg in same if arg.type is not None):
        same = [arg if arg.type is None else to_type(arg, pa.int32()) for arg in same]  # no kernel compares only nulls
    return [sort_key(arg) if t.is_nested(type_of(arg)) else arg for arg in same]


def sort_key(arg: Expression) -> Expression:
    """A struct or a list as a byte string with the same order."""
    if not isinstance(arg, Literal):
        return Call("sort_key", (arg,), types.SORT_KEY)
    if arg.value is None:
        return Literal(None, types.SORT_KEY)
    raise ConditionError(f"{describe(arg)} is a constant struct or list. Put it into a column and compare that.")


def to_type(expression: Expression, target: pa.DataType) -> Expression:
    """The expression in another type: a constant is converted now, anything else is cast."""
    if expression.type == target:
        return expression
    if isinstance(expression, Literal):
        if expression.value is None:
            return Literal(None, target)
        converted = retype_literal(expression, target)
        if converted is None and t.is_floating(target):
            converted = Literal(float(expression.value), target)
        if converted is not None:
            return converted
    cast = Call("cast", (expression,), target)
    if expression.type is not None and not can_cast(expression.type, target):
        raise ConditionError(f"{describe(expression)} cannot be cast to {target}.")
    return cast


def describe(expression: Expression) -> str:
    """For an error message: `l.price (string)`."""
    return f"{text_of(expression)} ({expression.type})"


def _literal_weight(arg: Expression) -> bool:
    """Among constants, those that are neither text nor NULL determine the type."""
    type_ = type_of(arg)
    return not (types.is_text(type_) or t.is_null(type_))


def _meet(left: Expression, right: Expression, zone: str | None, verb: str) -> Expression:
    """One of the two, in their common type: the wider one, or a cast."""
    type_ = types.common(type_of(left), type_of(right), zone)
    if type_ is None:
        raise ConditionError(f"{describe(left)} cannot be {verb} with {describe(right)}. {_advice(left, right, zone)}")
    return left if left.type == type_ else right if right.type == type_ else Call("cast", (left,), type_)


def _advice(left: Expression, right: Expression, zone: str | None) -> str:
    pair = {type_of(left), type_of(right)}
    if any(t.is_nested(type_) for type_ in pair):
        return _nested_advice(type_of(left), type_of(right))
    number = next((arg for arg in (left, right) if t.is_integer(type_of(arg))), None)
    if number is not None and any(t.is_duration(type_) for type_ in pair):
        return f"Say what the number counts, for example {_as_interval(number, 'DAYS')}."
    if number is not None and any(t.is_timestamp(type_) for type_ in pair):
        zoned = any(t.is_timestamp(type_) and type_.tz for type_ in pair)
        epoch = "TIMESTAMP '1970-01-01 00:00:00Z'" if zoned else "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
        return (
            "A number is no point in time before it is known what it counts. If it is milliseconds since 1970, write "
            f"{epoch} + {text_of(number)} * INTERVAL 1 MILLISECOND."
        )
    text = next((arg for arg in (left, right) if _is_text_constant(arg)), None)
    if text is not None and any(types.is_number(type_) for type_ in pair):
        assert isinstance(text, Literal)
        other = right if text is left else left
        if _spells_number(text.value):
            return f"Write the number without quotes: {text.value.strip()}."
        return f"It spells no number: compare it with CAST({text_of(other)} AS STRING)."
    return _show_cast(left, right, zone)


def _as_interval(number: Expression, unit: str) -> str:
    """A number as a length of time, for a message."""
    if isinstance(number, Literal):
        return f"INTERVAL {number.value} {unit}"
    return f"{text_of(number)} * INTERVAL 1 {unit.removesuffix('S')}"


def _spells_number(text: str) -> bool:
    return re.fullmatch(r"\s*-?\d+(\.\d*)?\s*", text) is not None


def _show_cast(left: Expression, right: Expression, zone: str | None) -> str:
    """Advice on how to cast one operand to the other's type: text is cast first, then dates, then booleans."""
    ways = [(left, type_of(right)), (right, type_of(left))]
    ways.sort(key=lambda way: [not is_kind(type_of(way[0])) for is_kind in (types.is_text, t.is_date, t.is_boolean)])
    for arg, target in ways:
        if t.is_timestamp(target) and target.tz and zone is None and can_cast(type_of(arg), target):
            other = right if arg is left else left  # text has no zone
            return f"Cast both: CAST({text_of(arg)} AS TIMESTAMP_NTZ), CAST({text_of(other)} AS TIMESTAMP_NTZ)."
        if can_cast(type_of(arg), target):
            return f"Cast one of them: CAST({text_of(arg)} AS {types.spark_name(target)})."
    return "There is no cast between them: compare values of one type."


def _nested_advice(left: pa.DataType, right: pa.DataType) -> str:
    """Advice for the first parts of two types that have no common type."""
    if t.is_map(left) or t.is_map(right):
        return "Maps have neither equality nor order: compare a list of their entries, or single values."
    if types.has_spark_mark(left) or types.has_spark_mark(right):
        return "Variants and places have neither equality nor order: take a value out of them and compare that."
    if t.is_struct(left) and t.is_struct(right) and left.num_fields != right.num_fields:
        return f"One struct has {left.num_fields} fields, the other {right.num_fields}: compare the fields they share."
    for a, b in types.paired_parts(left, right) or ():
        if types.mixes_clocks(a, b):
            return f"Inside, {a} and {b} differ in having a time zone: say which (zone='Europe/Berlin'), or cast one."
        if types.common(a, b) is None:
            return _nested_advice(a, b)
    return f"{left} and {right} have no common type: cast one of them."


def _fits(literal: Literal, target: pa.DataType) -> bool:
    """Whether the constant can take this type without changing the meaning of the comparison."""
    if literal.value is None:
        return True
    type_ = type_of(literal)
    if type_ == target:
        return True
    if types.is_number(type_) and t.is_floating(target):
        # A double accepts any number; a float only those it represents exactly.
        with np.errstate(over="ignore"):
            return bool(target == types.DOUBLE or float(np.float32(literal.value)) == literal.value)
    if types.is_number(type_) != types.is_number(target) or types.is_text(type_) != types.is_text(target):
        return False
    if t.is_floating(type_) or types.common(type_, target) is None:
        return False
    return retype_literal(literal, target) is not None


def _text_as_instants(args: Sequence[Expression]) -> list[Expression]:
    """A string constant that is compared with a date or a timestamp is parsed as one, as in Spark."""
    instants = [type_of(arg) for arg in args if types.is_instant(type_of(arg))]
    if not instants:
        return list(args)
    target = reduce(lambda a, b: types.common(a, b) or a, instants)
    return [_as_instant(arg, target) if _is_text_constant(arg) else arg for arg in args]


def _is_text_constant(arg: Expression) -> bool:
    return isinstance(arg, Literal) and arg.value is not None and types.is_text(type_of(arg))


def _as_instant(arg: Expression, target: pa.DataType) -> Expression:
    assert isinstance(arg, Literal)
    return date_literal(arg.value) if t.is_date(target) else timestamp_literal(arg.value)


def _with_zones(args: Sequence[Expression], zone: str | None) -> list[Expression]:
    """Timestamps with and without a zone are comparable only if the zone of the latter is known."""
    zoned = [arg for arg in args if t.is_timestamp(type_of(arg)) and type_of(arg).tz]
    local = [arg for arg in args if types.is_instant(type_of(arg)) and arg not in zoned]
    if not zoned or not local:
        return list(args)
    if zone is None:
        zone = _implied_zone(zoned, local)
    return [_in_zone(arg, zone) if arg in local else arg for arg in args]


def _implied_zone(zoned: list[Expression], local: list[Expression]) -> str:
    """The zone of constants without one: that of the column they are compared with."""
    columns = [arg for arg in local if not isinstance(arg, Literal)]
    if columns or isinstance(zoned[0], Literal):
        without = columns[0] if columns else local[0]
        raise ConditionError(
            f"{describe(without)} has no time zone and {describe(zoned[0])} has one. Give the first a zone "
            f"before the join, "
            f"or compare it with the second's clock: CAST({text_of(zoned[0])} AS TIMESTAMP_NTZ)."
        )
    return str(type_of(zoned[0]).tz)


def _in_zone(arg: Expression, zone: str) -> Expression:
    type_ = type_of(arg)
    unit = "us" if t.is_date(type_) else type_.unit
    target = pa.timestamp(unit, zone)
    return convert_literal(arg, target) if isinstance(arg, Literal) else Call("cast", (arg,), target)


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
        f"{describe(first)} cannot be {VERBS.get(function, 'divided by')} {describe(second)}."
        f"{_arithmetic_advice(function, left, right)}"
    )


def _arithmetic_advice(function: str, left: Expression, right: Expression) -> str:
    if any(types.is_instant(type_of(arg)) or t.is_duration(type_of(arg)) for arg in (left, right)):
        text = next((arg for arg in (left, right) if _is_text_constant(arg)), None)
        return "" if text is None else f" Write a length of time as an interval: INTERVAL {text_of(text)}."
    kinds = [type_of(arg) for arg in (left, right)]
    if not all(types.is_number(type_) or types.is_text(type_) or t.is_boolean(type_) for type_ in kinds):
        return ""
    first, second = (
        text_of(arg) if types.is_number(type_of(arg)) else f"CAST({text_of(arg)} AS DOUBLE)" for arg in (left, right)
    )
    return f" To compute with numbers, write {first} {function} {second}."


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
    """An integer constant counts its digits; an integer column needs room for all values of its type."""
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
            f"{describe(right)} cannot be {VERBS[function]} {describe(left)}. Say what the number counts, for example "
            f"{_as_interval(right, 'MINUTES')}."
        )
    if isinstance(right, Literal):
        days = None if right.value is None else right.value * DAY
        return Call(function, (left, Literal(days, types.DAY)), types.DATE)
    return Call(function, (left, to_type(right, types.INT64)), types.DATE)


def _is_whole_days(arg: Expression) -> bool:
    """Whether it is a difference of dates, or a constant number of days."""
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
