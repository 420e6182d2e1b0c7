"""Joins over columns of rare types and over values at the ends of their types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import dovetail

DAY_MILLIS = 86_400_000
EPOCH = date(1970, 1, 1)
NAN, INF = float("nan"), float("inf")


def dates(type_: pa.DataType, days: list[int], millis: int = 0) -> pa.Array:
    """Days since 1970; a date64 may have a time of day, which is ignored."""
    if pa.types.is_date64(type_):
        return pa.array([day * DAY_MILLIS + millis for day in days], pa.int64()).view(type_)
    return pa.array(days, pa.int32()).view(type_)


def rows_of(joined: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(joined["i"].to_pylist(), joined["i_right"].to_pylist(), strict=True), key=str)


# Dates of 64 bits.

DATE_CONDITIONS = (
    "l.a >= r.b AND l.a < date_add(r.b, 3)",
    "l.a = r.b",
    "l.a = r.b + 1",
    "l.a > r.b - 1",
    "abs(datediff(l.a, r.b)) <= 1",
    "l.a - r.b <= INTERVAL 1 DAY",
    "l.a BETWEEN r.b - INTERVAL 1 DAY AND r.b + INTERVAL 36 HOURS",
    "l.a + INTERVAL 1 MONTH > r.b AND l.a < DATE '1970-01-06'",
)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["inner", "left", "full", "left_anti"])
@pytest.mark.parametrize("on", DATE_CONDITIONS)
@pytest.mark.parametrize("millis", [0, 1, DAY_MILLIS - 1])
def test_date64_is_the_day_that_it_lies_in(on: str, how: str, millis: int) -> None:
    def joined(type_: pa.DataType) -> list[list[Any]]:
        left = pa.table({"i": [0, 1, 2, 3], "a": dates(type_, [1, 5, 9, -2], millis)})
        right = pa.table({"i": [0, 1, 2, 3], "b": dates(type_, [1, 4, 8, -3])})
        found = dovetail.join(left, right, on, how)
        if how == "inner":
            assert dovetail.count(left, right, on) == found.num_rows
        return sorted(found.select([name for name in found.column_names if name[0] == "i"]).to_pylist(), key=str)

    assert joined(pa.date64()) == joined(pa.date32())


def test_three_rows_as_date32_are_three_as_date64() -> None:
    left = pa.table({"a": dates(pa.date64(), [1, 5, 9])})
    right = pa.table({"b": dates(pa.date64(), [1, 4, 8])})
    assert dovetail.join(left, right, "l.a >= r.b AND l.a < date_add(r.b, 3)").num_rows == 3


def test_aggregates_of_date64_are_those_of_days() -> None:
    table = pa.table({"k": [1, 1, 1], "d": pa.array([5, DAY_MILLIS - 1, DAY_MILLIS], pa.int64()).view(pa.date64())})
    wanted = {"n": "count(*)", "first": "min(r.d)", "last": "max(r.d)"}
    found = dovetail.aggregate(table, table, "l.d = r.d", wanted, by="l.d")
    days = [(row["d"], row["n"], row["first"], row["last"]) for row in found.to_pylist()]
    tomorrow = EPOCH + timedelta(days=1)
    assert sorted(days) == [(EPOCH, 4, EPOCH, EPOCH), (tomorrow, 1, tomorrow, tomorrow)]


@pytest.mark.parametrize("algorithm", ["auto", "miner"])
def test_date64_in_joins_of_several(algorithm: str) -> None:
    left = pa.table({"i": [0, 1, 2], "a": dates(pa.date64(), [1, 5, 9], 7)})
    right = pa.table({"i": [0, 1, 2], "b": dates(pa.date64(), [1, 4, 8])})
    on = "x.a >= y.b AND x.a < date_add(y.b, 3) AND x.a = z.a"
    found = dovetail.multijoin({"x": left, "y": right, "z": left}, on, algorithm=algorithm)
    assert sorted(zip(*(found[f"{alias}_i"].to_pylist() for alias in "xyz"), strict=True)) == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 2, 2),
    ]


# Encodings.


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", ["l.a >= r.a AND l.a < r.a + 3", "abs(l.a - r.a) <= 1", "l.a = r.a + 1"])
@pytest.mark.parametrize("type_", [pa.int32(), pa.float16(), pa.float64(), pa.decimal128(9, 2)])
def test_numbers_in_a_dictionary(on: str, type_: pa.DataType) -> None:
    values = [np.float16(v) for v in (1, 4, 5, 9)] if pa.types.is_float16(type_) else [1, 4, 5, 9]
    plain = pa.table({"i": [0, 1, 2, 3], "a": pa.array(values, type_)})
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.int8()), plain["a"].combine_chunks())
    table = plain.set_column(1, "a", coded)
    assert rows_of(dovetail.join(table, table, on)) == rows_of(dovetail.join(plain, plain, on))


# Decimals of all lengths.


def decimals(type_: pa.DataType, *texts: str) -> pa.Table:
    return pa.table({"i": range(len(texts)), "d": pa.array([Decimal(text) for text in texts], type_)})


ONE = "0." + "9" * 38
STEP = "0." + "0" * 37 + "1"


@pytest.mark.parametrize(
    ("on", "pairs"),
    [
        ("l.d BETWEEN r.d - 1 AND r.d + 1", {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)}),
        ("l.d >= r.d - 0.5 AND l.d <= r.d + 0.5", {(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)}),
        ("abs(l.d - r.d) <= 5", {(i, j) for i in range(3) for j in range(3)}),
        ("l.d < r.d + 1", {(i, j) for i in range(3) for j in range(3)}),
        ("l.d > r.d + 0.5", {(1, 0), (1, 2)}),
    ],
)
def test_bands_of_fractions_of_38_digits(on: str, pairs: set[tuple[int, int]]) -> None:
    table = decimals(pa.decimal128(38, 38), "0", ONE, STEP)
    assert set(rows_of(dovetail.join(table, table, on))) == pairs


def test_fractions_and_whole_numbers_of_38_digits_are_compared_with_all_digits() -> None:
    fractions = decimals(pa.decimal128(38, 38), "0", ONE, STEP)
    whole = decimals(pa.decimal128(38, 0), "0", "1", "9" * 37, "-" + "9" * 37)
    assert rows_of(dovetail.join(fractions, whole, "l.d = r.d")) == [(0, 0)]
    assert rows_of(dovetail.join(fractions, whole, "l.d < r.d")) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]
    near = dovetail.join(fractions, whole, "l.d BETWEEN r.d - 1 AND r.d + 1")
    assert rows_of(near) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_bounds_keep_all_their_digits() -> None:
    """Python's decimals have 28 digits by default."""
    bound = "1" * 33 + ".5"
    table = decimals(pa.decimal128(36, 1), "0", bound, "1" * 33 + ".6", "1" * 33 + ".4")
    on = f"l.d <= r.d + {bound} AND l.d >= r.d - {bound}"
    found = rows_of(dovetail.join(table, table, on))
    assert {(1, 0), (0, 1), (3, 0)} <= set(found)
    assert not {(2, 0), (0, 2)} & set(found)
    several = dovetail.multijoin(
        {"x": table, "y": table, "z": table}, f"{on.replace('l.', 'y.').replace('r.', 'x.')} AND y.i = z.i"
    )
    assert sorted(zip(several["y_i"].to_pylist(), several["x_i"].to_pylist(), strict=True)) == found


