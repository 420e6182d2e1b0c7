"""Random structs and lists, and the definition of their equality and order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

NAN, INF = math.nan, math.inf

SIGNS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


class Nested(NamedTuple):
    """Comparable types of the two sides, and a generator of values of side 0 or 1."""

    types: tuple[pa.DataType, pa.DataType]
    draw: Callable[[random.Random, int], Any]

    def values(self, rng: random.Random, side: int, rows: int) -> list[Any]:
        few = [self.draw(rng, side) for _ in range(4)]
        draws = (rng.choice(few) if rng.random() < 0.5 else self.draw(rng, side) for _ in range(rows))
        return [None if rng.random() < 0.1 else value for value in draws]

    def column(self, values: Sequence[Any], side: int, rng: random.Random) -> pa.Array:
        """A column that is a slice of a larger one."""
        before, after = ([self.draw(rng, side)] * rng.randrange(3) for _ in range(2))
        return pa.array([*before, *values, *after], self.types[side]).slice(len(before), len(values))


def holds(operator: str, left: Any, right: Any) -> bool:
    """SQL's comparison, where null never matches; inside structs and lists, as in Spark."""
    if operator == "<=>":
        return (left is None) == (right is None) and compare(left, right) == 0
    return left is not None and right is not None and SIGNS[operator](compare(left, right))


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1: compare part by part, null first and equal to null, NaN last and equal to NaN."""
    if left is None or right is None:
        return (left is not None) - (right is not None)
    if isinstance(left, dict):
        return compare(list(left.values()), list(right.values()))
    if isinstance(left, list):
        found = (compare(a, b) for a, b in zip(left, right, strict=False))
        return next((sign for sign in found if sign), (len(left) > len(right)) - (len(left) < len(right)))
    if left != left or right != right:
        return int(left != left) - int(right != right)
    left, right = _midnight(left), _midnight(right)
    return int(left > right) - int(left < right)


def _midnight(value: Any) -> Any:
    plain = isinstance(value, date) and not isinstance(value, datetime)
    return datetime(value.year, value.month, value.day) if plain else value


DAYS = [date(2024, 2, 28), date(2024, 2, 29), date(1969, 12, 31)]
CLOCKS = [datetime(2024, 2, 29), datetime(2024, 2, 29, 0, 0, 1), datetime(1969, 12, 31, 23, 59, 59, 500_000)]
ZONED = [clock.replace(tzinfo=UTC) for clock in CLOCKS]
SMALL = [0, 1, 2, 100]
WHOLE = [0, 1, -1, 2, 127, -128]
EXACT = [Decimal(0), Decimal(1), Decimal("-1.25"), Decimal("2.5")]
FLOATS = [0.0, -0.0, 1.0, -1.25, 2.5, NAN, INF, -INF]
TEXTS = ["", "a", "a\0", "a\0b", "ab", "a\x01", "\0", "b", "Ä", "日本", "\U0001f600"]
BYTES = [b"", b"a", b"a\0", b"a\0\xff", b"a\xff", b"\0", b"\0\0", b"\xff"]
TIMES = [time(0), time(0, 0, 1), time(12, 30)]
SPANS = [timedelta(0), timedelta(seconds=-1), timedelta(days=3)]

LEAVES: list[tuple[pa.DataType, pa.DataType, Sequence[Any], Sequence[Any]]] = [
    (pa.bool_(), pa.bool_(), [True, False], [True, False]),
    (pa.int32(), pa.int32(), WHOLE, WHOLE),
    (pa.int8(), pa.int64(), WHOLE, [*WHOLE, 2**62, -(2**63)]),
    (pa.int16(), pa.uint8(), WHOLE, SMALL),
    (pa.uint16(), pa.uint32(), SMALL, [*SMALL, 2**32 - 1]),
    (pa.uint64(), pa.uint64(), [*SMALL, 2**64 - 1, 2**63], [*SMALL, 2**64 - 1, 2**63]),
    (pa.int64(), pa.uint64(), [*WHOLE, 2**63 - 1], [*SMALL, 2**64 - 1, 2**63 - 1]),
    (pa.int32(), pa.decimal128(10, 2), WHOLE, EXACT),
    (pa.decimal128(9, 2), pa.decimal128(38, 4), EXACT, [*EXACT, Decimal("-1e30"), Decimal("1e30")]),
    (pa.decimal256(50, 2), pa.decimal256(50, 2), [*EXACT, Decimal("-1e45")], [*EXACT, Decimal("1e45")]),
    (pa.float32(), pa.float64(), FLOATS, [*FLOATS, 0.1]),
    (pa.float64(), pa.int32(), FLOATS, WHOLE),
    (pa.float16(), pa.float32(), FLOATS, FLOATS),
    (pa.string(), pa.string(), TEXTS, TEXTS),
    (pa.large_string(), pa.string_view(), TEXTS, TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), TEXTS, TEXTS),
    (pa.binary(), pa.large_binary(), BYTES, BYTES),
    (pa.binary(2), pa.binary_view(), [b"\0\0", b"a\0", b"\xff\xff"], BYTES),
    (pa.date32(), pa.date32(), DAYS, DAYS),
    (pa.date32(), pa.timestamp("us"), DAYS, CLOCKS),
    (pa.timestamp("ms"), pa.timestamp("ns"), CLOCKS, CLOCKS),
    (pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin"), ZONED, ZONED),
    (pa.time32("ms"), pa.time64("us"), TIMES, TIMES),
    (pa.duration("s"), pa.duration("us"), SPANS, SPANS),
    (pa.null(), pa.int32(), [None], WHOLE),
]


def random_nested(rng: random.Random, depth: int = 3) -> Nested:
    """A struct or a list, with parts of up to `depth` levels."""
    if rng.random() < 0.5:
        return _struct(rng, depth)
    return _list(rng, depth)


def _part(rng: random.Random, depth: int) -> Nested:
    if depth and rng.random() < 0.5:
        return random_nested(rng, depth)
    left, right, *values = rng.choice(LEAVES)
    if rng.random() < 0.5:
        left, right, values = right, left, values[::-1]
    few = [list(column) for column in values]
    return Nested((left, right), lambda rng, side: rng.choice(few[side]))


def _struct(rng: random.Random, depth: int) -> Nested:
    parts = [_part(rng, depth - 1) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
    names = [[f"{'xy'[rng.random() < 0.2]}{i}" for i in range(len(parts))] for _ in (0, 1)]
    left, right = (
        pa.struct([pa.field(name, part.types[side]) for name, part in zip(names[side], parts, strict=True)])
        for side in (0, 1)
    )

    def draw(rng: random.Random, side: int) -> Any:
        return {name: _or_null(part, rng, side) for name, part in zip(names[side], parts, strict=True)}

    return Nested((left, right), draw)


def _list(rng: random.Random, depth: int) -> Nested:
    part = _part(rng, depth - 1)
    size = rng.choice((None, None, None, 0, 1, 2))
    left, right = (_list_type(rng, part.types[side], size) for side in (0, 1))

    def draw(rng: random.Random, side: int) -> Any:
        return [_or_null(part, rng, side) for _ in range(rng.choice((0, 1, 1, 2, 3)) if size is None else size)]

    return Nested((left, right), draw)


def _list_type(rng: random.Random, element: pa.DataType, size: int | None) -> pa.DataType:
    if size is not None and rng.random() < 0.7:
        return pa.list_(element, size)
    return rng.choice((pa.list_, pa.list_, pa.large_list, pa.list_view, pa.large_list_view))(element)


def _or_null(part: Nested, rng: random.Random, side: int) -> Any:
    return None if rng.random() < 0.2 else part.draw(rng, side)
