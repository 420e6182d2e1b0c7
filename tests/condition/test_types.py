"""Common types, types of arithmetic, and binding of literals, zones and encodings."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.condition.schemas import LEFT, RIGHT

from dovetail.condition import Call, Column, Expression, Literal, bind, read_sql, text_of
from dovetail.condition.types import common, decimal_arithmetic, is_lossless, plain, spark_name
from dovetail.core.rows import Side
from dovetail.errors import ConditionError

D = pa.decimal128


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.int8(), pa.int8(), pa.int8()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint8(), pa.int32(), pa.int32()),
        (pa.uint16(), pa.uint32(), pa.uint32()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.uint64(), pa.int8(), D(20, 0)),
        (pa.uint64(), pa.uint8(), pa.uint64()),
        (pa.int32(), D(10, 2), D(12, 2)),
        (pa.int64(), D(10, 2), D(22, 2)),
        (pa.uint64(), D(5, 5), D(25, 5)),
        (D(10, 2), D(6, 4), D(12, 4)),
        (D(38, 0), D(38, 10), pa.decimal256(48, 10)),
        (D(38, 38), D(38, 0), pa.decimal256(76, 38)),
        (pa.decimal256(40, 2), D(10, 4), pa.decimal256(42, 4)),
        (pa.float32(), pa.float32(), pa.float32()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int8(), pa.float32(), pa.float64()),
        (D(5, 2), pa.float32(), pa.float64()),
        (pa.date32(), pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.timestamp("s", "UTC"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("ms", "UTC")),
        (pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "Asia/Tokyo")),
        (pa.duration("s"), pa.duration("us"), pa.duration("us")),
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.binary(), pa.large_binary(), pa.large_binary()),
        (pa.null(), pa.string(), pa.string()),
        (pa.bool_(), pa.null(), pa.bool_()),
        (pa.string(), pa.int32(), None),
        (pa.string(), pa.date32(), None),
        (pa.string(), pa.binary(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.date32(), pa.int32(), None),
        (pa.duration("s"), pa.int64(), None),
        (pa.list_(pa.int8()), pa.list_(pa.int8()), pa.large_list(pa.int8())),
        (pa.list_(pa.int8(), 2), pa.large_list(pa.float32()), pa.large_list(pa.float64())),
        (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.string()}), None),
        (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int64()}), pa.struct({"col1": pa.int64()})),
        (pa.list_(pa.int8()), pa.int8(), None),
        (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.int8(), pa.int8()), None),
    ],
)
def test_common(left: pa.DataType, right: pa.DataType, expected: pa.DataType | None) -> None:
    assert common(left, right) == expected
    assert common(right, left) == expected


@pytest.mark.parametrize(
    ("function", "left", "right", "expected"),
    [
        ("+", D(10, 2), D(10, 2), D(11, 2)),
        ("-", D(10, 2), D(5, 4), D(13, 4)),
        ("*", D(10, 2), D(5, 4), D(16, 6)),
        ("/", D(10, 2), D(5, 4), D(20, 8)),
        ("%", D(10, 2), D(5, 4), D(5, 4)),
        ("+", D(38, 0), D(38, 0), D(38, 0)),
        ("*", D(38, 10), D(38, 10), D(38, 6)),
        ("*", D(20, 10), D(20, 10), D(38, 17)),
        ("/", D(38, 10), D(38, 10), D(38, 6)),
        ("+", D(38, 18), D(10, 0), D(38, 17)),
    ],
)
def test_decimal_arithmetic_follows_spark(
    function: str, left: pa.DataType, right: pa.DataType, expected: pa.DataType
) -> None:
    assert decimal_arithmetic(function, left, right) == expected


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (pa.dictionary(pa.int8(), pa.large_string()), pa.large_string()),
        (pa.run_end_encoded(pa.int16(), pa.dictionary(pa.int8(), pa.int64())), pa.int64()),
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.uuid(), pa.binary()),
        (pa.float16(), pa.float32()),
        (pa.date64(), pa.date32()),
        (pa.decimal64(12, 2), D(12, 2)),
        (pa.int8(), pa.int8()),
    ],
)
def test_plain(type_: pa.DataType, expected: pa.DataType) -> None:
    assert plain(type_) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), D(12, 2), True),
        (pa.int64(), D(12, 2), False),
        (D(10, 2), D(12, 3), True),
        (D(10, 2), D(12, 1), False),
        (pa.int32(), pa.float64(), False),
        (pa.timestamp("s"), pa.timestamp("us"), True),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.string_view(), pa.string(), True),
    ],
)
def test_lossless(source: pa.DataType, target: pa.DataType, expected: bool) -> None:
    assert is_lossless(source, target) is expected


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (pa.int64(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20,0)"),
        (D(10, 2), "DECIMAL(10,2)"),
        (pa.large_string(), "STRING"),
        (pa.timestamp("s", "UTC"), "TIMESTAMP"),
        (pa.timestamp("s"), "TIMESTAMP_NTZ"),
        (pa.duration("s"), "INTERVAL DAY TO SECOND"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
    ],
)
def test_spark_names(type_: pa.DataType, name: str) -> None:
    assert spark_name(type_) == name


def bound(text: str, zone: str | None = None) -> Expression:
    return bind(read_sql(text, (LEFT, RIGHT)), LEFT, RIGHT, zone)


def operands(text: str, zone: str | None = None) -> tuple[Expression, ...]:
    expression = bound(text, zone)
    assert isinstance(expression, Call)
    return expression.args


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("l.x + r.tiny", pa.int64()),
        ("l.tiny * 100", pa.int64()),
        ("-l.tiny", pa.int64()),
        ("abs(l.x)", pa.int64()),
        ("l.x / 2", pa.float64()),
        ("l.x % 2", pa.int64()),
        ("l.u + 1", D(21, 0)),
        ("l.f + r.f", pa.float32()),
        ("l.f + 1", pa.float64()),
        ("l.f / r.f", pa.float64()),
        ("l.price + 1", D(11, 2)),
        ("l.price * 10", D(13, 2)),
        ("l.price + l.x", D(13, 2)),
        ("l.price / 3", D(14, 6)),
        ("l.price * 1.5e0", pa.float64()),
        ("l.d + 1", pa.date32()),
        ("1 + l.d", pa.date32()),
        ("l.d - l.x", pa.date32()),
        ("l.d - r.d", pa.duration("s")),
        ("l.d + INTERVAL 2 DAYS", pa.date32()),
        ("l.d + INTERVAL 2 HOURS", pa.timestamp("us")),
        ("l.d + INTERVAL 2 MONTHS", pa.date32()),
        ("l.d + (r.d - l.d)", pa.date32()),
        ("l.t - r.sec", pa.duration("us")),
        ("l.d - r.t", pa.duration("us")),
        ("l.d - '2020-01-01'", pa.duration("s")),
        ("l.sec + INTERVAL 2 HOURS", pa.timestamp("s")),
        ("l.sec + INTERVAL '0.5' SECONDS", pa.timestamp("us")),
        ("l.tz - INTERVAL 1 DAY", pa.timestamp("us", "UTC")),
        ("l.dur + INTERVAL 1 DAY", pa.duration("ms")),
        ("2 * l.dur", pa.duration("ms")),
        ("l.x * INTERVAL 1 MINUTE", pa.duration("us")),
        ("abs(l.dur)", pa.duration("ms")),
        ("sqrt(l.x)", pa.float64()),
        ("floor(l.y)", pa.int64()),
        ("ceil(l.price)", D(9, 0)),
        ("round(l.price, 1)", D(10, 1)),
        ("round(l.y)", pa.float64()),
        ("greatest(l.tiny, r.x)", pa.int32()),
        ("coalesce(l.x, 0)", pa.int32()),
        ("CASE WHEN l.flag THEN l.x ELSE r.y END", pa.float64()),
        ("year(l.d)", pa.int32()),
        ("date_trunc('HOUR', l.t)", pa.timestamp("us")),
        ("datediff(l.t, r.d)", pa.int32()),
        ("length(l.s)", pa.int32()),
        ("l.point.a", pa.int32()),
        ("CAST(l.s AS TIMESTAMP)", pa.timestamp("us")),
        ("CAST(l.tz AS TIMESTAMP)", pa.timestamp("us", "UTC")),
        ("CAST(l.tz AS TIMESTAMP_NTZ)", pa.timestamp("us")),
        ("distance(l.v, r.v)", pa.float64()),
    ],
)
def test_result_types(expression: str, type_: pa.DataType) -> None:
    (value,) = operands(f"{expression} IS NULL")
    assert value.type == type_


@pytest.mark.parametrize(
    ("condition", "type_"),
    [
        ("l.x = r.tiny", pa.int32()),
        ("l.u = r.id", D(20, 0)),
        ("l.tiny < 5", pa.int8()),
        ("l.tiny < 300", pa.int32()),
        ("l.tiny < 5.0", pa.int8()),
        ("l.tiny < 5.5", D(4, 1)),
        ("l.y < 5", pa.float64()),
        ("l.y < 0.1", pa.float64()),
        ("l.f < 5", pa.float32()),
        ("l.f < 0.5", pa.float32()),
        ("l.f < 0.1", pa.float64()),
        ("l.price < 5", D(10, 2)),
        ("l.price < 5.125", D(11, 3)),
        ("l.x < 99999999999", pa.int64()),
        ("l.d = '2020-01-01'", pa.date32()),
        ("'2020-01-01' < l.t", pa.timestamp("us")),
        ("l.t < '2020-01-01 00:00:00.000000001'", pa.timestamp("ns")),
        ("l.sec < TIMESTAMP '2020-01-01 00:00:00'", pa.timestamp("s")),
        ("l.d < TIMESTAMP '2020-01-01 00:00:00'", pa.date32()),
        ("l.d < TIMESTAMP '2020-01-01 12:00:00'", pa.timestamp("us")),
        ("l.d = r.t", pa.timestamp("us")),
        ("l.sec = r.t", pa.timestamp("us")),
        ("l.tz > '2020-01-01'", pa.timestamp("us", "UTC")),
        ("l.dur < INTERVAL 5 SECONDS", pa.duration("ms")),
        ("l.x IN (1, 2, 3)", pa.int32()),
        ("l.x IN (1, r.y)", pa.float64()),
        ("l.x BETWEEN 1 AND 2", None),
    ],
)
def test_operands_have_one_type(condition: str, type_: pa.DataType | None) -> None:
    found = {arg.type for arg in operands(condition)}
    assert found == ({pa.bool_()} if type_ is None else {type_})


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("l.tz = TIMESTAMP '2020-07-01 12:00:00'", dt.datetime(2020, 7, 1, 12)),
        ("l.tz = '2020-07-01 12:00:00'", dt.datetime(2020, 7, 1, 12)),
        ("l.tz = DATE '2020-07-01'", dt.datetime(2020, 7, 1)),
        ("l.tz = TIMESTAMP '2020-07-01 12:00:00+02:00'", dt.datetime(2020, 7, 1, 10)),
    ],
)
def test_constants_without_a_zone_are_on_the_columns_clock(condition: str, value: dt.datetime) -> None:
    _, literal = operands(condition)
    assert literal == Literal(value.replace(tzinfo=dt.UTC), pa.timestamp("us", "UTC"))


def test_constants_without_a_zone_are_on_the_sessions_clock() -> None:
    _, literal = operands("l.tz = TIMESTAMP '2020-07-01 12:00:00'", zone="Europe/Berlin")
    assert isinstance(literal, Literal)
    assert literal.value == dt.datetime(2020, 7, 1, 10, tzinfo=dt.UTC)


def test_zones_do_not_mix_silently() -> None:
    message = r"l\.t \(timestamp\[us\]\) has no time zone and r\.tz \(timestamp\[us, tz=UTC\]\) has one"
    for condition in ("l.t < r.tz", "l.t - r.tz < INTERVAL 5 MINUTES", "r.tz > l.t"):
        with pytest.raises(ConditionError, match=message):
            bound(condition)
    with pytest.raises(ConditionError, match=r"l\.d \(date32\[day\]\) has no time zone"):
        bound("l.d < r.tz")


@pytest.mark.parametrize("on", ["l.t < {}", "l.d < {}", "{} > l.t", "l.t - {} < INTERVAL 5 MINUTES"])
def test_what_the_error_about_zones_advises(on: str) -> None:
    with pytest.raises(ConditionError) as refused:
        bound(on.format("r.tz"))
    (advice,) = re.findall(r"CAST\(.*\)", str(refused.value))
    bound(on.format(advice))


def test_a_zone_says_how_to_mix_them() -> None:
    local, zoned = operands("l.t < r.tz", zone="Europe/Berlin")
    assert local.type == zoned.type == pa.timestamp("us", "UTC")
    inner = Call("cast", (Column(Side.LEFT, "t", pa.timestamp("us")),), pa.timestamp("us", "Europe/Berlin"))
    assert local == Call("cast", (inner,), pa.timestamp("us", "UTC"))


def test_calendar_functions_use_the_sessions_clock() -> None:
    (hour,) = operands("hour(l.tz) IS NULL", zone="Asia/Tokyo")
    assert isinstance(hour, Call)
    assert hour.args[0].type == pa.timestamp("us", "Asia/Tokyo")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            "l.s = r.y",
            r"l\.s \(string\) cannot be compared with r\.y \(double\)\. Cast one .*: CAST\(l\.s AS DOUBLE\)\.",
        ),
        ("l.d < r.s", r"Cast one of them: CAST\(r\.s AS DATE\)"),
        ("l.tz = r.s", r"Cast both: CAST\(r\.s AS TIMESTAMP_NTZ\), CAST\(l\.tz AS TIMESTAMP_NTZ\)"),
        ("l.d = r.x", "There is no cast between them"),
        ("l.s + r.s = 1", r"write CAST\(l\.s AS DOUBLE\) \+ CAST\(r\.s AS DOUBLE\)"),
        ("l.s < 5", r"l\.s \(string\) cannot be compared with 5 \(int32\)"),
        ("l.x = '5'", r"l\.x \(int32\) cannot be compared with '5' \(string\)"),
        ("l.s = r.d", r"l\.s \(string\) cannot be compared with r\.d"),
        ("l.flag = 1", "cannot be compared"),
        ("l.flag = 'true'", "cannot be compared"),
        ("l.d = 5", "cannot be compared"),
        ("l.d - r.d < 5", "Say what the number counts, for example INTERVAL 5 DAYS"),
        ("l.v = r.point", "cannot be compared .* have no common type"),
        ("l.x IN (1, 'a')", "cannot be compared"),
        ("l.x + l.s = 1", r"l\.s \(string\) cannot be added to l\.x \(int32\)"),
        ("l.s - 1 = 1", r"1 \(int32\) cannot be subtracted from l\.s"),
        ("l.s * 2 = 1", r"l\.s \(string\) cannot be multiplied by 2"),
        ("l.t + 5 < r.t", r"5 \(int32\) cannot be added to l\.t .* INTERVAL 5 MINUTES"),
        ("l.d + r.d = l.d", "cannot be added"),
        ("l.d * 2 = l.d", "cannot be multiplied"),
        ("l.flag + 1 = 2", "cannot be added"),
        ("l.dur / 2 = l.dur", "cannot be divided"),
        ("l.y DIV 2 = 1", "DIV needs whole numbers"),
        ("l.x AND r.flag", r"AND needs true or false; l\.x \(int32\) is neither"),
        ("NOT l.x", "NOT needs true or false"),
        ("abs(l.s) = 1", "abs needs a number"),
        ("lower(l.x) = 'a'", "lower needs text"),
        ("l.x LIKE 'a'", "like needs text"),
        ("year(l.x) = 2020", "year needs a date or a timestamp"),
        ("l.x.z = 1", "is not a struct"),
        ("l.point.z = 1", "Its fields are: a, B"),
        ("distance(l.x, r.x, l.y) < 1", "as many left as right coordinates"),
        ("distance(l.s, r.s) < 1", "distance needs a number"),
        ("CAST(l.d + 1 AS INT) = 1", r"l\.d \+ 1 day \(date32\[day\]\) cannot be cast to int32"),
        ("CAST('abc' AS INT) = l.x", "cannot cast string to int32"),
        ("coalesce(l.x, 'a') = 1", "cannot be combined"),
        ("CASE WHEN l.flag THEN 1 ELSE 'a' END = 1", "cannot be combined"),
        ("round(l.y, l.x) = 1", r"round needs a constant whole number; l\.x \(int32\) is not one"),
        ("distance(l.x) < 1", "distance takes at least 2 arguments, not 1"),
    ],
)
def test_errors(condition: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        bound(condition)


@pytest.mark.parametrize(
    ("condition", "folded"),
    [
        ("l.x = 1 + 2 * 3", "l.x = 7"),
        ("l.x = -(-5)", "l.x = 5"),
        ("l.y = CAST('NaN' AS DOUBLE)", "l.y = NaN"),
        ("l.d = DATE '2020-02-28' + 2", "l.d = DATE '2020-03-01'"),
        ("l.d = DATE '2020-01-31' + INTERVAL 1 MONTH", "l.d = DATE '2020-02-29'"),
        ("l.x = NULL", "NULL"),
        ("l.x + NULL > 3", "NULL"),
        ("2 > 1", "TRUE"),
        ("l.x = CAST(1.9 AS INT)", "l.x = 1"),
        ("l.dur > 3 * INTERVAL 20 MINUTES", "l.dur > 1 hour"),
    ],
)
def test_constants_are_folded(condition: str, folded: str) -> None:
    assert text_of(bound(condition)) == folded


@pytest.mark.parametrize(
    ("literal", "type_"),
    [
        (Literal(5), pa.int32()),
        (Literal(2**40), pa.int64()),
        (Literal(2**70), D(22, 0)),
        (Literal(1.5), pa.float64()),
        (Literal(Decimal("1.50")), D(3, 2)),
        (Literal(Decimal("1E+3")), D(4, 0)),
        (Literal(Decimal("0.001")), D(3, 3)),
        (Literal("a"), pa.string()),
        (Literal(b"a"), pa.binary()),
        (Literal(True), pa.bool_()),
        (Literal(None), pa.null()),
        (Literal(dt.date(2020, 1, 1)), pa.date32()),
        (Literal(dt.datetime(2020, 1, 1)), pa.timestamp("us")),
        (Literal(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), pa.timestamp("us", "UTC")),
        (Literal(dt.timedelta(1)), pa.duration("us")),
        (Literal(dt.time(1)), pa.time64("us")),
    ],
)
def test_python_constants(literal: Literal, type_: pa.DataType) -> None:
    assert bind(literal, LEFT, RIGHT).type == type_


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (Literal(object()), "a constant of type object"),
        (Literal(300, pa.int8()), "300 is not a value of type int8"),
        (Literal(Decimal("NaN")), "NaN cannot be a decimal"),
        (Call("frobnicate", (Literal(1),)), "unknown function 'frobnicate'"),
        (Call("cast", (Literal(1),)), "cast needs a type"),
        (Call("=", (Literal(1),)), "= takes 2 arguments, not 1"),
        (Call("case", (Literal(True), Literal(1), Literal(True), Literal(1))), "a default at the end"),
        (Column(Side.RIGHT, "nope"), "r.nope: no such column"),
    ],
)
def test_expressions_that_others_build_are_checked(expression: Expression, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        bind(expression, LEFT, RIGHT)


def test_encoded_columns_are_decoded() -> None:
    schema = pa.schema({"k": pa.dictionary(pa.int8(), pa.string()), "n": pa.null()})
    expression: Any = bind(read_sql("l.k = r.k AND l.n = r.k", (schema, schema)), schema, schema)
    equal, null = expression.args
    assert [arg.type for arg in (*equal.args, *null.args)] == [pa.string()] * 4
