"""Parsing, binding and evaluation of functions depend only on the table of functions."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import bind, evaluate, read_sql
from dovetail.condition.bind import RULES
from dovetail.condition.evaluate import COMPUTED
from dovetail.condition.functions import TABLE
from dovetail.condition.spark_functions import FUNCTIONS as OF_SPARK


def test_what_is_bound_is_computed() -> None:
    assert RULES.keys() == COMPUTED.keys()


def test_names() -> None:
    """Each name stands for one function, and is Spark's name for it."""
    names = Counter(name for function in TABLE for name in (function.name, *function.also))
    assert set(names.values()) == {1}
    assert {function.name for function in TABLE} <= OF_SPARK


@pytest.mark.parametrize(
    ("text", "upper", "lower"),
    [
        ("Straße", "STRASSE", "straße"),
        ("ΑΣ ΣΑΣ", "ΑΣ ΣΑΣ", "ας σας"),
        ("İ", "İ", "i̇"),
        ("aB", "AB", "ab"),
    ],
)
def test_letters_that_become_several(text: str, upper: str, lower: str) -> None:
    table = pa.table({"s": ["x", text, None]})
    other = pa.table({"u": [upper], "w": [lower]})
    joined = dovetail.join(table, other, on="upper(l.s) = r.u AND lower(l.s) = r.w")
    assert joined.column("s").to_pylist() == [text]


@pytest.mark.parametrize(("text", "rounded"), [("99.9", "100"), ("-99.5", "-100"), ("99.4", "99")])
def test_rounding_to_another_digit(text: str, rounded: str) -> None:
    schema = pa.schema([("m", pa.decimal128(3, 1))])
    batch = pa.record_batch([pa.array([text]).cast(pa.decimal128(3, 1))], schema=schema)
    bound = bind(read_sql(f"round(l.m) = {rounded}", (schema, schema)), schema, schema)
    assert evaluate(bound, batch, None).to_pylist() == [True]
