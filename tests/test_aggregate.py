"""Aggregates over joins of every class of predicate, against DuckDB and against the pairs one by one."""

import math
from collections import defaultdict
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.effort import some
from tests.seed import seeded

import dovetail
from dovetail.errors import ConditionError, DovetailError, InputError
from dovetail.matching import matcher as build
from dovetail.testing import COLUMNS, CONDITIONS, definition, random_table

MORE = (
    "TRUE",
    "FALSE",
    "l.k < r.k AND l.x > r.x AND l.n <= r.n",
    "l.k = r.k AND l.x < r.x AND l.n >= r.n",
    "l.k != r.k AND l.s = r.s",
    "l.n BETWEEN r.n - 1 AND r.n + 2",
    "l.x > 0 AND l.k <= r.k AND r.s >= 'a'",
)
AGGREGATES = {
    "pairs": "count(*)",
    **{f"{f}_{a}{c}": f"{f}({a}.{c})" for f in ("count", "min", "max") for a in "lr" for c in COLUMNS},
    **{f"sum_{a}{c}": f"sum({a}.{c})" for a in "lr" for c in "kxnw"},
    **{f"avg_{a}{c}": f"avg({a}.{c})" for a in "lr" for c in "kx"},
    "twice": "SUM(r.k * 2)",
    "ones": "sum(1)",
}
BY = (None, "l.s", "r.x", ["l.k", "l.b"], ["r.d", "r.w", "r.x"], "l.t", ["l.n", "l.x"])


def by_group(table: pa.Table, keys: int) -> dict[tuple[Any, ...], list[Any]]:
    rows = [[_plain(value) for value in row.values()] for row in table.to_pylist()]
    found = {tuple(row[:keys]): row[keys:] for row in rows}
    assert len(found) == len(rows)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def assert_same(found: pa.Table, expected: pa.Table, keys: int) -> None:
    ours, theirs = by_group(found, keys), by_group(expected, keys)
    assert ours.keys() == theirs.keys()
    for key, values in ours.items():
        for name, value, wanted in zip(found.column_names[keys:], values, theirs[key], strict=True):
            exact = not isinstance(wanted, float)
            assert value == (wanted if exact else pytest.approx(wanted, rel=1e-14)), (key, name)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("turn", "on"), list(enumerate([*CONDITIONS, *MORE])))
def test_equals_duckdb(turn: int, on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded(on)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for by in some(BY, turn, of=len(BY)):
        monkeypatch.setattr(build, "LARGE_GROUP", rng.choice([1, 1 << 14]))
        left, right = random_table(rng), random_table(rng)
        connection.register("l", left)
        connection.register("r", right)
        keys = [by] if isinstance(by, str) else by or []
        columns = ", ".join([*keys, *(f"{sql} AS {name}" for name, sql in AGGREGATES.items())])
        query = f"SELECT {columns} FROM l JOIN r ON ({on.replace('<=>', 'IS NOT DISTINCT FROM')})"
        if keys:
            query += f" GROUP BY {', '.join(keys)}"
        expected = connection.sql(query).to_arrow_table()
        found = dovetail.aggregate(left, right, on, AGGREGATES, by=by)
        assert found.column_names == [*(key[2:] for key in keys), *AGGREGATES]
        assert_same(found, expected, len(keys))


@pytest.mark.parametrize("on", ["l.k < r.k", "l.s = r.s", "l.k + r.k > 2"])
@pytest.mark.parametrize("by", [None, "l.s", "r.s"])
def test_averages_of_decimals_are_rounded_half_up(on: str, by: str | None) -> None:
    rng = seeded(f"{on}{by}")
    left, right = random_table(rng, 20), random_table(rng, 20)
    found = dovetail.aggregate(left, right, on, {"n": "avg(r.n)", "w": "avg(CAST(r.n AS DECIMAL(34, 4)))"}, by=by)
    assert found.schema.field("n").type == pa.decimal128(14, 6)
    assert found.schema.field("w").type == pa.decimal128(38, 8)
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list, {} if by else {(): []})  # one row even without pairs
    for pair in definition(left, right, on):
        key = () if by is None else ((left, right)["lr".index(by[0])].column(by[2:])[pair["lr".index(by[0])]].as_py(),)
        groups[key].append(pair[1])
    expected = {
        key: [_average(right.column("n"), rows, step) for step in ("0.000001", "0.00000001")]
        for key, rows in groups.items()
    }
    assert by_group(found, 0 if by is None else 1) == expected


