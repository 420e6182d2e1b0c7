"""Key columns as int64 codes that keep order and equality.

    value a < b   <=>   code(a) < code(b)          value a = b   <=>   code(a) = code(b)

Floats follow Spark: NaN equals NaN and is larger than everything, -0.0 equals 0.0. Types that do not fit in 64 bits
(strings, binary, decimals of more than 18 digits) have no such code: see `is_fixed`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.core.buffers import byte_strings, decimal_words
from dovetail.core.threads import in_ranges

SMALL_DECIMAL = 18  # digits that always fit in 64 bits
SIGN = np.int64(-(2**63))
ALL_BUT_SIGN = np.int64(2**63 - 1)
INFINITY = np.array(np.inf).view(np.int64)[()]
BLOCK = 1 << 14  # numbers per block: intermediate arrays stay in the cache


LEAST, MOST = -(2**63), 2**63 - 1  # codes


class Codes(NamedTuple):
    """One code per row; `valid` is False for null, or None if there are no nulls."""

    values: NDArray[np.int64]
    valid: NDArray[np.bool_] | None


@cache
def is_fixed(type_: pa.DataType) -> bool:
    """Whether values of this type have an order-preserving 64-bit code."""
    t = pa.types
    if t.is_decimal(type_):
        return bool(type_.precision <= SMALL_DECIMAL)
    return bool(
        t.is_boolean(type_)
        or t.is_integer(type_)
        or t.is_floating(type_)
        or t.is_date(type_)
        or t.is_time(type_)
        or t.is_timestamp(type_)
        or t.is_duration(type_)
    )


def order_codes(array: pa.Array) -> Codes:
    """The order-preserving codes of a column of a fixed type."""
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    return Codes(_values(array), valid)


def _values(array: pa.Array) -> NDArray[np.int64]:
    type_ = array.type
    t = pa.types
    if t.is_floating(type_):
        return float_codes(np.asarray(_dense(array.cast(pa.float64()))))
    if t.is_boolean(type_):
        return np.asarray(_dense(array.cast(pa.int8()))).astype(np.int64)
    if t.is_decimal(type_):
        return _decimal_codes(array)
    if t.is_integer(type_):
        numbers = np.asarray(_dense(array))
        if numbers.dtype == np.uint64:
            return numbers.view(np.int64) ^ SIGN
        return numbers.astype(np.int64, copy=False)
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    return np.asarray(_dense(array.view(width))).astype(np.int64, copy=False)


def float_codes(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Order-preserving codes of doubles: negative numbers have all bits but the sign flipped.

    Without negative numbers and NaN, the codes are the numbers themselves, not a copy.
    """
    plain = numbers.view(np.int64)

    def is_plain(start: int, end: int) -> bool:
        return bool(plain[start:end].min(initial=0) >= 0 and plain[start:end].max(initial=0) <= INFINITY)

    if all(in_ranges(is_plain, len(plain))):
        return plain
    codes = np.empty(len(numbers))
    in_ranges(lambda start, end: _code_floats(numbers[start:end], codes[start:end]), len(numbers))
    return codes.view(np.int64)


def _code_floats(numbers: NDArray[np.float64], codes: NDArray[np.float64]) -> None:
    for start in range(0, len(numbers), BLOCK):
        clean = codes[start : start + BLOCK]
        with np.errstate(invalid="ignore"):  # signalling NaNs would raise a warning
            np.add(numbers[start : start + BLOCK], 0.0, out=clean)  # -0.0 becomes 0.0
        clean[np.isnan(clean)] = np.nan  # one NaN, positive: the largest code
        bits = clean.view(np.int64)
        bits ^= (bits >> 63) & ALL_BUT_SIGN


def _dense(array: pa.Array) -> pa.Array:
    """The array with nulls replaced by zero, so that it can be viewed as numbers without converting to objects."""
    return array if array.null_count == 0 else pc.fill_null(array, pa.scalar(0, array.type))


def _decimal_codes(array: pa.Array) -> NDArray[np.int64]:
    """Unscaled values; a decimal of at most 18 digits fits in its lowest 64 bits."""
    words = array.type.bit_width // 64
    if words == 0:
        return np.asarray(_dense(array.view(pa.int32()))).astype(np.int64)
    return decimal_words(array)[::words].copy()


def short_decimals(array: pa.Array) -> NDArray[np.int64] | None:
    """Unscaled values of a column without nulls, if all of them fit in 64 bits; None for other types."""
    if not (pa.types.is_decimal128(array.type) or pa.types.is_decimal256(array.type)):
        return None
    count = array.type.bit_width // 64
    words = decimal_words(array)
    low = words[::count]
    return low.copy() if all((words[i::count] == low >> 63).all() for i in range(1, count)) else None


def list_lengths(lists: pa.Array) -> NDArray[np.int64]:
    """The number of elements of each list in a column without nulls."""
    return np.asarray(pc.list_value_length(lists)).astype(np.int64)


Words = NDArray[np.int64]
Floats = NDArray[np.float64]

PREFIX = 8  # bytes of a string that are compared


def rough_codes(array: pa.Array) -> Words:
    """Approximate codes of a column without nulls, of any type that has an order."""
    if is_fixed(array.type):
        return order_codes(array).values
    if pa.types.is_decimal(array.type):
        return float_codes(numbers(array))
    return _prefixes(array)


def numbers(array: pa.Array) -> Floats:
    """The numbers of a column without nulls. Dates and times become days or time units, decimals unscaled values."""
    type_ = array.type
    if pa.types.is_floating(type_):
        return np.asarray(array.cast(pa.float64()))
    if pa.types.is_decimal(type_) and not is_fixed(type_):
        scaled: Floats = np.asarray(array.cast(pa.float64())) * 10.0**type_.scale
        return scaled
    if pa.types.is_uint64(type_):  # its codes are so far below zero that small numbers would become equal
        return np.asarray(array).astype(np.float64)
    return order_codes(array).values.astype(np.float64)


def _prefixes(array: pa.Array) -> Words:
    """The first bytes of strings, ordered as strings are: byte by byte, the shorter one first."""
    offsets, data = byte_strings(pc.cast(array, pa.large_binary()))
    places = offsets[:-1, None] + np.arange(PREFIX)
    inside = places < offsets[1:, None]
    letters = np.zeros(places.shape, np.uint8)
    letters[inside] = data[places[inside]]
    return letters.view(">u8").ravel().astype(np.uint64).view(np.int64) ^ SIGN


def add_saturating(codes: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
    """codes + amount, saturating at 64 bits."""
    amount = max(LEAST - MOST, min(MOST - LEAST, amount))  # beyond this range, all codes saturate
    kept = np.minimum(codes, MOST - amount) if amount >= 0 else np.maximum(codes, LEAST - amount)
    return (kept.view(np.uint64) + np.uint64(amount % 2**64)).view(np.int64)


def saturating_range(codes: NDArray[np.int64], low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The codes from c + low to c + high, saturating at 64 bits; 1 and 0 (empty) where all are out of range."""
    none = (codes > MOST - low) | (codes < LEAST - high)
    lows, highs = add_saturating(codes, low), add_saturating(codes, high)
    lows[none], highs[none] = 1, 0
    return lows, highs
