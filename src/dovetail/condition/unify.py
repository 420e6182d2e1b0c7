"""One declared type for values that meet: casts are inserted, constants change their type instead."""

from __future__ import annotations

from collections.abc import Sequence
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


def unify(args: Sequence[Expression], zone: str | None, verb: str = "compared") -> list[Expression]:
    """The arguments, all of one type. Where an opaque one has no known type, Spark sorts it out."""
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
    """The arguments, all of one type that every kernel can compare: structs and lists by their sort keys."""
    same = unify(args, zone)
    return [sort_key(arg) if t.is_nested(type_of(arg)) else arg for arg in same]


def sort_key(arg: Expression) -> Expression:
    """A struct or a list as a byte string with the same order."""
    if not isinstance(arg, Literal):
        return Call("sort_key", (arg,), types.SORT_KEY)
    if arg.value is None:
        return Literal(None, types.SORT_KEY)
    raise ConditionError(f"{describe(arg)} is a constant struct or list. Put it into a column and compare that.")


def to_type(expression: Expression, target: pa.DataType) -> Expression:
    """The expression in another type: a constant is converted now, everything else by a cast."""
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
    """Among constants only, one that is neither text nor NULL says what the type is."""
    type_ = type_of(arg)
    return not (types.is_text(type_) or t.is_null(type_))


def _meet(left: Expression, right: Expression, zone: str | None, verb: str) -> Expression:
    """Something of the common type of both: the wider of the two, or a cast of it."""
    type_ = types.common(type_of(left), type_of(right), zone)
    if type_ is None:
        raise ConditionError(f"{describe(left)} cannot be {verb} with {describe(right)}. {_advice(left, right)}")
    return left if left.type == type_ else right if right.type == type_ else Call("cast", (left,), type_)


def _advice(left: Expression, right: Expression) -> str:
    pair = {type_of(left), type_of(right)}
    if any(t.is_nested(type_) for type_ in pair):
        return _nested_advice(type_of(left), type_of(right))
    if any(t.is_duration(type_) for type_ in pair) and any(t.is_integer(type_) for type_ in pair):
        return "Write the number as an interval, for example INTERVAL 5 DAYS."
    return "Cast one of them."


def _nested_advice(left: pa.DataType, right: pa.DataType) -> str:
    """What is wrong with the first parts of two types that have no common type."""
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
    """Whether the constant can take this type without changing what the comparison means."""
    if literal.value is None:
        return True
    type_ = type_of(literal)
    if type_ == target:
        return True
    if types.is_number(type_) and t.is_floating(target):
        # A double reads any number; a float only those it holds exactly.
        with np.errstate(over="ignore"):
            return bool(target == types.DOUBLE or float(np.float32(literal.value)) == literal.value)
    if types.is_number(type_) != types.is_number(target) or types.is_text(type_) != types.is_text(target):
        return False
    if t.is_floating(type_) or types.common(type_, target) is None:
        return False
    return retype_literal(literal, target) is not None


def _text_as_instants(args: Sequence[Expression]) -> list[Expression]:
    """A string constant that meets a date or a timestamp is one, as in Spark."""
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
    """Timestamps with and without a zone are comparable only if the zone of the latter is given."""
    zoned = [arg for arg in args if t.is_timestamp(type_of(arg)) and type_of(arg).tz]
    local = [arg for arg in args if types.is_instant(type_of(arg)) and arg not in zoned]
    if not zoned or not local:
        return list(args)
    if zone is None:
        zone = _implied_zone(zoned, local)
    return [_in_zone(arg, zone) if arg in local else arg for arg in args]


def _implied_zone(zoned: list[Expression], local: list[Expression]) -> str:
    """A constant without a zone is on the clock of the column it meets."""
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