def _average(column: pa.ChunkedArray, rows: Sequence[int], step: str) -> Decimal | None:
    values = [value for row in rows if (value := column[row].as_py()) is not None]
    if not values:
        return None
    with localcontext(prec=200):
        return (sum(values) / len(values)).quantize(Decimal(step), ROUND_HALF_UP)


# One aggregate over more pairs than could be enumerated.

ROWS = 200_000


@pytest.fixture(scope="module")
def large() -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(0)

    def side() -> pa.Table:
        numbers = {"k": rng.integers(0, 2, ROWS), "j": rng.integers(0, 3, ROWS)}
        places = {"x": rng.random(ROWS), "y": rng.random(ROWS), "start": rng.random(ROWS), "end": 1 + rng.random(ROWS)}
        return pa.table({**numbers, **places, "big": rng.integers(2**61, 2**62, ROWS)})

    return side(), side()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "on",
    [
        "TRUE",
        "l.k = r.k",
        "l.k != r.k",
        "l.x <= r.x",
        "l.x >= r.x - 0.9 AND l.x <= r.x + 0.9",
        "l.x < r.x + 0.5 AND l.y > r.y - 0.5",
        "l.start <= r.end AND l.end >= r.start",
        "l.k = r.k AND l.x < r.x",
        "l.k = r.k AND l.x < r.x AND l.y >= r.y",
        "l.k = r.k AND abs(l.x - r.x) <= 0.5",
        "l.k = r.k AND l.j != r.j",
    ],
)
@pytest.mark.parametrize("by", [None, pytest.param("l.k", marks=pytest.mark.slow), "r.j"])
def test_billions_of_pairs_are_not_enumerated(on: str, by: str | None, large: tuple[pa.Table, pa.Table]) -> None:
    left, right = large
    aggregates = {
        "n": "count(*)",
        "left": "sum(CAST(l.big AS DECIMAL(20, 0)))",
        "right": "sum(CAST(r.big AS DECIMAL(20, 0)))",
        "low": "min(l.big)",
        "high": "max(r.big)",
        "mean": "avg(r.j)",
    }
    found = dovetail.aggregate(left, right, on, aggregates, by=by).to_pylist()
    assert sum(row["n"] for row in found) == dovetail.count(left, right, on) > 10**9
    for row in found:
        assert 2**61 * row["n"] <= row["left"] < 2**62 * row["n"]
        assert 2**61 * row["n"] <= row["right"] < 2**62 * row["n"]
        assert 2**61 <= row["low"] < row["high"] < 2**62
        assert 0 <= row["mean"] <= 2


def test_sums_over_the_cross_product_are_exact() -> None:
    left = pa.table({"a": [2**63 - 1] * 3 + [-(2**63)]})
    right = pa.table({"w": pa.array([Decimal("9" * 32 + ".9999")] * 5 + [None], pa.decimal128(36, 4))})
    right = right.append_column("u", pa.array([2**64 - 1] * 6, pa.uint64()))
    aggregates = {
        "a": "sum(CAST(l.a AS DECIMAL(38, 0)))",
        "w": "sum(r.w)",
        "u": "sum(CAST(r.u AS DECIMAL(20, 0)))",
        "m": "avg(r.u)",
    }
    (row,) = dovetail.aggregate(left, right, "TRUE", aggregates).to_pylist()
    assert row["a"] == 6 * (3 * (2**63 - 1) - 2**63)
    with localcontext(prec=50):
        assert row["w"] == 20 * Decimal("9" * 32 + ".9999")
    assert row["u"] == 24 * (2**64 - 1)
    assert row["m"] == float(2**64)


# Types and special values.


