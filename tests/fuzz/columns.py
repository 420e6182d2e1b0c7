"""A column of every key type, with values that tie often, and its form in DuckDB.

DuckDB's numbers are cast to the width in which ours are computed. Dates, timestamps, times and durations become numbers
of nanoseconds, because DuckDB's own arithmetic only has microseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

INF, NAN = float("inf"), float("nan")
DAY = date(2024, 2, 27).toordinal() - date(1970, 1, 1).toordinal()
SECONDS = DAY * 86_400
DAY_MILLIS = 86_400_000
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Draw = Callable[[random.Random], Any]


class Kind(NamedTuple):
    """A column: its type, a few values (the first are alike in all columns), a generator, and its form in DuckDB."""

    type: pa.DataType
    few: Sequence[Any]
    many: Draw
    family: str
    duck: str = "{}"


def _integers(type_: pa.DataType, few: Sequence[int], low: int, high: int) -> Kind:
    return Kind(type_, few, lambda rng: rng.randint(low, high), "int", "CAST({} AS BIGINT)")


def _decimals(precision: int, scale: int, few: Iterable[str]) -> Kind:
    def many(rng: random.Random) -> Decimal:
        return Decimal(rng.randint(-6000, 6000)).scaleb(-2)

    type_ = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return Kind(type_, [Decimal(value) for value in few], many, "decimal")


def _texts(type_: pa.DataType) -> Kind:
    few = ("a", "b", "", "ab", "a%b", "Ä", "日本", "it's", "a\0")
    return Kind(type_, few, lambda rng: f"{rng.randrange(60):02}", "text")


def _bytes(type_: pa.DataType, few: Sequence[bytes]) -> Kind:
    return Kind(type_, few, lambda rng: bytes([255, rng.randrange(60)]), "bytes")


def _instants(unit: str, zone: str | None = None, more: Sequence[int] = (0,)) -> Kind:
    """Timestamps around a leap day, at whole seconds and a few ticks later."""
    second = PER_SECOND[unit]
    few = [(SECONDS + s) * second + ticks for s in (0, 86_400, 86_490, 129_600, 172_800) for ticks in more]

    def many(rng: random.Random) -> int:
        return (SECONDS + rng.randrange(3 * 86_400)) * second + rng.choice(more)

    return Kind(pa.timestamp(unit, zone), few, many, "zoned" if zone else "instant", "epoch_ns({})")


def _ticks(type_: pa.DataType, family: str) -> Kind:
    second = PER_SECOND[type_.unit]
    few = [0, second, 90 * second, 43_200 * second, second // 2]
    return Kind(type_, few, lambda rng: rng.randrange(86_400) * second, family, "epoch_ns({})")


def _quarters(rng: random.Random) -> float:
    return rng.randint(-240, 240) / 4


def _hundredths(rng: random.Random) -> float:
    """Numbers that are also exact as decimals."""
    return rng.randint(-6000, 6000) / 100


def _uneven(rng: random.Random) -> float:
    return rng.uniform(-60, 60)


FAR = (0, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -1)
NUMBERS = {
    "i8": _integers(pa.int8(), (0, 1, 2, -1, -2, 127, -128), -60, 60),
    "i16": _integers(pa.int16(), (0, 1, 2, -1, 5, -300), -60, 60),
    "i32": _integers(pa.int32(), (0, 1, 2, -1, 3, -3, 70_000), -60, 60),
    "i64": _integers(pa.int64(), (0, 1, 2, -1, 5, -3, 2**40), -60, 60),
    "u8": _integers(pa.uint8(), (0, 1, 2, 5, 255), 0, 60),
    "u16": _integers(pa.uint16(), (0, 1, 2, 5, 300), 0, 60),
    "u32": _integers(pa.uint32(), (0, 1, 2, 5, 2**32 - 1), 0, 60),
    "u64": Kind(pa.uint64(), (0, 1, 2, 5), lambda rng: rng.randrange(60), "decimal", "CAST({} AS DECIMAL(20, 0))"),
    "n5": _decimals(5, 2, ("0", "1", "2.5", "0.1", "0.3", "-1.25", "999.93")),
    "n18": _decimals(18, 2, ("0", "1", "2.5", "0.1", "-1.1", "1000000.01")),
    "f16": Kind(pa.float16(), (0.0, 1.0, 2.5, NAN, -0.0, 0.5, -1.25, INF, -INF, 65504.0, 6e-8), _quarters, "float"),
    "f32": Kind(pa.float32(), (-0.0, 1.0, 2.5, NAN, 0.0, 0.1, 0.3, -1.25, INF, -INF), _uneven, "float"),
    "f64": Kind(pa.float64(), (0.0, 1.0, 2.5, NAN, -0.0, 0.1, 0.3, 1 / 3, -1.1, INF, -INF), _hundredths, "double"),
    "g64": Kind(pa.float64(), (0.0, 1.0, 2.5, -0.0, NAN, 0.25, -1.0, INF), _quarters, "double"),
}
LONG = {
    "n38": _decimals(38, 4, ("0", "1", "2.5", "0.0001", "-1.25", "1e27", "-1e27")),
    "n45": _decimals(45, 4, ("0", "1", "2.5", "0.0001", "-1.25", "1e27", "-1e27")),
}
EXTREME = {
    "i64x": Kind(pa.int64(), FAR, lambda rng: rng.choice(FAR) // 3, "int"),
    "u64x": Kind(
        pa.uint64(), (0, 2**64 - 1, 1, 2**63), lambda rng: rng.randrange(2**64), "decimal", NUMBERS["u64"].duck
    ),
    "f64x": Kind(
        pa.float64(),
        (0.0, 2.0**53, 1e16, 1e16 + 2, NAN, 5e-324, 1e-300, -1e16, 1e300),
        lambda rng: rng.gauss(0, 1e16),
        "double",
    ),
}
TEXTS = {
    "s": _texts(pa.string()),
    "big": _texts(pa.large_string()),
    "view": _texts(pa.string_view()),
    "code": _texts(pa.dictionary(pa.int8(), pa.string())),
}
BYTES = {
    "y": _bytes(pa.binary(), (b"ab", b"a", b"", b"\0", b"a\xff")),
    "y2": _bytes(pa.binary(2), (b"ab", b"\0a", b"\xff\xff")),
}
DATES = {
    "d": Kind(pa.date32(), range(DAY, DAY + 5), lambda rng: DAY + rng.randrange(10), "instant", "epoch_ns({})"),
    "d64": Kind(
        pa.date64(),
        [(DAY + days) * DAY_MILLIS + millis for days in range(5) for millis in (0, 1, DAY_MILLIS - 1)],
        lambda rng: DAY * DAY_MILLIS + rng.randrange(10 * DAY_MILLIS),
        "instant",
        "epoch_ns({})",
    ),
}
INSTANTS = {
    "ts": _instants("us", more=(0, 1)),
    "ms": _instants("ms"),
    "ns": _instants("ns", more=(0, 1, 1000)),
    "sec": _instants("s"),
}
ZONED = {"tz": _instants("us", "UTC"), "tzms": _instants("ms", "Europe/Berlin"), "tzns": _instants("ns", "UTC", (0, 1))}
TIMES = {
    "t32": _ticks(pa.time32("ms"), "time"),
    "t64": _ticks(pa.time64("us"), "time"),
    "tns": _ticks(pa.time64("ns"), "time"),
}
LENGTHS = {"dur": _ticks(pa.duration("us"), "length"), "durms": _ticks(pa.duration("ms"), "length")}
BOOLEANS = {"b": Kind(pa.bool_(), (True, False), lambda rng: rng.random() < 0.5, "bool")}
POINTS = {
    "v": Kind(
        pa.list_(pa.float32(), 2),
        ([0.0, 0.0], [1.0, 0.0], [0.5, 0.75], [0.0, None], [NAN, 0.0]),
        lambda rng: [_quarters(rng), _quarters(rng)],
        "point",
        "CAST({} AS DOUBLE[])",
    ),
    "u": Kind(
        pa.list_(pa.float64()),
        ([], [0.0], [1.0], [0.0, 0.0], [1.0, 1.0], [0.0, None], [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 1.0, 0.0]),
        lambda rng: [_quarters(rng) for _ in range(rng.choice((3, 3, 3, 4)))],
        "point",
    ),
}


def _later(kind: Kind) -> Kind:
    """The end of an interval, mostly after its start."""
    return kind._replace(
        few=[*kind.few[1:3], kind.few[0], *kind.few[3:]], many=lambda rng: max(kind.many(rng), kind.many(rng))
    )


ENDS = {
    ("xmin", "xmax"): NUMBERS["g64"],
    ("ymin", "ymax"): NUMBERS["i32"],
    ("nmin", "nmax"): NUMBERS["n18"],
    ("fmin", "fmax"): NUMBERS["f32"],
    ("smin", "smax"): TEXTS["s"],
    ("dmin", "dmax"): DATES["d"],
    ("start", "end"): INSTANTS["ts"],
    ("zstart", "zend"): ZONED["tz"],
}
INTERVALS = {names: (kind, _later(kind)) for names, kind in ENDS.items()}
"""Pairs of columns: the start and the end of an interval."""

COLUMNS: dict[str, Kind] = {
    **NUMBERS,
    **LONG,
    **EXTREME,
    **TEXTS,
    **BYTES,
    **DATES,
    **INSTANTS,
    **ZONED,
    **TIMES,
    **LENGTHS,
    **BOOLEANS,
    **POINTS,
    **{name: kind for names, kinds in INTERVALS.items() for name, kind in zip(names, kinds, strict=True)},
}


class Spread(NamedTuple):
    """How the values of a case are drawn."""

    many: bool  # mostly values that rarely tie
    most: tuple[int, ...]  # otherwise, at most this many distinct values per column
    nulls: float  # share of nulls


def random_column(rng: random.Random, name: str, rows: int, spread: Spread) -> pa.Array:
    if name in PAYLOADS:
        values = PAYLOADS[name]
        return values.take(pa.array([rng.randrange(len(values)) for _ in range(rows)], pa.int64()))
    kind = COLUMNS[name]
    few = kind.few[: rng.choice(spread.most)]
    drawn = [kind.many(rng) if spread.many and rng.random() < 0.9 else rng.choice(few) for _ in range(rows)]
    return typed([None if rng.random() < spread.nulls else value for value in drawn], kind.type)


def typed(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Like pa.array, but also accepts Python floats for halffloat, and a time of day for date64."""
    if pa.types.is_float16(type_):
        return pa.array([None if value is None else np.float16(value) for value in values], type_)
    return pa.array(values, pa.int64()).view(type_) if pa.types.is_date64(type_) else pa.array(values, type_)


