"""Parsing of SQL: names, constants, operators, long and deep chains, errors and their positions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp
from tests.condition.schemas import LEFT, RIGHT
from tests.effort import some

import dovetail
from dovetail.condition import Call, Column, Expression, Literal, Opaque, parse, read_sql, text_of, unqualified
from dovetail.condition.dialect import DIALECT
from dovetail.condition.sql import parse_text, with_columns
from dovetail.condition.translate import Translator
from dovetail.core.rows import Side
from dovetail.errors import ConditionError

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "s": pa.string(), "f": pa.bool_(), "end": pa.int64()})
SCHEMAS = (SCHEMA, SCHEMA)


def read(text: str) -> Expression:
    return read_sql(text, (LEFT, RIGHT))


def left(name: str) -> Column:
    return Column(Side.LEFT, name, LEFT.field(name).type)


def right(name: str) -> Column:
    return Column(Side.RIGHT, name, RIGHT.field(name).type)


def constant(text: str) -> Literal:
    match read(f"l.x = {text}"):
        case Call("=", (_, Literal() as literal)):
            return literal
    raise AssertionError(f"{text} is not a constant")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("l.x", left("x")),
        ("L.X", left("x")),
        ("r.x", right("x")),
        ("R.`x`", right("x")),
        ("l.`a b`", left("a b")),
        ("l.`p.q`", left("p.q")),
        ("l.`tick```", left("tick`")),
        ("only_left", left("only_left")),
        ("ONLY_RIGHT", right("only_right")),
    ],
)
def test_names(text: str, column: Column) -> None:
    assert read(f"{text} IS NULL") == Call("is_null", (column,))


def test_exact_spelling_comes_first() -> None:
    schema = pa.schema({"a": pa.int8(), "A": pa.int16()})
    assert read_sql("l.A IS NULL", (schema, schema)) == Call("is_null", (Column(Side.LEFT, "A", pa.int16()),))


def test_struct_fields() -> None:
    a = Call("field", (left("point"), Literal("a", pa.string())))
    c = Call("field", (Call("field", (left("point"), Literal("B", pa.string()))), Literal("c", pa.string())))
    assert read("l.point.a IS NULL") == Call("is_null", (a,))
    assert read("l.point.B.c IS NULL") == Call("is_null", (c,))


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("1", 1, pa.int32()),
        ("3000000000", 3_000_000_000, pa.int64()),
        ("12345678901234567890", Decimal(12345678901234567890), pa.decimal128(20, 0)),
        ("1.5", Decimal("1.5"), pa.decimal128(2, 1)),
        (".50", Decimal("0.50"), pa.decimal128(2, 2)),
        ("1.5e0", 1.5, pa.float64()),
        ("'it''s'", "it's", pa.string()),
        ("'a' 'b'", "ab", None),
        (r"'it\'s'", "it's", pa.string()),
        ('"double"', "double", pa.string()),
        ("TRUE", True, pa.bool_()),
        ("NULL", None, pa.null()),
        ("X'1F'", b"\x1f", pa.binary()),
        ("DATE '2020-01-31'", dt.date(2020, 1, 31), pa.date32()),
        ("TIMESTAMP '2020-01-31 10:30:00.5'", dt.datetime(2020, 1, 31, 10, 30, 0, 500_000), pa.timestamp("us")),
        ("TIMESTAMP_NTZ '2020-01-31'", dt.datetime(2020, 1, 31), pa.timestamp("us")),
        (
            "TIMESTAMP '2020-01-31 10:00:00+01:00'",
            dt.datetime(2020, 1, 31, 9, tzinfo=dt.UTC),
            pa.timestamp("us", "UTC"),
        ),
        ("INTERVAL '5' MINUTES", dt.timedelta(minutes=5), pa.duration("us")),
        ("INTERVAL 5 MINUTES", dt.timedelta(minutes=5), pa.duration("us")),
        ("INTERVAL -2 WEEKS", dt.timedelta(weeks=-2), pa.duration("us")),
        ("INTERVAL '1.5' SECONDS", dt.timedelta(seconds=1.5), pa.duration("us")),
        ("INTERVAL '1 day 2 hours'", dt.timedelta(days=1, hours=2), pa.duration("us")),
        ("INTERVAL '1 02:03:04' DAY TO SECOND", dt.timedelta(1, 4, 0, 0, 3, 2), pa.duration("us")),
        ("INTERVAL '-02:30' HOUR TO MINUTE", -dt.timedelta(hours=2, minutes=30), pa.duration("us")),
    ],
)
def test_constants(text: str, value: Any, type_: pa.DataType | None) -> None:
    if type_ is None:  # adjacent strings are concatenated
        assert read(f"l.s = {text}") == Call(
            "=", (left("s"), Call("concat", (Literal("a", pa.string()), Literal("b", pa.string()))))
        )
    else:
        assert constant(text) == Literal(value, type_)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("l.x == r.x", "l.x = r.x"),
        ("l.x <> r.x", "l.x != r.x"),
        ("l.x BETWEEN 1 AND 2", "l.x >= 1 AND l.x <= 2"),
        ("l.x NOT BETWEEN 1 AND 2", "NOT (l.x >= 1 AND l.x <= 2)"),
        ("l.s NOT LIKE 'a%'", "NOT (l.s LIKE 'a%')"),
        ("l.x IS NOT NULL", "NOT (l.x IS NULL)"),
        ("isnull(l.x)", "l.x IS NULL"),
        ("isnotnull(l.x)", "l.x IS NOT NULL"),
        ("l.flag IS TRUE", "l.flag <=> TRUE"),
        ("l.x IS DISTINCT FROM r.x", "NOT (l.x <=> r.x)"),
        ("l.x IS NOT DISTINCT FROM r.x", "l.x <=> r.x"),
        ("(l.x, l.y) = (r.x, r.y)", "l.x = r.x AND l.y = r.y"),
        ("(l.x, l.y) != (r.x, r.y)", "NOT (l.x = r.x AND l.y = r.y)"),
        ("(l.x, l.y) <= (r.x, r.y)", "l.x < r.x OR (l.x = r.x AND l.y <= r.y)"),
        ("(l.x, l.id) IN ((1, 2), (3, 4))", "(l.x = 1 AND l.id = 2) OR (l.x = 3 AND l.id = 4)"),
        ("power(l.x, 2) = 4", "pow(l.x, 2) = 4"),
        ("nvl(l.x, 0) = 0", "coalesce(l.x, 0) = 0"),
        ("nullif(l.x, 0) = 1", "CASE WHEN l.x = 0 THEN NULL ELSE l.x END = 1"),
        ("if(l.flag, 1, 2) = 1", "CASE WHEN l.flag THEN 1 ELSE 2 END = 1"),
        ("CASE l.x WHEN 1 THEN 2 END = 2", "CASE WHEN l.x = 1 THEN 2 ELSE NULL END = 2"),
        ("l.s || r.s = 'ab'", "concat(l.s, r.s) = 'ab'"),
        ("l.x::bigint = 1", "CAST(l.x AS BIGINT) = 1"),
        ("bigint(l.x) = 1", "CAST(l.x AS BIGINT) = 1"),
        ("extract(year FROM l.d) = 2020", "year(l.d) = 2020"),
        ("dayofmonth(l.d) = 1", "day(l.d) = 1"),
        ("substr(l.s, 2) = 'b'", "substring(l.s, 2) = 'b'"),
        ("ceiling(l.y) = 1", "ceil(l.y) = 1"),
        ("mod(l.x, 2) = 1", "l.x % 2 = 1"),
        ("!l.flag", "NOT l.flag"),
        ("date_add(l.d, 3) = r.d", "CAST(l.d AS DATE) + 3 = r.d"),
        ("l.x /* why */ = r.x -- because", "l.x = r.x"),
    ],
)
def test_spellings(text: str, same: str) -> None:
    assert read(text) == read(same)


def test_intervals_with_months() -> None:
    moved = Call("add_months", (left("d"), Literal(14, pa.int32())))
    assert read("l.d + INTERVAL '1-2' YEAR TO MONTH < r.d") == Call("<", (moved, right("d")))
    back = Call("add_months", (left("d"), Literal(-1, pa.int32())))
    days = Call("-", (back, Literal(dt.timedelta(days=2), pa.duration("us"))))
    assert read("l.d - INTERVAL '1 month 2 days' < r.d") == Call("<", (days, right("d")))


@pytest.mark.parametrize(
    ("text", "sql", "columns"),
    [
        ("soundex(l.S)", "soundex(l.`s`)", (left("s"),)),
        ("hash(l.x, r.x, l.x)", "hash(l.`x`, r.`x`, l.`x`)", (left("x"), right("x"))),
        ("l.v[0]", "l.`v`[0]", (left("v"),)),
        ("try_cast(l.s AS INT)", "TRY_CAST(l.`s` AS INT)", (left("s"),)),
        ("CAST(l.v AS STRING)", "CAST(l.`v` AS STRING)", (left("v"),)),
        ("l.s RLIKE '^a'", "l.`s` RLIKE '^a'", (left("s"),)),
        ("l.s LIKE ANY ('a', 'b')", "l.`s` LIKE ANY ('a', 'b')", (left("s"),)),
        ("exists(l.v, e -> e > r.y)", "exists(l.`v`, e -> e > r.`y`)", (left("v"), right("y"))),
        ("upper(l.point.B.c)", None, ()),
        ("soundex(l.point.B.c)", "soundex(l.`point`.`B`.`c`)", (left("point"),)),
        ("date_format(only_left, 'yyyy')", "date_format(l.`only_left`, 'yyyy')", (left("only_left"),)),
        ("current_date()", "current_date()", ()),
    ],
)
def test_what_only_spark_knows_is_opaque(text: str, sql: str | None, columns: tuple[Column, ...]) -> None:
    match read(f"{text} = 1"):
        case Call("=", (Opaque() as opaque, _)):
            assert opaque == Opaque(sql or "", columns)
        case Opaque() as whole:
            assert whole.sql.startswith(sql or "")
        case _:
            assert sql is None


def test_opaque_text_is_respelled() -> None:
    match read("soundex(l.point.B.c) = concat_ws('l.x', r.s, l.`a b`)"):
        case Call("=", (Opaque() as a, Opaque() as b)):
            assert with_columns(a, lambda c: f"<{c.name}>") == "soundex(<point>.`B`.`c`)"
            assert with_columns(b, lambda c: f"<{c.name}>") == "concat_ws('l.x', <s>, <a b>)"
        case other:
            raise AssertionError(other)


def test_qualifiers_of_spark_are_removed() -> None:
    text = "trips.k IS NULL AND spark_catalog.default.trips.`a b` > 1.5D AND trips.pair.a = 'trips.k' AND k.trips > 1"
    names = {("trips", "k"), ("spark_catalog", "default", "trips", "a b"), ("trips", "pair"), ("k",)}
    assert unqualified(text, names) == "k IS NULL AND `a b` > 1.5D AND pair.a = 'trips.k' AND k.trips > 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the condition is empty"),
        ("  \n ", "the condition is empty"),
        ("-- nothing", "the condition is empty"),
        ("l.x = 1; r.x = 2", "the condition has 2 statements"),
        ("l.x = = 2", r"column 7\)\.\n  l.x = = 2\n        \^$"),
        ("l.x =", r"something is missing at '=' \(line 1, column 5\)"),
        ("(l.x = 1", r"Expecting \)"),
        ("l.x = 1)", r"unexpected '\)' \(line 1, column 8\)"),
        ("l.x = r.x AND\nl.y = = r.y", r"line 2, column 7\)\.\n  l.y = = r.y\n        \^"),
        ("l.s = 'open", "a quote or comment is not closed"),
        ("CAST(l.x AS foo) = 1", "Expected TYPE after CAST at 'foo'"),
        ("SELECT 1", "cannot contain a sub-query"),
        ("l.x IN (SELECT 1)", "cannot contain a sub-query"),
        ("EXISTS (SELECT 1)", "cannot contain a sub-query"),
        ("sum(l.x) > 1", "cannot contain an aggregate function"),
        ("count(*) > 1", "cannot contain"),
        ("row_number() OVER (ORDER BY l.x) = 1", "cannot contain a window function"),
        ("explode(l.v) = 1", "cannot contain a table-valued function"),
        ("rand() < 0.5", "non-deterministic function"),
        ("monotonically_increasing_id() = l.x", "not deterministic"),
        ("l.x = ?", "cannot contain a parameter"),
        ("l.x = :p", "cannot contain a parameter"),
        ("l.* = 1", "cannot contain a star"),
        ("l.x r", r"an alias \(is an operator missing\?\)"),
        ("DROP TABLE t", "this is not a condition"),
        ("l.x IN ()", "empty list"),
        ("l.x IN r.x", r"write l.x IN \(r.x\)"),
        ("(l.x, l.y) = (r.x)", "can only be compared with another tuple"),
        ("(l.x, l.y) = (r.x, r.y, r.id)", "differ in length"),
        ("l.start OVERLAPS r.start", "OVERLAPS takes two pairs"),
        ("l.prce = 1", "l.prce: no such column; did you mean l.price\\? The left input has: id, x"),
        ("r.only_left = 1", r"r.only_left: no such column; did you mean r.only_right\?"),
        ("x = 1", "x is on both sides: write l.x or r.x"),
        ("zzz = 1", "zzz: no such column on either side"),
        ("l.only_left = only_left", "compares l.only_left with itself: r has no column only_left. Write r. and"),
        ("only_right >= r.only_right", "compares r.only_right with itself: l has no column only_right"),
        ("left.x = right.x", "left.x: unknown alias left. The left input is l, the right one r."),
        ("t.zzz = 1", "t is on both sides"),
        ("l.d = DATE '2020-02-30'", "day is out of range"),
        ("l.d = DATE 'soon'", "'soon' is not a date or timestamp"),
        ("l.t < r.t + INTERVAL 5 PARSECS", "."),
        ("l.t < r.t + INTERVAL 'x' DAYS", "'x' is not a number"),
        ("l.t - r.t < INTERVAL 1 MONTH", "months or years can only be added"),
        ("l.x = CAST(1 AS DECIMAL(50, 2))", "at most 38 digits"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        read(text)


def test_ambiguous_case() -> None:
    schema = pa.schema({"id": pa.int8(), "ID": pa.int8()})
    with pytest.raises(ConditionError, match=r"l\.Id is ambiguous: the left input has id, ID"):
        read_sql("l.Id = r.id", (schema, schema))


def test_column_called_l() -> None:
    schema = pa.schema({"l": pa.int8()})
    assert read_sql("l = r.x", (schema, pa.schema({"x": pa.int8()}))) == Call(
        "=", (Column(Side.LEFT, "l", pa.int8()), Column(Side.RIGHT, "x", pa.int8()))
    )


@pytest.mark.parametrize(
    "text",
    [
        "l.a = r.a",
        "l.a = r.a AND l.b < r.b OR l.f",
        "l.a = r.a AND (l.b < r.b OR l.f)",
        "(l.a = r.a)",
        "((l.a = r.a) AND ((l.f)))",
        "NOT l.f AND r.f",
        "NOT (l.f AND r.f) OR NOT NOT (l.a = r.a OR r.f)",
        "NOT NOT l.f",
        "l.a BETWEEN r.a AND r.b AND l.f",
        "l.a NOT BETWEEN r.a AND r.b OR l.b BETWEEN (r.a + 1) AND r.b AND r.f",
        "l.a BETWEEN CASE WHEN l.f AND r.f THEN 1 ELSE 2 END AND r.b AND l.f",
        "CASE WHEN l.f OR r.f THEN l.a = 1 AND r.a = 1 ELSE l.b = 2 END AND l.f",
        "l.end > r.a AND l.a < r.end OR l.end = r.end",
        "(l.a, l.b) = (r.a, r.b) AND (l.a, l.end) OVERLAPS (r.a, r.end)",
        "(l.a + 1) * 2 = r.a AND (l.a) = (r.b)",
        "(l.f OR r.f) = (l.a = 1 AND r.a = 1)",
        "l.s LIKE '%AND%' AND r.s = 'x OR y' OR l.s IN ('a', 'b')",
        "l.a IN (1, 2) AND coalesce(l.f AND r.f, l.f OR r.f)",
        "l.f IS NOT NULL AND (l.f AND r.f) IS NULL",
        "l.s = 'its' AND r.s RLIKE 'a|b' OR exists(array(1, 2), x -> x > 1 AND x < r.a)",
        "l.a = 1 -- AND\nOR r.a = 2 /* OR */ AND l.f",
    ],
)
def test_the_same_as_parsed_at_once(text: str) -> None:
    (whole,) = DIALECT.parse(text)
    assert isinstance(whole, exp.Expr)
    at_once = Translator(SCHEMAS).condition(whole)
    assert parse(read_sql(text, SCHEMAS), *SCHEMAS) == parse(at_once, *SCHEMAS)


@pytest.mark.parametrize("text", ["l.a = AND r.a", "l.f AND", "OR l.f", "(l.f", "l.f)", "l.f OR AND r.f", "(l.f]"])
def test_what_is_wrong_is_found_as_in_the_whole_text(text: str) -> None:
    with pytest.raises(ConditionError, match="cannot read the condition"):
        parse_text(text)


def test_the_place_of_an_error_is_that_in_the_text() -> None:
    with pytest.raises(ConditionError, match=r"line 1, column 22"):
        parse_text("l.a = r.a AND (l.b = = r.b)")


def flat(count: int, operator: str) -> str:
    return f" {operator} ".join(f"l.a = {i}" for i in range(count))


def to_the_left(count: int, operator: str) -> str:
    text = "l.a = 0"
    for i in range(1, count):
        text = f"({text} {operator} l.a = {i})"
    return text


def to_the_right(count: int, operator: str) -> str:
    text = f"l.a = {count - 1}"
    for i in reversed(range(count - 1)):
        text = f"l.a = {i} {operator} ({text})"
    return text


def negated(count: int, operator: str) -> str:
    return f"NOT ({to_the_left(count, operator)})"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("operator", ["AND", "OR"])
@pytest.mark.parametrize("spell", [flat, to_the_left, to_the_right, negated])
def test_thousands_of_clauses(spell: Callable[[int, str], str], operator: str) -> None:
    few, many = (read_sql(spell(count, operator), SCHEMAS) for count in (5, 2000))
    condition = parse(many, *SCHEMAS)
    assert text_of(many).count(operator) == 1999
    assert text_of(many).startswith(text_of(few).split(operator)[0])
    parts = len(condition.filters[0])
    assert parts == (2000 if (operator == "AND") != (spell is negated) else 1)


def test_what_is_nested_otherwise_is_an_error_before_the_stack_ends() -> None:
    text = "l.a"
    for _ in range(500):
        text = f"abs({text})"
    with pytest.raises(ConditionError, match="the condition is nested too deeply"):
        parse(f"{text} = r.a", *SCHEMAS)


TABLE = pa.table({"a": range(30), "b": [i % 7 for i in range(30)]})


LONG = {
    "factored": (" OR ".join(f"(l.a = {i} AND r.b = {i % 7})" for i in range(1000)), 130),
    "any": (" OR ".join(f"l.a = r.a + {i}" for i in range(1000)), 465),
    "all": (" AND ".join(f"l.a + {i} >= r.a" for i in range(2000)), 465),
    "filter": ("l.b = r.b AND " + " AND ".join(f"l.a != {i}" for i in range(5, 2005)), 22),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", LONG)
def test_joins_on_long_conditions(name: str) -> None:
    on, rows = LONG[name]
    assert dovetail.join(TABLE, TABLE, on).num_rows == rows


@pytest.mark.parametrize("name", some(list(LONG), 1, of=4))
def test_counts_and_joins_of_several_inputs_on_long_conditions(name: str) -> None:
    on, rows = LONG[name]
    assert dovetail.count(TABLE, TABLE, on) == rows
    several = {"l": TABLE, "r": TABLE, "z": TABLE}
    assert dovetail.multijoin(several, f"({on}) AND r.a = z.a").num_rows == rows