def test_decimals_of_76_digits() -> None:
    large = "1" + "0" * 70
    table = decimals(pa.decimal256(76, 2), large, "1" + "0" * 69 + "1", "2", "1.5")
    assert rows_of(dovetail.join(table, table, "l.d = r.d")) == [(i, i) for i in range(4)]
    assert (0, 1) in rows_of(dovetail.join(table, table, "abs(l.d - r.d) <= 1"))
    assert (2, 3) in rows_of(dovetail.join(table, table, "l.d <= r.d + 0.5 AND l.d >= r.d - 0.5"))


# Floats at their ends.


def largest(width: type[Any]) -> NDArray[Any]:
    info = np.finfo(width)
    return np.array([0, 1, info.max, info.min, INF, -INF, NAN, info.tiny], width)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("radius", ["1", "70000", "3e38", "1e200", "1.7e308", "1.7976931348623157e308", "1e400"])
@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("operator", ["<", "<="])
def test_distances_at_the_ends_of_floats(width: type[Any], radius: str, operator: str) -> None:
    values = largest(width)
    table = pa.table({"i": range(len(values)), "x": values, "y": values, "z": values, "v": values})
    with np.errstate(all="ignore"):
        apart = values.astype(np.float64)[:, None] - values.astype(np.float64)[None, :]
        for names in ("x", "xy", "xyz", "xyzv"):
            points = [f"{side}.{name}" for side in "lr" for name in names]
            on = f"distance({', '.join(points)}) {operator} {radius}"
            far = np.sqrt(sum(apart * apart for _ in names))
            near = far < float(radius) if operator == "<" else far <= float(radius)
            assert rows_of(dovetail.join(table, table, on)) == [tuple(p) for p in np.argwhere(near).tolist()], on
            assert dovetail.count(table, table, on) == near.sum()


@pytest.mark.parametrize("bound", ["1", "3e38", "1e39", "1.7976931348623157e308"])
@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_bands_at_the_ends_of_floats(width: type[Any], bound: str) -> None:
    values = largest(width)
    table = pa.table({"i": range(len(values)), "x": values})
    single = np.float32 if width is not np.float64 else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(values.astype(single)[:, None] - values.astype(single)[None, :]).astype(np.float64)
    expected = [tuple(pair) for pair in np.argwhere(apart <= float(bound)).tolist()]
    assert rows_of(dovetail.join(table, table, f"abs(l.x - r.x) <= {bound}")) == expected


