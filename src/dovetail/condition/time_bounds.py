"""Finds how a condition bounds the time of one input by the time of the other.

    r.ts BETWEEN l.ts AND l.ts + INTERVAL 1 HOUR      -1 hour <= l.ts - r.ts <= 0
    abs(l.ts - r.ts) <= INTERVAL 5 MINUTES            -5 minutes <= l.ts - r.ts <= 5 minutes
    l.ts = r.ts                                       0 <= l.ts - r.ts <= 0
    CAST(l.ts AS BIGINT) > CAST(r.ts AS BIGINT) - 60  -62 seconds <= l.ts - r.ts: whole seconds are not exact

Any linear form of one timestamp per input is a bound. Joins of streams use bounds to decide when a row can no longer
find a partner.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa

from dovetail.condition.expression import Call, Column, Expression, Literal, type_of
from dovetail.condition.linear import FLIPPED
from dovetail.condition.predicates import Condition
from dovetail.core.rows import Side

t = pa.types

SECOND = 1_000_000  # microseconds


class TimeBound(NamedTuple):
    """left - right >= offset, or <= offset."""

    left: str  # a column with timestamps
    right: str
    below: bool  # whether the difference is bounded from below
    offset: int  # microseconds
    strict: bool = False  # > and <
    equal: bool = False  # part of left = right, up to a constant


class _Sum(NamedTuple):
    """Columns with their factors, a constant, and the error that casts may have added; in microseconds or seconds."""

    factors: dict[Column, Fraction]
    constant: Fraction
    slack: Fraction = Fraction(0)

    def plus(self, other: _Sum, sign: int = 1) -> _Sum:
        factors = dict(self.factors)
        for column, factor in other.factors.items():
            factors[column] = factors.get(column, Fraction(0)) + sign * factor
        return _Sum(factors, self.constant + sign * other.constant, self.slack + other.slack)

    def times(self, factor: Fraction) -> _Sum:
        factors = {column: factor * value for column, value in self.factors.items()}
        return _Sum(factors, factor * self.constant, abs(factor) * self.slack)


def time_bounds(condition: Condition) -> tuple[TimeBound, ...]:
    """All bounds that every result satisfies."""
    return tuple(bound for conjunct in condition.conjuncts for bound in _bounds(conjunct))


def _bounds(conjunct: Expression) -> list[TimeBound]:
    match conjunct:
        case Call(("<" | "<="), (Call("abs", (inside,)), limit)) | Call((">" | ">="), (limit, Call("abs", (inside,)))):
            strict = conjunct.function in ("<", ">")
            difference, most = _sum(inside), _sum(limit)
            if difference is None or most is None:
                return []
            upper = _bound("<" if strict else "<=", difference.plus(most, -1))
            return upper + _bound(">" if strict else ">=", difference.plus(most))
        case Call(("=" | "<" | "<=" | ">" | ">=") as operator, (a, b)):
            first, second = _sum(a), _sum(b)
            return [] if first is None or second is None else _bound(operator, first.plus(second, -1))
    return []


def _bound(operator: str, total: _Sum) -> list[TimeBound]:
    """The bounds that `total operator 0` implies for two columns."""
    factors = {column: factor for column, factor in total.factors.items() if factor}
    if sorted(column.side for column in factors) != [Side.LEFT, Side.RIGHT]:
        return []
    left, right = sorted(factors, key=lambda column: column.side)
    if factors[left] != -factors[right]:
        return []
    if factors[left] < 0:
        operator = FLIPPED[operator]
    offset, slack = -total.constant / factors[left], abs(total.slack / factors[left])
    names = (left.name, right.name)
    if operator == "=":
        low, high = _outwards(offset, slack)
        exact = slack == 0 and low == high
        return [TimeBound(*names, True, low, equal=exact), TimeBound(*names, False, high, equal=exact)]
    low, high = _outwards(offset, slack)
    strict = operator in ("<", ">") and slack == 0
    below = operator in (">", ">=")
    return [TimeBound(*names, below, low if below else high, strict=strict)]


def _outwards(offset: Fraction, slack: Fraction) -> tuple[int, int]:
    """The bounds in whole microseconds, rounded outwards."""
    low, high = offset - slack, offset + slack
    return low.numerator // low.denominator, -(-high.numerator // high.denominator)


def _sum(expression: Expression) -> _Sum | None:
    """A linear form of timestamps, or a constant; None if it is neither."""
    match expression:
        case Column() if t.is_timestamp(type_of(expression)):
            return _Sum({expression: Fraction(1)}, Fraction(0))
        case Literal(timedelta() as length):
            return _Sum({}, Fraction(length // timedelta(microseconds=1)))
        case Literal(int() | float() | Decimal() as number) if not isinstance(number, bool) and number == number:
            return None if number in (float("inf"), -float("inf")) else _Sum({}, Fraction(number))
        case Call("cast", (inner,), target) if target is not None:
            return _cast(inner, target)
        case Call("neg", (inner,)):
            found = _sum(inner)
            return None if found is None else found.times(Fraction(-1))
        case Call("+" | "-" as function, (a, b)):
            first, second = _sum(a), _sum(b)
            return None if first is None or second is None else first.plus(second, 1 if function == "+" else -1)
        case Call("*", (a, b)):
            first, second = _sum(a), _sum(b)
            if first is None or second is None or (first.factors and second.factors):
                return None
            return first.times(second.constant) if first.factors else second.times(first.constant)
    return None


def _cast(inner: Expression, target: pa.DataType) -> _Sum | None:
    """Casts that keep a sum linear: from timestamps to seconds, and between numbers."""
    found, source = _sum(inner), type_of(inner)
    if found is None:
        return None
    if t.is_timestamp(source):
        if t.is_timestamp(target):  # their difference changes with daylight saving time
            return found if (source.tz is None) == (target.tz is None) else None
        seconds = found.times(Fraction(1, SECOND))
        return seconds._replace(slack=seconds.slack + 1) if t.is_integer(target) else None
    if t.is_duration(source):
        return found if t.is_duration(target) else None
    if t.is_integer(source) and (t.is_integer(target) or t.is_floating(target) or t.is_decimal(target)):
        return found
    return found if t.is_floating(target) or (t.is_decimal(source) and t.is_decimal(target)) else None
