"""`dovetail.sql` over tables in process, compared with DuckDB."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.effort import repeat
from tests.seed import generator, seeded

import dovetail
from dovetail.errors import ConditionError, DovetailError, InputError

TRIPS = pa.table({"trip": ["a", "b", "c", "d"], "km": [2, 7, 4, None], "zone": [1, 2, 2, None]})
FARES = pa.table({"up_to": [5, 10, 3, None], "price": [3.0, 4.5, None, 1.0], "zone": [2, 2, 1, 3]})

QUERIES = [
    "SELECT price, count(*) AS n FROM t JOIN f ON km < up_to GROUP BY price",
    "SELECT * FROM t, f WHERE km < up_to AND t.zone = f.zone",
    "SELECT t.*, price * 2 AS twice FROM t LEFT JOIN f ON km < up_to AND price > 3",
    "SELECT trip FROM t WHERE EXISTS (SELECT 1 FROM f WHERE up_to > km AND f.zone = t.zone)",
    "SELECT trip FROM t WHERE NOT EXISTS (SELECT 1 FROM f WHERE up_to > km) AND trip <> 'x'",
    "SELECT sum(km), avg(price), min(trip), count(f.zone) FROM t FULL JOIN f ON t.km > f.up_to",
    "SELECT upper(trip), count(*) + 1 FROM t JOIN f ON km >= up_to OR t.zone = f.zone GROUP BY upper(trip)",
    "SELECT t.zone AS z, sum(up_to - 1) FROM t JOIN f ON km < up_to GROUP BY z HAVING count(*) > 1",
    "SELECT zone % 2, max(km) FROM t GROUP BY 1",
    "SELECT DISTINCT t.zone FROM t, f",
    "WITH s AS (SELECT trip, km + 1 AS m FROM t) SELECT trip, price FROM s JOIN (SELECT * FROM f) x ON m < x.up_to",
    "SELECT a.trip, b.trip, f.price FROM t a JOIN t b ON a.km < b.km JOIN f ON f.up_to > b.km",
    "SELECT a.trip, c.price FROM t a, f b, f c WHERE a.km < c.up_to AND c.up_to < b.up_to",
    "SELECT count(*) FROM t, f",
    "SELECT count(*), sum(km) FROM t WHERE km > 100",
    "SELECT 1 AS one, CASE WHEN km > 3 THEN 'far' ELSE trip END FROM t",
    "SELECT u.k2 FROM (SELECT km, zone FROM t) AS u(k1, k2) WHERE u.k1 BETWEEN 3 AND 9",
    "SELECT t.trip FROM t RIGHT JOIN f ON t.km > f.up_to WHERE f.zone = 2 OR t.km IS NULL",
]
ORDERED = [
    "SELECT trip, price FROM t JOIN f ON km < up_to ORDER BY price DESC NULLS LAST, trip LIMIT 3",
    "SELECT zone AS z, trip FROM t ORDER BY km DESC NULLS LAST, z LIMIT 2 OFFSET 1",
    "SELECT -km AS km, trip FROM t ORDER BY km NULLS FIRST",
    "SELECT t.zone FROM t GROUP BY t.zone ORDER BY count(*) DESC, t.zone NULLS LAST",
    "SELECT trip, up_to FROM t CROSS JOIN f ORDER BY 2 NULLS FIRST, 1 DESC",
]


def counted(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(same_value, row)) for row in rows)


def same_value(value: Any) -> Any:
    """A comparable value: NaN as text, which equals itself; numbers independent of type."""
    if isinstance(value, float | Decimal):
        return "NaN" if math.isnan(value) else round(float(value), 9) + 0.0
    return value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_those_of_duckdb(query: str) -> None:
    t, f = TRIPS, FARES  # DuckDB finds them by these names
    found = dovetail.sql(query, t=t, f=f)
    assert counted(rows_of(found)) == counted(duckdb.sql(query).fetchall())


@pytest.mark.parametrize("query", ORDERED)
def test_rows_are_in_the_order_of_duckdb(query: str) -> None:
    t, f = TRIPS, FARES
    assert rows_of(dovetail.sql(query, t=t, f=f)) == duckdb.sql(query).fetchall()


def random_table(rng: np.random.Generator, rows: int) -> pa.Table:
    def column(values: Any, type_: pa.DataType) -> pa.Array:
        return pa.array(values, type_, mask=rng.random(rows) < 0.15)

    floats = rng.choice([0.0, -0.0, 1.5, -2.25, 7.0, np.nan], rows)
    return pa.table(
        {
            "i": column(rng.integers(-5, 12, rows), pa.int64()),
            "j": column(rng.integers(0, 9, rows), pa.int32()),
            "f": column(floats, pa.float64()),
            "s": column(rng.choice(["", "a", "b", "ab", "é"], rows), pa.string()),
            "d": column([Decimal(int(n)) / 4 for n in rng.integers(-9, 30, rows)], pa.decimal128(10, 2)),
            "at": column(rng.integers(0, 40, rows) * 86_400_000_000, pa.timestamp("us")),
            "day": column(rng.integers(0, 25, rows).astype("int32"), pa.int32()).cast(pa.date32()),
            "b": column(rng.random(rows) < 0.5, pa.bool_()),
        }
    )


CONDITIONS = [
    *("{l}.i < {r}.i", "{l}.i BETWEEN {r}.j AND {r}.i", "{l}.f >= {r}.f", "{l}.s < {r}.s", "{l}.d <= {r}.d"),
    *("{l}.at < {r}.at AND {l}.day > {r}.day", "{l}.i = {r}.i", "{l}.s = {r}.s AND {l}.i <= {r}.j", "{l}.i <> {r}.i"),
    *("abs({l}.i - {r}.j) <= 1", "{l}.b AND {l}.j < {r}.j", "{l}.i = {r}.j OR {l}.s > {r}.s", "{l}.f = {r}.f"),
    "{l}.day + INTERVAL 3 DAYS > {r}.day AND {l}.day < {r}.day",
]
FILTERS = ["{a}.i > 2", "{a}.s IS NOT NULL", "{a}.f < 3", "{a}.b", "{a}.d BETWEEN 0 AND 4", "{a}.j IN (1, 3, 5)"]
HOWS = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
VALUES = ["{a}.i", "{a}.j + 1", "{a}.f", "{a}.s", "{a}.d", "{a}.at", "upper({a}.s)", "{a}.i * 2 - {a}.j", "{a}.b"]
AGGREGATES = ["count(*)", "count({a}.i)", "sum({a}.i)", "sum({a}.d)", "min({a}.at)", "max({a}.s)", "avg({a}.j)"]


def random_query(rng: random.Random) -> str:
    several = rng.random() < 0.4
    aliases = ["x", "y", "z"] if several else ["x", "y"]
    sources = {"x": "t x", "y": "f y", "z": "f z"}
    if rng.random() < 0.2:
        sources["y"] = f"(SELECT * FROM f y WHERE {rng.choice(FILTERS).format(a='y')}) y"
    if rng.random() < 0.25:
        from_ = ", ".join(sources[alias] for alias in aliases)
        where = [rng.choice(CONDITIONS).format(l="x", r="y")]
        where += [rng.choice(CONDITIONS).format(l=rng.choice("xy"), r="z")] * several
    else:
        from_, where = "t x", []
        for place, alias in enumerate(aliases[1:]):
            on = rng.choice(CONDITIONS).format(l=rng.choice(aliases[: place + 1]), r=alias)
            if rng.random() < 0.3:
                on += f" AND {rng.choice(FILTERS).format(a=rng.choice([aliases[0], alias]))}"
            how = rng.choice(HOWS)
            if how == "FULL JOIN" and "OR" in on:
                how = "LEFT JOIN"  # DuckDB does not support it as a full join
            from_ += f" {how} {sources[alias]} ON {on}"
    where += [rng.choice(FILTERS).format(a=rng.choice(aliases)) for _ in range(rng.randrange(3))]
    if rng.random() < 0.25:
        words = rng.choice(["EXISTS", "NOT EXISTS"])
        where.append(f"{words} (SELECT 1 FROM f e WHERE {rng.choice(CONDITIONS).format(l='x', r='e')})")
    values = [rng.choice(VALUES).format(a=rng.choice(aliases)) for _ in range(rng.randrange(1, 4))]
    tail = f" WHERE {' AND '.join(f'({part})' for part in where)}" if where else ""
    if rng.random() < 0.4:
        keys = values[: rng.randrange(2)]
        found = [rng.choice(AGGREGATES).format(a=rng.choice(aliases)) for _ in range(rng.randrange(1, 4))]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = " HAVING count(*) > 2" if keys and rng.random() < 0.3 else ""
        return f"SELECT {', '.join([*keys, *found])} FROM {from_}{tail}{group}{having}"
    distinct = "DISTINCT " if rng.random() < 0.15 else ""
    return f"SELECT {distinct}{', '.join(values)} FROM {from_}{tail}"


@pytest.mark.parametrize("case", range(repeat(300)))
def test_random_queries_have_the_rows_of_duckdb(case: int) -> None:
    t, f = random_table(generator("sql", case, "t"), 23), random_table(generator("sql", case, "f"), 17)
    query = random_query(seeded("sql", case))
    found = dovetail.sql(query, t=t, f=f)
    assert counted(rows_of(found)) == counted(duckdb.sql(query).fetchall()), query


def test_order_follows_spark_for_nulls_and_nan() -> None:
    t = pa.table({"f": [1.0, None, float("nan"), -0.0, 0.0], "n": range(5)})
    assert dovetail.sql("SELECT n FROM t ORDER BY f, n", t=t)["n"].to_pylist() == [1, 3, 4, 0, 2]
    assert dovetail.sql("SELECT n FROM t ORDER BY f DESC, n DESC", t=t)["n"].to_pylist() == [2, 0, 4, 3, 1]


def test_the_result_is_of_the_kind_of_the_tables(tmp_path: Path) -> None:
    query = "SELECT trip, price FROM t JOIN f ON km < up_to WHERE price > 3"
    expected = {("a", 4.5), ("b", 4.5), ("c", 4.5)}
    pandas = pytest.importorskip("pandas")
    found = dovetail.sql(query, t=TRIPS.to_pandas(), f=FARES.to_pandas())
    assert isinstance(found, pandas.DataFrame)
    assert set(found.itertuples(index=False, name=None)) == expected
    found = dovetail.sql(query, t=pl.from_arrow(TRIPS), f=pl.from_arrow(FARES))
    assert isinstance(found, pl.DataFrame)
    assert set(found.rows()) == expected
    pq.write_table(TRIPS, tmp_path / "trips.parquet")
    pyarrow.csv.write_csv(FARES, tmp_path / "fares.csv")
    assert set(rows_of(dovetail.sql(query, t=tmp_path / "trips.parquet", f=str(tmp_path / "fares.csv")))) == expected
    named = query.replace(" t ", f" '{tmp_path}/trips.parquet' ").replace(" f ", f" '{tmp_path}/fares.csv' ")
    assert set(rows_of(dovetail.sql(named))) == expected


def test_pairs_of_a_join_are_aggregated_without_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.calls.join", lambda request: pytest.fail("pairs were made"))
    query = "SELECT t.zone, count(*), sum(price) FROM t JOIN f ON km < up_to GROUP BY t.zone"
    found = dovetail.sql(query, t=TRIPS, f=FARES)
    assert counted(rows_of(found)) == counted([(1, 3, 7.5), (2, 3, 12.0)])


def test_names_of_the_result_are_those_of_the_query() -> None:
    query = "SELECT t.km, g.zone, sum(price) AS total, count(*) FROM t JOIN f g ON km < up_to GROUP BY km, g.zone"
    assert dovetail.sql(query, t=TRIPS, f=FARES).column_names == ["km", "zone", "total", "count(*)"]


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("SELECT sum(km) OVER (ORDER BY km) FROM t", InputError, "go on in pandas, Polars or DuckDB"),
        ("SELECT count(DISTINCT km) FROM t", InputError, r"count\(DISTINCT km\) is not for tables in process"),
        ("SELECT trip FROM t UNION ALL SELECT trip FROM t", InputError, "UNION is not for tables in process"),
        ("SELECT trip FROM t JOIN f USING (zone)", InputError, "only JOIN … ON is read here"),
        ("SELECT km FROM t GROUP BY trip", ConditionError, "km is neither grouped nor aggregated"),
        ("SELECT x FROM t", ConditionError, "x: no such column"),
        ("SELECT trip FROM trip", InputError, "there is no table 'trip'; there are t, f"),
        ("SELECT trip FROM t LIMIT 1 + 1", InputError, "LIMIT takes a whole number"),
        ("SELECT trip FROM", DovetailError, "query"),
        ("DROP TABLE t", InputError, "one query, SELECT"),
        ("SELECT zone FROM t, f", ConditionError, "zone is ambiguous"),
        ("SELECT soundex(trip) FROM t", ConditionError, "soundex"),
        ("SELECT sum(trip) FROM t", ConditionError, "sum needs a number"),
        ("SELECT trip FROM t WHERE km", ConditionError, "is not a condition"),
        ("SELECT trip FROM t ORDER BY 3", ConditionError, "there are 1 columns"),
    ],
)
def test_errors_say_what_to_do(query: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dovetail.sql(query, t=TRIPS, f=FARES)


def test_arguments_that_are_no_query() -> None:
    with pytest.raises(InputError, match="takes a Spark session and a query"):
        dovetail.sql(TRIPS, "SELECT 1")
