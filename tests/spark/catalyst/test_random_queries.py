"""Random queries with and without Dovetail in the session: join types, column types, conditions, nesting, groups.

Ten at a time are combined into one Spark query, with a row for each: its number, its count of rows, and their hash.
"""

from __future__ import annotations

import random
import warnings

import pytest
from pyspark.sql import SparkSession
from tests.effort import repeat
from tests.seed import seeded

import dovetail
from dovetail.spark.catalyst import replacing

pytestmark = pytest.mark.spark

ROWS = 80
TABLE = """
    SELECT id, (id * {0}) % 211 AS x, (id * {0}) % 211 + id % 23 AS y, IF(id % 7 = 0, NULL, (id * 31) % 29) AS k,
        id % 4 AS few, CAST(id * 1.25 AS DECIMAL(12, 2)) AS d, CAST((id * {0}) % 97 AS DECIMAL(30, 4)) AS wide,
        DATE '2024-01-01' + CAST((id * {0}) % 90 AS INT) AS day,
        TIMESTAMP '2024-03-31 00:00:00' + make_dt_interval(0, (id * {0}) % 50) AS at,
        TIMESTAMP_NTZ '2024-03-31 00:00:00' + make_dt_interval(0, (id * {0}) % 40) AS wall,
        make_dt_interval(0, 0, (id * {0}) % 60) AS span,
        CASE WHEN id % 11 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 13 = 0 THEN -0.0D ELSE (id - 40) / 3.0D END AS f,
        CAST(id % 19 AS FLOAT) / 7 AS g, CAST(id % 50 AS TINYINT) AS t, CAST(id % 9 AS SMALLINT) AS h,
        concat('p', (id * {0}) % 37) AS s, id % 2 = 0 AS even, array(id, id % 5) AS items,
        struct(id AS a, d AS b) AS pair
    FROM range({1})
"""
RANGES = (
    "{l}.x BETWEEN {r}.x AND {r}.y",
    "{l}.x <= {r}.y AND {r}.x <= {l}.y",
    "{l}.x > {r}.x AND {l}.k <= {r}.k",
    "{l}.f < {r}.f AND {l}.y >= {r}.x",
    "abs({l}.x - {r}.y) <= 4",
    "{l}.at >= {r}.at AND {l}.at < {r}.at + INTERVAL 7 MINUTES",
    "{l}.wall >= {r}.wall - INTERVAL 3 MINUTES AND {l}.wall < {r}.wall",
    "{l}.span < {r}.span AND {l}.x > {r}.x",
    "{l}.day BETWEEN {r}.day AND {r}.day + INTERVAL 3 DAYS",
    "{l}.s <= {r}.s AND {l}.d > {r}.d",
    "{l}.wide < {r}.wide AND {r}.wide < {l}.wide + 2.5",
    "{l}.g * 2 < {r}.g AND {l}.t > {r}.t",
    "{l}.h <> {r}.h AND {l}.x < {r}.x AND {l}.y > {r}.y",
    "{l}.x < {r}.x OR {l}.k > {r}.k + 2",
    "{l}.few = {r}.few AND {l}.x BETWEEN {r}.x AND {r}.y",
    "{l}.even = {r}.even AND {l}.f <= {r}.f AND {l}.x > {r}.y",
    "NOT ({l}.x > {r}.y) AND NOT ({l}.y < {r}.x)",
    "{l}.pair.a < {r}.pair.a AND {l}.t >= {r}.t",
    "{l}.d >= {r}.f AND {l}.f < {r}.wide - 7",
    "date_trunc('HOUR', {l}.at) > {r}.at AND {l}.d > {r}.y / 2",
)
ALSO = (
    " AND {l}.id % 3 = 0", " AND {r}.id < 70", " AND {l}.s LIKE '%1'", " AND {r}.k IS NOT NULL",
    " AND length({l}.s) + length({r}.s) > 4", " AND coalesce({l}.k, 0) <> coalesce({r}.k, 1)", " AND {l}.few IN (1, 2)",
    " AND CASE WHEN {l}.even THEN {r}.even ELSE {r}.few > 1 END", " AND size({l}.items) > {r}.few - 1",
)  # fmt: skip
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
COLUMNS = "id, x, y, k, few, d, wide, day, at, wall, span, f, g, t, h, s, even, items, pair"


