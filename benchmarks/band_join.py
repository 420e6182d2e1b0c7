"""Band joins in process, one thread: ours against DuckDB's IEJoin and Polars' join_where.

    l.x BETWEEN r.x - width AND r.x + width

All start from the same two tables with a key and a row number, and return the row numbers of both sides. Ours starts
from NumPy views of Arrow columns; DuckDB and Polars have the tables in their own format. Seconds are CPU seconds of the
join alone; computing the answers, which depend on every pair, is not included.

`dovetail` computes l.x - r.x; `dovetail_spelled` evaluates the condition as written above where rounding could matter.
With any other spelling, DuckDB and Polars compare all pairs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.kernels import band, windows

CHUNK = 1 << 22  # pairs per chunk, when all are kept

Chunks = Iterable[tuple[NDArray[Any], NDArray[Any]]]


class Tables(NamedTuple):
    left: pa.Table
    right: pa.Table
    left_frame: pl.DataFrame
    right_frame: pl.DataFrame
    connection: duckdb.DuckDBPyConnection
    width: float


class Answer(NamedTuple):
    pairs: int
    digest: int


# Data.


def uniform(rows: int, pairs: int) -> Tables:
    """Uniform doubles in 0..1, and a band width that yields about this many pairs."""
    rng = np.random.default_rng(0)
    left, right = (
        pa.table({"x": rng.random(rows), "v": rng.integers(0, 1000, rows), "row": np.arange(rows, dtype=np.int32)})
        for _ in range(2)
    )
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in (("l", left), ("r", right)):
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {name} AS FROM arrow")
        connection.unregister("arrow")
    return Tables(left, right, pl.DataFrame(left), pl.DataFrame(right), connection, pairs / rows**2 / 2)


# Contenders that return all pairs.


def dovetail_pairs(tables: Tables) -> tuple[Answer, float]:
    left, right = _keys(tables)
    started = time.process_time()
    join = band.prepare_floats(left, right, -tables.width, tables.width)
    chunks = list(windows.pairs(join, CHUNK))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def dovetail_spelled(tables: Tables) -> tuple[Answer, float]:
    left, right = _keys(tables)
    width = tables.width

    def check(left_rows: NDArray[Any], right_rows: NDArray[Any]) -> NDArray[np.bool_]:
        x, y = left[left_rows], right[right_rows]
        inside: NDArray[np.bool_] = (x >= y - width) & (x <= y + width)
        return inside

    started = time.process_time()
    chunks = list(windows.pairs(band.prepare_checked(left, right, -width, width, check), CHUNK))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def duckdb_pairs(tables: Tables) -> tuple[Answer, float]:
    started = time.process_time()
    result = tables.connection.sql(f"SELECT l.row, r.row AS row_right {_sql(tables)}").to_arrow_table()
    seconds = time.process_time() - started
    return answer([_numbers(batch) for batch in result.to_batches()]), seconds


def polars_pairs(tables: Tables) -> tuple[Answer, float]:
    if pl.thread_pool_size() != 1:
        raise RuntimeError("Polars was imported with several threads; run this scenario in a process of its own")
    left, right = tables.left_frame.lazy(), tables.right_frame.lazy()
    x, y = pl.col("x"), pl.col("x_right")
    started = time.process_time()
    joined = left.join_where(right, x >= y - tables.width, x <= y + tables.width)
    result = joined.select("row", "row_right").collect().to_arrow()
    seconds = time.process_time() - started
    return answer([_numbers(batch) for batch in result.to_batches()]), seconds


# Contenders that return the number of partners of each left row and the sum of their values.


def dovetail_sums(tables: Tables) -> tuple[Answer, float]:
    left, right = _keys(tables)
    values = np.asarray(tables.right.column("v"))
    started = time.process_time()
    join = band.prepare_floats(left, right, -tables.width, tables.width)
    counts, sums = windows.row_counts(join), windows.row_sums(join, values)
    seconds = time.process_time() - started
    return answer([(counts[counts > 0], sums[counts > 0])]), seconds


def duckdb_sums(tables: Tables) -> tuple[Answer, float]:
    started = time.process_time()
    query = f"SELECT count(*), sum(r.v)::BIGINT {_sql(tables)} GROUP BY l.row"
    result = tables.connection.sql(query).to_arrow_table()
    seconds = time.process_time() - started
    return answer([_numbers(batch) for batch in result.to_batches()]), seconds


def _keys(tables: Tables) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(tables.left.column("x")), np.asarray(tables.right.column("x"))


def _sql(tables: Tables) -> str:
    return f"FROM l JOIN r ON l.x >= r.x - {tables.width!r}::DOUBLE AND l.x <= r.x + {tables.width!r}::DOUBLE"


def _numbers(batch: pa.RecordBatch) -> tuple[NDArray[Any], NDArray[Any]]:
    left, right = (np.asarray(column) for column in batch.columns)
    return left, right


def answer(chunks: Chunks) -> Answer:
    """The number of pairs, and a checksum of the pairs that does not depend on their order."""
    pairs = digest = 0
    for left, right in chunks:
        mixed = left.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ right.astype(np.uint64)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
        pairs += len(left)
        digest += int(mixed.sum())
    return Answer(pairs, digest % 2**64)
