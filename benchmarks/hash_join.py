"""Equality joins in process: ours, batch by batch, and DuckDB's, all at once."""

from __future__ import annotations

from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import dovetail


class Tables(NamedTuple):
    left: pa.Table
    right: pa.Table
    connection: duckdb.DuckDBPyConnection


def unique_keys(rows: int) -> Tables:
    rng = np.random.default_rng(0)
    left = pa.table({"k": rng.permutation(rows), "a": np.arange(rows)})
    right = pa.table({"k": rng.permutation(rows), "b": np.arange(rows)})
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("l", left)
    connection.register("r", right)
    return Tables(left, right, connection)


def duckdb_join(tables: Tables) -> tuple[int, int]:
    result = tables.connection.sql("SELECT l.k, l.a, r.k AS k_right, r.b FROM l JOIN r ON l.k = r.k").to_arrow_table()
    return result.num_rows, digest(result)


def progressive_join(tables: Tables) -> tuple[int, int]:
    steps = dovetail.progressive(tables.left, tables.right, "l.k = r.k", algorithm="shj", memory=None)
    result = pa.Table.from_batches([step.batch for step in steps])
    return result.num_rows, digest(result)


def digest(result: pa.Table) -> int:
    """A checksum of the pairs that does not depend on their order."""
    a, b = (np.asarray(result.column(name)) for name in ("a", "b"))
    return int((a * 2654435761 ^ b).sum())
