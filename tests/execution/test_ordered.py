"""Results in order, against DuckDB's ORDER BY; the first results need little work."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.disjunctions import table
from tests.effort import some
from tests.seed import seeded

import dovetail
from dovetail.errors import ConditionError, InputError, PlanError
from dovetail.execution import ordered
from dovetail.matching import Parts, build_matcher

JOINS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "left_semi": "SEMI JOIN",
    "left_anti": "ANTI JOIN",
}
CONDITIONS = (
    "l.a = r.a",
    "l.x < r.x",
    "l.a = r.a OR l.b = r.b",
    "l.x < r.x AND l.a + r.b > 3",
    "l.x + r.y = 3",
    "l.a > 5",
)
ORDERS = (
    ["l.x"],
    ["l.x DESC", "l.s"],
    ["l.a", "r.y DESC"],
    ["r.y", "l.s DESC NULLS FIRST", "r.b"],
    ["r.x DESC NULLS FIRST", "l.a NULLS LAST"],
    ["l.s", "l.a DESC", "r.s", "l.x"],
)


def in_order(left: pa.Table, right: pa.Table, on: str, how: str, order_by: Any, **options: Any) -> list[dict[str, Any]]:
    steps = list(dovetail.progressive(left, right, on, how, order_by=order_by, **options))
    results = 0
    for step in steps:
        results += step.batch.num_rows
        assert step.results == results
    return [row for step in steps for row in step.batch.to_pylist()]


def key(text: str) -> str:
    """The sort key in DuckDB's syntax, with Spark's order of nulls."""
    if "NULLS" in text:
        return text
    return f"{text} NULLS LAST" if text.endswith("DESC") else f"{text} NULLS FIRST"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, so that small tables need many, some of them too long at first."""
    monkeypatch.setattr(ordered, "FIRST_BLOCK", 8)
    monkeypatch.setattr(ordered, "MOST_PAIRS", 100)
    monkeypatch.setattr(ordered, "FEWER_PAIRS", 30)
    monkeypatch.setattr(ordered, "FEWEST_PAIRS", 10)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("how", "on"), some(list(product(JOINS, CONDITIONS)), 0))
def test_the_order_of_duckdb(on: str, how: str) -> None:
    rng = seeded(f"{on}{how}")
    left, right = (table(rng, 60).append_column("row", pa.array(range(60), pa.int64())) for _ in range(2))
    connection = duckdb.connect()
    connection.register("l", left)
    connection.register("r", right)
    one_sided = how in ("left_semi", "left_anti")
    for order_by in ORDERS:
        if one_sided:
            order_by = [text for text in order_by if text.startswith("l.")]
        if not order_by:
            continue
        order_by = [*order_by, "l.row"] if one_sided else [*order_by, "l.row", "r.row"]  # so that no two rows are equal
        columns = "l.row" if one_sided else "l.row, r.row"
        query = f"SELECT {columns} FROM l {JOINS[how]} r ON ({on}) ORDER BY {', '.join(map(key, order_by))}"
        expected = connection.sql(query).fetchall()
        for limit in (None, 0, 1, 13, 200):
            found = in_order(left, right, on, how, order_by, limit=limit)
            assert [tuple(row[n] for n in ("row", "row_right") if n in row) for row in found] == expected[:limit]


@pytest.mark.usefixtures("small_blocks")
def test_ties_may_come_in_any_order() -> None:
    rng = seeded(0)
    left, right = table(rng, 80), table(rng, 80)
    whole = dovetail.join(left, right, "l.x <= r.x")
    for limit in (None, 5, 100):
        found = in_order(left, right, "l.x <= r.x", "inner", "l.a DESC", limit=limit)
        values = [row["a"] for row in found]
        assert len(found) == min(whole.num_rows, whole.num_rows if limit is None else limit)
        best = sorted((row["a"] for row in whole.to_pylist()), key=lambda a: (a is None, -(a or 0)))
        assert values == best[: len(values)]


