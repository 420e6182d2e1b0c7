"""Equality joins of more than memory holds: ours gives results from the start, DuckDB's all at once."""

from __future__ import annotations

import tempfile
import time
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import dovetail

BATCH_ROWS = 1 << 16
COLUMNS = "l.k, l.a, l.s, r.k AS k_right, r.b, r.s AS s_right"


class Tables(NamedTuple):
    left: pa.Table
    right: pa.Table
    memory: str


def wide_rows(rows: int, width: int, memory: str) -> Tables:
    """Keys in random order, each once on either side; a text makes up the width."""
    texts = pa.array([f"{i:0{width - 24}d}" for i in range(1000)])  # a row has two numbers and an offset besides

    def table(seed: int, number: str) -> pa.Table:
        rng = np.random.default_rng(seed)
        text = texts.take(pa.array(rng.integers(0, 1000, rows)))
        return pa.table({"k": rng.permutation(rows), number: np.arange(rows), "s": text})

    tables = Tables(table(1, "a"), table(2, "b"), memory)
    left, right = (side.slice(0, 1000) for side in tables[:2])
    for _ in dovetail.progressive(left, right, "l.k = r.k", memory="100kB", algorithm="rpj"):  # loads the kernels
        pass
    return tables


def duckdb_join(tables: Tables) -> tuple[int, int]:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as place, duckdb.connect() as connection:
        settings = f"SET threads = 1; SET memory_limit = '{tables.memory}'; SET temp_directory = '{place}'"
        connection.execute(f"{settings}; SET preserve_insertion_order = false")
        connection.register("l", tables.left)
        connection.register("r", tables.right)
        reader = connection.sql(f"SELECT {COLUMNS} FROM l JOIN r ON l.k = r.k").to_arrow_reader(BATCH_ROWS)
        return _digest(reader)


def progressive_join(tables: Tables) -> tuple[int, int]:
    return _digest(step.batch for step in _steps(tables))


def duckdb_total(tables: Tables) -> tuple[int, float]:
    """As long as all its results take: it gives none before its table is built."""
    started = time.process_time()
    duckdb_join(tables)
    return 0, time.process_time() - started


def first_thousand(tables: Tables) -> tuple[int, float]:
    """How long the first 1,000 results take."""
    started = time.process_time()
    found = 0
    for step in _steps(tables):
        found += step.batch.num_rows
        if found >= 1000:
            break
    return 0, time.process_time() - started


def _steps(tables: Tables) -> Any:
    return dovetail.progressive(tables.left, tables.right, "l.k = r.k", memory=tables.memory, algorithm="rpj")


def _digest(batches: Any) -> tuple[int, int]:
    """Numbers that depend on which rows were paired, not on their order."""
    rows = digest = 0
    for batch in batches:
        a, b = (np.asarray(batch.column(name)) for name in ("a", "b"))
        rows += batch.num_rows
        digest = (digest + int((a * 2654435761 ^ b).sum())) % 2**64  # sums wrap around in batches of any size
    return rows, digest
