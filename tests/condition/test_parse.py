"""parse(): every form of `on`, and every error before any work."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.condition.schemas import LEFT, RIGHT

from dovetail.condition import Call, Column, Condition, Literal, describe, expression_of_names, parse, text_of
from dovetail.core.rows import Side
from dovetail.errors import ConditionError


def parsed(on: Any, **options: Any) -> Condition:
    return parse(on, LEFT, RIGHT, **options)


EXPRESSION = Call("<", (Column(Side.LEFT, "X"), Column(Side.RIGHT, "y")))


@pytest.mark.parametrize(
    ("on", "predicates"),
    [
        ("l.x = r.x", ["l.x = r.x"]),
        (["x"], ["l.x = r.x"]),
        (("x", "S"), ["l.x = r.x", "l.s = r.s"]),
        (["a b", "p.q"], ["l.`a b` = r.`a b`", "l.`p.q` = r.`p.q`"]),
        (EXPRESSION, ["l.x < r.y"]),
        (["id", EXPRESSION, "l.start > r.start"], ["l.id = r.id", "l.x < r.y", "l.start > r.start"]),
        (["L.flag", "x"], ["l.x = r.x"]),
    ],
)
def test_forms(on: Any, predicates: list[str]) -> None:
    assert sorted(describe(p) for p in parsed(on).predicates) == sorted(predicates)


def test_names_of_different_types_are_unified() -> None:
    condition = parse(["k"], pa.schema({"k": pa.int8()}), pa.schema({"K": pa.float32()}))
    (equal,) = condition.equalities
    assert equal.left.type == equal.right.type == pa.float64()


def test_expression_of_names() -> None:
    assert text_of(expression_of_names(["x", "y"], (LEFT, RIGHT))) == "l.x = r.x AND l.y = r.y"


@pytest.mark.parametrize(
    ("on", "message"),
    [
        (5, "a condition is SQL text .* got int"),
        (None, "got NoneType"),
        ([], "an empty list"),
        ([5], "holds names, pairs of names, SQL text and expressions; got int"),
        ([""], "the condition is empty"),
        ("", "the condition is empty"),
        (["prce"], r"l\.prce: no such column; did you mean l\.price\?"),
        (["only_left"], r"r\.only_left: no such column"),
        ("l.x + 1", r"l\.x \+ 1 is not a condition: it is int64, not true or false"),
        ("'text'", "is not a condition: it is string"),
        (Column(Side.LEFT, "x"), r"l\.x is not a condition"),
        (Literal(5), "5 is not a condition"),
        (["x", "l.y + 1"], "AND needs true or false"),
        ("l.x = r.s", r"l\.x \(int32\) cannot be compared with r\.s \(string\)"),
    ],
)
def test_errors(on: Any, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        parsed(on)


def test_what_only_spark_can_evaluate() -> None:
    for text in ("soundex(l.s) = r.s", "equal_null(l.x, r.x)", "l.x = r.x AND l.s RLIKE 'a'", "l.v[0] = r.y"):
        assert parsed(text)
        with pytest.raises(ConditionError, match=r"can be evaluated by Spark only"):
            parsed(text, in_process=True)


def test_opaque_keys_have_no_type() -> None:
    (equal,) = parsed("soundex(l.s) = concat_ws('-', r.s)").equalities
    assert equal.left.type is None
    assert equal.right.type is None


def test_text_is_what_was_written() -> None:
    assert parsed("l.x  =\n r.x").text == "l.x = r.x"
    assert parsed(["x", "y"]).text == "l.x = r.x AND l.y = r.y"


def test_schemas_are_kept() -> None:
    condition = parsed("l.x = r.x")
    assert condition.schema(Side.LEFT) is LEFT
    assert condition.schema(Side.RIGHT) is RIGHT


def test_duplicate_names_matter_only_if_used() -> None:
    twice = pa.schema([("a", pa.int8()), ("a", pa.int8()), ("b", pa.int8())])
    assert parse("l.b = r.b", twice, twice)
    with pytest.raises(ConditionError, match=r"l\.a is ambiguous"):
        parse("l.a = r.a", twice, twice)


def test_the_zone_reaches_the_types() -> None:
    (less,) = parsed("l.t < r.tz", zone="Europe/Berlin").predicates
    assert describe(less) == "CAST(l.t AS TIMESTAMP) < r.tz"


def test_any_schema_can_be_tried() -> None:
    exotic = pa.schema(
        {
            "dictionary": pa.dictionary(pa.int8(), pa.string()),
            "runs": pa.run_end_encoded(pa.int32(), pa.int64()),
            "map": pa.map_(pa.string(), pa.int8()),
            "uuid": pa.uuid(),
            "null": pa.null(),
            "months": pa.month_day_nano_interval(),
            "k": pa.int8(),
        }
    )
    for name in ("dictionary", "runs", "uuid", "k"):
        assert parse([name], exotic, exotic, in_process=True).equalities


def test_an_expression_is_not_taken_for_one_that_python_calls_equal() -> None:
    """Conditions are cached, and 1, 1.0 and True are equal in Python."""
    schema = pa.schema([("x", pa.int64())])
    literals = [True, 1, 1.0]
    found = [
        parse(Call("<", (Column(Side.LEFT, "x"), Call("+", (Column(Side.RIGHT, "x"), Literal(value))))), schema, schema)
        for value in literals[1:]
    ]
    assert [condition.text for condition in found] == ["l.x < r.x + 1", "l.x < r.x + 1.0"]
    assert parse(Literal(True), schema, schema).text != found[0].text
    with pytest.raises(ConditionError, match="not a condition"):
        parse(Literal(1), schema, schema)
