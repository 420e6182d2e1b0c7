"""SQL joins that keep the best partners, in the syntax of DuckDB and Spark 4.3, compared with DuckDB."""

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

ASOF = [
    "SELECT a.x, b.y FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t",
    "SELECT a.x, b.y FROM a ASOF LEFT JOIN b ON a.k = b.k AND b.t >= a.t",
    "SELECT a.x, b.y FROM a ASOF LEFT JOIN b ON a.t > b.t AND a.k = b.k AND a.w = b.w",
    "SELECT * FROM a ASOF LEFT JOIN b USING (k, t)",
    "SELECT k, b.t, y FROM a ASOF JOIN b USING (k, w, t) WHERE x > 3",
    "SELECT x, y FROM a ASOF LEFT JOIN b ON a.t < b.t WHERE y > 10 OR y IS NULL",
    "SELECT a.k, count(*) AS n, sum(y) AS s FROM a ASOF JOIN b ON a.t >= b.t GROUP BY a.k",
    "SELECT a.x, b.y, c.x AS z FROM a ASOF LEFT JOIN b ON a.t >= b.t JOIN a AS c ON c.k = b.k AND c.x < a.x",
    "SELECT u.x, u.y + 1 AS y FROM (SELECT a.x, b.y FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t) u WHERE u.x > 2",
]
SPARKS = {
    "SELECT x, y FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k": ASOF[0],
    "SELECT x, y FROM a LEFT OUTER ASOF JOIN b MATCH_CONDITION (a.t <= b.t) USING (k)": ASOF[1],
    "SELECT x, y FROM a LEFT ASOF JOIN b MATCH_CONDITION (b.t < a.t) ON a.k = b.k AND a.w = b.w": ASOF[2],
    "SELECT x, y FROM a LEFT ASOF JOIN b MATCH_CONDITION (a.t < b.t) WHERE y > 10 OR y IS NULL": ASOF[5],
}
NEAREST = "SELECT x, d FROM (SELECT x, abs(a.t - b.t) AS d, row_number() OVER (PARTITION BY x ORDER BY {}) AS place {}"


def tables(case: int) -> dict[str, pa.Table]:
    """Tables in which no two right rows tie."""
    rng = seeded("best joins in SQL", case)
    left = {
        "k": [rng.choice([1, 2, 3, None]) for _ in range(25)],
        "t": [rng.choice([*range(20), None]) for _ in range(25)],
    }
    times = rng.sample(range(20), 15)
    right = {"k": [rng.choice([1, 2, 3, None]) for _ in times], "t": times}
    more = {"w": [case % 2] * 25, "x": list(range(25))}
    return {"a": pa.table({**left, **more}), "b": pa.table({**right, "w": [0] * 15, "y": list(range(0, 45, 3))})}


def by_duckdb(query: str, given: dict[str, pa.Table]) -> Counter[Any]:
    with duckdb.connect() as connection:
        for name, table in given.items():
            connection.register(name, table)
        return Counter(connection.sql(query).fetchall())


def rows(table: pa.Table) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("case", range(repeat(4)))
@pytest.mark.parametrize("query", [*ASOF, *SPARKS])
def test_asof_joins_are_those_of_duckdb(query: str, case: int) -> None:
    given = tables(case)
    assert rows(dovetail.sql(query, **given)) == by_duckdb(SPARKS.get(query, query), given)


@pytest.mark.parametrize("case", range(repeat(4)))
def test_nearest_by(case: int) -> None:
    given = tables(case)
    given["a"] = given["a"].filter(given["a"]["t"].is_valid())
    for words, order, top in (
        ("EXACT NEAREST 3 BY DISTANCE abs(a.t - b.t)", "abs(a.t - b.t)", 3),
        ("APPROX NEAREST BY SIMILARITY -abs(a.t - b.t)", "abs(a.t - b.t)", 1),
    ):
        found = dovetail.sql(f"SELECT a.x, abs(a.t - b.t) AS d FROM a JOIN b {words}", **given)
        wanted = NEAREST.format(order, f"FROM a, b) p WHERE place <= {top}")
        assert rows(found) == by_duckdb(wanted, given)
    alone = dovetail.sql(
        "SELECT x, y FROM a LEFT JOIN b EXACT NEAREST BY DISTANCE a.t - b.t", a=given["a"], b=given["b"][:0]
    )
    assert alone["y"].null_count == given["a"].num_rows


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT x FROM a ASOF JOIN b ON a.k = b.k", "one comparison by"),
        ("SELECT x FROM a ASOF JOIN b ON a.t > b.t AND a.k < b.k", "one comparison by"),
        ("SELECT x FROM a ASOF JOIN b ON a.t > b.t AND a.x = 3", "one comparison by"),
        ("SELECT x FROM a ASOF RIGHT JOIN b ON a.t > b.t", "only inner and left joins"),
        ("SELECT x FROM a ASOF JOIN b USING (k, y)", "both inputs have one such column"),
        ("SELECT t FROM a ASOF JOIN b ON a.t >= b.t", "ambiguous"),
    ],
)
def test_what_is_refused(query: str, message: str) -> None:
    with pytest.raises(DovetailError, match=message):
        dovetail.sql(query, **tables(0))