def random_input(rng: random.Random, depth: int) -> str:
    table = rng.choice(["one", "two"])
    shape = rng.randrange(9 if depth else 7)
    if shape == 0:
        return f"(SELECT * FROM {table} WHERE x > {rng.randrange(150)})"
    if shape == 1:
        return f"(SELECT DISTINCT {COLUMNS} FROM {table} WHERE k IS NOT NULL)"
    if shape == 2:
        return f"(SELECT {COLUMNS} FROM one WHERE few = 1 UNION ALL SELECT {COLUMNS} FROM two WHERE few <> 1)"
    if shape == 3:
        return f"(SELECT * FROM {table} WHERE x >= (SELECT min(y) FROM two))"
    if shape > 6:
        on = rng.choice(RANGES).format(l="a", r="b")
        columns = ", ".join(f"a.{name}" for name in COLUMNS.split(", "))
        left, right = random_input(rng, depth - 1), random_input(rng, 0)
        kind = rng.choice(["JOIN", "LEFT JOIN", "LEFT ANTI JOIN"])
        return f"(SELECT {columns} FROM {left} a {kind} {right} b ON ({on}) AND b.id < 30)"
    return table


def random_query(rng: random.Random) -> str:
    """A query with any number of columns."""
    left, right, kind = random_input(rng, 2), random_input(rng, 1), rng.choice(JOINS)
    on = " AND ".join(f"({part})" for part in rng.sample(RANGES, rng.choice([1, 1, 2])))
    on += rng.choice(ALSO) if rng.random() < 0.4 else ""
    on = on.format(l="l", r="r")
    if rng.random() < 0.15:
        return f"SELECT l.* FROM {left} l WHERE {rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {right} r WHERE {on})"
    both = "SEMI" not in kind and "ANTI" not in kind
    columns = rng.sample([name for name in COLUMNS.split(", ") if name not in ("span", "wall")], rng.randrange(1, 9))
    picked = ", ".join(f"{rng.choice('lr') if both else 'l'}.{name} AS {name}_{i}" for i, name in enumerate(columns))
    joined = f"FROM {left} l {kind} {right} r ON {on}"
    if rng.random() < 0.6:
        return f"SELECT {picked} {joined}"
    most = f"max({'r' if both else 'l'}.x) AS most"
    return f"SELECT l.s, l.few, count(*) AS n, min(l.d) AS least, {most} {joined} GROUP BY l.s, l.few"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set(replacing.LEAST_PAIRS, "0")
    for name, factor in (("one", 7919), ("two", 104729)):
        session.sql(TABLE.format(factor, ROWS)).createOrReplaceTempView(name)
    return session


def compare(session: SparkSession, seeds: range) -> None:
    queries = {seed: random_query(seeded("plain sql", seed)) for seed in seeds}
    hashed = " UNION ALL ".join(
        f"SELECT {seed} AS seed, count(*) AS n, sum(CAST(xxhash64(struct(*)) AS DECIMAL(38, 0))) AS h FROM ({query})"
        for seed, query in queries.items()
    )
    expected = {row.seed: row for row in session.sql(hashed).collect()}
    with dovetail.enable(session), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        frame = session.sql(hashed)
        found = {row.seed: row for row in frame.collect()}
        taken = dovetail.explain(frame).taken
    for seed, query in queries.items():
        assert found[seed] == expected[seed], query
    assert taken >= len(queries) // 2


@pytest.mark.parametrize("turn", range(repeat(50)))
def test_random_queries(turn: int, session: SparkSession) -> None:
    compare(session, range(10 * turn, 10 * turn + 10))


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(50))
def test_five_hundred(turn: int, session: SparkSession) -> None:
    compare(session, range(1000 + 10 * turn, 1010 + 10 * turn))
