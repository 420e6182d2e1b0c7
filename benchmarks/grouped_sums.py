"""Grouped sums over joins in process, one thread: `dovetail.aggregate` against DuckDB's IEJoin and hash aggregate.

    SELECT l.g, count(*), sum(r.v) FROM l JOIN r ON l.a < r.a AND l.b > r.b GROUP BY l.g

Ours starts from Arrow and includes parsing the SQL; DuckDB has the tables in its own format. The number of pairs
depends on how closely b follows a: n * n * noise / 6.
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import dovetail

ON = "l.a < r.a AND l.b > r.b"


class Tables(NamedTuple):
    left: pa.Table
    right: pa.Table
    connection: duckdb.DuckDBPyConnection


Sums = list[tuple[int, int, int]]  # group, pairs, sum


def uniform(rows: int, noise: float, groups: int) -> Tables:
    rng = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        a = rng.random(rows)
        columns = {"a": a, "b": a + noise * rng.random(rows), "g": rng.integers(0, groups, rows)}
        sides.append(pa.table({**columns, "v": rng.integers(0, 1000, rows)}))
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in zip("lr", sides, strict=True):
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {name} AS FROM arrow")
        connection.unregister("arrow")
    return Tables(sides[0], sides[1], connection)


def dovetail_sums(tables: Tables) -> Sums:
    asked = {"n": "count(*)", "total": "sum(r.v)"}
    return _rows(dovetail.aggregate(tables.left, tables.right, ON, asked, by="l.g"))


def duckdb_sums(tables: Tables) -> Sums:
    query = f"SELECT l.g, count(*), sum(r.v)::BIGINT FROM l JOIN r ON {ON} GROUP BY l.g"
    return _rows(tables.connection.sql(query).to_arrow_table())


def _rows(table: pa.Table) -> Sums:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
