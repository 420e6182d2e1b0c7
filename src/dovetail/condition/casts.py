"""Casts between Arrow types with Spark's ANSI semantics: a value that does not fit is an error, never null."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import types
from dovetail.core.codes import is_fixed, order_codes
from dovetail.errors import ConditionError

INSTANT = re.compile(
    r"(?P<year>\d{4,6})(-(?P<month>\d{1,2})(-(?P<day>\d{1,2})"
    r"([T ](?P<hour>\d{1,2})(:(?P<minute>\d{1,2})(:(?P<second>\d{1,2})(\.(?P<fraction>\d{1,9}))?)?)?"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)?)?)?)?"
)
EPOCH = datetime(1970, 1, 1)


class Instant(NamedTuple):
    """A point in time as written: wall-clock time, nanoseconds beyond its microseconds, and the zone if given."""

    local: datetime
    nanos: int
    zone: str | None

    def ticks(self, unit: str) -> int:
        micros = (self.local - EPOCH) // timedelta(microseconds=1)
        return micros * 1000 + self.nanos if unit == "ns" else micros


def parse_instant(text: str) -> Instant:
    """Parses a date or timestamp as Spark does: '2020-01-01', '2020-01-01 10:30', '2020-01-01T10:30:00.5+01:00'."""
    found = INSTANT.fullmatch(text.strip())
    if not found:
        raise ConditionError(f"{text!r} is not a date or timestamp. Write it as '2020-01-31' or '2020-01-31 12:30:00'.")
    part = found.groupdict()
    nanos = int((part["fraction"] or "0").ljust(9, "0"))
    try:
        local = datetime(
            int(part["year"]),
            int(part["month"] or 1),
            int(part["day"] or 1),
            int(part["hour"] or 0),
            int(part["minute"] or 0),
            int(part["second"] or 0),
            nanos // 1000,
        )
    except ValueError as error:
        raise ConditionError(f"{text!r} is not a date or timestamp: {error}.") from error
    return Instant(local, nanos % 1000, _zone_name(part["zone"]))


def _zone_name(zone: str | None) -> str | None:
    if zone in ("Z", "GMT"):
        return "UTC"
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        hours, minutes = (digits, "00") if len(digits) <= 2 else (digits[:-2], digits[-2:])
        return f"{zone[0]}{hours.zfill(2)}:{minutes}"
    return zone


t = pa.types

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TRUE_WORDS = pa.array(["t", "true", "y", "yes", "1"])
FALSE_WORDS = pa.array(["f", "false", "n", "no", "0"])
DAY_MILLIS = 86_400_000
WIDE = Context(prec=2 * types.WIDEST)
EXACT_WHOLE, EXACT_POWER = 2**53, 22  # integers and powers of ten up to these are exact doubles


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the cast exists."""
    source, target = types.plain(source), types.plain(target)
    if source == target or t.is_null(source):
        return True
    if t.is_nested(source) or t.is_nested(target):
        parts = types.paired_parts(source, target)
        return parts is not None and all(can_cast(*pair) for pair in parts)
    if types.is_text(target):
        return not t.is_duration(source)
    if types.is_text(source):
        return bool(types.is_number(target) or types.is_instant(target) or t.is_boolean(target))
    if types.is_number(source) or t.is_boolean(source):
        return bool(
            types.is_number(target) or t.is_boolean(target) or (t.is_integer(source) and t.is_timestamp(target))
        )
    if t.is_timestamp(source):
        return bool(types.is_instant(target) or target == types.INT64)
    if t.is_date(source):
        return types.is_instant(target)
    if t.is_duration(source) or t.is_time(source):
        return bool(t.is_duration(source) == t.is_duration(target) and t.is_time(source) == t.is_time(target))
    return bool(types.common(source, target) == target)


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array in another type. Raises ConditionError if a value does not fit."""
    if array.type == target:
        return array
    try:
        if types.is_text(array.type) and types.is_text(target):
            return array.cast(target)  # in one step, because a view may hold more than a plain string can
        return _cast(decode(array), target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError) as error:
        raise ConditionError(f"cannot cast {array.type} to {target}: {error}") from error


def decode(array: pa.Array) -> pa.Array:
    """The array without dictionary, run-end or extension encoding, in a type that Arrow's compute functions support."""
    if isinstance(array.type, pa.BaseExtensionType):
        return decode(array.storage)
    if t.is_dictionary(array.type):
        return decode(array.dictionary_decode())
    if t.is_run_end_encoded(array.type):
        return decode(pc.run_end_decode(array))
    if t.is_date64(array.type):
        # Milliseconds. The format requires whole days, but nothing enforces it, so values are truncated to days.
        return _floor_divide(array.view("int64"), DAY_MILLIS).cast(pa.int32()).view(types.DATE)
    plain = types.plain(array.type)
    return array if array.type == plain else array.cast(plain)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if source == target or t.is_null(source):
        return array.cast(target)
    if types.is_list(target):
        return _cast_lists(array, target)
    if t.is_struct(target):
        fields = [cast(part, field.type) for part, field in zip(array.flatten(), target, strict=True)]
        return pa.Array.from_buffers(target, len(array), [validity(array)], children=fields)
    if types.is_text(source) and not types.is_text(target):
        return _from_text(array, target)
    if types.is_text(target):
        return _to_text(array, target)
    if t.is_boolean(target) and types.is_number(source):
        return pc.not_equal(array, pa.scalar(0, source))
    if t.is_decimal(target):
        return _to_decimal(array, target)
    if t.is_integer(target):
        return _to_integer(array, target)
    if t.is_floating(target) and t.is_decimal(source):
        return _nearest_floats(array, target)
    if t.is_floating(target):
        return pc.cast(array.cast(pa.int8()) if t.is_boolean(source) else array, target, safe=False)
    if t.is_timestamp(target) or t.is_date(target):
        return _to_instant(array, target)
    return array.cast(target)