@pytest.mark.parametrize("on", ["{} <= {}", "{} < {}"])
@pytest.mark.parametrize("bound", ["0", "5e-324", "1e-60", "1e-30", "1", "1e30", "1e60", "1e300"])
@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_squares_overflow_and_vanish(width: type[Any], bound: str, on: str) -> None:
    powers = (-320, -200, -162, -45, -40, -23, 0, 15, 19, 25, 38, 160, 308)
    with np.errstate(all="ignore"):
        values = np.array([0.0, *(10.0**power for power in powers)]).astype(width)
        apart = values[:, None] - values[None, :]
        squares = (apart * apart).astype(np.float64)
    table = pa.table({"i": range(len(values)), "x": values})
    near = squares <= float(bound) if "=" in on else squares < float(bound)
    condition = on.format("(l.x - r.x) * (l.x - r.x)", bound)
    assert rows_of(dovetail.join(table, table, condition)) == sorted(map(tuple, np.argwhere(near).tolist()), key=str)


def test_all_nans_are_one() -> None:
    bits = np.array([0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0x0000, 0x8000], np.uint16)
    table = pa.table({"i": range(len(bits)), "h": bits.view(np.float16)})
    same = {(i, j) for i in range(4) for j in range(4)} | {(i, j) for i in (4, 5) for j in (4, 5)}
    assert set(rows_of(dovetail.join(table, table, ["h"]))) == same
    triples = dovetail.multijoin({"x": table, "y": table, "z": table}, "x.h = y.h AND y.i = z.i")
    assert set(zip(triples["x_i"].to_pylist(), triples["z_i"].to_pylist(), strict=True)) == same


# Integers at their ends.


@pytest.mark.parametrize("algorithm", ["auto", "miner"])
def test_unsigned_integers_do_not_wrap_around(algorithm: str) -> None:
    high = 2**64 - 1
    numbers = [0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1, 2**63, high - 1, high]
    halves = np.array([1, NAN, 0.0, -0.0, 1, 65504, INF, NAN, 1], np.float16)
    table = pa.table({"i": range(9), "v": pa.array(numbers, pa.uint64()), "h": halves})
    near = [(i, j) for i, a in enumerate(numbers) for j, b in enumerate(numbers) if abs(a - b) <= 1]
    same = {(i, j) for i, a in enumerate(halves) for j, b in enumerate(halves) if a == b or (a != a and b != b)}
    on = "abs(z.v - x.v) <= 1 AND x.h = y.h"
    found = dovetail.multijoin({"x": table, "y": table, "z": table}, on, algorithm=algorithm)
    rows = sorted(zip(*(found[f"{alias}_i"].to_pylist() for alias in "xyz"), strict=True))
    assert rows == sorted((x, y, z) for x, z in near for y in range(9) if (x, y) in same)


# Valid data in unusual layouts.


