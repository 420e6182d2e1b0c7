"""Evaluates + - * / div % and distances in process.

Integers are 64 bits wide and checked for overflow, decimals have Spark's precision, x / 0 and x % 0 are null.
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
from dovetail.condition.expression import Call, type_of

t = pa.types

CHECKED: dict[str, Callable[..., pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
EXACT = Context(prec=2 * types.WIDEST)


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
        # As numbers: Arrow's checked arithmetic of timestamps and durations also checks the value stored under a null,
        # which pandas sets to the smallest number.
        return CHECKED[call.function](left.view("int64"), right.view("int64")).view(call.type)
    return CHECKED[call.function](left, right)


def _days(dates: pa.Array) -> pa.Array:
    return dates.view("int32").cast(types.INT64)


def _moved_date(function: str, dates: pa.Array, by: pa.Array) -> pa.Array:
    """A date plus or minus whole days, given as a number or as a duration."""
    days = by if t.is_integer(by.type) else pc.divide(by.cast(types.DAY).view("int64"), 86_400)
    return CHECKED[function](_days(dates), days).cast(pa.int32()).view(types.DATE)


def _decimal_arithmetic(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    function = call.function
    if function not in CHECKED or _digits_of(function, left.type, right.type) > types.WIDEST:
        return _decimal_by_row(call, left, right)
    wide = [_decimal256(side) for side in (left, right)]
    return casts.cast(CHECKED[function](*wide), call.type)


def _digits_of(function: str, left: pa.DataType, right: pa.DataType) -> int:
    """Digits that Arrow needs for the product, sum or difference."""
    if function == "*":
        return int(left.precision + right.precision + 1)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return int(whole + max(left.scale, right.scale) + 1)


def _decimal256(array: pa.Array) -> pa.Array:
    return array.cast(pa.decimal256(array.type.precision, array.type.scale))


def _decimal_by_row(call: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    """Division and remainder, and products too wide for Arrow: computed exactly, then rounded half up as in Spark."""
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
    """The remainder; its sign follows the dividend, as in Spark and C."""
    if t.is_decimal(call.type):
        return _decimal_by_row(call, *args)
    left, right = args[0], _nonzero(args[1])
    valid = np.asarray(pc.and_(left.is_valid(), right.is_valid()))
    with np.errstate(invalid="ignore"):
        values = np.fmod(fill_nulls(left, 0), fill_nulls(right, 1))
    return pa.array(values, call.type, mask=~valid)


def _whole_division(call: Call, args: list[pa.Array]) -> pa.Array:
    """Integer division, rounded towards zero."""
    return pc.divide_checked(args[0], _nonzero(args[1]))


def _nonzero(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(array, pa.scalar(0, array.type)), pa.scalar(None, array.type), array)


def fill_nulls(array: pa.Array, value: int) -> NDArray[Any]:
    return np.asarray(pc.fill_null(array, pa.scalar(value, array.type)))


def negate(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.negate_checked(args[0])


def distance(call: Call, args: list[pa.Array]) -> pa.Array:
    """Euclidean distance of coordinates (left ones first), or of two list columns."""
    half = len(args) // 2
    if half == 1 and types.is_list(args[0].type):
        return _list_distance(args[0], args[1])
    valid = np.logical_and.reduce([np.asarray(a.is_valid()) for a in args])
    numbers = [fill_nulls(a, 0) for a in args]
    with np.errstate(invalid="ignore", over="ignore"):
        squares = sum((a - b) ** 2 for a, b in zip(numbers[:half], numbers[half:], strict=True))
    return pa.array(np.sqrt(squares), mask=~valid)


def _list_distance(left: pa.Array, right: pa.Array) -> pa.Array:
    """Null if a list or an element is null, or if the lengths differ."""
    a, b = _matrix(left), _matrix(right)
    if a is not None and b is not None and a.shape == b.shape:
        with np.errstate(invalid="ignore", over="ignore"):
            return pa.array(np.sqrt(((a - b) ** 2).sum(axis=1)), types.DOUBLE)
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([_point_distance(p, q) for p, q in rows], types.DOUBLE)


def _matrix(array: pa.Array) -> NDArray[np.float64] | None:
    """The lists as rows of a matrix, if they have no nulls and all the same length."""
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


BINARY: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    **dict.fromkeys(CHECKED, _arithmetic),
    "/": _divide,
    "div": _whole_division,
    "%": _remainder,
}
