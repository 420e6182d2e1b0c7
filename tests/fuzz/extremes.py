"""Values at the ends of every type, with comparisons and bands computed in exact Python numbers.

DuckDB has no decimals of 76 digits and no halffloats, and its arithmetic overflows earlier, so the oracle is a cross
product and a filter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tests.fuzz.columns import DAY_MILLIS, PER_SECOND

from dovetail.condition import types

t = pa.types

NAN = float("nan")
EXACT = Context(prec=200)
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
FLOATS = (pa.float16(), pa.float32(), pa.float64())
DECIMALS = (
    *(pa.decimal128(38, 38), pa.decimal128(38, 0), pa.decimal128(38, 19), pa.decimal128(5, 2), pa.decimal128(18, 18)),
    *(pa.decimal256(76, 0), pa.decimal256(76, 38), pa.decimal256(20, 2), pa.decimal64(12, 3)),
)
DATES = (pa.date32(), pa.date64())
INSTANTS = tuple(pa.timestamp(unit) for unit in PER_SECOND)
LENGTHS = tuple(pa.duration(unit) for unit in PER_SECOND)
FAMILIES = (INTEGERS, FLOATS, DECIMALS, (*INTEGERS, *DECIMALS), (*INTEGERS, *FLOATS), DATES, INSTANTS, LENGTHS)


class Limits:
    """Records whether a value did not fit in the type of a computation: then an error is also a correct answer."""

    def __init__(self) -> None:
        self.crossed = False

    def within(self, number: Any, limit: int) -> Any:
        self.crossed |= not -limit <= number < limit
        return number


class Column(NamedTuple):
    type: pa.DataType
    values: list[Any]  # exact numbers; None is null
    array: pa.Array


def random_column(rng: random.Random, type_: pa.DataType, rows: int) -> Column:
    """The ends of the type, zero, and their neighbours; only a few values, so that they tie."""
    pool = _pool(type_)
    chosen = rng.sample(pool, min(len(pool), rng.choice((2, 4, 12))))
    raw = [None if rng.random() < 0.1 else rng.choice(chosen) for _ in range(rows)]
    return Column(type_, [None if value is None else _exact(value, type_) for value in raw], _array(raw, type_))


def _pool(type_: pa.DataType) -> list[Any]:
    if t.is_floating(type_):
        width: Any = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]
        info = np.finfo(width)
        least = float(info.smallest_subnormal)
        ends = [float(info.max), float(info.tiny), least, float(np.nextafter(info.max, width(0))), 2048.0, 1.0, 0.0]
        return [*ends, *(-value for value in ends), math.inf, -math.inf, NAN, math.copysign(NAN, -1.0), 0.5, 1.5]
    if t.is_decimal(type_):
        most = 10**type_.precision - 1
        ends = [most, most - 1, 10**type_.scale % most, 10 ** max(0, type_.scale - 1), 1, 0]
        return [EXACT.scaleb(Decimal(sign * end), -type_.scale) for end in ends for sign in (1, -1)]
    bits = type_.bit_width
    low, high = (0, 2**bits - 1) if t.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    middle = [-2, -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1]
    if t.is_date64(type_):  # dates have 32 bits; a time of day is ignored
        low, high = low // 2**32 * DAY_MILLIS, (high // 2**32) * DAY_MILLIS + DAY_MILLIS - 1
        middle = [days * DAY_MILLIS + millis for days in (-2, -1, 0, 1, 2) for millis in (0, 1, DAY_MILLIS - 1)]
    return [value for value in (low, low + 1, high - 1, high, *middle) if low <= value <= high]


def _exact(value: Any, type_: pa.DataType) -> Any:
    """The exact number: days of dates, nanoseconds of timestamps and durations."""
    if t.is_date(type_):
        return value // DAY_MILLIS if t.is_date64(type_) else value
    if t.is_timestamp(type_) or t.is_duration(type_):
        return value * (10**9 // PER_SECOND[type_.unit])
    return value if t.is_floating(type_) else Fraction(value)


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if t.is_float16(type_):
        return pa.array([None if value is None else np.float16(value) for value in values], type_)
    if t.is_temporal(type_):
        return pa.array(values, pa.int32() if t.is_date32(type_) else pa.int64()).view(type_)
    return pa.array(values, type_)


class Predicate(NamedTuple):
    """SQL over l.a and r.b, and its definition."""

    sql: str
    holds: Callable[[Any, Any], bool]
    limits: Limits


def random_predicate(rng: random.Random, left: pa.DataType, right: pa.DataType) -> Predicate:
    limits = Limits()
    if rng.random() < 0.4:
        operator = rng.choice(tuple(COMPARE))
        return Predicate(f"l.a {operator} r.b", lambda a, b: COMPARE[operator](*_alike(a, b, left, right)), limits)
    text, amount, type_ = _amount(rng, right)
    difference = _function("-", left, right, limits)
    total, reduced = (_function(operator, right, type_, limits) for operator in "+-")
    less, more = rng.choice(("<", "<=")), rng.choice((">", ">="))

    def apart(a: Any, b: Any) -> Any:
        total(b, amount), reduced(b, amount)  # l.a - r.b < 1 is evaluated as l.a < r.b + 1, which may overflow earlier
        return difference(a, b)

    match rng.randrange(4):
        case 0:
            sql = f"abs(l.a - r.b) {less} {text}"
            return Predicate(sql, lambda a, b: _is(less, abs(apart(a, b)), amount), limits)
        case 1:
            return Predicate(f"l.a - r.b {more} {text}", lambda a, b: _is(more, apart(a, b), amount), limits)
        case 2:
            return Predicate(f"l.a {less} r.b + {text}", lambda a, b: _is(less, a, total(b, amount)), limits)
        case _:
            sql = f"l.a {less} r.b + {text} AND l.a {more} r.b - {text}"
            return Predicate(
                sql, lambda a, b: _is(less, a, total(b, amount)) & _is(more, a, reduced(b, amount)), limits
            )


def _amount(rng: random.Random, type_: pa.DataType) -> tuple[str, Any, pa.DataType]:
    """A constant to add: its text, number and type."""
    if t.is_date(type_):
        days = rng.choice((0, 1, 3))
        return f"INTERVAL '{days}' DAY", days, types.DAY
    if t.is_temporal(type_):
        seconds = rng.choice((0, 1, 90))
        return f"INTERVAL {seconds} SECONDS", seconds * 10**9, types.DAY
    number = rng.choice((0, 1, 2))
    counts_digits = t.is_decimal(type_) or t.is_uint64(type_)
    return str(number), Fraction(number), pa.decimal128(1, 0) if counts_digits else pa.int32()


def _function(operator: str, left: pa.DataType, right: pa.DataType, limits: Limits) -> Callable[[Any, Any], Any]:
    """a + b or a - b, in the type of the computation."""
    sides = (types.plain(left), types.plain(right))
    sign = 1 if operator == "+" else -1
    if any(t.is_floating(side) for side in sides):
        width = np.float32 if all(t.is_float32(side) for side in sides) else np.float64
        return lambda a, b: _floats(width, a, b, sign)
    if any(t.is_decimal(side) or t.is_uint64(side) for side in sides):
        return _decimal_function(operator, types.as_decimal(sides[0]), types.as_decimal(sides[1]), limits)
    if t.is_integer(sides[0]):
        return lambda a, b: limits.within(a + sign * b, 2**63)
    if t.is_date(sides[0]):
        return lambda a, b: limits.within(a + sign * b, 2**31) if operator == "+" or right == types.DAY else a - b
    return lambda a, b: limits.within(a + sign * b, 2**63 * _tick(left, right if right != types.DAY else left))


def _tick(left: pa.DataType, right: pa.DataType) -> int:
    """The finer of two units, in nanoseconds."""
    return 10**9 // max(PER_SECOND[left.unit], PER_SECOND[right.unit])


def fits(value: Any, left: pa.DataType, right: pa.DataType) -> bool:
    """Whether a value of either type can be cast to the common type."""
    if t.is_decimal256(left) or t.is_decimal256(right):
        left, right = types.as_decimal(left), types.as_decimal(right)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        return bool(whole + 2 + max(left.scale, right.scale) <= types.WIDEST)  # with room for the constant
    if not (t.is_timestamp(left) or t.is_duration(left)):
        return True
    limit = 2**63 * _tick(left, right)
    return bool(-limit <= value < limit)


def _decimal_function(
    operator: str, left: pa.DataType, right: pa.DataType, limits: Limits
) -> Callable[[Any, Any], Any]:
    type_ = types.decimal_arithmetic(operator, left, right)

    def compute(a: Fraction, b: Fraction) -> Fraction:
        exact = a + b if operator == "+" else a - b
        return Fraction(limits.within(_rounded(exact * 10**type_.scale), 10**type_.precision - 1), 10**type_.scale)

    return compute


def _rounded(number: Fraction) -> int:
    """Rounds half away from zero."""
    return int(EXACT.divide(Decimal(number.numerator), Decimal(number.denominator)).quantize(1, ROUND_HALF_UP, EXACT))


def _floats(width: Any, a: Any, b: Any, sign: int) -> float:
    with np.errstate(all="ignore"):
        return float(width(float(a)) + width(sign) * width(float(b)))


def _alike(a: Any, b: Any, left: pa.DataType, right: pa.DataType) -> tuple[Any, Any]:
    """Comparisons of numbers with floats use doubles."""
    if t.is_floating(left) or t.is_floating(right):
        return float(a), float(b)
    return a, b


def _is(operator: str, a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    return COMPARE[operator](a, b)


def _less(a: Any, b: Any) -> bool:
    """NaN is larger than everything."""
    return not math.isnan(a) and (math.isnan(b) or a < b) if isinstance(a, float) else bool(a < b)


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": _equal,
    "!=": lambda a, b: not _equal(a, b),
    "<": _less,
    "<=": lambda a, b: _less(a, b) or _equal(a, b),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: _less(b, a) or _equal(a, b),
}
