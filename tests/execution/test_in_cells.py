"""Joins of tables larger than the budget, cell by cell, against joins at once."""

import random
import resource
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import StateError
from dovetail.execution.chunked import AT_REST
from dovetail.execution.in_cells import join_in_cells, route_tables
from dovetail.execution.output import output_schema
from dovetail.execution.tasks import Joining
from dovetail.planning.statistics import sample_table
from dovetail.routing import Task
from dovetail.routing.candidates import candidates
from dovetail.testing import random_table

ON = (
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


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ON)
def test_cells_give_the_same_rows(how: str, on: str) -> None:
    rng = random.Random(f"{how}{on}")
    for _ in range(2):
        left, right = (pa.concat_tables([random_table(rng), random_table(rng)]) for _ in Side)
        schema = output_schema(left.schema, right.schema, "_right", JoinType(how))
        work = Joining(parse(on, left.schema, right.schema), JoinType(how), schema, threads=rng.choice([1, 2]))
        expected = rows_of(dovetail.join(left, right, on, how))
        samples = sample_table(work.condition, Side.LEFT, left), sample_table(work.condition, Side.RIGHT, right)
        routers = list(candidates(Task(work.condition, samples, 3)))
        for router, _ in rng.sample(routers, min(3, len(routers))):
            memory = rng.choice([AT_REST * 100, AT_REST * 1000])
            first = rng.choice(list(Side))
            found = pa.Table.from_batches(join_in_cells(work, (left, right), router, first, memory), schema)
            assert rows_of(found) == expected


SIZE = 60_000


def diagonal(seed: int) -> pa.Table:
    """Two numbers that rise together, a key of which a tenth of all rows have the same, text, and nulls."""
    rng = np.random.default_rng(seed)
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
    """A row meets the blocks that its own keys can reach, not all that some row of its block can."""
    left, right = diagonal(0), diagonal(1)
    schema = output_schema(left.schema, right.schema, "_right", JoinType.INNER)
    work = Joining(parse("l.x < r.x AND l.y > r.y", left.schema, right.schema), JoinType.INNER, schema)
    routing = route_tables(work, (left, right), (left.nbytes + right.nbytes) // 2)
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
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, hard))
    try:
        with pytest.raises(StateError, match=r"cannot write row numbers to .*: File too large"):
            dovetail.join(left, right, "l.k = r.k", memory="2MB")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