def test_result_types() -> None:
    types = {
        "i": pa.int8(),
        "u": pa.uint32(),
        "f": pa.float32(),
        "d": pa.decimal128(10, 2),
        "w": pa.decimal128(38, 4),
        "s": pa.large_string(),
        "c": pa.dictionary(pa.int32(), pa.string()),
        "t": pa.timestamp("ns", "Europe/Berlin"),
        "h": pa.time64("us"),
        "v": pa.duration("ms"),
        "y": pa.binary(),
        "b": pa.bool_(),
    }
    table = pa.table({name: pa.array([None], type_) for name, type_ in types.items()})
    sums = {"i": pa.int64(), "u": pa.int64(), "f": pa.float64(), "d": pa.decimal128(20, 2), "w": pa.decimal128(38, 4)}
    means = {**dict.fromkeys("iuf", pa.float64()), "d": pa.decimal128(14, 6), "w": pa.decimal128(38, 8)}
    aggregates = {f"sum{c}": f"sum(r.{c})" for c in sums} | {f"avg{c}": f"avg(r.{c})" for c in means}
    aggregates |= {f"min{c}": f"min(r.{c})" for c in types}
    found = dovetail.aggregate(table, table, "TRUE", aggregates, by="l.c")
    expected = [pa.string(), *sums.values(), *means.values(), *types.values()]
    expected[expected.index(types["c"])] = pa.string()
    assert found.schema.types == expected
    assert set(found.to_pylist()[0].values()) == {None}


@pytest.mark.parametrize("by", [None, "l.k"])
def test_no_pairs(by: str | None) -> None:
    table = pa.table({"k": [1, 2], "s": ["a", "b"]})
    aggregates = {"n": "count(*)", "c": "count(r.s)", "t": "sum(l.k)", "m": "max(r.s)", "a": "avg(r.k)"}
    for left, right in ((table, table), (table.slice(0, 0), table), (table, table.slice(0, 0))):
        found = dovetail.aggregate(left, right, "l.k > r.k + 5", aggregates, by=by).to_pylist()
        assert found == ([{"n": 0, "c": 0, "t": None, "m": None, "a": None}] if by is None else [])


def test_nan_and_zeros_are_one_group_each_and_null_too() -> None:
    left = pa.table({"x": [math.nan, -math.nan, 0.0, -0.0, None, None, 1.0]})
    right = pa.table({"v": [1, 2]})
    found = dovetail.aggregate(left, right, "TRUE", {"n": "count(*)"}, by="l.x")
    assert by_group(found, 1) == {("NaN",): [4], (0.0,): [4], (None,): [4], (1.0,): [2]}


def test_infinities_and_nan_in_sums() -> None:
    left = pa.table({"k": [1, 2, 3, 4]})
    right = pa.table({"k": [1, 1, 2, 2, 3, 3, 4], "x": [math.inf, 1.0, math.inf, -math.inf, math.nan, 1.0, 2.0]})
    found = dovetail.aggregate(left, right, "l.k = r.k", {"t": "sum(r.x)", "m": "max(r.x)"}, by="l.k")
    expected = {(1,): [math.inf, math.inf], (2,): ["NaN", math.inf], (3,): ["NaN", "NaN"], (4,): [2.0, 2.0]}
    assert by_group(found, 1) == expected


def test_float_sums_do_not_cancel() -> None:
    right = pa.table({"x": [1e16, 1.0, -1e16] * 1000})
    left = pa.table({"k": [0] * 7})
    assert dovetail.aggregate(left, right, "TRUE", {"t": "sum(r.x)"}).to_pylist() == [{"t": 7000.0}]


def test_filters_come_before_values() -> None:
    """As in SQL, aggregated expressions are not evaluated for rows excluded by the condition."""
    left = pa.table({"k": [1, 2], "s": ["5", "five"]})
    right = pa.table({"k": [1, 2]})
    found = dovetail.aggregate(left, right, "l.k = r.k AND l.k < 2", {"t": "sum(CAST(l.s AS INT))"})
    assert found.to_pylist() == [{"t": 5}]


def test_names_as_in_conditions() -> None:
    left = pa.table({"k": [1, 1], "Region": ["n", "s"], "a b": [1, 2]})
    right = pa.table({"k": [1, 1, 1], "amount": [1, 2, 3]})
    found = dovetail.aggregate(left, right, ["k"], {"t": "Sum(AMOUNT)", "n": "count(1)"}, by="l.region")
    assert found.sort_by("Region").to_pylist() == [{"Region": g, "t": 6, "n": 3} for g in "ns"]
    assert dovetail.aggregate(left, right, ["k"], {"n": "count(*)"}, by=["a b"]).column_names == ["a b", "n"]
    assert dovetail.aggregate(left, right, ["k"], {"n": "count(*)"}, by="L.`a b`").num_rows == 2


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_other_libraries(make: Any) -> None:
    table = make({"k": [1, 2, 3], "s": ["a", "b", "a"]})
    found = dovetail.aggregate(table, table, "l.k <= r.k", {"n": "count(*)", "m": "max(r.s)"}, by="l.s")
    assert found.sort_by("s").to_pylist() == [{"s": "a", "n": 4, "m": "b"}, {"s": "b", "n": 2, "m": "b"}]


