"""Equality joins larger than memory: ours returns results from the start, DuckDB once one side has been read."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import dovetail
from benchmarks.whole_rows import Answer

BATCH_ROWS = 1 << 16
FIRST = 1000  # results
COLUMNS = "l.k, l.a, l.s, r.k AS k_right, r.b, r.s AS s_right"


class Tables(NamedTuple):
    left: pa.Table
    right: pa.Table
    memory: str


def wide_rows(rows: int, width: int, memory: str) -> Tables:
    """Keys in random order, each once per side; a string fills up the row width."""
    texts = pa.array([f"{i:0{width - 24}d}" for i in range(1000)])  # each row also has two numbers and an offset

    def table(seed: int, number: str) -> pa.Table:
        rng = np.random.default_rng(seed)
        text = texts.take(pa.array(rng.integers(0, 1000, rows)))
        return pa.table({"k": rng.permutation(rows), number: np.arange(rows), "s": text})

    tables = Tables(table(1, "a"), table(2, "b"), memory)
    left, right = (side.slice(0, 1000) for side in tables[:2])
    for algorithm in ("auto", "diner", "rpj"):
        for _ in _steps(Tables(left, right, "100kB"), algorithm):  # loads the kernels
            pass
    return tables


def duckdb_join(tables: Tables) -> Answer:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as place, _connect(tables, place) as connection:
        return _digest(_reader(connection, BATCH_ROWS))


def join_by_auto(tables: Tables) -> Answer:
    return _digest(step.batch for step in _steps(tables, "auto"))


def join_by_diner(tables: Tables) -> Answer:
    return _digest(step.batch for step in _steps(tables, "diner"))


def join_by_rpj(tables: Tables) -> Answer:
    return _digest(step.batch for step in _steps(tables, "rpj"))


def duckdb_first(tables: Tables) -> tuple[bool, float]:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as place:
        started = time.process_time()
        with _connect(tables, place) as connection:
            return _first(tables, _reader(connection, FIRST), started)


def first_by_rpj(tables: Tables) -> tuple[bool, float]:
    started = time.process_time()
    return _first(tables, (step.batch for step in _steps(tables, "rpj")), started)


def _first(tables: Tables, batches: Iterator[pa.RecordBatch], started: float) -> tuple[bool, float]:
    """Whether the first results are correct and distinct, and how long they took."""
    found: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in found) < FIRST:
        found.append(next(batches))
    seconds = time.process_time() - started
    rows = pa.Table.from_batches(found)
    a, b = (np.asarray(rows[name]) for name in ("a", "b"))  # row numbers
    partners = np.asarray(tables.left["k"])[a] == np.asarray(tables.right["k"])[b]
    return bool(partners.all()) and len(np.unique(a)) == len(a), seconds


def _connect(tables: Tables, place: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    settings = f"SET threads = 1; SET memory_limit = '{tables.memory}'; SET temp_directory = '{place}'"
    connection.execute(f"{settings}; SET preserve_insertion_order = false")
    connection.register("l", tables.left)
    connection.register("r", tables.right)
    return connection


def _reader(connection: duckdb.DuckDBPyConnection, rows: int) -> pa.RecordBatchReader:
    return connection.sql(f"SELECT {COLUMNS} FROM l JOIN r ON l.k = r.k").to_arrow_reader(rows)


def _steps(tables: Tables, algorithm: str) -> Any:
    return dovetail.progressive(tables.left, tables.right, "l.k = r.k", memory=tables.memory, algorithm=algorithm)


def _digest(batches: Any) -> Answer:
    """Checksums of the pairs that do not depend on their order."""
    rows = digest = 0
    for batch in batches:
        a, b = (np.asarray(batch.column(name)) for name in ("a", "b"))
        rows += batch.num_rows
        digest = (digest + int((a * 2654435761 ^ b).sum())) % 2**64  # sums wrap around in batches of any size
    return Answer(rows, digest)
