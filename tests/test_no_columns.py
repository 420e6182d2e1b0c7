"""Tables and results without columns still have rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dovetail
from dovetail.columns.batches import put_together, table_batches

ROWS = pa.table({"a": [1, 2, 3]})
BARE = ROWS.select([])
SIDES = {"left": (BARE, ROWS), "right": (ROWS, BARE), "both": (BARE, BARE)}
ALL = {"inner": 9, "left": 9, "right": 9, "full": 9, "left_semi": 3, "left_anti": 0}
NONE = {"inner": 0, "left": 3, "right": 3, "full": 6, "left_semi": 0, "left_anti": 3}


def in_steps(*inputs: Any, **options: Any) -> int:
    """The total number of rows in the steps of a progressive join; checks that steps report it."""
    rows = 0
    for step in dovetail.progressive(*inputs, **options):
        rows += step.batch.num_rows
        assert step.results == rows
    return rows


@pytest.mark.parametrize("bare", SIDES)
@pytest.mark.parametrize("how", ALL)
def test_every_join_type_counts_rows(bare: str, how: str) -> None:
    left, right = SIDES[bare]
    for on, expected in (("true", ALL[how]), ("false", NONE[how])):
        found = dovetail.join(left, right, on, how)
        assert found.num_rows == expected
        assert found.column_names == (
            [] if bare == "both" or (how in ("left_semi", "left_anti") and left is BARE) else ["a"]
        )
        assert dovetail.join(left, right, on, how, to="reader").read_all().num_rows == expected
        assert dovetail.join(left, right, on, how, limit=2).num_rows == min(2, expected)
        for memory in (None, "1MB", "256MB"):
            assert in_steps(left, right, on, how, memory=memory) == expected
        assert in_steps(left.to_reader(), right.to_reader(), on, how) == expected


@pytest.mark.parametrize("bare", SIDES)
def test_counts_and_aggregates(bare: str) -> None:
    left, right = SIDES[bare]
    assert dovetail.count(left, right, "true") == 9
    assert dovetail.aggregate(left, right, "true", {"n": "count(*)"})["n"].to_pylist() == [9]
    assert in_steps(left, right, "true", workers=2) == 9
    assert in_steps(left, right, "true", limit=4) == 4
    last = list(dovetail.progressive(left, right, "true", aggregate={"n": "count(*)"}))[-1]
    assert last.aggregates is not None
    assert last.aggregates["n"] is not None
    assert last.aggregates["n"].total == 9
    assert "about 9" in str(dovetail.explain(left, right, "true"))
    for algorithm in ("nested_loop", "spo"):
        assert dovetail.join(left, right, "true", algorithm=algorithm).num_rows == 9
        assert in_steps(left, right, "true", algorithm=algorithm) == 9
    if bare != "both":
        key = "r.a DESC" if left is BARE else "l.a DESC"
        for how in ("inner", "full"):
            steps = dovetail.progressive(left, right, "true", how, order_by=key)
            assert [value for step in steps for value in step.batch["a"].to_pylist()] == [3] * 3 + [2] * 3 + [1] * 3


@pytest.mark.parametrize("algorithm", ["auto", "spo"])
def test_beside_rows_that_are_spilled(algorithm: str) -> None:
    many = pa.table({"a": range(50_000), "text": ["x" * 50] * 50_000})
    few = pa.table({"b": range(200)}).select([])
    for how, expected in {"inner": 4_000, "right": 4_000 + 49_980, "left_semi": 200, "left_anti": 0}.items():
        assert in_steps(few, many, "r.a < 20", how, algorithm=algorithm, memory="2MB") == expected
        assert dovetail.join(few, many, "r.a < 20", how, algorithm=algorithm, memory="2MB").num_rows == expected


def test_more_rows_than_a_batch_has() -> None:
    many = pa.table({"a": range(3000)}).select([])
    assert dovetail.join(many, many, "true").num_rows == 9_000_000
    assert in_steps(many, many.to_batches(max_chunksize=100)[0], "true") == 300_000


def test_frames_that_are_an_index_only() -> None:
    found = pd.DataFrame(index=range(3)).dovetail.join(pd.DataFrame(index=range(4)), "true")
    assert found.shape == (12, 0)


@pytest.mark.parametrize("of", [lambda rows: rows, lambda rows: rows.select([])], ids=["a column", "no column"])
def test_batches_of_a_table(of: Callable[[pa.Table], pa.Table]) -> None:
    table = of(pa.concat_tables([ROWS, ROWS]))
    for start, size, most, expected in [
        (0, None, None, 6),
        (1, None, None, 5),
        (4, 5, None, 2),
        (2, 3, 2, 3),
        (6, None, None, 0),
        (0, 0, None, 0),
    ]:
        batches = table_batches(table, start, size, most)
        assert sum(batch.num_rows for batch in batches) == expected
        assert all(batch.num_rows <= (most or 6) for batch in batches)


def test_a_batch_without_columns_keeps_what_its_schema_says() -> None:
    schema = pa.schema([], {"kept": "yes"})
    batch = put_together([], schema, 7)
    assert batch.num_rows == 7
    assert batch.schema.equals(schema, check_metadata=True)
    assert np.array_equal(put_together([pa.array([1, 2])], pa.schema({"a": pa.int64()}), 2)["a"], [1, 2])
