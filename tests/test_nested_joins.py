"""Joins on structs and lists: every call, join type and algorithm, against the filtered cross product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effort import repeat
from tests.nested import SIGNS, compare, holds, random_nested
from tests.seed import seeded

import dovetail
from dovetail.errors import DovetailError, InputError

HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
EQUALITY = ("shj", "xjoin", "hmj", "rpj", "dphj", "diner", "pmj")
ORDER = ("diner", "pmj", "nested_loop")

Pair = tuple[int | None, int | None]


def tables(seed: int, rows: int, depth: int = 3) -> tuple[pa.Table, pa.Table, list[list[Any]]]:
    """Two tables with a column `v` to compare, and its values."""
    rng = seeded(seed)
    nested = random_nested(rng, depth)
    values = [nested.values(rng, side, rows + side) for side in (0, 1)]
    left, right = (
        pa.table({name: range(len(values[side])), "v": nested.column(values[side], side, rng)})
        for side, name in enumerate(("i", "k"))
    )
    return left, right, values


def definition(values: list[list[Any]], operator: str, how: str = "inner") -> Counter[Pair]:
    """The rows of the result as row numbers; None for a missing row."""
    numbers = [range(len(column)) for column in values]
    pairs: list[Pair] = [(i, k) for i in numbers[0] for k in numbers[1] if holds(operator, values[0][i], values[1][k])]
    matched = [{pair[side] for pair in pairs} for side in (0, 1)]
    alone: list[Pair] = [(i, None) for i in numbers[0] if i not in matched[0]]
    match how:
        case "left_semi":
            return Counter((i, None) for i in numbers[0] if i in matched[0])
        case "left_anti":
            return Counter(alone)
    pairs += alone if how in ("left", "full") else []
    pairs += [(None, k) for k in numbers[1] if k not in matched[1]] if how in ("right", "full") else []
    return Counter(pairs)


def found(parts: Iterable[Any]) -> Counter[Pair]:
    """The rows of tables and batches as row numbers."""
    rows: Counter[Pair] = Counter()
    for part in parts:
        right = part["k"].to_pylist() if "k" in part.schema.names else [None] * part.num_rows
        rows.update(zip(part["i"].to_pylist(), right, strict=True))
    return rows


@given(seed=st.integers(0, 2**32))
def test_every_join_type(seed: int) -> None:
    left, right, values = tables(seed, 15)
    for how in HOW:
        operator = seeded(seed).choice((*SIGNS, "<=>"))
        joined = dovetail.join(left, right, f"l.v {operator} r.v", how=how)
        assert found([joined]) == definition(values, operator, how), (operator, how, left.schema, right.schema)
    for operator in ("=", "<", "!="):
        on = f"l.v {operator} r.v"
        assert dovetail.count(left, right, on) == definition(values, operator).total()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(repeat(4)))
@pytest.mark.parametrize("algorithm", EQUALITY)
def test_algorithms_for_equality(algorithm: str, seed: int) -> None:
    left, right, values = tables(seed, 300, depth=2)
    steps = dovetail.progressive(left, right, "l.v = r.v", algorithm=algorithm, memory="64KiB")
    assert found(step.batch for step in steps) == definition(values, "=")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("algorithm", ORDER)
def test_algorithms_for_order(algorithm: str, seed: int) -> None:
    left, right, values = tables(seed, 60)
    operator = ("<", "<=", ">", ">=")[seed]
    steps = dovetail.progressive(left, right, f"l.v {operator} r.v", algorithm=algorithm)
    assert found(step.batch for step in steps) == definition(values, operator)


@pytest.mark.parametrize("seed", range(repeat(6)))
def test_within_a_budget(seed: int) -> None:
    """In chunks, and with an equality and an inequality in one condition."""
    left, right, values = tables(seed, 200, depth=2)
    left, right = (
        table.append_column("g", pa.array([row % 3 for row in range(table.num_rows)])) for table in (left, right)
    )
    joined = dovetail.join(left, right, "l.g = r.g AND l.v < r.v", memory="64KiB")
    expected = {pair: 1 for pair in definition(values, "<") if (pair[0] or 0) % 3 == (pair[1] or 0) % 3}
    assert found([joined]) == Counter(expected)


@pytest.mark.parametrize("seed", range(repeat(6)))
@pytest.mark.parametrize(("algorithm", "operator"), [("auto", "="), ("auto", "<="), ("miner", "="), ("mjoin", "=")])
def test_three_inputs(algorithm: str, operator: str, seed: int) -> None:
    left, right, values = tables(seed, 20, depth=2)
    inputs = {"a": left, "b": right, "c": left.rename_columns(["j", "v"])}
    joined = dovetail.multijoin(inputs, f"a.v = b.v AND b.v {operator} c.v", algorithm=algorithm)
    others = definition(values[::-1], operator)
    expected = Counter((i, k, j) for i, k in definition(values, "=") for other, j in others if k == other)
    assert Counter(zip(*(joined[name].to_pylist() for name in ("i", "k", "j")), strict=True)) == expected


@pytest.mark.parametrize("seed", range(repeat(6)))
def test_groups(seed: int) -> None:
    """Null is a group; structs and lists are grouped by the same equality as join keys."""
    left, right, values = tables(seed, 40, depth=2)
    grouped = dovetail.aggregate(left, right, "l.i >= r.k", {"n": "count(*)", "least": "min(l.i)"}, by="l.v")
    groups: list[tuple[Any, list[int]]] = []
    for i, value in enumerate(values[0]):
        members = next((rows for key, rows in groups if compare(key, value) == 0), None)
        if members is None:
            groups.append((value, [i]))
        else:
            members.append(i)
    expected = sorted((sum(min(i + 1, len(values[1])) for i in rows), rows[0]) for _, rows in groups)
    assert sorted(zip(grouped["n"].to_pylist(), grouped["least"].to_pylist(), strict=True)) == expected


def test_fields_of_structs() -> None:
    left = pa.table({"i": [0, 1, 2], "s": [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": None}, None]})
    right = pa.table({"k": [0, 1], "s": [{"a": 2, "b": {"c": "x"}}, {"a": None, "b": {"c": "y"}}]})
    assert found([dovetail.join(left, right, "l.s.a < r.s.a")]) == Counter([(0, 0)])
    assert found([dovetail.join(left, right, "l.s.b = r.s.b")]) == Counter([(0, 0)])
    assert found([dovetail.join(left, right, "l.s.b.c <= r.s.b.c AND l.s < r.s")]) == Counter([(0, 0)])
    assert found([dovetail.join(left, left.rename_columns(["k", "s"]), ["s"])]) == Counter([(0, 0), (1, 1)])
    assert found([dovetail.join(left, right, "r.s BETWEEN l.s AND r.s")]) == Counter([(0, 0), (1, 0)])


@pytest.mark.parametrize(
    "on",
    [
        "greatest(l.v, r.v) = r.v",
        "CASE WHEN l.v > r.v THEN r.v ELSE l.v END <=> coalesce(l.v, r.v)",
        "coalesce(l.v, r.v) <= r.v OR l.v IN (r.v, l.v)",
    ],
)
def test_choices_between_them(on: str) -> None:
    numbers = pa.table({"i": [0, 1, 2], "v": [0, 1, None]})
    lists = numbers.set_column(1, "v", pa.array([[0], [1], None]))
    left, right = ([table, table.rename_columns(["k", "v"])] for table in (numbers, lists))
    assert found([dovetail.join(*right, on)]) == found([dovetail.join(*left, on)])


@pytest.mark.parametrize("on", ["l.s.a * r.s.a = 100", "l.s <=> r.s", "(l.m IS NULL) <=> (r.m IS NULL) AND l.k < 3"])
def test_a_sample_of_rows_of_which_only_nested_columns_are_read(on: str) -> None:
    maps = pa.array([None if i % 200 else [] for i in range(1000)], pa.map_(pa.string(), pa.int32()))
    table = pa.table({"k": range(1000), "s": [{"a": i % 500} for i in range(1000)], "m": maps})
    steps = list(dovetail.progressive(table, table, on, algorithm="nested_loop"))
    assert steps[-1].results == dovetail.count(table, table, on)


@pytest.mark.parametrize("digits", [1, 9, 18, 19, 38, 76])
@pytest.mark.parametrize("on", ["l.v = r.v", "l.v < r.v"])
def test_lists_of_structs_of_decimals_in_an_empty_table(on: str, digits: int) -> None:
    type_ = pa.decimal128(digits, 1) if digits <= 38 else pa.decimal256(digits, 1)
    rows = pa.table({"i": [0], "v": pa.array([[{"n": 0}]], pa.list_(pa.struct([("n", type_)])))})
    for left, right in ((rows, rows.slice(1)), (rows.slice(1), rows), (rows.schema.empty_table(),) * 2):
        assert dovetail.join(left, right, on).num_rows == 0
        assert dovetail.join(left, right, on, "full").num_rows == len(left) + len(right)


def test_a_polars_frame_is_joined_on_its_lists() -> None:
    polars = pytest.importorskip("polars")
    left = polars.DataFrame({"i": [0, 1, 2], "v": [["a", None], ["b"], None]})
    right = polars.DataFrame({"k": [0, 1], "v": [["b"], ["a", None]]})
    assert found([dovetail.join(left, right, ["v"])]) == Counter([(0, 1), (1, 0)])


def test_explain_shows_the_condition_as_it_is() -> None:
    left, right = pa.table({"v": [[1]]}), pa.table({"v": [[1.5]]})
    plan = str(dovetail.explain(left, right, "l.v = r.v"))
    assert "driven by  l.v = r.v" in plan


def test_maps_are_refused() -> None:
    table = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))})
    with pytest.raises(DovetailError, match="Maps have neither equality nor order"):
        dovetail.join(table, table, ["m"])
    with pytest.raises(InputError, match="cannot be grouped by"):
        dovetail.aggregate(table, table, "TRUE", {"n": "count(*)"}, by="l.m")
