"""Top-n rows per group over a join, in all common spellings, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.seed import seeded

import dovetail
from dovetail.errors import DovetailError
from dovetail.query.chain import read_chain
from dovetail.query.ranking import note_rankings
from dovetail.query.rewriting import inline_expressions
from dovetail.query.text import read_query

OVER = "OVER (PARTITION BY a.{} ORDER BY {})"
JOINS = [
    "a JOIN b ON a.t >= b.t",
    "a JOIN b ON a.k = b.k AND a.t >= b.t",
    "a LEFT JOIN b ON a.t BETWEEN b.t AND b.u",
    "a LEFT JOIN b ON a.k = b.k AND a.t < b.t",
    "a, b WHERE a.t <= b.u AND b.y > 6 AND a.x > 2",
    "a JOIN b ON abs(a.t - b.t) < 5 JOIN c ON c.t <= a.t",
    "a LEFT JOIN b ON a.t > b.t WHERE a.x < 20 OR a.k IS NULL",
]
ORDERS = [
    "b.t DESC NULLS LAST, b.y NULLS LAST",
    "b.y NULLS FIRST",
    "abs(a.t - b.t) NULLS FIRST, b.y",
    "a.x, b.k NULLS FIRST, b.y DESC NULLS LAST",
]
NUMBERS = {"row_number": ["n = 1", "n <= 3", "2 >= n", "n < 3 AND x > 4", "n = 2"], "rank": ["n = 1", "n <= 2"]}


def tables(case: int) -> dict[str, pa.Table]:
    """The values of y are distinct, so that an order by y has no ties."""
    rng = seeded("first rows of groups", case)

    def some(count: int, *values: Any) -> list[Any]:
        return [rng.choice(values) for _ in range(count)]

    a = {"k": some(25, 1, 2, None), "t": some(25, *range(20), None), "g": some(25, 1, 2, 3, None)}
    b = {"k": some(15, 1, 2, None), "t": some(15, *range(20), None), "u": some(15, *range(10, 30))}
    c = pa.table({"t": some(3, 1, 5, 9)})
    return {
        "a": pa.table({**a, "x": list(range(25))}),
        "b": pa.table({**b, "y": list(range(0, 45, 3))}),
        "c": c.append_column("z", pa.array([1, 2, 3])),
    }


def by_duckdb(query: str, given: dict[str, pa.Table]) -> Counter[Any]:
    with duckdb.connect() as connection:
        for name, table in given.items():
            connection.register(name, table)
        return Counter(connection.sql(query).fetchall())


def rows(table: pa.Table) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def tops(query: str, given: dict[str, pa.Table]) -> list[int | None]:
    """The number of partners per row that the joins of a subquery produce."""
    tree = read_query(query)
    assert tree is not None
    tree = inline_expressions(tree)
    note_rankings(tree)
    inner = tree.args["from_"].this
    select = inner.this if inner.this.args.get("joins") else tree
    chain = read_chain(select, lambda source: given[source.name].column_names, in_process=True)
    return [None if step.best is None else step.best.top for step in chain.steps]


@pytest.mark.parametrize("case", range(repeat(3)))
@pytest.mark.parametrize("group", ["x", "g"])
@pytest.mark.parametrize("join", JOINS)
def test_first_rows_are_those_of_duckdb(join: str, group: str, case: int) -> None:
    given, rng = tables(case), seeded("the query", join, group, case)
    for function, bounds in NUMBERS.items():
        order, bound = rng.choice(ORDERS), rng.choice(bounds)
        order += ", a.x" if "JOIN c" not in join else ", a.x, c.z"  # avoids ties, for which several results are correct
        number = f"{function}() {OVER.format(group, order)} AS n"
        name = rng.choice(["", "q"])
        query = f"SELECT * FROM (SELECT a.x, b.y, {number} FROM {join}) {name} WHERE {bound}"
        assert rows(dovetail.sql(query, **given)) == by_duckdb(query, given), query
        common = f"WITH q AS (SELECT a.x, b.y AS z, {number} FROM {join}) SELECT q.x, z FROM q WHERE {bound}"
        assert rows(dovetail.sql(common, **given)) == by_duckdb(common, given), common
        qualified = f"SELECT a.x, b.y, {number} FROM {join} QUALIFY {bound.replace('x >', 'a.x >')}"
        assert rows(dovetail.sql(qualified, **given)) == by_duckdb(qualified, given), qualified


@pytest.mark.parametrize("case", range(repeat(6)))
def test_ties(case: int) -> None:
    given = tables(case)
    for function in ("rank", "dense_rank"):
        number = f"{function}() OVER (PARTITION BY g ORDER BY b.k DESC NULLS LAST, b.u)"
        for bound in ("= 1", "<= 2"):
            query = f"SELECT a.x, y, {number} AS n FROM a JOIN b ON a.t >= b.t QUALIFY n {bound}"
            assert rows(dovetail.sql(query, **given)) == by_duckdb(query, given), query


def test_what_comes_after_qualify() -> None:
    given = tables(0)
    number = "row_number() OVER (PARTITION BY a.x ORDER BY b.y)"
    query = f"SELECT DISTINCT a.g AS h FROM a JOIN b ON a.t > b.t QUALIFY {number} = 1 ORDER BY h NULLS FIRST LIMIT 2"
    with duckdb.connect() as connection:
        for name, table in given.items():
            connection.register(name, table)
        wanted = [value for (value,) in connection.sql(query).fetchall()]
    assert dovetail.sql(query, **given)["h"].to_pylist() == wanted


NUMBER = "row_number() OVER (PARTITION BY a.x ORDER BY b.y) AS n"
FIRST = "SELECT * FROM (SELECT a.x, b.y, {} FROM {}) WHERE {}"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (FIRST.format(NUMBER, "a JOIN b ON a.t > b.t", "n = 1"), [1]),
        (FIRST.format(NUMBER, "a LEFT JOIN b ON a.t > b.t AND a.k = b.k", "n BETWEEN 1 AND 4"), [4]),
        (FIRST.format(NUMBER, "a JOIN c ON a.t > c.t JOIN b ON b.t < a.t", "n <= 2"), [None, 2]),
        (FIRST.format(NUMBER.replace("row_number", "rank"), "a JOIN b ON a.t > b.t", "3 > n"), [2]),
        (FIRST.format(NUMBER.replace("row_number", "dense_rank"), "a JOIN b ON a.t > b.t", "n = 1"), [1]),
        (f"SELECT a.x, b.y, {NUMBER} FROM a JOIN b ON a.t > b.t QUALIFY n = 1 LIMIT 5", [1]),
        # All pairs are needed:
        (FIRST.format(NUMBER.replace("row_number", "dense_rank"), "a JOIN b ON a.t > b.t", "n = 2"), [None]),
        (FIRST.format(NUMBER.replace("a.x", "b.k"), "a JOIN b ON a.t > b.t", "n = 1"), [None]),
        (FIRST.format(NUMBER, "a JOIN b ON a.t > b.t", "n >= 1"), [None]),
        (FIRST.format(NUMBER, "a JOIN b ON a.t > b.t", "n = 1 OR x = 3"), [None]),
        (FIRST.format(NUMBER, "a LEFT JOIN b ON a.t > b.t WHERE b.y > 3", "n = 1"), [None]),
        (FIRST.format(NUMBER, "a RIGHT JOIN b ON a.t > b.t", "n = 1"), [None]),
        (FIRST.format(f"count(*) OVER () AS m, {NUMBER}", "a JOIN b ON a.t > b.t", "n = 1"), [None]),
        (FIRST.format(NUMBER, "a JOIN b ON a.t > b.t LIMIT 9", "n = 1"), [None]),
        (FIRST.format(f"{NUMBER}, rank() OVER (ORDER BY b.y) AS m", "a JOIN b ON a.t > b.t", "n = 1"), [None]),
    ],
)
def test_how_many_partners_are_made(query: str, wanted: list[int | None]) -> None:
    assert tops(query, tables(0)) == wanted


def test_the_same_subquery_with_and_without_a_filter() -> None:
    given = tables(1)
    inner = f"(SELECT a.x, b.y, {NUMBER} FROM a JOIN b ON a.t > b.t)"
    query = f"SELECT p.x, q.y FROM {inner} p JOIN {inner} q ON p.x = q.x AND p.y <= q.y WHERE p.n = 1"
    assert rows(dovetail.sql(query, **given)) == by_duckdb(query, given)


def test_what_is_not_numbered() -> None:
    given = tables(0)
    with pytest.raises(DovetailError, match="is not for tables in process"):
        dovetail.sql("SELECT a.x, sum(b.y) OVER (PARTITION BY a.x) AS s FROM a JOIN b ON a.t > b.t", **given)
    with pytest.raises(DovetailError, match="numbers of groups' rows"):
        dovetail.sql(
            "SELECT a.x, count(*) AS n FROM a JOIN b ON a.t > b.t GROUP BY a.x QUALIFY rank() OVER (ORDER BY a.x) = 1",
            **given,
        )