class Labelled(pa.ExtensionType):
    """A type defined in Python, without a hash. It is not registered, so files have its storage type."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.labelled")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Labelled:
        return cls(storage)


def many_joins(table: pa.Table, on: str) -> Iterator[pa.Table]:
    """Inner joins of the table with itself, by all code paths."""
    yield dovetail.join(table, table, on)
    yield dovetail.join(table, table, on, to="reader").read_all()
    for algorithm in ("shj", "pmj", "xjoin", "diner", "nested_loop"):
        yield dovetail.join(table, table, on, algorithm=algorithm)
    for memory in (None, "2MB"):
        for rows in (lambda: table, table.to_reader):
            steps = dovetail.progressive(rows(), rows(), on, memory=memory)
            yield pa.Table.from_batches(step.batch for step in steps)
    yield pa.Table.from_batches(step.batch for step in dovetail.progressive(table, table, on, workers=2))
    yield pa.Table.from_batches(step.batch for step in dovetail.progressive(table, table, on, order_by="l.i"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("storage", [pa.int64(), pa.string(), pa.list_(pa.int32())], ids=str)
def test_extension_types_of_python(storage: pa.DataType) -> None:
    values: list[Any] = [None if i % 11 == 5 else i % 1500 for i in range(3000)]
    if storage == pa.string():
        values = [v if v is None else str(v) for v in values]
    elif storage != pa.int64():
        values = [v if v is None else [v] for v in values]
    column = pa.ExtensionArray.from_storage(Labelled(storage), pa.array(values, storage))
    table = pa.table({"i": range(3000), "a": column})
    expected = {(i, j) for i, v in enumerate(values) for j in range(i % 1500, 3000, 1500) if v == values[j] != None}  # noqa: E711
    for found in many_joins(table, "l.a = r.a"):
        assert found.schema.field("a").type == table.schema.field("a").type == found.schema.field("a_right").type
        assert set(rows_of(found)) == expected
        assert found.num_rows == len(expected)
        assert found["a"].combine_chunks().storage.to_pylist() == [values[i] for i in found["i"].to_pylist()]
    assert dovetail.count(table, table, ["a"]) == len(expected)
    several = dovetail.multijoin({"x": table, "y": table, "z": table}, "x.a = y.a AND y.a = z.a AND x.i = z.i")
    assert several.num_rows == len(expected)
    groups = dovetail.aggregate(table, table, ["a"], {"n": "count(*)"}, by="l.a")
    assert sum(groups["n"].to_pylist()) == len(expected)


@pytest.mark.parametrize("how", ["inner", "full"])
def test_columns_of_nulls_on_both_sides(how: str) -> None:
    table = pa.table({"n": pa.nulls(3), "i": [1, 2, 3]})
    alone = 0 if how == "inner" else 6
    for on in ("l.n = r.n", "l.n < r.n", "l.n != r.n", "l.n IN (r.n, r.n)", "greatest(l.n, r.n) = 1"):
        for extra in ("", " AND l.i = r.i"):
            assert dovetail.join(table, table, on + extra, how).num_rows == alone
    assert dovetail.join(table, table, "l.n <=> r.n", how).num_rows == 9
    assert dovetail.join(table, table, "l.n = r.n OR l.i = r.i", how).num_rows == 3
    assert dovetail.join(table, table, ["n"], how).schema.field("n").type == pa.null()
    assert dovetail.count(table, table, "l.n = r.n") == 0
    several = {"x": table, "y": table, "z": table}
    assert dovetail.multijoin(several, "x.n = y.n AND y.i = z.i").num_rows == 0
    assert not any(step.batch.num_rows for step in dovetail.progressive(table, table, "l.n = r.n"))


def dictionary(indices: list[int | None], values: list[str | None], index: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, index or pa.int32()), pa.array(values, pa.string()))


@pytest.mark.parametrize("inside", ["column", "struct", "list"])
def test_dictionaries_with_a_null_among_their_values(inside: str) -> None:
    chunks = [dictionary([0, 1, 2], ["a", None, "b"]), dictionary([0, 1, None], [None, "c"])]
    if inside == "struct":
        chunks = [pa.StructArray.from_arrays([chunk], ["x"]) for chunk in chunks]
    elif inside == "list":
        chunks = [pa.ListArray.from_arrays([0, 1, 2, 3], chunk) for chunk in chunks]
    table = pa.table({"i": range(6), "a": pa.chunked_array(chunks)})
    values = table["a"].to_pylist()
    expected = {(i, j) for i in range(6) for j in range(6) if values[i] == values[j] != None}  # noqa: E711
    for found in many_joins(table, "l.a = r.a"):
        assert set(rows_of(found)) == expected
        assert found["a"].to_pylist() == [values[i] for i in found["i"].to_pylist()]
    if inside == "column":
        nulls = dovetail.join(table, table, "l.a IS NULL AND l.i = r.i")
        assert nulls["i"].to_pylist() == [1, 3, 5]
        assert nulls["a"].null_count == 3


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8()], ids=str)
def test_dictionaries_of_chunks_that_are_too_large_together(index: pa.DataType) -> None:
    chunks = [dictionary(list(range(100)), [f"v{i}" for i in range(s, s + 100)], index) for s in (0, 90, 150, 200)]
    table = pa.table({"i": range(400), "a": pa.chunked_array(chunks)})
    values = table["a"].to_pylist()
    for on in ("l.i = r.i", "l.a = r.a AND l.i = r.i"):
        for algorithm in ("auto", "shj", "pmj", "xjoin", "diner"):
            found = dovetail.join(table, table, on, algorithm=algorithm)
            assert found.num_rows == 400
            assert found["a_right"].to_pylist() == [values[i] for i in found["i"].to_pylist()]
        for memory in (None, "2MB"):
            assert sum(step.batch.num_rows for step in dovetail.progressive(table, table, on, memory=memory)) == 400


def test_not_a_time_under_an_interval() -> None:
    frame = pd.DataFrame({"i": [0, 1, 2], "t": pd.to_datetime(["2020-01-01", None, "2020-03-01"])})
    for zone in (None, "Europe/Berlin"):
        frame["t"] = frame["t"].dt.tz_localize(zone)
        assert rows_of(dovetail.join(frame, frame, "l.t - INTERVAL 1 DAY > r.t")) == [(2, 0)]
        assert rows_of(dovetail.join(frame, frame, "l.t + INTERVAL 1 DAY < r.t")) == [(0, 2)]
