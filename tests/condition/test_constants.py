"""Constants at the edge of their type or beyond it, and NaN: joins by kernels against the expression as written.

Floating-point joins are also compared with DuckDB, where NaN equals NaN and is larger than everything, as in Spark.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import Literal, bind, evaluate, parse, read_sql
from dovetail.condition.expression import are_equal
from dovetail.errors import ConditionError

NAN = "CAST('NaN' AS DOUBLE)"
INFINITE = "CAST('Infinity' AS DOUBLE)"
SINGLE = float(np.finfo(np.float32).max)

FORMS = (
    "l.x - r.x {op} {c}",
    "{c} {op} r.x - l.x",
    "abs(l.x - r.x) {op} {c}",
    "l.x {op} r.x + {c}",
    "l.x - r.x BETWEEN {c} AND {d}",
    "NOT (l.x - r.x BETWEEN {c} AND {d})",
    "l.x >= r.x - {c} AND l.x <= r.x + {d}",
    "l.x IN (r.x, {c}, {d})",
    "(l.x = {c} AND l.a = r.a) OR (l.x = {d} AND l.b = r.b)",
    "(r.x != {c} AND l.a = r.a) OR (r.x {op} {d} AND l.b = r.b)",
)
OPERATORS = ("<", "<=", "=", "!=", ">=", ">", "<=>")
FLOATS = {
    pa.float16(): [0.0, -0.0, 1.0, 65504.0, -65504.0, math.nan, math.inf, -math.inf, None],
    pa.float32(): [0.0, -0.0, 1.0, 3e38, -3e38, SINGLE, -SINGLE, math.nan, math.inf, -math.inf, None],
    pa.float64(): [0.0, -0.0, 0.1, 1e308, -1e308, math.nan, math.inf, -math.inf, None],
}
FLOAT_CONSTANTS = (NAN, NAN, INFINITE, "-0.0e0", "0e0", "0.1", "1e308", "-1e308", "6e38", str(SINGLE), "131008e0")
INTEGERS = {
    pa.int8(): [0, 1, -128, 127, None],
    pa.int32(): [0, 1, 5, -(2**31), 2**31 - 1, None],
    pa.uint64(): [0, 1, 5, None],
}
INTEGER_CONSTANTS = (
    *("0", "5.5", "128", "-129", "4294967295", "1e19", "1e308", NAN, INFINITE),
    *("9223372036854775807", "-9223372036854775808", "99999999999999999999", "-99999999999999999999"),
)


def conditions(constants: tuple[str, ...]) -> list[str]:
    """Every form with every constant, with operators and second constants in turn."""
    return [
        form.format(c=c, d=constants[(i + j) % len(constants)], op=OPERATORS[(i + 2 * j) % len(OPERATORS)])
        for i, c in enumerate(constants)
        for j, form in enumerate(FORMS)
    ]


def table(type_: pa.DataType, values: list[object]) -> pa.Table:
    values = [None if v is None else np.float16(v) for v in values] if pa.types.is_float16(type_) else values
    rows = range(len(values))
    return pa.table({"row": rows, "x": pa.array(values, type_), "a": [i % 3 for i in rows], "b": [i % 2 for i in rows]})


def joined(left: pa.Table, right: pa.Table, on: str) -> Counter[tuple[int, int]]:
    found = dovetail.join(left, right, on, threads=1)
    return Counter(zip(found["row"].to_pylist(), found["row_right"].to_pylist(), strict=True))


def defined(left: pa.Table, right: pa.Table, on: str) -> Counter[tuple[int, int]]:
    """The cross product, filtered by the expression before normalisation."""
    expression = bind(read_sql(on, (left.schema, right.schema)), left.schema, right.schema)
    rows = np.repeat(np.arange(len(left)), len(right)), np.tile(np.arange(len(right)), len(left))
    sides = [
        side.take(pa.array(at)).combine_chunks().to_batches()[0] for side, at in zip((left, right), rows, strict=True)
    ]
    truth = evaluate(expression, *sides).to_pylist()
    return Counter((int(a), int(b)) for a, b, true in zip(*rows, truth, strict=True) if true)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_floats(type_: pa.DataType) -> None:
    left, right = table(type_, FLOATS[type_]), table(type_, FLOATS[type_][::-1])
    with duckdb.connect() as duck:
        for name, side in (("l", left), ("r", right)):
            known = side if not pa.types.is_float16(type_) else side.set_column(1, "x", side["x"].cast(pa.float32()))
            duck.register(name, known)
        for on in conditions(FLOAT_CONSTANTS):
            found = joined(left, right, on)
            assert found == defined(left, right, on), on
            told = on.replace("<=>", "IS NOT DISTINCT FROM").replace(" 0.1", " 0.1::DOUBLE")
            expected = duck.execute(f"SELECT l.row, r.row FROM l, r WHERE {told}").fetchall()
            assert found == Counter(expected), on


@pytest.mark.one_in(2)
@pytest.mark.parametrize("type_", INTEGERS, ids=str)
def test_integers(type_: pa.DataType) -> None:
    left, right = table(type_, INTEGERS[type_]), table(type_, INTEGERS[type_][::-1])
    for on in conditions(INTEGER_CONSTANTS):
        try:
            expected = defined(left, right, on)
        except ConditionError:  # the expression as written overflows
            continue
        assert joined(left, right, on) == expected, on


def test_a_length_of_time_that_has_no_room_beside_a_timestamp() -> None:
    times = pa.table({"row": [0, 1], "x": pa.array([datetime(2200, 1, 1), datetime(1700, 1, 1)], pa.timestamp("ns"))})
    for on in ("l.x - r.x < INTERVAL 100000 DAYS", "abs(l.x - r.x) <= INTERVAL 100000 DAYS"):
        with pytest.raises(ConditionError):
            defined(times, times, on)  # in nanoseconds, a difference of 500 years overflows
    near = times.slice(0, 1)
    assert joined(near, near, "l.x - r.x < INTERVAL 100000 DAYS") == Counter([(0, 0)])


@pytest.mark.parametrize(
    "on",
    [
        "l.x - TIMESTAMP_NTZ '2020-01-01 00:00:00' < r.d",
        "TIMESTAMP_NTZ '2020-01-01 00:00:00' + l.d <= r.x",
        "TIMESTAMP_NTZ '2020-01-01 00:00:00' + l.d BETWEEN r.x AND r.x + INTERVAL 1 DAY",
        "abs(l.x - TIMESTAMP_NTZ '2020-01-01 00:00:00') <= r.d",
    ],
)
def test_a_point_in_time_is_no_amount(on: str) -> None:
    times = [datetime(2020, 1, 1), datetime(2020, 1, 3), None]
    spans = [timedelta(days=1), timedelta(0), timedelta(days=4)]
    same = pa.table({"row": [0, 1, 2], "x": pa.array(times, pa.timestamp("us")), "d": spans})
    assert joined(same, same, on) == defined(same, same, on) != Counter()


def test_nan_in_a_disjunction_finds_a_pair_once() -> None:
    same = pa.table({"row": [0, 1], "x": [math.nan, 1.0], "a": [1, 2], "b": [1, 2]})
    assert joined(same, same, f"(l.x = {NAN} AND l.a = r.a) OR (l.x = {NAN} AND l.b = r.b)") == Counter([(0, 0)])
    assert joined(same, same, f"l.x IN (r.x, {NAN}, {NAN})") == Counter([(0, 0), (0, 1), (1, 1)])


def test_constants_are_the_same_if_nothing_tells_them_apart() -> None:
    nans = Literal(float("nan"), pa.float64()), Literal(-math.nan, pa.float64())
    assert nans[0] == nans[1]
    assert len({*nans, Literal(0.0, pa.float64()), Literal(-0.0, pa.float64()), Literal(0, pa.int64())}) == 4
    assert are_equal(math.nan, -math.nan)
    assert are_equal(0.0, -0.0)
    assert not are_equal(math.nan, math.inf)


def test_zeros_of_two_signs_in_a_disjunction() -> None:
    """Both zeros are equal as numbers, but differ as divisors and as strings."""
    left = pa.table({"row": [0, 1], "x": [1.0, -1.0]})
    right = pa.table({"row": [0, 1], "s": ["0.0", "-0.0"]})
    on = "CAST(l.x * 0e0 AS STRING) = r.s OR CAST(l.x * -0e0 AS STRING) = r.s"
    assert joined(left, right, on) == Counter([(0, 0), (0, 1), (1, 0), (1, 1)])


@pytest.mark.parametrize("on", ["l.x - r.x = 1e308", "abs(l.x - r.x) = 1e308", "l.x - r.x = 0.1", "l.x = 0.1"])
def test_what_no_float32_equals_is_known_at_once(on: str) -> None:
    schema = pa.schema([pa.field("x", pa.float32())])
    false = Literal(False, pa.bool_())
    assert parse(on, schema, schema).filters == ((false,), (false,))
