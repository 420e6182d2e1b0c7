"""Memory of joins at rest on top of their inputs is within `memory`, however the tables are chunked."""

import gc

import numpy as np
import pyarrow as pa
import pytest

import dovetail

ROWS, WIDTH = 4000, 1000
BUDGET = 500_000


def wide_table(seed: int, piece_rows: int) -> pa.Table:
    keys = np.random.default_rng(seed).permutation(50 * ROWS)[:ROWS]
    table = pa.table({"k": keys, "s": [f"{row:0{WIDTH}d}" for row in range(ROWS)]})
    return pa.Table.from_batches(table.to_batches(max_chunksize=piece_rows))


def most_held(tables: list[pa.Table], how: str, memory: int | None) -> tuple[int, int]:
    """The peak of Arrow's memory on top of the inputs while results are produced, and the number of results."""
    gc.collect()
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    held: list[int] = []
    joined = dovetail.join(
        tables[0],
        tables[1],
        "l.k = r.k",
        how,
        memory=memory,
        progress=lambda _: held.append(pool.bytes_allocated() - before),
    )
    return max(held), joined.num_rows


@pytest.mark.one_in(2)
@pytest.mark.parametrize("piece_rows", [10, 1000])
@pytest.mark.parametrize("how", ["inner", "left_semi", "right"])
def test_a_join_at_rest_holds_no_more_than_its_budget(how: str, piece_rows: int) -> None:
    tables = [wide_table(side, piece_rows) for side in range(2)]
    if how == "right":
        tables[1] = tables[1].slice(0, ROWS // 40)  # otherwise the result would contain all of it
    unbounded, expected = most_held(tables, how, None)
    bounded, rows = most_held(tables, how, BUDGET)
    assert rows == expected > 0
    assert unbounded > 8 * BUDGET
    assert bounded < BUDGET
