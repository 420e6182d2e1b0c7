"""Functions of numbers, text, dates and timestamps, evaluated in process.

Integers are 64 bits wide and checked, decimals follow Spark's precision, x / 0 and x % 0 are null. A timestamp with a
zone is read on the clock of that zone.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import casts, types
from dovetail.condition.expression import Call, Literal, type_of

Function = Callable[[Call, list[pa.Array]], pa.Array]

t = pa.types

CHECKED: dict[str, Callable[..., pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
EXACT = Context(prec=2 * types.WIDEST)
PARTS: dict[str, Callable[..., pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
CLOCKLESS = ("second", "millisecond", "microsecond")  # no zone is off by less than a second
TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


def _arithmetic(call: Call, args: list[pa.Array]) -> pa.Array:
    left, right = args
    if t.is_decimal(call.type):
        return _decimal_arithmetic(call, left, right)
    if t.is_date(call.type):
        return _moved_date(call.function, left, right)
    if t.is_duration(call.type) and t.is_date(left.type):
        days = pc.subtract_checked(_days(left), _days(right))
        return pc.multiply_checked(days, 86_400).view(call.type)
    if t.is_temporal(call.type):
        # As numbers: Arrow's arithmetic of timestamps and durations also checks what is stored under a null, which in
        # pandas is the smallest number.
        return CHECKED[call.function](left.view("int64"), right.view("int64")).view(call.type)
    return CHECKED[call.function](left, right)


def _days(dates: pa.Array) -> pa.Array:
    return dates.view("int32").cast(types.INT64)


def _moved_date(function: str, dates: pa.Array, by: pa.Array) -> pa.Array:
    """A date and whole days, given as a number or as a duration."""
    days = by if t.is_integer(by.type) else pc.divide(by.cast(types.DAY).view("int64"), 86_400)
    return CHECKED[function](_days(dates), days).cast(pa.int32()).view(types.DATE)


def _decimal_arithmetic(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    function = call.function
    if function not in CHECKED or _digits_of(function, left.type, right.type) > types.WIDEST:
        return _decimal_by_row(call, left, right)
    wide = [_decimal256(side) for side in (left, right)]
    return casts.cast(CHECKED[function](*wide), call.type)


def _digits_of(function: str, left: pa.DataType, right: pa.DataType) -> int:
    """Digits that Arrow needs for a product, a sum or a difference."""
    if function == "*":
        return int(left.precision + right.precision + 1)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return int(whole + max(left.scale, right.scale) + 1)


def _decimal256(array: pa.Array) -> pa.Array:
    return array.cast(pa.decimal256(array.type.precision, array.type.scale))


def _decimal_by_row(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    """Division and remainder, and products too wide for Arrow: exact, then rounded half up as Spark does."""
    functions: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
        "+": EXACT.add,
        "-": EXACT.subtract,
        "*": EXACT.multiply,
        "/": EXACT.divide,
        "%": EXACT.remainder,
    }
    compute = functions[call.function]
    no_zero = call.function in "/%"
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    values = [None if a is None or b is None or (no_zero and b == 0) else compute(a, b) for a, b in rows]
    return _rounded_decimals(values, type_of(call))


def _rounded_decimals(values: list[Decimal | None], type_: pa.DataType) -> pa.Array:
    step = Decimal(1).scaleb(-type_.scale)
    return pa.array([None if v is None else v.quantize(step, ROUND_HALF_UP, EXACT) for v in values], type_)


def _divide(call: Call, args: list[pa.Array]) -> pa.Array:
    if t.is_decimal(call.type):
        return _decimal_by_row(call, *args)
    return pc.divide(args[0], _nonzero(args[1]))


def _remainder(call: Call, args: list[pa.Array]) -> pa.Array:
    """The sign follows the dividend, as in Spark and C."""
    if t.is_decimal(call.type):
        return _decimal_by_row(call, *args)
    left, right = args[0], _nonzero(args[1])
    valid = np.asarray(pc.and_(left.is_valid(), right.is_valid()))
    with np.errstate(invalid="ignore"):
        values = np.fmod(_fill_nulls(left, 0), _fill_nulls(right, 1))
    return pa.array(values, call.type, mask=~valid)


def _whole_division(call: Call, args: list[pa.Array]) -> pa.Array:
    """Towards zero."""
    return pc.divide_checked(args[0], _nonzero(args[1]))


def _nonzero(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(array, pa.scalar(0, array.type)), pa.scalar(None, array.type), array)


def _fill_nulls(array: pa.Array, value: int) -> NDArray[Any]:
    return np.asarray(pc.fill_null(array, pa.scalar(value, array.type)))


def _negate(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.negate_checked(args[0])


def _absolute(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.abs_checked(args[0])


def _sqrt(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.sqrt(args[0])


def _power(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.power(args[0], args[1])


def _whole(call: Call, args: list[pa.Array]) -> pa.Array:
    """floor and ceil. A double becomes a bigint; what does not fit becomes the nearest bigint, as in Spark."""
    array = args[0]
    if t.is_integer(array.type):
        return array
    whole = (pc.floor if call.function == "floor" else pc.ceil)(array)
    if t.is_decimal(array.type):
        return casts.cast(whole, call.type)
    numbers = np.nan_to_num(_fill_nulls(whole, 0), nan=0.0)
    huge = np.abs(numbers) >= 2.0**63
    limits = np.where(numbers < 0, np.int64(-(2**63)), np.int64(2**63 - 1))
    values = np.where(huge, limits, np.where(huge, 0.0, numbers).astype(np.int64))
    return pa.array(values, mask=~np.asarray(array.is_valid()))


def _round(call: Call, args: list[pa.Array]) -> pa.Array:
    """Half away from zero, on the shortest decimal form of a double, as Spark does."""
    digits_of = call.args[1] if len(call.args) > 1 else Literal(0)
    assert isinstance(digits_of, Literal)
    digits, array = int(digits_of.value), args[0]
    if not t.is_floating(array.type):
        return casts.cast(pc.round(array, digits, "half_towards_infinity"), call.type)
    step = Decimal(1).scaleb(-digits)

    def round_half_up(value: float | None) -> float | None:
        if value is None or not np.isfinite(value):
            return value
        return float(Decimal(repr(value)).quantize(step, ROUND_HALF_UP, Context(prec=400)))

    return pa.array([round_half_up(v) for v in array.to_pylist()], call.type)


def _distance(call: Call, args: list[pa.Array]) -> pa.Array:
    """Euclidean distance of coordinates (left ones first), or of two list columns."""
    half = len(args) // 2
    if half == 1 and types.is_list(args[0].type):
        return _list_distance(args[0], args[1])
    valid = np.logical_and.reduce([np.asarray(a.is_valid()) for a in args])
    numbers = [_fill_nulls(a, 0) for a in args]
    with np.errstate(invalid="ignore", over="ignore"):
        squares = sum((a - b) ** 2 for a, b in zip(numbers[:half], numbers[half:], strict=True))
    return pa.array(np.sqrt(squares), mask=~valid)


def _list_distance(left: pa.Array, right: pa.Array) -> pa.Array:
    """null where a list or an element is null, or where the lengths differ."""
    a, b = _matrix(left), _matrix(right)
    if a is not None and b is not None and a.shape == b.shape:
        with np.errstate(invalid="ignore", over="ignore"):
            return pa.array(np.sqrt(((a - b) ** 2).sum(axis=1)), types.DOUBLE)
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([_point_distance(p, q) for p, q in rows], types.DOUBLE)


def _matrix(array: pa.Array) -> NDArray[np.float64] | None:
    """The lists as rows of a matrix, if they are complete and of one length."""
    values = array.flatten()
    if array.null_count or values.null_count or not len(array) or len(values) % len(array):
        return None
    lengths = pc.min_max(pc.list_value_length(array)).as_py()
    if lengths["min"] != lengths["max"]:
        return None
    return np.asarray(values.cast(types.DOUBLE)).reshape(len(array), -1)


def _point_distance(p: list[float | None] | None, q: list[float | None] | None) -> float | None:
    if p is None or q is None or len(p) != len(q):
        return None
    total = 0.0
    for a, b in zip(p, q, strict=True):
        if a is None or b is None:
            return None
        total += (float(a) - float(b)) ** 2
    return float(np.sqrt(total))


def _constant(call: Call, position: int) -> object:
    literal = call.args[position]
    assert isinstance(literal, Literal)
    return literal.value


def _lower(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.utf8_lower(args[0])


def _upper(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.utf8_upper(args[0])


def _length(call: Call, args: list[pa.Array]) -> pa.Array:
    count = pc.utf8_length if types.is_text(args[0].type) else pc.binary_length
    return count(args[0]).cast(pa.int32())


def _trim(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.utf8_trim(args[0], " ")  # spaces only, as in Spark


def _concat(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*args, pa.scalar("", args[0].type))


def _substring(call: Call, args: list[pa.Array]) -> pa.Array:
    """Counted from 1, or from the end if negative; 0 means 1."""
    position = int(str(_constant(call, 1)))
    start = position - 1 if position > 0 else position
    stop = None
    if len(args) > 2:
        stop = start + max(0, int(str(_constant(call, 2))))
        if start < 0 <= stop:
            stop = None
    return pc.utf8_slice_codeunits(args[0], start=start, stop=stop)


def _part(call: Call, args: list[pa.Array]) -> pa.Array:
    return PARTS[call.function](args[0]).cast(pa.int32())


def _date_trunc(call: Call, args: list[pa.Array]) -> pa.Array:
    """As Spark does it where clocks change: the hour that comes twice stays the one it is, a day that has no midnight
    begins after the gap."""
    array, unit = args[1], str(_constant(call, 0))
    if array.type.tz is None:
        return pc.floor_temporal(array, unit=unit)
    if unit in CLOCKLESS:
        return pc.floor_temporal(array.view(pa.timestamp(array.type.unit)), unit=unit).view(array.type)
    local = pc.floor_temporal(pc.local_timestamp(array), unit=unit)
    if unit in ("day", "hour", "minute"):
        return casts.keep_offset(local, array)
    return pc.assume_timezone(local, array.type.tz, ambiguous="earliest", nonexistent="latest")


def _datediff(call: Call, args: list[pa.Array]) -> pa.Array:
    first, second = (a.view("int32") for a in args)
    return pc.subtract_checked(first, second)


def _add_months(call: Call, args: list[pa.Array]) -> pa.Array:
    """The same day and time some months on, or the last day of that month if it is shorter."""
    array, months = args[0], int(str(_constant(call, 1)))
    type_ = array.type
    if pa.types.is_timestamp(type_) and type_.tz:
        return casts.keep_offset(_shift_months(pc.local_timestamp(array), months), array)
    return _shift_months(array, months)


def _shift_months(array: pa.Array, months: int) -> pa.Array:
    valid = np.asarray(array.is_valid())
    unit = "D" if pa.types.is_date(array.type) else array.type.unit
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


TABLE: dict[str, Function] = {
    **dict.fromkeys(CHECKED, _arithmetic),
    "/": _divide,
    "div": _whole_division,
    "%": _remainder,
    "neg": _negate,
    "abs": _absolute,
    "sqrt": _sqrt,
    "pow": _power,
    "floor": _whole,
    "ceil": _whole,
    "round": _round,
    "distance": _distance,
    "lower": _lower,
    "upper": _upper,
    "length": _length,
    "trim": _trim,
    "concat": _concat,
    "substring": _substring,
    **dict.fromkeys(PARTS, _part),
    "date_trunc": _date_trunc,
    "datediff": _datediff,
    "add_months": _add_months,
}
