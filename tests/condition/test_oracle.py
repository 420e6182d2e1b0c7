"""Random conditions over the full cross product, against DuckDB; and every typed predicate against its source."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.condition.meaning import check_meaning
from tests.condition.random_conditions import Conditions, table
from tests.seed import seeded

from dovetail.condition import Condition, matching, parse, passing, spark_sql
from dovetail.core.rows import Side

ROWS = 9
CONDITIONS = 3  # per example


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    yield connection
    connection.close()


def satisfied(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> NDArray[np.bool_]:
    """The pairs of the cross product that satisfy the condition."""
    left_rows = np.repeat(np.arange(left.num_rows), right.num_rows)
    right_rows = np.tile(np.arange(right.num_rows), left.num_rows)
    result = matching(condition.conjuncts, left, left_rows, right, right_rows)
    for side, batch, rows in ((Side.LEFT, left, left_rows), (Side.RIGHT, right, right_rows)):
        alive = passing(condition.filters[side], side, batch)
        if alive is not None:
            result &= alive[rows]
    return result


@given(seed=st.integers(0, 2**32))
def test_conditions_agree_with_duckdb(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    rng = seeded(seed)
    left, right = table(rng, ROWS), table(rng, ROWS)
    for name, batch in (("l", left), ("r", right)):
        duck.register(name, pa.Table.from_batches([batch]).append_column("row", pa.array(range(ROWS))))
    for _ in range(CONDITIONS):
        text = Conditions(rng).condition()
        condition = parse(text.spark, left.schema, right.schema, in_process=True)
        expected = duck.execute(f"SELECT l.row * {ROWS} + r.row FROM l, r WHERE {text.duck} ORDER BY 1").fetchnumpy()
        got = np.flatnonzero(satisfied(condition, left, right))
        assert got.tolist() == np.asarray(next(iter(expected.values()))).tolist(), text
        check_meaning(condition, left, right)
        check_rendering(condition, left, right)


def check_rendering(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
    """Check that the SQL generated for Spark has the same meaning."""
    parts = (*condition.conjuncts, *condition.filters[Side.LEFT], *condition.filters[Side.RIGHT])
    rendered = parse([f"({spark_sql(part)})" for part in parts] or "TRUE", left.schema, right.schema)
    assert (satisfied(rendered, left, right) == satisfied(condition, left, right)).all(), rendered.text
