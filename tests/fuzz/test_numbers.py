"""Random joins of three and four inputs on numbers of every width, against DuckDB and against exact Python numbers.

    DOVETAIL_FUZZ_CASES=100000 pytest --seed 7 tests/fuzz/test_numbers.py

A failing case prints everything needed, and `draw(seed)` recreates it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.effort import CASES
from tests.fuzz.columns import for_duckdb
from tests.fuzz.numbers import POOLS, Case, draw, every_value
from tests.seed import SEED

import dovetail
from dovetail.errors import ConditionError, PlanError
from dovetail.testing import random_schedule

SHARDS = 10
ALGORITHMS = ("auto", "mjoin", "miner", "pmj")

FORMS: tuple[Callable[[pa.Table], Any], ...] = (
    lambda table: table,
    lambda table: pa.concat_tables([table.slice(0, len(table) // 2), table.slice(len(table) // 2)]),
    lambda table: table.combine_chunks().to_batches()[0] if len(table) else table,
    lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    pl.from_arrow,
)
"""The forms of input tables."""


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        yield connection


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_difference(duck: duckdb.DuckDBPyConnection, shard: int) -> None:
    for number in range(shard, CASES // 4, SHARDS):
        case = draw(SEED * 1_000_003 + number)
        try:
            check(case, duck)
        except Exception as error:
            error.add_note(str(case))
            raise


@pytest.mark.one_in(3)
@pytest.mark.parametrize("left", POOLS, ids=str)
def test_every_value_of_every_type(left: pa.DataType) -> None:
    for right, algorithm in zip(POOLS, cycle(("auto", "miner")), strict=False):
        case = every_value(left, right)
        expected = case.results()
        try:
            found = dovetail.multijoin(case.tables, case.on, algorithm=algorithm)
        except PlanError:  # the difference is a decimal of more than 18 digits
            found = dovetail.multijoin(case.tables, case.on)
        except ConditionError:
            assert case.overflows()
            continue
        assert expected
        assert _rows(case, found) == expected, str(case)


def check(case: Case, duck: duckdb.DuckDBPyConnection) -> None:
    expected = case.results()
    assert expected == results_by_duckdb(case, duck)
    rng = random.Random(case.seed)
    way = rng.choice((joined, joined, joined, progressively, simulated))
    try:
        assert way(case, rng) == expected, way.__name__
    except ConditionError:
        assert case.overflows()


def results_by_duckdb(case: Case, duck: duckdb.DuckDBPyConnection) -> list[tuple[int, ...]]:
    for alias, table in case.tables.items():
        duck.register(alias, for_duckdb(table))
    rows = ", ".join(f"{alias}.row" for alias in case.tables)
    return sorted(duck.execute(f"SELECT {rows} FROM {', '.join(case.tables)} WHERE {case.duck}").fetchall())


def joined(case: Case, rng: random.Random) -> list[tuple[int, ...]]:
    """The results of a join by any algorithm, with tables of any library."""
    form = rng.choice(FORMS)
    inputs = {alias: form(table) for alias, table in case.tables.items()}
    try:
        found = dovetail.multijoin(inputs, case.on, algorithm=rng.choice(ALGORITHMS))
    except PlanError:  # the algorithm does not support the condition
        found = dovetail.multijoin(inputs, case.on)
    if rng.random() < 0.2:
        assert dovetail.count(inputs, on=case.on) == found.num_rows
    return _rows(case, found)


def progressively(case: Case, rng: random.Random) -> list[tuple[int, ...]]:
    """The results of a progressive join, from tables in turn or from readers."""
    inputs = {alias: table.to_reader(3) if rng.random() < 0.3 else table for alias, table in case.tables.items()}
    try:
        steps = list(dovetail.progressive(inputs, on=case.on))
    except PlanError:  # an input is not connected by an equality, a band or an inequality
        return joined(case, rng)
    return sorted(row for step in steps for row in _rows(case, step.batch))


def simulated(case: Case, rng: random.Random) -> list[tuple[int, ...]]:
    """The results of a simulation with memory for a few rows, stalls, early ends and restarts."""
    block_rows = rng.choice((1, 2, 3))
    memory_rows = (len(case.tables) + rng.choice((2, 3, 6))) * block_rows
    schedule = random_schedule(rng, {alias: len(table) for alias, table in case.tables.items()})
    try:
        run = dovetail.testing.simulate(
            *(rng.choice(ALGORITHMS[1:]), case.tables, None, case.on, schedule),
            memory_rows=memory_rows,
            block_rows=block_rows,
        )
    except PlanError:
        return joined(case, rng)
    return sorted(run.tuples)


def _rows(case: Case, found: Any) -> list[tuple[int, ...]]:
    return sorted(zip(*(found.column(f"{alias}_row").to_pylist() for alias in case.tables), strict=True))
