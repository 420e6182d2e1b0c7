"""Functions of text, dates and timestamps. A timestamp with a zone is read on the clock of that zone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.condition import casts, types
from dovetail.condition.expression import Call, Literal

PARTS: dict[str, Callable[..., pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


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
    return pc.floor_temporal(args[1], unit=str(_constant(call, 0)))


def _datediff(call: Call, args: list[pa.Array]) -> pa.Array:
    first, second = (a.view("int32") for a in args)
    return pc.subtract_checked(first, second)


def _add_months(call: Call, args: list[pa.Array]) -> pa.Array:
    """The same day and time some months on, or the last day of that month if it is shorter."""
    array, months = args[0], int(str(_constant(call, 1)))
    type_ = array.type
    if pa.types.is_timestamp(type_) and type_.tz:
        return casts.cast(_shift_months(pc.local_timestamp(array), months), type_)
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


TABLE: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
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
