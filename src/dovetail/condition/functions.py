"""The functions that conditions can call in process. Each is defined by its row in `TABLE`.

Parsing, typing and evaluation all use that row. Functions have Spark's names, so their text can be passed to Spark.
Syntax of its own (operators, CASE, CAST, IN, LIKE, distance) is not in the table.

A timestamp with a zone is read in that zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import Enum, auto
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.condition import casts, types
from dovetail.condition.arithmetic import fill_nulls
from dovetail.condition.comparisons import compare
from dovetail.condition.expression import Expression, Literal, type_of

t = pa.types

CLOCKLESS = ("second", "millisecond", "microsecond")  # no zone differs by less than a second
TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


class Kind(Enum):
    """What an argument has to be. `bind.py` casts it accordingly, or raises an error."""

    TEXT = auto()
    TEXT_OR_BYTES = auto()
    NUMBER = auto()  # integers as 64 bits
    DOUBLE = auto()
    AMOUNT = auto()  # a number, or a length of time
    INSTANT = auto()  # a date or a timestamp, in the session's zone
    TIMESTAMP = auto()  # the same; a date means its midnight
    DATE = auto()
    COMMON = auto()  # all arguments have one type
    CONSTANT = auto()  # an integer constant, passed to `compute` as is
    UNIT = auto()  # one of TRUNCATIONS, passed to `compute` as is


CONSTANTS = (Kind.CONSTANT, Kind.UNIT)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the values of a row. `compute` gets arrays of the kinds listed; its result is cast."""

    name: str  # as in Spark, in lower case
    takes: tuple[Kind, ...]
    gives: pa.DataType | Callable[[Sequence[Expression]], pa.DataType]
    compute: Callable[..., pa.Array]
    optional: int = 0  # trailing arguments that may be omitted
    default: Literal | None = None  # the value of the last of them if it is omitted
    repeats: bool = False  # the last argument may be repeated
    also: tuple[str, ...] = ()  # aliases
    strict: bool = True  # null if any argument is null
    wider_on_spark: bool = False  # calls with more arguments, or columns for constants, are evaluated by Spark

    @property
    def fewest(self) -> int:
        return len(self.takes) - self.optional

    @property
    def most(self) -> int | None:
        return None if self.repeats else len(self.takes)

    def kinds(self, count: int) -> tuple[Kind, ...]:
        """The kinds of a call with this number of arguments."""
        return (*self.takes, *self.takes[-1:] * count)[:count]


# Result types that depend on the types of the arguments.


def _as_first(args: Sequence[Expression]) -> pa.DataType:
    return type_of(args[0])


def _as_last(args: Sequence[Expression]) -> pa.DataType:
    return type_of(args[-1])


def _whole_type(args: Sequence[Expression]) -> pa.DataType:
    type_ = type_of(args[0])
    if t.is_decimal(type_):
        return types.decimal(min(type_.precision - type_.scale + 1, 38), 0)
    return types.INT64


def _rounded_type(args: Sequence[Expression]) -> pa.DataType:
    type_ = type_of(args[0])
    if not t.is_decimal(type_):
        return type_
    digits = args[1]
    assert isinstance(digits, Literal)
    scale = min(type_.scale, max(digits.value, 0))
    return types.decimal(min(type_.precision - type_.scale + 1 + scale, 38), scale)


# Functions that take more than one call of Arrow.


def _whole(compute: Callable[[pa.Array], pa.Array], array: pa.Array) -> pa.Array:
    """floor and ceil. A double becomes a bigint; a value out of range becomes the nearest bigint, as in Spark."""
    if t.is_integer(array.type):
        return array
    whole = compute(_with_room(array))
    if t.is_decimal(array.type):
        return whole
    numbers = np.nan_to_num(fill_nulls(whole, 0), nan=0.0)
    huge = np.abs(numbers) >= 2.0**63
    limits = np.where(numbers < 0, np.int64(-(2**63)), np.int64(2**63 - 1))
    values = np.where(huge, limits, np.where(huge, 0.0, numbers).astype(np.int64))
    return pa.array(values, mask=~np.asarray(array.is_valid()))


