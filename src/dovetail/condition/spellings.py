"""Expands as-of and nearest joins into a condition, and an order of the partners it allows.

    asof(on="ts", by="symbol")                  l.symbol = r.symbol AND l.ts >= r.ts         first 1 by r.ts DESC
    asof(…, direction="nearest")                l.symbol = r.symbol                          first 1 by abs(l.ts - r.ts)
    nearest(on=["x", "y"], k=3, within=5)       distance(l.x, l.y, r.x, r.y) <= 5            first 3 by distance(…)
    nearest(on=("start", "end"))                l.start IS NOT NULL AND …                    first 1 by greatest(…, 0)

A name means a column of both inputs, a pair of names one of each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.expression import quoted_if_needed, type_of
from dovetail.condition.names import resolve
from dovetail.core.rows import Side
from dovetail.errors import InputError

t = pa.types

DIRECTIONS = ("backward", "forward", "nearest")
SIDES = ("both", "upstream", "downstream")
Schemas = tuple[pa.Schema, pa.Schema]
Pair = tuple[str, str]  # a column of each side

SHORT_UNITS = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "m": "minutes",
    "min": "minutes",
    "t": "minutes",
    "h": "hours",
    "d": "days",
    "w": "weeks",
}
SHORT = re.compile(r"(\d+)\s*([a-z]+)", re.IGNORECASE)
INTERVAL_ENDS = 2


class Spelling(NamedTuple):
    """The condition as SQL text, and the order of the partners."""

    on: str
    order_by: str
    is_distance: bool


def spell_asof(schemas: Schemas, on: Any, by: Any, direction: str, tolerance: Any, exact: bool) -> Spelling:
    """The partner that is nearest in time: not later than the left row, not earlier, or either."""
    pair = _pair("on", on)
    left, right = _columns(pair)
    conditions = _equalities(by)
    bound = _length("tolerance", tolerance, schemas, pair)
    if direction == "nearest":
        apart = f"abs({left} - {right})"
        conditions += [f"{left} != {right}"] * (not exact) + [f"{apart} <= {bound}"] * (bound is not None)
        return Spelling(_conjunction(conditions), apart, True)
    same = "=" * exact
    if direction == "backward":
        conditions += [f"{left} >{same} {right}"] + [f"{left} <= {right} + {bound}"] * (bound is not None)
        return Spelling(_conjunction(conditions), f"{right} DESC", False)
    conditions += [f"{left} <{same} {right}"] + [f"{right} <= {left} + {bound}"] * (bound is not None)
    return Spelling(_conjunction(conditions), right, False)


def spell_nearest(schemas: Schemas, on: Any, by: Any, within: Any, direction: str) -> Spelling:
    """The partners with the smallest distance between numbers, points, intervals or vectors."""
    conditions = _equalities(by)
    if isinstance(on, tuple):
        return _between_intervals(schemas, on, conditions, within, direction)
    if direction != "both":
        raise InputError(f"direction={direction!r} is for intervals: on=('start', 'end'). Leave it out.")
    pairs = [_pair("on", one) for one in (on if isinstance(on, list) else [on])]
    if not pairs:
        raise InputError("on is an empty list. Name at least one column, such as on=['x', 'y'].")
    columns = [_columns(pair) for pair in pairs]
    if len(pairs) > 1 or types.is_list(_type(schemas, pairs[0], Side.LEFT)):
        apart = f"distance({', '.join([*(c[0] for c in columns), *(c[1] for c in columns)])})"
        bound = None if within is None else _number("within", within)
    else:
        apart = f"abs({columns[0][0]} - {columns[0][1]})"
        bound = _length("within", within, schemas, pairs[0])
    return Spelling(_conjunction(conditions + [f"{apart} <= {bound}"] * (bound is not None)), apart, True)


def _between_intervals(
    schemas: Schemas, on: tuple[Any, ...], conditions: list[str], within: Any, direction: str
) -> Spelling:
    if len(on) != INTERVAL_ENDS:
        raise InputError(f"a tuple names the start and the end of intervals, such as on=('start', 'end'); got {on!r}.")
    start, end = (_pair("on", one) for one in on)
    (left_start, right_start), (left_end, right_end) = _columns(start), _columns(end)
    bound = _length("within", within, schemas, start)
    if direction == "both":
        zero = _length("within", 0 if _is_number(schemas, start) else timedelta(0), schemas, start)
        apart = f"greatest({right_start} - {left_end}, {left_start} - {right_end}, {zero})"  # ignores nulls
        ends = (left_start, left_end, right_start, right_end)
        conditions = [*conditions, *(f"{end} IS NOT NULL" for end in ends)]
    elif direction == "upstream":
        apart = f"{left_start} - {right_end}"
        conditions = [*conditions, f"{right_end} <= {left_start}"]
    else:
        apart = f"{right_start} - {left_end}"
        conditions = [*conditions, f"{left_end} <= {right_start}"]
    conditions = conditions + [f"{apart} <= {bound}"] * (bound is not None)
    return Spelling(_conjunction(conditions), apart, True)


def _equalities(by: Any) -> list[str]:
    """Equal keys: a name, a pair of names, or a list of these."""
    if by is None:
        return []
    given = by if isinstance(by, list) else [by]
    if not given:
        raise InputError("by is an empty list. Name the columns that must be equal, or leave it out.")
    return [f"{left} = {right}" for left, right in (_columns(_pair("by", one)) for one in given)]


def _pair(option: str, given: Any) -> Pair:
    if isinstance(given, str):
        return given, given
    if isinstance(given, Sequence) and [*map(type, given)] == [str, str]:
        return given[0], given[1]
    raise InputError(
        f"{option} takes the name of a column, or a pair of names if they differ, such as ('ts', 'time'); "
        f"got {given!r}."
    )


def _columns(pair: Pair) -> Pair:
    return f"l.{quoted_if_needed(pair[0])}", f"r.{quoted_if_needed(pair[1])}"


def _conjunction(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) or "TRUE"


def _type(schemas: Schemas, pair: Pair, side: Side) -> pa.DataType:
    return types.plain(type_of(resolve(side, pair[side], schemas)))


def _is_number(schemas: Schemas, pair: Pair) -> bool:
    return types.is_number(_type(schemas, pair, Side.LEFT))


def _length(option: str, given: Any, schemas: Schemas, pair: Pair) -> str | None:
    """A distance as SQL text: a number for numbers, an interval for dates and times."""
    if given is None:
        return None
    if _is_number(schemas, pair):
        return _number(option, given)
    if isinstance(given, timedelta):
        micros = given // timedelta(microseconds=1)
        if micros < 0:
            raise InputError(f"{option} is a length of time, 0 or more; got {given!r}.")
        return f"INTERVAL '{micros}' MICROSECONDS"
    if isinstance(given, str) and given.strip():
        return f"INTERVAL '{SHORT.sub(_long_unit, given.strip())}'"
    raise InputError(
        f"{option} between columns of type {_type(schemas, pair, Side.LEFT)} is a length of time, such as "
        f"'10 minutes' or a timedelta; got {given!r}."
    )


def _long_unit(found: re.Match[str]) -> str:
    """5min as 5 minutes."""
    amount, unit = found.groups()
    return f"{amount} {SHORT_UNITS.get(unit.lower(), unit)}"


def _number(option: str, given: Any) -> str:
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if not is_number or not math.isfinite(given) or given < 0:
        raise InputError(f"{option} between numbers is a number, 0 or more; got {given!r}.")
    return repr(given.item() if hasattr(given, "item") else given)
