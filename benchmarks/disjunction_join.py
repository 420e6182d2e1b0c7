"""Joins on a disjunction of equalities, in process, through the public API: ours and DuckDB's.

l.a = r.a OR l.b = r.b
"""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

import dovetail
from benchmarks.hash_join import Tables

ON = "l.a = r.a OR l.b = r.b"


def two_keys(rows: int, matches: int) -> Tables:
    """Two independent keys; together they give every row about this many partners."""
    rng = np.random.default_rng(0)
    domain = 2 * rows // matches
    left, right = (
        pa.table({"id": np.arange(rows), "a": rng.integers(0, domain, rows), "b": rng.integers(0, domain, rows)})
        for _ in range(2)
    )
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("l", left)
    connection.register("r", right)
    return Tables(left, right, connection)


def dovetail_join(tables: Tables) -> tuple[int, int]:
    return digest(dovetail.join(tables.left, tables.right, ON, progress=False))


def duckdb_join(tables: Tables) -> tuple[int, int]:
    query = f"SELECT l.id, l.a, l.b, r.id AS id_right, r.a AS a_right, r.b AS b_right FROM l JOIN r ON {ON}"
    return digest(tables.connection.sql(query).to_arrow_table())


def digest(result: pa.Table) -> tuple[int, int]:
    """The number of rows, and a checksum of the pairs that does not depend on their order."""
    left, right = (np.asarray(result.column(name)) for name in ("id", "id_right"))
    return result.num_rows, int((left * 2654435761 ^ right).sum())