def _with_room(array: pa.Array) -> pa.Array:
    """The array with one more digit for rounding up: 9.9 becomes 10.0."""
    type_ = array.type
    return array.cast(pa.decimal256(type_.precision + 1, type_.scale)) if t.is_decimal(type_) else array


def _round(array: pa.Array, digits: int) -> pa.Array:
    """Rounds half away from zero, on the shortest decimal form of a double, as in Spark."""
    if not t.is_floating(array.type):
        return pc.round(_with_room(array), digits, "half_towards_infinity")
    step = Decimal(1).scaleb(-digits)

    def round_half_up(value: float | None) -> float | None:
        if value is None or not np.isfinite(value):
            return value
        return float(Decimal(repr(value)).quantize(step, ROUND_HALF_UP, Context(prec=400)))

    return pa.array([round_half_up(v) for v in array.to_pylist()], array.type)


def _isnan(array: pa.Array) -> pa.Array:
    return pc.fill_null(pc.is_nan(array), False)


def _extreme(better: str, *args: pa.Array) -> pa.Array:
    """greatest and least skip nulls, as in Spark."""

    def pick(best: pa.Array, other: pa.Array) -> pa.Array:
        replace = pc.or_(pc.is_null(best), pc.fill_null(compare(better, other, best), False))
        return pc.if_else(replace, other, best)

    return reduce(pick, args)


def _case_of(compute: Callable[[pa.Array], pa.Array], one: Callable[[str], str], array: pa.Array) -> pa.Array:
    """Upper or lower case. Arrow converts single letters; Spark, like Python, also ß to SS and a final Σ to ς."""
    mapped, other = compute(array), pc.invert(pc.fill_null(pc.string_is_ascii(array), True))
    if not pc.any(other).as_py():
        return mapped
    return pc.replace_with_mask(mapped, other, pa.array(map(one, array.filter(other).to_pylist()), array.type))


def _length(array: pa.Array) -> pa.Array:
    return pc.utf8_length(array) if types.is_text(array.type) else pc.binary_length(array)


def _trim(array: pa.Array) -> pa.Array:
    return pc.utf8_trim(array, " ")  # spaces only, as in Spark


def _concat(*args: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*args, pa.scalar("", args[0].type))


def _substring(array: pa.Array, position: int, length: int | None = None) -> pa.Array:
    """The substring from a position that counts from 1, or from the end if negative; 0 means 1."""
    start = position - 1 if position > 0 else position
    stop = None
    if length is not None:
        stop = start + max(0, length)
        if start < 0 <= stop:
            stop = None
    return pc.utf8_slice_codeunits(array, start=start, stop=stop)


def _date_trunc(unit: str, array: pa.Array) -> pa.Array:
    """Truncates as Spark does where clocks change: an hour that occurs twice stays the one it is, and a day without a
    midnight begins after the gap."""
    if array.type.tz is None:
        return pc.floor_temporal(array, unit=unit)
    if unit in CLOCKLESS:
        return pc.floor_temporal(array.view(pa.timestamp(array.type.unit)), unit=unit).view(array.type)
    local = pc.floor_temporal(pc.local_timestamp(array), unit=unit)
    if unit in ("day", "hour", "minute"):
        return casts.keep_offset(local, array)
    return pc.assume_timezone(local, array.type.tz, ambiguous="earliest", nonexistent="latest")


def _datediff(end: pa.Array, start: pa.Array) -> pa.Array:
    return pc.subtract_checked(end.view("int32"), start.view("int32"))


def _add_months(array: pa.Array, months: int) -> pa.Array:
    """The same day and time some months later, or the last day of the month if it has fewer days."""
    if t.is_timestamp(array.type) and array.type.tz:
        return casts.keep_offset(_shift_months(pc.local_timestamp(array), months), array)
    return _shift_months(array, months)