def _cast_lists(array: pa.Array, target: pa.DataType) -> pa.Array:
    offsets, values = elements(array)
    parts = cast(values, target.value_type)
    if t.is_fixed_size_list(target):
        return _fixed_lists(array, offsets, parts, target)
    bounds = pa.array(offsets).cast(pa.int64() if t.is_large_list(target) else pa.int32())
    return pa.Array.from_buffers(target, len(array), [validity(array), bounds.buffers()[1]], children=[parts])


def _fixed_lists(array: pa.Array, offsets: NDArray[np.int64], parts: pa.Array, target: pa.DataType) -> pa.Array:
    size, valid = target.list_size, np.asarray(array.is_valid())
    if (np.diff(offsets)[valid] != size).any():
        raise pa.ArrowInvalid(f"not every list has {size} elements")
    places = (offsets[:-1, None] + np.arange(size)).ravel()
    filled = parts.take(pa.array(places, mask=np.repeat(~valid, size)))  # a null needs elements: nulls
    return pa.Array.from_buffers(target, len(array), [validity(array)], children=[filled])


def elements(lists: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """The elements of all lists, and where those of each list begin and end; a null list has no elements."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0)), out=offsets[1:])
    return offsets, lists.flatten()


def validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap, starting at the first value; None if there are no nulls."""
    return pa.py_buffer(np.packbits(np.asarray(array.is_valid()), bitorder="little")) if array.null_count else None


def _from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    text = pc.utf8_trim_whitespace(array)
    if t.is_boolean(target):
        lower = pc.utf8_lower(text)
        true, false = pc.is_in(lower, TRUE_WORDS), pc.is_in(lower, FALSE_WORDS)
        unknown = pc.and_(pc.is_valid(lower), pc.invert(pc.or_(true, false)))
        if pc.any(unknown).as_py():
            raise pa.ArrowInvalid(f"{text.filter(unknown)[0].as_py()!r} is neither true nor false")
        return pc.if_else(pc.is_valid(lower), true, pa.scalar(None, types.BOOLEAN))
    if t.is_timestamp(target) or t.is_date(target):
        return _instants_from_text(text, target)
    if t.is_decimal(target):
        return _decimals([None if v is None else Decimal(v) for v in text.to_pylist()], target)
    return text.cast(target)


def _instants_from_text(text: pa.Array, target: pa.DataType) -> pa.Array:
    parts = [None if v is None else parse_instant(v) for v in text.to_pylist()]
    if t.is_date(target):
        return pa.array([None if p is None else p.local.date() for p in parts], target)
    naive = pa.timestamp("ns" if target.unit == "ns" else "us")
    ticks = [None if p is None else p.ticks(naive.unit) for p in parts]
    array = pa.array(ticks, types.INT64).view(naive)
    zones = {p.zone for p in parts if p is not None}
    if target.tz is None or zones <= {None}:
        return _cast(array, target)
    # Values with their own zone, row by row; the others are local time in the target's zone.
    rows = [
        _in_zone(array.slice(i, 1), (p.zone if p else None) or target.tz).view("int64") for i, p in enumerate(parts)
    ]
    return _cast(pa.concat_arrays(rows).view(pa.timestamp(naive.unit, target.tz)), target)


def _to_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    if t.is_floating(array.type):
        return pa.array([None if v is None else _java_text(v, array.type) for v in array.to_pylist()], target)
    if not t.is_timestamp(array.type):
        return array.cast(target)
    text = _local(array).cast(types.STRING).to_pylist()
    # Spark omits trailing zeros in the fraction.
    return pa.array([v if v is None or "." not in v else v.rstrip("0").rstrip(".") for v in text], target)


def _java_text(value: float, type_: pa.DataType) -> str:
    """The shortest digits that parse back to the number, formatted as in Java (and so Spark): 0.001, 1.0E7, NaN."""
    if not np.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    shortest = str(np.float32(value)) if t.is_float32(type_) else repr(value)
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        plain = f"{Decimal(shortest):f}"
        return plain if "." in plain else plain + ".0"
    mantissa = "".join(map(str, digits))
    power = exponent + len(mantissa) - 1
    return f"{'-' * sign}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"


def _nearest_floats(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    """The nearest double, as in Spark: 0.07 is 0.07. Arrow multiplies by 0.01, which is often off by one bit."""
    scale = decimals.type.scale
    if target == types.DOUBLE and is_fixed(decimals.type) and 0 <= scale <= EXACT_POWER:
        unscaled, valid = order_codes(decimals)
        if np.abs(unscaled).max(initial=0) <= EXACT_WHOLE:  # the quotient of two exact doubles is rounded only once
            return pa.array(unscaled / 10.0**scale, mask=None if valid is None else ~valid)
    return decimals.cast(types.STRING).cast(target)


def _to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if t.is_boolean(source):
        array, source = array.cast(pa.int8()), pa.int8()
    if t.is_floating(source):
        # Spark converts a double by its shortest decimal form; NaN and infinities have none.
        numbers = array.cast(types.DOUBLE).to_pylist()
        return _decimals([None if v is None or not np.isfinite(v) else Decimal(repr(v)) for v in numbers], target)
    if t.is_integer(source):
        # Arrow requires room for every possible value; the actual values are checked when narrowed.
        array = array.cast(pa.decimal256(types.INTEGER_DIGITS[source.bit_width], 0))
    whole = max(array.type.precision - array.type.scale, target.precision - target.scale, 1)
    scale = max(target.scale, array.type.scale)
    array = array.cast(pa.decimal256(min(types.WIDEST, whole + scale), scale))
    if scale > target.scale:
        array = pc.round(array, target.scale, "half_towards_infinity")
    return array.cast(target)


def _decimals(values: list[Decimal | None], target: pa.DataType) -> pa.Array:
    """Exact values, rounded half up to the target's scale."""
    step = Decimal(1).scaleb(-target.scale)
    rounded = [None if v is None else v.quantize(step, ROUND_HALF_UP, WIDE) for v in values]
    return pa.array(rounded, target)


def _to_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if t.is_floating(source):
        return pc.trunc(array.cast(types.DOUBLE)).cast(target)
    if t.is_decimal(source):
        whole = pc.round(array, 0, "towards_zero") if source.scale > 0 else array
        return whole.cast(target)
    if t.is_timestamp(source):
        return _floor_divide(array.view("int64"), PER_SECOND[source.unit])
    return array.cast(target)


def _floor_divide(array: pa.Array, divisor: int) -> pa.Array:
    valid = array.is_valid()
    values = np.asarray(pc.fill_null(array, 0)) // divisor
    return pa.array(values, mask=~np.asarray(valid))


def _to_instant(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if t.is_integer(source):
        seconds = array.cast(types.INT64).view(pa.timestamp("s", "UTC"))
        return _cast(seconds, target)
    if t.is_date(target):
        return _local(array).cast(target)
    if t.is_date(source):
        array, source = array.cast(pa.timestamp(target.unit)), pa.timestamp(target.unit)
    if source.tz is None and target.tz is not None:
        array = _in_zone(array, target.tz)
    elif source.tz is not None and target.tz is None:
        array = _local(array)
    # Truncating to a coarser unit rounds down, as Spark's microseconds do.
    return pc.cast(array, target, safe=types.finest(source.unit, target.unit) == target.unit)


def _in_zone(array: pa.Array, zone: str) -> pa.Array:
    """Wall-clock times as instants, as in Java: the earlier of two, and shifted by the length of a gap."""
    late = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="latest")
    early = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
    if late.equals(early):
        return late
    gap_start = pc.add(pc.local_timestamp(early).view("int64"), 1)  # `early` is one tick before the gap
    beyond = pc.subtract(array.view("int64"), gap_start)
    moved = pc.if_else(pc.equal(late, early), late.view("int64"), pc.add(late.view("int64"), beyond))
    return moved.view(late.type)


def keep_offset(local: pa.Array, origin: pa.Array) -> pa.Array:
    """Wall-clock times computed from these instants, as instants of their zone. For a time that occurs twice, the
    offset of the original instant is kept if possible, as in Java."""
    moved = _in_zone(local, origin.type.tz)
    ticks = [array.view("int64") for array in (local, origin, pc.local_timestamp(origin))]
    kept = pc.subtract(ticks[0], pc.subtract(ticks[2], ticks[1])).view(moved.type)
    return pc.if_else(pc.equal(pc.local_timestamp(kept), local), kept, moved)


def _local(array: pa.Array) -> pa.Array:
    """Wall-clock time in the array's time zone."""
    return pc.local_timestamp(array) if t.is_timestamp(array.type) and array.type.tz else array


def python_value(scalar: pa.Scalar) -> Any:
    """A plain Python value; nanoseconds that datetime cannot hold are returned as ticks."""
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if (t.is_timestamp(type_) or t.is_duration(type_)) and type_.unit == "ns":
        if scalar.value % 1000:
            return scalar.value
        coarse = pa.timestamp("us", type_.tz) if t.is_timestamp(type_) else pa.duration("us")
        return scalar.cast(coarse).as_py()
    return scalar.as_py()