@pytest.fixture
def matchers(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    built: list[Parts] = []

    def build(*args: Any) -> Parts:
        built.append(build_matcher(*args))
        return built[-1]

    monkeypatch.setattr(ordered, "build_matcher", build)
    return built


@pytest.mark.parametrize("order_by", ["l.x", ["l.x DESC", "r.y"], ["r.y", "l.x"]])
@pytest.mark.parametrize("on", ["l.x < r.x", "l.k = r.k", "l.x < r.x AND l.k + r.k > 100"])
def test_the_first_rows_are_found_early(on: str, order_by: Any, matchers: list[Parts]) -> None:
    rng = np.random.default_rng(1)
    left, right = (
        pa.table({"x": rng.random(50_000), "y": rng.random(50_000), "k": rng.integers(0, 5000, 50_000)})
        for _ in range(2)
    )
    assert len(in_order(left, right, on, "inner", order_by, limit=50)) == 50
    assert sum(matcher.seen for matcher in matchers) < 0.05 * dovetail.count(left, right, on.split(" AND ")[0])


def test_steps_come_before_the_join_is_done(matchers: list[Parts]) -> None:
    rng = np.random.default_rng(2)
    left, right = (pa.table({"k": rng.integers(0, 5000, 20_000)}) for _ in range(2))
    steps = dovetail.progressive(left, right, "l.k = r.k", order_by="l.k")
    first = next(steps)
    seen = sum(matcher.seen for matcher in matchers)
    rest = list(steps)
    assert first.done is not None
    assert first.done < 0.1
    assert seen < 0.2 * sum(matcher.seen for matcher in matchers)
    values = [k for step in (first, *rest) for k in step.batch.column("k").to_pylist()]
    assert values == sorted(values)
    assert len(values) == dovetail.count(left, right, "l.k = r.k")


def test_files_expressions_and_types(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 3], "d": pa.array([3, 1, 2]).cast(pa.decimal128(30, 2)), "v": [[2], [1, 9], [1]]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    path = tmp_path / "rows.parquet"
    assert [row["k"] for row in in_order(path, rows, "l.k = r.k", "inner", "r.d DESC")] == [1, 3, 2]
    assert [row["k"] for row in in_order(path, path, "l.k = r.k", "inner", "l.v")] == [3, 2, 1]
    assert [row["k"] for row in in_order(path, rows, "l.k = r.k", "inner", ["l.k % 2 desc", "-r.k"])] == [3, 1, 2]


def test_what_cannot_be_ordered() -> None:
    rows = pa.table({"k": [1, 2]})
    with pytest.raises(ConditionError, match="reads 2 sides"):
        dovetail.progressive(rows, rows, "l.k = r.k", order_by="l.k + r.k")
    with pytest.raises(ConditionError, match="reads 0 sides"):
        dovetail.progressive(rows, rows, "l.k = r.k", order_by="1")
    with pytest.raises(ConditionError, match="no such column"):
        dovetail.progressive(rows, rows, "l.k = r.k", order_by="l.z")
    with pytest.raises(InputError, match="order_by is SQL text"):
        dovetail.progressive(rows, rows, "l.k = r.k", order_by=[])
    with pytest.raises(InputError, match="order by columns of that side"):
        dovetail.progressive(rows, rows, "l.k = r.k", "left_semi", order_by="r.k")
    with pytest.raises(PlanError, match="order_by needs tables or Parquet files"):
        dovetail.progressive(rows.to_reader(), rows, "l.k = r.k", order_by="l.k")
    with pytest.raises(InputError, match=r"order_by= is for two tables.* nothing for progressive joins of three"):
        dovetail.progressive({"a": rows, "b": rows, "c": rows}, on="a.k = b.k AND b.k = c.k", order_by="a.k")
    with pytest.raises(InputError, match="algorithm= means nothing for results in order"):
        dovetail.progressive(rows, rows, "l.k = r.k", order_by="l.k", algorithm="shj")
    with pytest.raises(InputError, match="it means nothing for results in order"):
        dovetail.progressive(rows, rows, "l.k = r.k", order_by="l.k", workers=2)