UNION_CHILDREN = [pa.array([1, 2, None, 4]), pa.array(["a", "b", "c", "d"])]
PAYLOADS: dict[str, pa.Array] = {
    "dense": pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1], pa.int8()), pa.array([0, 0, 2, 3], pa.int32()), UNION_CHILDREN
    ),
    "sparse": pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), UNION_CHILDREN),
    "pairs": pa.array([[("a", 1)], [], None, [("b", None), ("c", 2)]], pa.map_(pa.string(), pa.int8())),
    "views": pa.array([[1], [], None, [2, 3]], pa.list_view(pa.int16())),
    "halves": pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([np.float16(0.5), np.float16(2)])),
}
"""Columns of types without order or arithmetic, used only as payload."""


def for_duckdb(table: pa.Table) -> pa.Table:
    """The columns that DuckDB can read, converted to its types."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        type_ = column.type
        if name in PAYLOADS:
            continue
        if pa.types.is_float16(type_):
            column = column.cast(pa.float32())
        elif pa.types.is_decimal256(type_):
            column = column.cast(pa.decimal128(38, type_.scale))
        elif pa.types.is_date64(type_):
            millis = pa.chunked_array([chunk.view("int64") for chunk in column.chunks], pa.int64())
            days = pc.cast(pc.divide(millis, DAY_MILLIS), pa.int32())  # valid because all dates are after 1970
            column = days.cast(pa.date32())
        columns[name] = column
    return pa.table(columns)
