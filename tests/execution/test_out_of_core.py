"""Joins in chunks and in cells against joins of whole tables, for every join type, with either side first."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.full_disk import REASON, full_disk
from tests.seed import generator, seeded

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.condition import Condition, parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import StateError
from dovetail.execution.at_rest import Counting, Joining, join_at_rest
from dovetail.execution.out_of_core import AT_REST, Chunked, join_in_cells, load, route_inputs
from dovetail.execution.output import output_schema
from dovetail.matching import build_matcher
from dovetail.planning.statistics import sample_table
from dovetail.routing import Task
from dovetail.routing.candidates import candidates
from dovetail.sources.protocol import TableScan
from dovetail.storage.blocks import BlockStore
from dovetail.testing import random_table

IN_CHUNKS = ("l.k = r.k", "l.x < r.x AND l.n > r.n", "abs(l.x - r.x) <= 1 AND l.s <> 'a'", "l.s < r.s OR l.k = 2")
IN_CELLS = (
    "l.k = r.k",
    "l.k = r.k AND l.x < r.x",
    "l.x < r.x",
    "l.x < r.x AND l.n > r.n",
    "l.x <= r.x AND l.n >= r.n AND l.k < r.k",
    "abs(l.x - r.x) <= 1 AND l.s <> 'a'",
    "l.x <= r.n AND l.n >= r.x",
    "l.s > r.s",
)
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def matched(condition: Condition, sides: list[pa.RecordBatch]) -> int:
    return build_matcher(condition, sides[0], sides[1]).count()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", IN_CHUNKS)
@pytest.mark.parametrize("first", list(Side))
def test_chunks_give_the_same_rows(how: str, on: str, first: Side) -> None:
    rng = seeded(f"{how}{on}{first}")
    for _ in range(5):
        tables = (random_table(rng), random_table(rng))
        condition = parse(on, tables[0].schema, tables[1].schema)
        schema = output_schema(tables[0].schema, tables[1].schema, "_right", JoinType(how))
        store = BlockStore()
        chunk_bytes = rng.choice([1, 300, 10**6])
        join = Chunked(Joining(condition, JoinType(how), schema, rows=3, capacity=5), first, store, chunk_bytes)
        arrivals = [(side, b) for side in (first, first.other) for b in tables[side].to_batches(max_chunksize=3)]
        found = list(join.run(arrivals))
        counts = list(Chunked(Counting(condition, JoinType(how)), first, store, chunk_bytes).run(arrivals))
        store.close()
        sides = [one_batch(table, table.schema) for table in tables]
        expected = list(join_at_rest(Joining(condition, JoinType(how), schema), (sides[0], sides[1])))
        assert sum(batch["rows"][0].as_py() for batch in counts) == sum(batch.num_rows for batch in expected)
        assert rows_of(pa.Table.from_batches(found, schema)) == rows_of(pa.Table.from_batches(expected, schema))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", IN_CELLS)
def test_cells_give_the_same_rows(how: str, on: str) -> None:
    rng = seeded(f"{how}{on}")
    for _ in range(2):
        left, right = (pa.concat_tables([random_table(rng), random_table(rng)]) for _ in Side)
        schema = output_schema(left.schema, right.schema, "_right", JoinType(how))
        work = Joining(parse(on, left.schema, right.schema), JoinType(how), schema, threads=rng.choice([1, 2]))
        expected = rows_of(dovetail.join(left, right, on, how))
        samples = sample_table(work.condition, Side.LEFT, left), sample_table(work.condition, Side.RIGHT, right)
        inputs = load(TableScan(left), None), load(TableScan(right), None)
        routers = list(candidates(Task(work.condition, samples, 3)))
        for router, _ in rng.sample(routers, min(3, len(routers))):
            memory = rng.choice([AT_REST * 100, AT_REST * 1000])
            first = rng.choice(list(Side))
            found = pa.Table.from_batches(join_in_cells(work, inputs, router, first, memory), schema)
            assert rows_of(found) == expected


SIZE = 60_000


def diagonal(seed: int) -> pa.Table:
    """Two correlated numbers, a key with one value in a tenth of all rows, strings, and nulls."""
    rng = generator(seed)
    x = rng.random(SIZE) * SIZE
    keys = np.where(rng.random(SIZE) < 0.001, 7, rng.integers(0, SIZE, SIZE))
    return pa.table(
        {
            "x": pa.array(x, mask=rng.random(SIZE) < 0.01),
            "y": x + rng.random(SIZE) * 3,
            "k": keys,
            "s": [f"row {i}" for i in range(SIZE)],
        }
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["inner", "full", "left_semi"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("on", ["l.k = r.k", "l.x < r.x AND l.y > r.y", "abs(l.x - r.x) <= 0.5"])
def test_a_small_budget_changes_nothing_but_the_order(on: str, threads: int, how: str) -> None:
    left, right = diagonal(0), diagonal(1)
    bounded = dovetail.join(left, right, on, how, memory="2MB", threads=threads)
    free = dovetail.join(left, right, on, how, threads=threads)
    order = [(name, "ascending") for name in ("s", "s_right") if name in free.column_names]
    assert bounded.sort_by(order).equals(free.sort_by(order))


def test_rows_of_correlated_keys_are_hardly_copied() -> None:
    """A row is only sent to the blocks that its own keys can match, not to those that other rows of its block match."""
    left, right = diagonal(0), diagonal(1)
    schema = output_schema(left.schema, right.schema, "_right", JoinType.INNER)
    work = Joining(parse("l.x < r.x AND l.y > r.y", left.schema, right.schema), JoinType.INNER, schema)
    inputs = load(TableScan(left), None), load(TableScan(right), None)
    routing = route_inputs(work, inputs, (left.nbytes + right.nbytes) // 2)
    assert routing is not None
    tables = zip(Side, (left, right), strict=True)
    visits = [
        routing.router.route(side, batch, np.arange(batch.num_rows))
        for side, table in tables
        for batch in table.to_batches()
    ]
    assert routing.router.cells >= 4
    assert sum(len(visit.rows) for visit in visits) < 1.25 * (left.num_rows + right.num_rows)


def test_a_full_disk_is_said() -> None:
    left, right = diagonal(0), diagonal(1)
    with pytest.raises(StateError, match=rf"cannot write row numbers to .*: {REASON}"), full_disk(1 << 14):
        dovetail.join(left, right, "l.k = r.k", memory="2MB")