# Errors.

TABLE = pa.table(
    {
        "k": [2**62, 2**62],
        "s": ["a", "b"],
        "v": pa.array([[1], [2]]),
        "m": pa.array([[(1, 2)], []], pa.map_(pa.int32(), pa.int32())),
        "w": pa.array([Decimal("9" * 38)] * 2, pa.decimal128(38, 0)),
        "z": pa.nulls(2),
    }
)


@pytest.mark.parametrize(
    ("aggregates", "by", "error", "says"),
    [
        ({}, None, InputError, "there is no aggregate"),
        (["count(*)"], None, InputError, "a dict of names and SQL"),
        ({"n": 5}, None, InputError, "got 'n': 5"),
        ({"n": " "}, None, ConditionError, "aggregate 'n' is empty"),
        ({"n": "sum(l.k"}, None, ConditionError, "cannot read the aggregate"),
        ({"n": "median(l.k)"}, None, ConditionError, "unknown aggregate"),
        ({"n": "foo(l.k)"}, None, ConditionError, "unknown aggregate"),
        ({"n": "l.k"}, None, ConditionError, "unknown aggregate"),
        ({"n": "sum(l.k) + 1"}, None, ConditionError, "not a single aggregate"),
        ({"n": "sum(l.k) AS n"}, None, ConditionError, "leave out AS"),
        ({"n": "sum(l.k) OVER ()"}, None, ConditionError, "not a single aggregate"),
        ({"n": "count(DISTINCT l.k)"}, None, ConditionError, "DISTINCT is not supported"),
        ({"n": "sum(max(l.k))"}, None, ConditionError, "cannot contain another one"),
        ({"n": "sum(l.k + r.k)"}, None, ConditionError, "this one reads both"),
        ({"n": "sum(*)"}, None, ConditionError, "only count takes a star"),
        ({"n": "count(l.k, l.s)"}, None, ConditionError, "takes one argument"),
        ({"n": "count()"}, None, ConditionError, "takes one argument"),
        ({"n": "sum(l.s)"}, None, ConditionError, r"sum needs a number, and l\.s is string"),
        ({"n": "avg(l.k > 1)"}, None, ConditionError, "avg needs a number"),
        ({"n": "min(l.v)"}, None, ConditionError, "has no smallest"),
        ({"n": "min(l.z)"}, None, ConditionError, "has no smallest"),
        ({"n": "sum(l.nope)"}, None, ConditionError, "no such column"),
        ({"n": "sum(k)"}, None, ConditionError, "k is on both sides"),
        ({"n": "max(soundex(l.s))"}, None, ConditionError, "by Spark only"),
        ({"n": "sum(l.k)"}, None, ConditionError, r"does not fit in int64\. Cast what is aggregated to decimal"),
        ({"n": "sum(r.w)"}, "l.k", ConditionError, r"sum\(r\.w\): the sum has more than 38 digits"),
        ({"n": "count(*)"}, [], InputError, r"got \[\]"),
        ({"n": "count(*)"}, 5, InputError, "got 5"),
        ({"n": "count(*)"}, [5], InputError, "got "),
        ({"n": "count(*)"}, "", InputError, "is not a column"),
        ({"n": "count(*)"}, "l.k + 1", InputError, "is not a column"),
        ({"n": "count(*)"}, "l.nope", ConditionError, "no such column"),
        ({"n": "count(*)"}, "k", ConditionError, "k is on both sides"),
        ({"n": "count(*)"}, "l.m", InputError, "cannot be grouped by"),
        ({"n": "count(*)"}, ["l.k", "r.s"], InputError, "columns of both sides"),
        ({"k": "count(*)"}, "l.k", InputError, "two columns called 'k'"),
        ({"n": "count(*)"}, ["l.k", "l.k"], InputError, "two columns called 'k'"),
    ],
)
def test_errors_say_what_to_do(aggregates: Any, by: Any, error: type[DovetailError], says: str) -> None:
    with pytest.raises(error, match=says):
        dovetail.aggregate(TABLE, TABLE, "TRUE", aggregates, by=by)
