"""Joins through the public API that return whole rows: `dovetail.join` against DuckDB and Polars, as Arrow tables.

All start from tables in memory, DuckDB and Polars from their own formats. Answers are the number of rows and a sum over
all numeric columns, so that every row counts. Each system runs on one thread and is measured in CPU seconds, unless a
scenario has `threads = "all"`: then elapsed time is measured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import dovetail

Sides = tuple[pa.Table, pa.Table]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class Task(NamedTuple):
    left: pa.Table
    right: pa.Table
    on: str
    how: str
    threads: int | None
    connection: duckdb.DuckDBPyConnection
    frames: tuple[pl.LazyFrame, pl.LazyFrame]


class Answer(NamedTuple):
    rows: int
    total: int


# Data.


def two_inequalities(rows: int, noise: float) -> Sides:
    rng = np.random.default_rng(0)

    def side() -> pa.Table:
        a = rng.random(rows)
        return pa.table({"a": a, "b": a + noise * rng.random(rows), "row": np.arange(rows)})

    return side(), side()


def intervals(rows: int, longest: int) -> Sides:
    """Start and end of intervals no longer than `longest`, in as many units of time as there are rows."""
    rng = np.random.default_rng(0)

    def side() -> pa.Table:
        start = rng.integers(0, 100 * rows, rows)
        return pa.table({"s": start, "e": start + rng.integers(1, 100 * longest, rows), "row": np.arange(rows)})

    return side(), side()


def points(rows: int, side_length: int) -> Sides:
    rng = np.random.default_rng(0)

    def side() -> pa.Table:
        x, y = (rng.integers(0, side_length, rows) for _ in range(2))
        return pa.table({"x": x, "y": y, "row": np.arange(rows)})

    return side(), side()


def unique_keys(rows: int, kind: str) -> Sides:
    rng = np.random.default_rng(0)

    def side(name: str) -> pa.Table:
        key = rng.permutation(rows)
        keys = {
            "ints": {"k": key},
            "far_ints": {"k": key * 7_919_000_003},
            "strings": {"k": _words(key)},
            "composite": {"x": key // 1000, "y": key % 1000},
            "composite_strings": {"x": key // 1000, "y": _words(key % 1000)},
        }
        return pa.table({**keys[kind], name: np.arange(rows)})

    return side("a"), side("b")


def star(rows: int, small: int) -> Sides:
    rng = np.random.default_rng(0)
    fact = pa.table({"k": rng.integers(0, small, rows), "a": np.arange(rows)})
    return fact, pa.table({"k": np.arange(small), "b": np.arange(small) * 7})


def skewed(rows: int, exponent: float) -> Sides:
    rng = np.random.default_rng(0)
    keys = np.minimum(rng.zipf(exponent, rows), rows)
    left = pa.table({"k": keys, "a": np.arange(rows)})
    return left, pa.table({"k": rng.permutation(rows)[: rows // 10], "b": np.arange(rows // 10)})


def groups(rows: int, count: int) -> Sides:
    rng = np.random.default_rng(0)

    def side() -> pa.Table:
        columns = {"v": rng.random(rows), "w": rng.random(rows), "row": np.arange(rows)}
        return pa.table({"g": rng.integers(0, count, rows), **columns})

    return side(), side()


def wide(rows: int, noise: float) -> Sides:
    """Twenty columns per side: numbers, short strings and long strings."""
    rng = np.random.default_rng(0)
    sides = []
    for table in two_inequalities(rows, noise):
        for i in range(6):
            table = table.append_column(f"n{i}", pa.array(rng.integers(0, 10**9, rows)))
            table = table.append_column(f"f{i}", pa.array(rng.random(rows)))
        for i in range(5):
            table = table.append_column(f"s{i}", _words(rng.integers(0, 10 ** (i + 3), rows)))
        sides.append(table)
    return sides[0], sides[1]


def _words(numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("customer", pc.cast(pa.array(numbers), pa.string()), "-")


DATA: dict[str, Callable[..., Sides]] = {
    function.__name__: function
    for function in (two_inequalities, intervals, points, unique_keys, star, skewed, groups, wide)
}


def prepare(data: str, on: str, how: str = "inner", threads: str = "one", **arguments: Any) -> Task:
    left, right = DATA[data](**arguments)
    connection = duckdb.connect()
    if threads == "one":
        connection.execute("SET threads = 1")
    for name, table in (("l", left), ("r", right)):
        connection.register("arrow", table)
        connection.execute(f"CREATE TABLE {name} AS FROM arrow")
        connection.unregister("arrow")
    frames = (pl.DataFrame(left).lazy(), pl.DataFrame(right).rename(lambda name: f"{name}_right").lazy())
    return Task(left, right, on, how, 1 if threads == "one" else None, connection, frames)


# Contenders.


def dovetail_join(task: Task) -> pa.Table:
    return dovetail.join(task.left, task.right, task.on, task.how, threads=task.threads)


def dovetail_progressive(task: Task) -> pa.Table:
    steps = dovetail.progressive(task.left, task.right, task.on, memory=None)
    return pa.Table.from_batches([step.batch for step in steps])


def duckdb_join(task: Task) -> pa.Table:
    columns = [f"l.{name}" for name in task.left.column_names]
    if task.how in ("left_semi", "left_anti"):
        kind = task.how.removeprefix("left_").upper()
    else:
        kind = {"inner": "", "left": "LEFT", "full": "FULL"}[task.how]
        columns += [f"r.{name} AS {name}_right" for name in task.right.column_names]
    sql = f"SELECT {', '.join(columns)} FROM l {kind} JOIN r ON {task.on}"
    return task.connection.sql(sql).to_arrow_table()


def polars_join(task: Task) -> pa.Table:
    """Uses `join` for equalities, and `join_where`, which supports only inner joins, for everything else."""
    if task.threads == 1 and pl.thread_pool_size() != 1:
        raise RuntimeError("Polars was imported with several threads; run this scenario in a process of its own")
    left, right = task.frames
    parts = [re.fullmatch(r"l\.(\w+) ([!<>=]+) r\.(\w+)", part) for part in task.on.split(" AND ")]
    terms = [part.groups() for part in parts if part is not None]
    if all(operator == "=" for _, operator, _ in terms):
        mine, theirs = [a for a, _, _ in terms], [f"{b}_right" for _, _, b in terms]
        return left.join(right, left_on=mine, right_on=theirs, coalesce=False).collect().to_arrow()
    predicates = [OPERATORS[operator](pl.col(a), pl.col(f"{b}_right")) for a, operator, b in terms]
    return left.join_where(right, *predicates).collect().to_arrow()


def _timed(join: Callable[[Task], pa.Table]) -> Callable[[Task], tuple[Answer, float]]:
    """The answer, and the seconds of the join alone: CPU time, or elapsed time if all cores are used."""

    def run(task: Task) -> tuple[Answer, float]:
        clock = time.process_time if task.threads == 1 else time.perf_counter
        started = clock()
        result = join(task)
        seconds = clock() - started
        return answer(result), seconds

    return run


timed_dovetail_join = _timed(dovetail_join)
timed_dovetail_progressive = _timed(dovetail_progressive)
timed_duckdb_join = _timed(duckdb_join)
timed_polars_join = _timed(polars_join)
timed_one_thread = _timed(lambda task: dovetail.join(task.left, task.right, task.on, task.how, threads=1))


def answer(result: pa.Table) -> Answer:
    """The number of rows, and a checksum that depends on all integers and on which ones are in the same row."""
    total, weight = 0, 1
    for column in result.columns:
        if pa.types.is_integer(column.type):
            total += weight * (pc.sum(pc.cast(column, pa.int64())).as_py() or 0)
        weight += 1
    return Answer(result.num_rows, total + _mixed(result))


def _mixed(result: pa.Table) -> int:
    """Combine the columns row by row, so that a wrong pairing of rows changes the result."""
    numbers = [column for column in result.columns if pa.types.is_integer(column.type)]
    mixed = np.zeros(result.num_rows, np.uint64)
    for column in numbers:
        mixed = mixed * np.uint64(2654435761) + pc.fill_null(column, -1).to_numpy().astype(np.uint64)
    return int((mixed >> np.uint64(11)).sum())