def _shift_months(array: pa.Array, months: int) -> pa.Array:
    valid = np.asarray(array.is_valid())
    unit = "D" if t.is_date(array.type) else array.type.unit
    ticks = pc.fill_null(array.view("int32" if unit == "D" else "int64"), 0)
    instants = np.asarray(ticks).astype(np.int64).view(f"datetime64[{unit}]")
    days = instants.astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    target = month + np.timedelta64(months, "M")
    last = (target + np.timedelta64(1, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")
    moved = np.minimum(target.astype("datetime64[D]") + (days - month.astype("datetime64[D]")), last)
    result = (moved.astype(instants.dtype) + (instants - days.astype(instants.dtype))).view(np.int64)
    values = result.astype(np.int32) if unit == "D" else result
    return pa.array(values, mask=~valid).view(array.type)


TEXT, NUMBER, DOUBLE, INSTANT, TIMESTAMP = Kind.TEXT, Kind.NUMBER, Kind.DOUBLE, Kind.INSTANT, Kind.TIMESTAMP
COMMON, CONSTANT = Kind.COMMON, Kind.CONSTANT

TABLE = (
    Function("abs", (Kind.AMOUNT,), _as_first, pc.abs_checked),
    Function("sqrt", (DOUBLE,), types.DOUBLE, pc.sqrt),
    Function("pow", (DOUBLE, DOUBLE), types.DOUBLE, pc.power, also=("power",)),
    Function("floor", (NUMBER,), _whole_type, partial(_whole, pc.floor), wider_on_spark=True),
    Function("ceil", (NUMBER,), _whole_type, partial(_whole, pc.ceil), also=("ceiling",), wider_on_spark=True),
    Function("round", (NUMBER, CONSTANT), _rounded_type, _round, optional=1, default=Literal(0, pa.int32())),
    Function("isnan", (DOUBLE,), types.BOOLEAN, _isnan, also=("is_nan",), strict=False),
    Function("coalesce", (COMMON,), _as_first, pc.coalesce, repeats=True, also=("ifnull", "nvl"), strict=False),
    Function("greatest", (COMMON, COMMON), _as_first, partial(_extreme, ">"), repeats=True, strict=False),
    Function("least", (COMMON, COMMON), _as_first, partial(_extreme, "<"), repeats=True, strict=False),
    Function("lower", (TEXT,), types.STRING, partial(_case_of, pc.utf8_lower, str.lower), also=("lcase",)),
    Function("upper", (TEXT,), types.STRING, partial(_case_of, pc.utf8_upper, str.upper), also=("ucase",)),
    Function("length", (Kind.TEXT_OR_BYTES,), pa.int32(), _length, also=("len", "char_length", "character_length")),
    Function("trim", (TEXT,), types.STRING, _trim),
    Function("concat", (TEXT,), types.STRING, _concat, repeats=True),
    Function("substring", (TEXT, CONSTANT, CONSTANT), types.STRING, _substring, optional=1, wider_on_spark=True),
    Function("year", (INSTANT,), pa.int32(), pc.year),
    Function("month", (INSTANT,), pa.int32(), pc.month),
    Function("day", (INSTANT,), pa.int32(), pc.day, also=("dayofmonth", "day_of_month")),
    Function("hour", (TIMESTAMP,), pa.int32(), pc.hour),
    Function("minute", (TIMESTAMP,), pa.int32(), pc.minute),
    Function("second", (TIMESTAMP,), pa.int32(), pc.second),
    Function("date_trunc", (Kind.UNIT, TIMESTAMP), _as_last, _date_trunc),
    Function("add_months", (INSTANT, CONSTANT), _as_first, _add_months),
    Function("datediff", (Kind.DATE, Kind.DATE), pa.int32(), _datediff),
)
FUNCTIONS = {function.name: function for function in TABLE}
SPELLED = {name: function for function in TABLE for name in (function.name, *function.also)}
"""The functions by all their names."""
