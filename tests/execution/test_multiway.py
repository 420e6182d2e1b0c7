"""Joins of several tables on any number of threads return the same rows in the same order, within the same memory."""

from collections.abc import Iterator
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.seed import generator

import dovetail
from dovetail.condition.graph import parse_graph
from dovetail.core.rows import Matches
from dovetail.errors import InputError
from dovetail.execution.multiway import PIECE, WORTH_A_THREAD, filter_inputs, join_all_at_rest

ROWS = 20_000


def table(seed: int) -> pa.Table:
    """Unique and repeated keys, strings, nulls, NaN and ties."""
    rng = generator(seed)
    some_null = rng.random(ROWS) < 0.01
    x = rng.random(ROWS).round(4)
    y = x + 0.0004 * rng.random(ROWS)
    y[:: ROWS // 3] = np.nan  # greater than all others
    return pa.table(
        {
            "k": pa.array(rng.integers(0, ROWS // 2, ROWS), mask=some_null),
            "g": rng.integers(0, 300, ROWS),
            "s": pa.array([f"key {number}" for number in rng.integers(0, ROWS // 2, ROWS)], mask=some_null),
            "x": x,
            "y": y,
            "row": np.arange(ROWS),
        }
    )


INPUTS = {alias: table(seed) for seed, alias in enumerate("abcd")}

JOINS = {
    "chain": ("abc", "a.k = b.k AND b.k = c.k"),
    "strings": ("abc", "a.s = b.s AND b.s = c.s"),
    "star": ("abcd", "a.k = b.k AND a.g = d.row AND a.row = c.row"),
    "equality and inequality": ("abc", "a.k = b.k AND a.x < b.x AND b.s = c.s"),
    "inequalities of repeated rows": ("abc", "a.k = b.k AND b.x < c.x AND b.y > c.y"),
    "cycle": ("abc", "a.k = b.k AND b.k = c.k AND a.x > c.x"),
    "residual of two": ("abc", "a.k = b.k AND b.s = c.s AND (a.x + b.y) * b.x > a.y"),
    "residual of three": ("abc", "a.k = b.k AND b.k = c.k AND a.x + b.x > c.x"),
    "filters": ("abc", "a.k = b.k AND b.k = c.k AND a.x > 0.5 AND c.g < 200"),
    "nothing": ("abc", "a.k = b.k AND b.row = c.row AND b.x > 3"),
}


def digest(joined: pa.Table) -> tuple[int, int]:
    """The number of rows, and a checksum of the combinations of rows."""
    total = np.zeros(joined.num_rows, np.uint64)
    for name in joined.column_names:
        if name.endswith("_row"):
            total = total * np.uint64(1_000_003) + joined[name].to_numpy().astype(np.uint64)
    return joined.num_rows, int((total ^ (total >> np.uint64(17))).sum())


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether both have the same rows in the same order. Ignores columns with NaN, which Arrow considers unequal."""
    names = [name for name in one.column_names if not name.endswith("_y")]
    return bool(one.select(names).equals(other.select(names)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", JOINS)
def test_threads_change_nothing(name: str) -> None:
    aliases, on = JOINS[name]
    inputs = {alias: INPUTS[alias] for alias in aliases}
    alone = dovetail.multijoin(inputs, on, threads=1)
    with duckdb.connect() as connection:
        for alias, rows in inputs.items():
            connection.register(alias, rows)
        columns = ", ".join(f"{alias}.row AS {alias}_row" for alias in aliases)
        expected = connection.sql(f"SELECT {columns} FROM {', '.join(aliases)} WHERE {on}").to_arrow_table()
    assert digest(alone) == digest(expected)
    for threads in (2, 5):
        assert same(dovetail.multijoin(inputs, on, threads=threads), alone)
    assert dovetail.count(inputs, on=on, threads=3) == alone.num_rows
    bounded = [dovetail.multijoin(inputs, on, memory="8MB", threads=threads) for threads in (1, 2, 5)]
    assert all(same(*two) for two in pairwise(bounded))
    assert digest(bounded[0]) == digest(expected)


def test_every_thread_has_its_part_of_the_results() -> None:
    """With more threads, chunks of results are smaller, unless little memory already makes them small."""
    tables = {alias: INPUTS[alias] for alias in "abc"}
    graph = parse_graph(JOINS["chain"][1], {alias: rows.schema for alias, rows in tables.items()})
    batches = filter_inputs(graph, tables)

    def sizes(most: int, threads: int) -> list[int]:
        def size(results: Matches) -> Iterator[int]:
            yield results.size

        return list(join_all_at_rest(graph, batches, size, most, threads))

    assert len(sizes(PIECE, 1)) == 1 < len(sizes(PIECE, 5))
    small = WORTH_A_THREAD // 2
    assert sizes(small, 1) == sizes(small, 5)
    assert max(sizes(small, 5)) <= small


def test_a_number_of_threads_is_asked_for() -> None:
    with pytest.raises(InputError, match="threads must be an integer, 1 or more"):
        dovetail.multijoin({alias: INPUTS[alias] for alias in "abc"}, JOINS["chain"][1], threads=0)


def test_results_of_several_tables_may_be_slices_of_them() -> None:
    """Columns with consecutive rows are not copied, unless the input had to be copied."""
    fact = pa.table({"g": np.arange(ROWS) % 300, "h": np.arange(ROWS) % 100, "fact": np.arange(ROWS)})
    inputs = {"f": fact, "x": pa.table({"g": np.arange(300)}), "y": pa.table({"h": np.arange(100)})}
    joined = dovetail.multijoin(inputs, "f.g = x.g AND f.h = y.h", threads=1)
    assert joined["fact"].to_pylist() == list(range(ROWS))
    (mine,), (theirs,) = joined["fact"].chunks, fact["fact"].chunks
    assert mine.buffers()[1].address == theirs.buffers()[1].address
