"""Texts are taken apart at AND, OR and NOT; long and deep ones, too."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from sqlglot import exp
from tests.effort import some

import dovetail
from dovetail.condition import parse, text_of
from dovetail.condition.dialect import DIALECT
from dovetail.condition.sql import parse_text, read_sql
from dovetail.condition.translate import Translator
from dovetail.errors import ConditionError

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "s": pa.string(), "f": pa.bool_(), "end": pa.int64()})
SCHEMAS = (SCHEMA, SCHEMA)


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
