"""Structs and lists in conditions: every comparison against its definition, unification of types, and errors."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nested import NAN, SIGNS, holds, random_nested
from tests.seed import generator, seeded

from dovetail.columns.batches import one_batch
from dovetail.condition import matching, parse, spark_sql
from dovetail.condition.sort_keys import BLOCK, sort_keys
from dovetail.core.tables import arrow_table
from dovetail.errors import ConditionError

ROWS = 12
ALL = (*SIGNS, "<=>")


def cross(operator: str, left: pa.Array, right: pa.Array, zone: str | None = None) -> list[tuple[int, int]]:
    """The pairs of rows for which `l.v operator r.v` is true."""
    batches = [one_batch(arrow_table(pa.table({"v": column})), pa.schema([])) for column in (left, right)]
    condition = parse(f"l.v {operator} r.v", *(batch.schema for batch in batches), zone)
    rows = np.repeat(np.arange(len(left)), len(right)), np.tile(np.arange(len(right)), len(left))
    found = matching(condition.conjuncts, batches[0], rows[0], batches[1], rows[1])
    return list(zip(rows[0][found].tolist(), rows[1][found].tolist(), strict=True))


@given(seed=st.integers(0, 2**32))
def test_comparisons_are_what_they_should_be(seed: int) -> None:
    rng = seeded(seed)
    nested = random_nested(rng)
    values = [nested.values(rng, side, ROWS) for side in (0, 1)]
    columns = [nested.column(values[side], side, rng) for side in (0, 1)]
    for operator in ALL:
        expected = [(i, k) for i, a in enumerate(values[0]) for k, b in enumerate(values[1]) if holds(operator, a, b)]
        assert cross(operator, *columns) == expected, (operator, nested.types)
    for column in columns:  # including types that do not support take
        assert sort_keys(column).equals(sort_keys(arrow_table(pa.table({"v": column}))["v"].combine_chunks()))


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.struct({"a": pa.int32(), "b": pa.string()}), [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": None}, None]),
        (pa.list_(pa.float64()), [[], [None], [0.0], [-0.0], [NAN, 1.0], [NAN], [0.0, None], None]),
        (pa.list_(pa.list_(pa.string())), [[], [[]], [None], [["a\0", "b"]], [["a", "\0b"]], [["a"], ["b"]], None]),
        (pa.struct({"d": pa.decimal128(30, 3), "l": pa.large_list(pa.bool_())}), [{"d": -1, "l": [True]}, {"d": -1}]),
    ],
)
def test_equality_is_duckdbs(type_: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, type_)
    numbered = pa.table({"row": range(len(values)), "v": column})
    connection = duckdb.connect()
    connection.register("t", numbered)
    for operator, theirs in (("=", "="), ("!=", "!="), ("<=>", "IS NOT DISTINCT FROM")):
        asked = f"SELECT l.row, r.row FROM t l, t r WHERE l.v {theirs} r.v ORDER BY ALL"
        assert cross(operator, column, column) == connection.execute(asked).fetchall()


def test_keys_are_the_same_in_every_block() -> None:
    numbers = generator(1).integers(-50, 50, 2 * BLOCK + 7)
    lists = pa.array([[int(n)] * (n % 3) if n % 7 else None for n in numbers])
    keys = sort_keys(lists)
    keys.validate(full=True)
    assert keys.null_count == lists.null_count
    order = sorted(range(len(lists)), key=lambda i: (lists[i].as_py() is not None, lists[i].as_py() or [], i))
    in_order = [key or b"" for key in keys.take(pa.array(order)).to_pylist()]
    assert in_order == sorted(in_order)
    assert sort_keys(lists.slice(5, 3)).to_pylist() == keys.slice(5, 3).to_pylist()


def test_what_is_behind_a_null_does_not_count() -> None:
    """Values under nulls may be anything, including values that cannot be cast."""
    inner = pa.array([1, 2, 300])
    structs = pa.StructArray.from_arrays([inner], names=["a"], mask=pa.array([False, False, True]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3]), inner, mask=pa.array([False, True]))
    assert cross("=", pa.array([[{"a": 1}, None]]), pa.array([[{"a": 1}, None]])) == [(0, 0)]
    assert cross("=", structs, pa.array([{"a": 1.0}, {"a": None}, None])) == [(0, 0)]
    assert cross("<=>", structs, pa.array([{"a": 1.0}, {"a": None}, None])) == [(0, 0), (2, 2)]
    assert cross("<=>", lists, pa.array([[1], None, []], pa.list_(pa.int8()))) == [(0, 0), (1, 1)]


def test_fields_are_compared_by_position() -> None:
    left, right = pa.array([{"a": 1, "b": 2}]), pa.array([{"b": 1, "a": 2}, {"b": 2, "a": 1}])
    assert cross("=", left, right) == [(0, 0)]


def test_instants_inside_are_in_the_sessions_zone() -> None:
    noon = pa.array([[43_200_000_000]], pa.list_(pa.timestamp("us")))
    zoned = pa.array([[43_200], [43_200 - 3600]], pa.list_(pa.timestamp("s", "UTC")))
    assert cross("=", noon, zoned, "UTC") == [(0, 0)]
    assert cross("=", noon, zoned, "Europe/Berlin") == [(0, 1)]
    days = pa.array([{"d": 0}], pa.struct({"d": pa.date32()}))
    first = pa.array([{"d": -3600}, {"d": 0}], pa.struct({"d": pa.timestamp("s", "UTC")}))
    assert cross("=", days, first, "Europe/Berlin") == [(0, 0)]


STRUCT = pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})
SCHEMA = pa.schema(
    {
        "s": STRUCT,
        "t": pa.struct({"x": pa.int64(), "y": pa.list_(pa.large_string())}),
        "u": pa.struct({"a": pa.int32()}),
        "w": pa.struct({"a": pa.string(), "b": pa.list_(pa.string())}),
        "n": pa.list_(pa.int32()),
        "c": pa.list_(pa.timestamp("us")),
        "z": pa.list_(pa.timestamp("us", "UTC")),
        "m": pa.map_(pa.string(), pa.int32()),
        "o": pa.list_(pa.map_(pa.string(), pa.int32())),
        "q": pa.struct(
            [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]
        ),
        "i": pa.int32(),
    }
)


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("l.s = r.u", r"cannot be compared with .* One struct has 2 fields, the other 1"),
        ("l.s = r.w", r"cannot be compared with .* int32 and string have no common type: cast one of them"),
        ("l.s = r.n", r"cannot be compared with .* have no common type"),
        ("l.n < r.i", r"l\.n \(list<item: int32>\) cannot be compared with r\.i"),
        ("l.n = 1", r"cannot be compared"),
        ("l.m = r.m", r"cannot be compared with .* Maps have neither equality nor order"),
        ("l.m <=> r.m", r"Maps have neither equality nor order"),
        ("l.o = r.o", r"cannot be compared with .* Maps have neither equality nor order"),
        ("l.q = r.q", r"cannot be compared with .* Variants and places have neither equality nor order"),
        ("l.c = r.z", r"Inside, timestamp\[us\] and timestamp\[us, tz=UTC\] differ in having a time zone"),
    ],
)
def test_what_cannot_be_compared(on: str, says: str) -> None:
    with pytest.raises(ConditionError, match=says):
        parse(on, SCHEMA, SCHEMA)


@pytest.mark.parametrize(
    ("on", "text", "sql"),
    [
        ("l.s = r.s", "l.s = r.s", "CAST(l.`s` AS STRUCT<`col1`: INT, `col2`: ARRAY<STRING>>) = "),
        ("l.s <= r.t", "l.s <= r.t", "CAST(l.`s` AS STRUCT<`col1`: BIGINT, `col2`: ARRAY<STRING>>) <= "),
        ("l.n IN (r.n, l.n)", "l.n IN (r.n, l.n)", "CAST(l.`n` AS ARRAY<INT>) IN ("),
        ("l.s.b > r.s.b", "l.s.b > r.s.b", "CAST(l.`s`.`b` AS ARRAY<STRING>) > "),
    ],
)
def test_they_read_as_they_were_written(on: str, text: str, sql: str) -> None:
    condition = parse([on], SCHEMA, SCHEMA)
    assert condition.text == text
    assert spark_sql(condition.conjuncts[0]).startswith(sql)


def test_a_null_matches_nothing() -> None:
    assert cross("=", pa.array([[1], None]), pa.array([None, [1]])) == [(0, 1)]
    schema = pa.schema({"v": STRUCT})
    batch = pa.RecordBatch.from_pylist([{"v": {"a": None}}, {"v": None}], schema)
    for on, expected in (("l.v = NULL", []), ("l.v <=> NULL", [1]), ("l.v IS NULL", [1]), ("l.v != l.v", [])):
        condition = parse(on, schema, schema)
        found = matching([*condition.filters[0], *condition.residual], batch, np.arange(2), batch, np.arange(2))
        assert np.flatnonzero(found).tolist() == expected, on
