"""Aggregates and groups, parsed from SQL and bound to two schemas. For errors see tests/test_aggregate.py."""

import pyarrow as pa
import pytest

from dovetail.condition import Column, sides_of, text_of
from dovetail.condition.select import parse_aggregates, parse_by
from dovetail.core.rows import Side

LEFT = pa.schema([("k", pa.int32()), ("Region", pa.dictionary(pa.int8(), pa.string()))])
RIGHT = pa.schema([("k", pa.int32()), ("price", pa.decimal128(37, 2)), ("f", pa.float32())])


@pytest.mark.parametrize(
    ("text", "function", "value", "type_"),
    [
        ("COUNT( * )", "count", None, pa.int64()),
        ("count(1)", "count", "1", pa.int64()),
        ("(sum(L.K))", "sum", "l.k", pa.int64()),
        ("sum(price)", "sum", "r.price", pa.decimal128(38, 2)),
        ("avg(price)", "avg", "r.price", pa.decimal128(38, 6)),
        ("avg(l.k)", "avg", "l.k", pa.float64()),
        ("sum(f * 2)", "sum", None, pa.float64()),
        ("max(f)", "max", "r.f", pa.float32()),
        ("Min(region)", "min", None, pa.string()),
    ],
)
def test_reads_an_aggregate(text: str, function: str, value: str | None, type_: pa.DataType) -> None:
    (aggregate,) = parse_aggregates({"a": text}, LEFT, RIGHT)
    assert (aggregate.name, aggregate.function, aggregate.type) == ("a", function, type_)
    if value is not None:
        assert aggregate.value is not None
        assert text_of(aggregate.value) == value


def test_a_value_is_of_one_side() -> None:
    left, right = parse_aggregates({"a": "sum(l.k + 1)", "b": "sum(r.k + price)"}, LEFT, RIGHT)
    assert [sides_of(a.value) for a in (left, right) if a.value is not None] == [{Side.LEFT}, {Side.RIGHT}]


def test_groups_have_plain_names_and_types() -> None:
    assert parse_by(None, LEFT, RIGHT) == ()
    region, k = parse_by(["l.region", "l.k"], LEFT, RIGHT)
    assert (region.name, region.side, region.value.type) == ("Region", Side.LEFT, pa.string())
    assert (k.name, k.value) == ("k", Column(Side.LEFT, "k", pa.int32()))
    (f,) = parse_by("F", LEFT, RIGHT)
    assert (f.name, f.side) == ("f", Side.RIGHT)
