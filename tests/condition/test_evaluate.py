"""In-process evaluation: three-valued logic, NaN, overflow, functions, and filtering of pairs and rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition import Call, Column, Literal, Opaque, bind, evaluate, matching, parse, passing, read_sql
from dovetail.condition.functions import TRUNCATIONS
from dovetail.core.rows import Side
from dovetail.errors import ConditionError

NAN, INF = float("nan"), float("inf")
EMPTY = pa.schema({})


def value_of(text: str, zone: str | None = None, **columns: pa.Array) -> list[Any]:
    """The value of the expression over one left table."""
    batch = pa.record_batch(columns)
    match read_sql(f"({text}) IS NULL", (batch.schema, EMPTY)):
        case Call("is_null", (expression,)):
            bound = bind(expression, batch.schema, EMPTY, zone)
            return list(evaluate(bound, batch, None).to_pylist())
    raise AssertionError(text)


def single(text: str) -> Any:
    """The value of an expression over one row with columns of all kinds."""
    (value,) = value_of(
        text,
        i=pa.array([7]),
        j=pa.array([-2], pa.int8()),
        z=pa.array([0]),
        y=pa.array([2.5]),
        f=pa.array([0.1], pa.float32()),
        p=pa.array([Decimal("10.25")], pa.decimal128(10, 2)),
        s=pa.array([" Dövetail "]),
        d=pa.array([dt.date(2024, 1, 31)]),
        t=pa.array([dt.datetime(2024, 1, 31, 23, 59, 58, 500_000)], pa.timestamp("us")),
        tz=pa.array([dt.datetime(2024, 6, 30, 23, 30, tzinfo=dt.UTC)], pa.timestamp("us", "Europe/Berlin")),
        n=pa.array([None], pa.int64()),
        b=pa.array([b"\x00\x01"]),
        st=pa.array([{"a": {"b": 5}}]),
    )
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + j * 2", 3),
        ("i / 2", 3.5),
        ("i / z", None),
        ("i % 4", 3),
        ("j % 4", -2),
        ("i DIV 2", 3),
        ("-i DIV 2", -3),
        ("i DIV z", None),
        ("i % z", None),
        ("y % 2", 0.5),
        ("-i", -7),
        ("abs(j)", 2),
        ("p + 1", Decimal("11.25")),
        ("p * 1.5", Decimal("15.375")),
        ("p / 3", Decimal("3.416667")),
        ("p / 0", None),
        ("p % 3", Decimal("1.25")),
        ("-p", Decimal("-10.25")),
        ("p + y", 12.75),
        ("sqrt(i + 2)", 3.0),
        ("pow(i, 2)", 49.0),
        ("floor(y)", 2),
        ("ceil(-y)", -2),
        ("floor(p)", Decimal(10)),
        ("floor(1e300 * y)", 2**63 - 1),
        ("round(y)", 3.0),
        ("round(-y)", -3.0),
        ("round(p, 1)", Decimal("10.3")),
        ("round(1.005e0 * 1, 2)", 1.01),
        ("round(i, -1)", 10),
        ("greatest(i, y, n)", 7.0),
        ("least(i, j, n)", -2),
        ("coalesce(n, i)", 7),
        ("CASE WHEN n > 1 THEN 1 WHEN i > 1 THEN 2 ELSE 3 END", 2),
        ("i IN (1, 7)", True),
        ("i IN (1, NULL)", None),
        ("n IN (1, 2)", None),
        ("i IN (0, 1, 2, 3, 4, 5, 6, 7, 8)", True),
        ("i IN (0, 1, 2, 3, 4, 5, 6, 8, 9)", False),
        ("i IN (0, 1, 2, 3, 4, 5, 6, 8, NULL)", None),
        ("n IN (0, 1, 2, 3, 4, 5, 6, 8, 9)", None),
        ("n <=> NULL", True),
        ("i <=> n", False),
        ("isnan(y)", False),
        ("isnan(n)", False),
        ("lower(s)", " dövetail "),
        ("upper(trim(s))", "DÖVETAIL"),
        ("length(s)", 10),
        ("length(b)", 2),
        ("concat(trim(s), '!')", "Dövetail!"),
        ("s || NULL", None),
        ("substring(s, 2, 3)", "Döv"),
        ("substring(s, 0, 2)", " D"),
        ("substring(s, -3)", "il "),
        ("substring(s, -3, 2)", "il"),
        ("substring(s, -99, 91)", " D"),
        ("s LIKE '%vet%'", True),
        ("trim(s) LIKE 'D_vetail'", True),
        ("'a%b' LIKE 'a\\%b'", True),
        ("'axb' LIKE 'a\\%b'", False),
        ("trim(s) LIKE concat('D', '%')", True),
        ("year(d) * 10000 + month(d) * 100 + day(d)", 20240131),
        ("hour(t) * 10000 + minute(t) * 100 + second(t)", 235958),
        ("hour(tz)", 1),
        ("hour(d)", 0),
        ("CAST(tz AS DATE)", dt.date(2024, 7, 1)),
        ("date_trunc('month', t)", dt.datetime(2024, 1, 1)),
        ("date_trunc('week', d)", dt.datetime(2024, 1, 29)),
        ("trunc(d, 'year')", dt.date(2024, 1, 1)),
        ("trunc(d, 'MM')", dt.date(2024, 1, 1)),
        ("add_months(t, 1)", dt.date(2024, 2, 29)),
        ("d + 1", dt.date(2024, 2, 1)),
        ("d - j", dt.date(2024, 2, 2)),
        ("d + INTERVAL 1 MONTH", dt.date(2024, 2, 29)),
        ("t - INTERVAL 11 MONTHS", dt.datetime(2023, 2, 28, 23, 59, 58, 500_000)),
        ("d + INTERVAL 36 HOURS", dt.datetime(2024, 2, 1, 12)),
        ("t + INTERVAL 2 SECONDS", dt.datetime(2024, 2, 1, 0, 0, 0, 500_000)),
        ("d - DATE '2024-01-01'", dt.timedelta(30)),
        ("datediff(t, d)", 0),
        ("i * INTERVAL 1 MINUTE", dt.timedelta(minutes=7)),
        ("st.a.b", 5),
        ("distance(i, y, 4, 6.5)", 5.0),
        ("distance(i, n, 4, 6.5)", None),
        ("CAST(y AS INT)", 2),
        ("CAST(-2.9e0 AS INT)", -2),
        ("CAST(p AS INT)", 10),
        ("CAST(i AS STRING)", "7"),
        ("CAST(y AS STRING)", "2.5"),
        ("CAST(f AS STRING)", "0.1"),
        ("CAST(1e7 AS STRING)", "1.0E7"),
        ("CAST(-1.5e-4 AS STRING)", "-1.5E-4"),
        ("CAST(123456.7e0 AS STRING)", "123456.7"),
        ("CAST(100e0 AS STRING)", "100.0"),
        ("CAST(CAST('-inf' AS DOUBLE) AS STRING)", "-Infinity"),
        ("CAST(p AS STRING)", "10.25"),
        ("CAST(t AS STRING)", "2024-01-31 23:59:58.5"),
        ("CAST(d AS STRING)", "2024-01-31"),
        ("CAST(' 12 ' AS INT)", 12),
        ("CAST('1.55' AS DECIMAL(3, 1))", Decimal("1.6")),
        ("CAST('yes' AS BOOLEAN)", True),
        ("CAST(i AS BOOLEAN)", True),
        ("CAST(i > 0 AS INT)", 1),
        ("CAST(y AS DECIMAL(3, 0))", Decimal(3)),
        ("CAST(t AS BIGINT)", 1706745598),
        ("CAST('2024-01-31 10:00' AS TIMESTAMP_NTZ)", dt.datetime(2024, 1, 31, 10)),
        ("CAST(trim(' 2024-1-31 ') AS DATE)", dt.date(2024, 1, 31)),
    ],
)
def test_functions(text: str, expected: Any) -> None:
    assert single(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i + 9223372036854775807", r"l\.i \+ 9223372036854775807: a value does not fit in int64"),
        ("i * 9223372036854775807", "does not fit in int64"),
        ("-(j - 9223372036854775806)", "does not fit in int64|overflow"),
        ("CAST(i + 300 AS TINYINT)", "cannot cast int64 to int8"),
        ("CAST(p AS DECIMAL(3, 2))", "cannot cast"),
        ("CAST(s AS INT)", "cannot cast string to int32"),
        ("CAST(y * 1e300 AS INT)", "cannot cast double to int32"),
        ("CAST(s AS DATE)", "is not a date or timestamp"),
        ("CAST(s AS BOOLEAN)", "is neither true nor false"),
    ],
)
def test_what_does_not_fit_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        single(text)


FLOATS = [None, -INF, -1.0, -0.0, 0.0, 1.0, INF, NAN]
RANKS = [None, 0, 1, 2, 2, 3, 4, 5]  # Spark's order


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.float16()])
@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">=", "<=>"])
def test_floats_are_ordered_as_in_spark(operator: str, type_: pa.DataType) -> None:
    a = [x for x in range(len(FLOATS)) for _ in FLOATS]
    b = [y for _ in FLOATS for y in range(len(FLOATS))]

    def columns(values: list[Any], t: pa.DataType) -> dict[str, pa.Array]:
        return {"a": pa.array([values[i] for i in a], t), "b": pa.array([values[i] for i in b], t)}

    got = value_of(f"a {operator} b", **columns(FLOATS, type_))
    assert got == value_of(f"a {operator} b", **columns(RANKS, pa.int8()))


def test_three_valued_logic() -> None:
    values = [True, False, None]
    a = pa.array([x for x in values for _ in values])
    b = pa.array([y for _ in values for y in values])
    assert value_of("a AND b", a=a, b=b) == [True, False, None, False, False, False, None, False, None]
    assert value_of("a OR b", a=a, b=b) == [True, True, True, True, False, None, True, None, None]
    assert value_of("NOT a", a=pa.array(values)) == [False, True, None]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.array(["a", "a", "c"], pa.string_view())),
        (pa.array([b"ab", None, b"cd"], pa.binary(2)), pa.array([b"ab", b"ab", b"ce"], pa.large_binary())),
        (pa.array([1, None, 2], pa.uint64()), pa.array([1, 1, -2], pa.int8())),
        (pa.array([2**64 - 1, None, 2], pa.uint64()), pa.array([Decimal(2**64 - 1), 1, 3], pa.decimal128(20, 0))),
        (pa.array([dt.date(2020, 1, 1), None, None]), pa.array([dt.datetime(2020, 1, 1)] * 3, pa.timestamp("ns"))),
        (pa.array([0, None, 86_400_000], pa.date64()), pa.array([0, 0, 2], pa.date32())),
        (pa.array([1.5, None, 2.0], pa.float16()), pa.array([Decimal("1.5")] * 3)),
        (pa.array([1, None, 2], pa.decimal32(5, 1)), pa.array([1, 1, 1], pa.int64())),
        (pa.array([1000, None, 1], pa.duration("ms")), pa.array([1, 1, 1], pa.duration("s"))),
        (pa.array([1, None, 2], pa.time32("s")), pa.array([10**9] * 3, pa.time64("ns"))),
    ],
)
def test_types_meet(left: pa.Array, right: pa.Array) -> None:
    assert value_of("a = b", a=left, b=right) == [True, None, None if left[2].as_py() is None else False]


def test_zones_are_compared_as_instants() -> None:
    noon = dt.datetime(2024, 7, 1, 12)
    berlin = pa.array([noon.replace(tzinfo=dt.UTC)], pa.timestamp("ms", "Europe/Berlin"))
    tokyo = pa.array([noon.replace(tzinfo=dt.UTC)], pa.timestamp("us", "Asia/Tokyo"))
    assert value_of("a = b", a=berlin, b=tokyo) == [True]
    local = pa.array([noon.replace(hour=14)], pa.timestamp("s"))
    assert value_of("a = b", "Europe/Berlin", a=berlin, b=local) == [True]
    assert value_of("a = b", "UTC", a=berlin, b=local) == [False]
    assert value_of("hour(a)", "Asia/Tokyo", a=berlin) == [21]


def test_text_with_zones() -> None:
    text = pa.array(["2024-07-01 12:00:00+02:00", "2024-07-01 12:00:00", None, "2024-07-01T12:00:00.5 Asia/Tokyo"])
    assert value_of("CAST(a AS TIMESTAMP)", "UTC", a=text) == [
        dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC),
        dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC),
        None,
        dt.datetime(2024, 7, 1, 3, 0, 0, 500_000, tzinfo=dt.UTC),
    ]


def test_times_that_do_not_exist_or_exist_twice() -> None:
    clock = [dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 10, 27, 2, 30), None, dt.datetime(2024, 7, 1, 2, 30)]
    seconds = value_of("CAST(CAST(a AS TIMESTAMP) AS BIGINT)", "Europe/Berlin", a=pa.array(clock, pa.timestamp("ms")))
    instants = [None if s is None else dt.datetime.fromtimestamp(s, dt.UTC) for s in seconds]
    hours = [(3, 31, 1), (10, 27, 0), None, (7, 1, 0)]
    assert instants == [h and dt.datetime(2024, h[0], h[1], h[2], 30, tzinfo=dt.UTC) for h in hours]


TRANSITIONS = [
    ("Europe/Berlin", dt.datetime(2024, 3, 31, 2, 30)),  # a gap of an hour
    ("Europe/Berlin", dt.datetime(2024, 3, 31, 2)),
    ("Europe/Berlin", dt.datetime(2024, 3, 31, 3)),
    ("Europe/Berlin", dt.datetime(2024, 10, 27, 2, 30)),  # a time that occurs twice
    ("Europe/Berlin", dt.datetime(2024, 10, 27, 3)),
    ("Australia/Lord_Howe", dt.datetime(2024, 10, 6, 2, 10)),  # a gap of half an hour
    ("Australia/Lord_Howe", dt.datetime(2024, 4, 7, 1, 50)),
    ("America/Sao_Paulo", dt.datetime(2018, 11, 4)),  # a day that begins at 1:00
    ("Pacific/Apia", dt.datetime(2011, 12, 30)),  # a day that was skipped
]


@pytest.mark.parametrize(("zone", "clock"), TRANSITIONS, ids=str)
def test_transitions_of_a_zone_by_every_path(zone: str, clock: dt.datetime) -> None:
    """As in Java and Spark: a time in a gap moves by its length, of two times the earlier; as fold=0 in Python."""
    ordinary = dt.datetime(2024, 7, 1, 2, 30)
    instant, other = (time.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(dt.UTC) for time in (clock, ordinary))
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array([clock, None, ordinary], pa.timestamp(unit))
        exact = pa.array([instant, None, other], pa.timestamp(unit, "UTC"))
        assert value_of("a = b", zone, a=column, b=exact) == [True, None, True]
        assert value_of("CAST(a AS TIMESTAMP) = b", zone, a=column, b=exact) == [True, None, True]
    text, seconds = str(clock), int(instant.timestamp())
    to_seconds = "CAST(CAST(a AS TIMESTAMP) AS BIGINT)"
    assert value_of(to_seconds, zone, a=pa.array([text, None])) == [seconds, None]
    assert value_of(to_seconds, zone, a=pa.array(["2024-07-01 12:00:00+02:00", text]))[1] == seconds
    assert value_of(to_seconds, "UTC", a=pa.array([f"{text} {zone}"])) == [seconds]
    assert value_of(f"a = '{text}'", zone, a=pa.array([instant], pa.timestamp("us", "UTC"))) == [True]
    if clock.time() == dt.time():
        assert value_of(to_seconds, zone, a=pa.array([clock.date()])) == [seconds]


def floor_clock(clock: dt.datetime, unit: str) -> dt.datetime:
    day = clock.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "year":
            return day.replace(month=1, day=1)
        case "quarter":
            return day.replace(month=(clock.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            return day.replace(day=1)
        case "week":
            return day - dt.timedelta(days=clock.weekday())
        case "day":
            return day
        case "hour":
            return clock.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return clock.replace(second=0, microsecond=0)
        case "second":
            return clock.replace(microsecond=0)
    return clock.replace(microsecond=clock.microsecond // 1000 * 1000) if unit == "millisecond" else clock


def on_clock(clock: dt.datetime, zone: ZoneInfo, offset: dt.timedelta | None) -> dt.datetime:
    """The instant of a local time, with this offset if it is valid. Without one, a time in a gap moves to its end."""
    if offset is not None:
        kept = (clock - offset).replace(tzinfo=dt.UTC)
        if kept.astimezone(zone).replace(tzinfo=None, fold=0) == clock:
            return kept
    instant = clock.replace(tzinfo=zone, fold=0).astimezone(dt.UTC)
    if offset is None:
        while instant.astimezone(zone).replace(tzinfo=None, fold=0) > clock:  # in a gap
            before = instant - dt.timedelta(minutes=1)
            if before.astimezone(zone).utcoffset() != instant.astimezone(zone).utcoffset():
                break
            instant = before
    return instant


@pytest.mark.parametrize(("zone", "clock"), [*TRANSITIONS, ("America/Havana", dt.datetime(2024, 11, 3))], ids=str)
def test_truncation_and_months_where_clocks_change(zone: str, clock: dt.datetime) -> None:
    """As in Java and Spark: in an hour that occurs twice, truncation keeps the offset."""
    there = ZoneInfo(zone)
    middle = clock.replace(tzinfo=there).astimezone(dt.UTC)
    instants = [middle + dt.timedelta(minutes=step, microseconds=1_234) for step in range(-26 * 60, 26 * 60, 13)]
    expected: list[dt.datetime | None]
    for unit in TRUNCATIONS:
        expected = []
        for instant in instants:
            local = instant.astimezone(there)
            offset = None if unit in ("year", "quarter", "month", "week") else local.utcoffset()
            expected.append(on_clock(floor_clock(local.replace(tzinfo=None, fold=0), unit), there, offset))
        for precision in ("us", "ns"):
            column = pa.array([*instants, None], pa.timestamp(precision, zone))
            found = value_of(f"date_trunc('{unit}', a)", a=column)
            assert [None if v is None else v.astimezone(dt.UTC) for v in found] == [*expected, None]
    for months, back in ((-1, 1), (1, -1)):
        column = pa.array([*instants, None], pa.timestamp("us", zone))
        shifted = [v for v in value_of(f"a + INTERVAL {months} MONTH", a=column) if v is not None]
        clocks = [v.astimezone(there).replace(tzinfo=None, fold=0) for v in shifted]
        offsets = [v.astimezone(there).utcoffset() for v in shifted]
        again = value_of(f"a + INTERVAL {back} MONTH", a=pa.array(shifted, pa.timestamp("us", zone)))
        for before, moved, offset in zip(again, clocks, offsets, strict=True):
            month = (moved.month - 1 + back) % 12 + 1
            year = moved.year + (moved.month - 1 + back) // 12
            last = (dt.datetime(year + month // 12, month % 12 + 1, 1) - dt.timedelta(days=1)).day
            target = moved.replace(year=year, month=month, day=min(moved.day, last))
            assert before.astimezone(dt.UTC) == on_clock(target, there, offset)


LARGEST = 2**63 - 1


@pytest.mark.parametrize("stored", [-LARGEST - 1, -LARGEST + 5, LARGEST, LARGEST - 5])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_what_is_stored_under_a_null_does_not_matter(zone: str | None, unit: str, stored: int) -> None:
    """For example, pandas stores the smallest number, NaT."""

    def column(type_: pa.DataType) -> pa.Array:
        buffers = [pa.py_buffer(b"\2"), pa.py_buffer(np.array([stored, 10**9, stored]))]
        return pa.Array.from_buffers(type_, 3, buffers)

    columns = {"a": column(pa.timestamp(unit, zone)), "d": column(pa.duration(unit)), "n": column(pa.int64())}
    for text in (
        *("a - INTERVAL 1 DAY", "a + INTERVAL 1 DAY", "a - INTERVAL 1 MONTH", "a - a", "a - d", "a + d"),
        *("d + d", "d - d", "d - INTERVAL 1 DAY", "-d", "abs(d)", "d * 2", "n * 2", "n + 1", "n - 2", "-n", "abs(n)"),
        *("date_trunc('hour', a)", "date_trunc('year', a)", "year(a)", "CAST(a AS DATE)", "CAST(a AS STRING)"),
        *("CAST(n AS INT)", "CAST(a AS TIMESTAMP_NTZ)", "datediff(a, a)", "CAST(n AS DECIMAL(12,0))", "n % 3", "n / 3"),
    ):
        values = value_of(text, **columns)
        assert values[0] is None is values[2], text
        assert values[1] is not None, text


def test_nanoseconds_survive() -> None:
    ticks = pa.array([1_577_836_800_000_000_001, 1_577_836_800_000_000_000]).cast(pa.timestamp("ns"))
    assert value_of("a = '2020-01-01 00:00:00.000000001'", a=ticks) == [True, False]


@pytest.mark.parametrize("type_", [pa.list_(pa.float32()), pa.list_(pa.int64(), 2), pa.large_list(pa.float64())])
def test_distance_of_lists(type_: pa.DataType) -> None:
    a = pa.array([[0, 0], [1, 1], None], type_)
    b = pa.array([[3, 4], [1, 1], [0, 0]], type_)
    assert value_of("distance(a, b)", a=a, b=b) == [5.0, 0.0, None]
    assert value_of("distance(a, b)", a=a.slice(0, 2), b=b.slice(0, 2)) == [5.0, 0.0]
    assert value_of("distance(a, b)", a=a.slice(1, 1), b=b.slice(0, 1)) == [pytest.approx(13**0.5)]
    assert value_of("distance(a, b)", a=a.slice(0, 0), b=b.slice(0, 0)) == []


def test_distance_of_uneven_lists_is_null() -> None:
    a = pa.array([[0.0, 0.0], [1.0], [1.0, None]])
    assert value_of("distance(a, b)", a=a, b=pa.array([[3.0, 4.0], [1.0, 1.0], [1.0, 1.0]])) == [5.0, None, None]


def test_patterns_from_a_column() -> None:
    a = pa.array(["abc", "a%c", "a\nc", None])
    assert value_of("a LIKE b", a=a, b=pa.array(["a_c", "a\\%c", "a%", "%"])) == [True, True, True, None]


def test_decimals_too_wide_for_arrow() -> None:
    wide = pa.array([Decimal("12345678901234567890.123456789"), None], pa.decimal128(38, 9))
    with pytest.raises(ConditionError, match=r"a value does not fit in decimal128\(38, 6\)"):
        value_of("a * a", a=wide)
    small = pa.array([Decimal("1.000000001")], pa.decimal128(38, 9))
    assert value_of("a * a", a=small) == [Decimal("1.000000")]


@pytest.mark.parametrize("type_", [pa.decimal128(5, 2), pa.decimal128(18, 2), pa.decimal128(38, 4)])
def test_decimals_become_the_nearest_double(type_: pa.DataType) -> None:
    decimals = [None, *(Decimal(n).scaleb(-2) for n in range(-99_999, 99_999, 7))]
    doubles = [None if value is None else float(value) for value in decimals]
    a = pa.array(decimals, type_)
    assert value_of("CAST(a AS DOUBLE)", a=a) == doubles
    assert value_of("a = b", a=a, b=pa.array(doubles)) == [None, *[True] * (len(doubles) - 1)]


def test_long_decimals_become_the_nearest_float() -> None:
    long = [Decimal(2**53 + 1), Decimal("123456789012345678.25"), Decimal(10) ** 30, Decimal("-0.0001")]
    a = pa.array(long, pa.decimal128(38, 4))
    assert value_of("CAST(a AS DOUBLE)", a=a) == [float(value) for value in long]
    b = pa.array([2**53 + 1, 2**53 + 3], pa.decimal128(18, 0))
    assert value_of("CAST(a AS DOUBLE)", a=b) == [float(2**53 + 1), float(2**53 + 3)]
    # Converted via double it would become 1.
    assert value_of("CAST(a AS FLOAT)", a=pa.array([Decimal(2**24 + 1) / 2**24 + Decimal("1e-17")])) == [1 + 2**-23]


LEFT = pa.record_batch({"k": [1, 2, None, 2], "x": [1.0, NAN, 3.0, 0.0], "unused": ["a", "b", "c", "d"]})
RIGHT = pa.record_batch({"k": [2, None, 1], "x": [0.5, NAN, NAN]})


def pairs_of(text: str) -> set[tuple[int, int]]:
    condition = parse(text, LEFT.schema, RIGHT.schema)
    left_rows = np.repeat(np.arange(4), 3)
    right_rows = np.tile(np.arange(3), 4)
    mask = matching(condition.conjuncts, LEFT, left_rows, RIGHT, right_rows)
    assert mask.dtype == np.bool_
    return set(zip(left_rows[mask].tolist(), right_rows[mask].tolist(), strict=True))


def test_matching() -> None:
    assert pairs_of("l.k = r.k") == {(0, 2), (1, 0), (3, 0)}
    assert pairs_of("l.k = r.k AND l.x < r.x") == {(0, 2), (3, 0)}
    assert pairs_of("l.x = r.x") == {(1, 1), (1, 2)}
    assert len(pairs_of("l.k IS NULL OR TRUE")) == 12
    assert pairs_of("l.k <=> r.k AND l.k IS NULL OR l.k = 5 AND r.k = 9") == {(2, 1)}


def test_matching_nothing() -> None:
    condition = parse("l.k = r.k AND l.x < r.x", LEFT.schema, RIGHT.schema)
    none = np.array([], np.int64)
    assert matching(condition.conjuncts, LEFT, none, RIGHT, none).tolist() == []
    assert matching((), LEFT, np.array([0]), RIGHT, np.array([1])).tolist() == [True]


def test_later_conjuncts_see_survivors_only() -> None:
    left = pa.record_batch({"s": ["7", "seven"], "ok": [True, False]})
    other = pa.schema({"ok": pa.bool_(), "n": pa.int32()})
    condition = parse("l.ok = r.ok AND CAST(l.s AS INT) = r.n", left.schema, other)
    right = pa.record_batch({"ok": [True], "n": pa.array([7], pa.int32())})
    rows = np.array([0, 1]), np.array([0, 0])
    assert matching(condition.conjuncts, left, rows[0], right, rows[1]).tolist() == [True, False]


def test_passing() -> None:
    condition = parse("l.k > 1 AND l.x >= 0 AND r.k = 2", LEFT.schema, RIGHT.schema)
    left, right = (passing(condition.filters[s], s, b) for s, b in ((Side.LEFT, LEFT), (Side.RIGHT, RIGHT)))
    assert left is not None
    assert right is not None
    assert left.tolist() == [False, True, False, True]
    assert right.tolist() == [True, False, False]
    assert passing((), Side.LEFT, LEFT) is None


def test_passing_nothing_at_all() -> None:
    condition = parse("FALSE", LEFT.schema, RIGHT.schema)
    nothing = passing(condition.filters[Side.LEFT], Side.LEFT, LEFT)
    assert nothing is not None
    assert not nothing.any()


def test_a_filter_protects_the_next() -> None:
    batch = pa.record_batch({"s": ["7", "seven"]})
    condition = parse("l.s != 'seven' AND CAST(l.s AS INT) = 7", batch.schema, EMPTY)
    mask = passing(condition.filters[Side.LEFT], Side.LEFT, batch)
    assert mask is not None
    assert mask.tolist() == [True, False]


def test_without_rows_there_is_one() -> None:
    assert evaluate(Literal(5, pa.int32()), None, None).to_pylist() == [5]


def test_opaque_cannot_be_evaluated() -> None:
    opaque = Opaque("soundex(l.k)", (Column(Side.LEFT, "k"),))
    with pytest.raises(ConditionError, match=r"soundex\(l\.k\) can be evaluated by Spark only"):
        evaluate(opaque, LEFT, None)


def test_run_end_encoded_columns() -> None:
    encoded = pa.RunEndEncodedArray.from_arrays([2, 3], [5, None])
    left = pa.record_batch([encoded, pa.array(["a", "b", "c"], pa.string_view())], ["k", "v"])
    condition = parse("l.k = r.k AND l.v != r.v", left.schema, left.schema)
    rows = np.array([0, 1, 2]), np.array([1, 1, 1])
    assert matching(condition.conjuncts, left, rows[0], left, rows[1]).tolist() == [True, False, False]
