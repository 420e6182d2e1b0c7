"""Joins on inequalities in process, one thread: ours against DuckDB's IEJoin and Polars' join_where.

    l.a < r.a AND l.b > r.b

All start from the same two tables with two keys and a row number, and return the row numbers of both sides. Ours starts
from Arrow, so its time includes converting keys to codes; DuckDB and Polars have the tables in their own format.
Seconds are CPU seconds of the join alone; computing the answers, which depend on every pair, is not included.

The number of pairs depends on how closely b follows a: b = a + noise * u, u uniform. Without noise there are no pairs;
with a uniform in 0..1 there are n * n * noise / 6.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.datasets import read_columns
from dovetail.core.codes import order_codes
from dovetail.kernels import two_inequalities
from dovetail.kernels.cross import GREATER, LESS

SQL = "FROM l JOIN r ON l.a < r.a AND l.b > r.b"
CHUNK = 1 << 22  # pairs per chunk, when all are kept


class Tables(NamedTuple):
    left: pa.Table
    right: pa.Table
    left_frame: pl.DataFrame
    right_frame: pl.DataFrame
    connection: duckdb.DuckDBPyConnection


class Answer(NamedTuple):
    pairs: int
    digest: int


# Data.


def uniform(rows: int, noise: float) -> Tables:
    """Floats without ties."""
    rng = np.random.default_rng(0)
    return _tables(*(_following(rng, rng.random(rows), noise) for _ in range(2)))


def ties(rows: int, domain: int) -> Tables:
    """Integers with many ties: b = a + 0, 1 or 2, so that every ninth pair of neighbours in a is a result."""
    rng = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        a = rng.integers(0, domain, rows)
        sides.append((a, a + rng.integers(0, 3, rows)))
    return _tables(*sides)


def zipf(rows: int, skew: float, noise: float) -> Tables:
    """A few keys that make up a large part of the rows, and a long tail."""
    rng = np.random.default_rng(0)
    return _tables(*(_following(rng, np.minimum(rng.zipf(skew, rows), 10**6) * 1.0, noise) for _ in range(2)))


def trips(rows: int) -> Tables:
    """Taxi trips that were shorter than others and yet more expensive: two samples of this many trips."""
    columns = read_columns("nyc_green_2020", "trip_distance", "fare_amount")
    distance, fare = (columns.column(name) for name in columns.column_names)
    good = columns.filter(pc.and_(pc.and_(pc.greater(distance, 0), pc.less(distance, 100)), pc.greater(fare, 0)))
    rng = np.random.default_rng(0)
    samples = (good.take(rng.choice(good.num_rows, rows, replace=False)) for _ in range(2))
    return _tables(*(tuple(np.asarray(column) for column in sample.columns) for sample in samples))


def jobs(rows: int) -> Tables:
    """Jobs of a computing centre that were in the system at the same time: a sample joined with itself.

    l.start < r.end AND l.end > r.start is the condition above, with a = start, b = end on the left, and a = end,
    b = start on the right.
    """
    columns = read_columns("surf_jobs_2022", "submit_ms", "duration_ms")
    chosen = np.sort(np.random.default_rng(0).choice(columns.num_rows, rows, replace=False))
    start, duration = (np.asarray(column)[chosen] for column in columns.columns)
    end = start + duration
    return _tables((start, end), (end, start))


def _following(rng: np.random.Generator, a: NDArray[np.float64], noise: float) -> tuple[NDArray[np.float64], ...]:
    return a, a + noise * rng.random(len(a))


def _tables(*sides: tuple[NDArray[np.generic], ...]) -> Tables:
    left, right = (pa.table({"a": a, "b": b, "row": np.arange(len(a), dtype=np.int32)}) for a, b in sides)
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in (("l", left), ("r", right)):
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {name} AS FROM arrow")
        connection.unregister("arrow")
    return Tables(left, right, pl.DataFrame(left), pl.DataFrame(right), connection)


# Contenders that return all pairs.


def dovetail_pairs(tables: Tables) -> tuple[Answer, float]:
    started = time.process_time()
    chunks = list(two_inequalities.pairs(_prepared(tables), CHUNK))
    seconds = time.process_time() - started
    return _answer(chunks), seconds


def duckdb_pairs(tables: Tables) -> tuple[Answer, float]:
    started = time.process_time()
    result = tables.connection.sql(f"SELECT l.row, r.row AS row_right {SQL}").to_arrow_table()
    seconds = time.process_time() - started
    return _answer([_numbers(batch) for batch in result.to_batches()]), seconds


def polars_pairs(tables: Tables) -> tuple[Answer, float]:
    if pl.thread_pool_size() != 1:
        raise RuntimeError("Polars was imported with several threads; run this scenario in a process of its own")
    left, right = tables.left_frame.lazy(), tables.right_frame.lazy()
    conditions = (pl.col("a") < pl.col("a_right"), pl.col("b") > pl.col("b_right"))
    started = time.process_time()
    result = left.join_where(right, *conditions).select("row", "row_right").collect().to_arrow()
    seconds = time.process_time() - started
    return _answer([_numbers(batch) for batch in result.to_batches()]), seconds


# Contenders that count the pairs.


def dovetail_count(tables: Tables) -> tuple[int, float]:
    started = time.process_time()
    pairs = two_inequalities.count(_prepared(tables, swap=False))
    return pairs, time.process_time() - started


def duckdb_count(tables: Tables) -> tuple[int, float]:
    started = time.process_time()
    [(pairs,)] = tables.connection.sql(f"SELECT count(*) {SQL}").fetchall()
    return pairs, time.process_time() - started


# Contenders that produce all pairs in chunks, which are read and dropped.


def dovetail_chunks(tables: Tables) -> tuple[Answer, float]:
    started = time.process_time()
    looking = 0.0
    answers = []
    for chunk in two_inequalities.pairs(_prepared(tables)):
        paused = time.process_time()
        answers.append(_answer([chunk]))
        looking += time.process_time() - paused
    return _total(answers), time.process_time() - started - looking


def duckdb_chunks(tables: Tables) -> tuple[Answer, float]:
    started = time.process_time()
    looking = 0.0
    answers = []
    for batch in tables.connection.sql(f"SELECT l.row, r.row AS row_right {SQL}").to_arrow_reader(1 << 20):
        paused = time.process_time()
        answers.append(_answer([_numbers(batch)]))
        looking += time.process_time() - paused
    return _total(answers), time.process_time() - started - looking


def _prepared(tables: Tables, swap: bool | None = None) -> two_inequalities.TwoInequalities:
    (a, b), (c, d) = ([order_codes(table.column(name).chunk(0)).values for name in ("a", "b")] for table in tables[:2])
    return two_inequalities.prepare((a, b), (c, d), (LESS, GREATER), swap)


def _numbers(batch: pa.RecordBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    left, right = (np.asarray(column) for column in batch.columns)
    return left, right


def _answer(chunks: Iterable[tuple[NDArray[np.signedinteger], NDArray[np.signedinteger]]]) -> Answer:
    """The number of pairs, and a checksum of the pairs that does not depend on their order."""
    pairs = digest = 0
    for left, right in chunks:
        mixed = left.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ right.astype(np.uint64)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
        pairs += len(left)
        digest += int(mixed.sum())
    return Answer(pairs, digest % 2**64)


def _total(answers: list[Answer]) -> Answer:
    return Answer(sum(answer.pairs for answer in answers), sum(answer.digest for answer in answers) % 2**64)
