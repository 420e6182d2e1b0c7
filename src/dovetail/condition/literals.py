"""Constants: parses text into dates, timestamps, intervals and numbers, and converts constants between types."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.casts import can_cast, cast, parse_instant, python_value
from dovetail.condition.expression import Literal
from dovetail.errors import ConditionError

t = pa.types


def date_literal(text: str) -> Literal:
    return Literal(parse_instant(text).local.date(), types.DATE)


def timestamp_literal(text: str) -> Literal:
    """A timestamp. Without a zone in the text it has none, and later adapts to what it is compared with."""
    instant = parse_instant(text)
    type_ = pa.timestamp("ns" if instant.nanos else "us", "UTC" if instant.zone else None)
    return Literal(python_value(cast(pa.array([text]), type_)[0]), type_)


MONTHS = {"year": 12, "quarter": 3, "month": 1}
MICROS = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}


class CalendarInterval(NamedTuple):
    """Calendar months and an exact length of time."""

    months: int
    micros: int


def interval(amount: str, unit: str) -> CalendarInterval:
    """INTERVAL '5' MINUTES, one unit."""
    name = unit.lower().removesuffix("s")
    try:
        number = Decimal(amount.strip())
    except ArithmeticError:
        raise ConditionError(f"INTERVAL '{amount}' {unit}: {amount!r} is not a number.") from None
    if name in MONTHS:
        months, rest = divmod(number * MONTHS[name], 1)
        micros = Decimal(0)
    elif name in MICROS:
        months, (micros, rest) = Decimal(0), divmod(number * MICROS[name], 1)
    else:
        raise ConditionError(f"INTERVAL '{amount}' {unit}: unknown unit. Known are {', '.join([*MONTHS, *MICROS])}.")
    if rest:
        raise ConditionError(f"INTERVAL '{amount}' {unit}: not a whole number of months or microseconds.")
    return CalendarInterval(int(months), int(micros))


def interval_of_text(text: str) -> CalendarInterval:
    """INTERVAL '1 day 2 hours', any number of units."""
    words = text.split()
    if not words or len(words) % 2:
        raise ConditionError(f"INTERVAL '{text}': write pairs of number and unit, as in '1 day 2 hours'.")
    parts = [interval(amount, unit) for amount, unit in zip(words[::2], words[1::2], strict=True)]
    return CalendarInterval(sum(p.months for p in parts), sum(p.micros for p in parts))


def interval_span(text: str, first: str, last: str) -> CalendarInterval:
    """INTERVAL '1 02:03:04' DAY TO SECOND and similar."""
    sign = -1 if text.strip().startswith("-") else 1
    units = ["year", "month"] if first.lower() in MONTHS else ["day", "hour", "minute", "second"]
    wanted = units[units.index(first.lower()) : units.index(last.lower()) + 1]
    numbers = re.split(r"[-\s:]+", text.strip().lstrip("+-"))
    if len(numbers) != len(wanted):
        raise ConditionError(f"INTERVAL '{text}' {first} TO {last}: expected {' and '.join(wanted)}.")
    parts = [interval(number, unit) for number, unit in zip(numbers, wanted, strict=True)]
    return CalendarInterval(sign * sum(p.months for p in parts), sign * sum(p.micros for p in parts))


def duration_literal(micros: int) -> Literal:
    return Literal(timedelta(microseconds=micros), pa.duration("us"))


def number_literal(text: str) -> Literal:
    """1 is an int, 1.5 a decimal, 1.5e0 a double: as in Spark."""
    if re.search(r"[eE]", text):
        return Literal(float(text), types.DOUBLE)
    value = Decimal(text)
    if "." not in text and -(2**63) <= int(value) < 2**63:
        return Literal(int(value), natural_type(int(value)))
    return Literal(value, natural_type(value))


def natural_type(value: Any) -> pa.DataType:
    """The type of a Python constant."""
    match value:
        case None:
            return pa.null()
        case bool():
            return types.BOOLEAN
        case int() if -(2**31) <= value < 2**31:
            return pa.int32()
        case int() if -(2**63) <= value < 2**63:
            return types.INT64
        case int():
            return natural_type(Decimal(value))
        case float():
            return types.DOUBLE
        case Decimal():
            return _decimal_type(value)
        case str():
            return types.STRING
        case bytes():
            return pa.binary()
        case datetime():
            return pa.timestamp("us", "UTC" if value.tzinfo else None)
        case date():
            return types.DATE
        case time():
            return pa.time64("us")
        case timedelta():
            return pa.duration("us")
    try:
        return types.plain(pa.scalar(value).type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise ConditionError(f"a constant of type {type(value).__name__} cannot be used in a condition.") from None


def _decimal_type(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ConditionError(f"{value} cannot be a decimal. Write it as a double, for example CAST('NaN' AS DOUBLE).")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > types.MOST_DIGITS:
        raise ConditionError(f"{value} has more than {types.MOST_DIGITS} digits.")
    return pa.decimal128(precision, scale)


def negate(literal: Literal) -> Literal:
    """The negated literal with all its digits: a minus sign would round a long decimal."""
    value = literal.value
    return Literal(value.copy_negate() if isinstance(value, Decimal) else -value, literal.type)


def scalar(literal: Literal) -> pa.Scalar:
    type_ = natural_type(literal.value) if literal.type is None else literal.type
    try:
        return pa.scalar(literal.value, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ConditionError(f"{literal.value!r} is not a value of type {type_}: {error}") from error


def convert_literal(literal: Literal, target: pa.DataType) -> Literal:
    """The constant cast to another type, as a column would be."""
    return Literal(python_value(cast(pa.array([literal.value], literal.type), target)[0]), target)


def retype_literal(literal: Literal, target: pa.DataType) -> Literal | None:
    """The same value as a constant of another type; None if the value would change."""
    array = pa.array([literal.value], literal.type)
    if not can_cast(array.type, target):
        return None
    try:
        converted = cast(array, target)
        same = types.is_text(array.type) or cast(converted, array.type).equals(array)
    except ConditionError:
        return None
    return Literal(python_value(converted[0]), target) if same else None
