"""Random joins, counts and aggregates over tables of every type, against DuckDB.

    DOVETAIL_FUZZ_CASES=100000 pytest --seed 7 tests/fuzz

A failing case prints everything needed, and `draw(seed)` recreates it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tests.effort import CASES
from tests.fuzz.cases import Case, draw
from tests.fuzz.columns import for_duckdb
from tests.fuzz.pairs import check_pairs, check_values, pair_width, pairs_of
from tests.seed import SEED

import dovetail
from dovetail.condition import parse
from dovetail.condition.predicates import KINDS
from dovetail.execution import out_of_core
from dovetail.matching import matcher as build

SHARDS = 20

JOINS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
}
ONE_SIDED = {"left_semi": "IN", "left_anti": "NOT IN"}
"""DuckDB's own SEMI JOIN and ANTI JOIN on several inequalities disagree with its inner join (2.0.0)."""


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_difference(duck: duckdb.DuckDBPyConnection, shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(shard, CASES, SHARDS):
        case = draw(SEED * 1_000_003 + number)
        monkeypatch.setattr(build, "LARGE_GROUP", case.large_group)
        monkeypatch.setattr(out_of_core, "AT_REST", case.share)
        try:
            check(case, duck)
        except Exception as error:
            error.add_note(str(case))
            raise


@pytest.mark.one_in(2)
def test_every_class_of_predicate_is_drawn() -> None:
    drawn = set()
    for seed in range(400):
        case = draw(seed)
        strategy = parse(case.on.spark, case.left.schema, case.right.schema, in_process=True).strategy
        drawn.add((strategy.kind, bool(strategy.equal)))
    assert drawn == {(kind, equal) for kind in KINDS for equal in (False, True)}


def check(case: Case, duck: duckdb.DuckDBPyConnection) -> None:
    for alias, table in (("l", case.left), ("r", case.right)):
        duck.register(alias, for_duckdb(table))
    if case.aggregation is not None:
        check_aggregates(case, duck)
    else:
        check_join(case, duck)


def check_join(case: Case, duck: duckdb.DuckDBPyConnection) -> None:
    found = dovetail.join(case.left, case.right, case.on.spark, case.how, memory=case.memory)
    check_pairs(pairs_of(case, found), pairs_by_duckdb(case, duck))
    check_values(case, found)
    if case.how == "inner":
        assert dovetail.count(case.left, case.right, case.on.spark) == found.num_rows


def pairs_by_duckdb(case: Case, duck: duckdb.DuckDBPyConnection) -> NDArray[np.int64]:
    join = f"FROM l {JOINS.get(case.how, 'JOIN')} r ON ({case.on.duck})"
    if case.how in ONE_SIDED:
        query = (
            f"SELECT row * {pair_width(case)} - 1 AS pair FROM l WHERE row {ONE_SIDED[case.how]} (SELECT l.row {join})"
        )
    else:
        query = f"SELECT coalesce(l.row, -1) * {pair_width(case)} + coalesce(r.row, -1) AS pair {join}"
    return np.asarray(duck.sql(query).fetchnumpy()["pair"])


def check_aggregates(case: Case, duck: duckdb.DuckDBPyConnection) -> None:
    assert case.aggregation is not None
    wanted, by = case.aggregation.wanted, case.aggregation.by
    sql = {name: text.spark for name, text in wanted.items()}
    found = dovetail.aggregate(case.left, case.right, case.on.spark, sql, by=list(by) or None)
    columns = ", ".join([*by.values(), *(f"{text.duck} AS {name}" for name, text in wanted.items())])
    query = f"SELECT {columns} FROM l JOIN r ON ({case.on.duck})"
    if by:
        query += f" GROUP BY {', '.join(by.values())}"
    expected = by_group(duck.execute(query).fetchall(), len(by))
    rows = list(zip(*(plain_column(column) for column in found.columns), strict=True))
    groups = by_group(rows, len(by))
    assert groups.keys() == expected.keys()
    for key, values in groups.items():
        for name, value, other in zip(wanted, values, expected[key], strict=True):
            assert is_alike(value, other), f"{wanted[name].spark} of {key} is {value!r}; DuckDB has {other!r}"
    assert len(rows) == len(groups)


def by_group(rows: list[tuple[Any, ...]], keys: int) -> dict[tuple[Any, ...], list[Any]]:
    plain = [[_plain(value) for value in row] for row in rows]
    return {tuple(row[:keys]): row[keys:] for row in plain}


def _plain(value: Any) -> Any:
    """Makes all NaNs the same, and -0.0 the same as 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def plain_column(column: pa.ChunkedArray) -> list[Any]:
    """Values as DuckDB returns them, with times as nanoseconds."""
    type_ = column.type
    if pa.types.is_date(type_):
        column = column.cast(pa.timestamp("ns"))
    if pa.types.is_timestamp(type_):
        column = column.cast(pa.timestamp("ns", type_.tz))
    if pa.types.is_duration(type_):
        column = column.cast(pa.duration("ns"))
    if pa.types.is_time(type_):
        column = column.cast(pa.time64("ns"))
    return (column.cast(pa.int64()) if pa.types.is_temporal(type_) else column).to_pylist()


def is_alike(value: Any, other: Any) -> bool:
    """Compares with a tolerance: floats are summed in another order, and averages of decimals are rounded."""
    if isinstance(other, float) and value is not None and value != "NaN":
        return bool(float(value) == pytest.approx(other, rel=1e-9, abs=1e-5))
    return bool(value == other)
