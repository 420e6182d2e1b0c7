"""Orders and line items from Parquet files, clustered by date: our Diag-Join against DuckDB's hash join."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import dovetail
from benchmarks import tpch

STEP_MB = 10  # DuckDB's memory is raised in these steps until it finishes


class Files(NamedTuple):
    orders: Path
    items: Path
    memory_mb: int
    share: float


class Outcome(NamedTuple):
    """The number of rows, a checksum of the pairs, and CPU seconds: in total, and to the first rows."""

    rows: int
    digest: int
    seconds: float
    first: float


def by_date(scale: float, share: float, memory_mb: int) -> Files:
    """The files, and the smallest memory, starting from `memory_mb`, in which DuckDB can join them."""
    orders, items = tpch.orders_and_items(scale)
    pa.set_cpu_count(1)
    while True:
        files = Files(orders, items, memory_mb, share)
        try:
            _duckdb(files)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if "out of memory" not in str(error).lower():
                raise
            memory_mb += STEP_MB
        else:
            return files


def duckdb_join(files: Files) -> tuple[tuple[int, int], float]:
    outcome = _duckdb(files)
    return outcome[:2], outcome.seconds


def diag_join(files: Files) -> tuple[tuple[int, int], float]:
    outcome = _diag(files)
    return outcome[:2], outcome.seconds


def diag_first(files: Files) -> tuple[tuple[int, int], float]:
    """The join up to its first rows."""
    outcome = _diag(files)
    return outcome[:2], outcome.first


def _duckdb(files: Files) -> Outcome:
    with tempfile.TemporaryDirectory() as place, duckdb.connect() as connection:
        settings = {"threads": 1, "memory_limit": f"{files.memory_mb}MB", "temp_directory": place}
        for name, value in settings.items():
            connection.execute(f"SET {name} = '{value}'")
        connection.execute("SET preserve_insertion_order = false")
        query = f"SELECT * FROM '{files.orders}' JOIN '{files.items}' ON o_orderkey = l_orderkey"
        return _consumed(lambda: connection.sql(query).to_arrow_reader(1 << 15))


def _diag(files: Files) -> Outcome:
    def batches() -> Iterable[pa.RecordBatch]:
        on, memory = "l.o_orderkey = r.l_orderkey", f"{files.memory_mb}MB"
        steps = dovetail.progressive(files.orders, files.items, on, algorithm="diag", share=files.share, memory=memory)
        return (step.batch for step in steps)

    return _consumed(batches)


def _consumed(batches: Callable[[], Iterable[pa.RecordBatch]]) -> Outcome:
    """Read all batches once and drop them; producing them is part of the measured time."""
    started = time.process_time()
    rows = digest = 0
    first = 0.0
    for batch in batches():
        first = first or time.process_time() - started
        rows += batch.num_rows
        customer, part = (np.asarray(batch.column(name)) for name in ("o_custkey", "l_partkey"))
        digest += int((customer * 1_000_003 ^ part).sum())
    return Outcome(rows, digest, time.process_time() - started, first)
