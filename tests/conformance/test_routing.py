"""Every candidate router of every condition sends each matching pair to exactly one cell, for any sample."""

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.random_rows import MORE_CONDITIONS, random_rows
from tests.seed import generator, seeded

from dovetail.columns.batches import one_batch
from dovetail.condition import Condition, parse, text_of
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.planning.statistics import Sample, measure
from dovetail.routing import Task, choose_router, window_router
from dovetail.routing.blocks import BlockRouter, HomeRouter
from dovetail.routing.candidates import candidates
from dovetail.routing.choice import StripeRouter, in_tasks
from dovetail.testing import CONDITIONS, check_router


def sample_of(condition: Condition, side: Side, table: pa.Table, sampled: int) -> Sample:
    batch = one_batch(table, table.schema)
    reach = measure(condition, side, batch)
    return Sample(table.num_rows, batch.slice(0, sampled), reach)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("on", [*CONDITIONS, *MORE_CONDITIONS])
@pytest.mark.parametrize("unique", [None, *Side])
def test_every_matching_pair_meets_once(on: str, unique: Side | None) -> None:
    rng = seeded(f"{on}{unique}")
    for _ in range(repeat(4)):
        left, right = random_rows(rng), random_rows(rng)
        condition = parse(on, left.schema, right.schema)
        sampled = rng.choice([0, 3, 20])
        samples = (sample_of(condition, Side.LEFT, left, sampled), sample_of(condition, Side.RIGHT, right, sampled))
        task = Task(condition, samples, rng.choice([1, 2, 4, 9]), unique)
        for router, _ in candidates(task):
            check_router(router, left, right, on, unique=unique)
        check_router(choose_router(task).router, left, right, on, unique=unique)


@pytest.mark.parametrize("unique", [None, *Side])
@pytest.mark.parametrize("first", [0, 2**63, 2**64 - 100])
def test_unsigned_numbers_are_told_apart(unique: Side | None, first: int) -> None:
    table = pa.table({"n": pa.array(range(first, first + 100), pa.uint64())})
    on = "l.n BETWEEN r.n - 2 AND r.n - 1"
    condition = parse(on, table.schema, table.schema)
    samples = (sample_of(condition, Side.LEFT, table, 0), sample_of(condition, Side.RIGHT, table, 10))
    for router, _ in candidates(Task(condition, samples, 4, unique)):
        check_router(router, table, table, on, unique=unique)


@pytest.mark.parametrize("on", [*CONDITIONS, *MORE_CONDITIONS])
def test_streams_are_routed_without_a_sample(on: str) -> None:
    rng = seeded(on)
    for _ in range(repeat(6)):
        left, right = random_rows(rng), random_rows(rng)
        condition = parse(on, left.schema, right.schema)
        router, choice = window_router(condition, JoinType.INNER, rng.choice([8, 9, 50]))
        if router is None:
            assert choice.name == "round_robin"
            return
        check_router(router, left, right, on, unique=Side.LEFT)


@pytest.mark.parametrize("width", [0.0, 1e-300, 0.25, 1.0, 1e300])
def test_stripes_of_numbers_far_apart(width: float) -> None:
    values = [0.0, 0.25, -0.25, 1.0, 1e15, -1e15, 2.0**50, 2.0**51, 1e300, -1e300, np.inf, -np.inf, np.nan, 5e-324]
    table = pa.table({"x": [*values, *np.nextafter(values, 0), *np.nextafter(values, np.inf)]})
    on = f"abs(l.x - r.x) <= {width!r}"
    router, _ = window_router(parse(on, table.schema, table.schema), JoinType.INNER, 8)
    assert isinstance(router, StripeRouter)
    check_router(router, table, table, on, unique=Side.LEFT)


def test_crowded_cells_are_split() -> None:
    left = pa.table({"x": np.r_[np.zeros(500), np.arange(100.0)]})
    right = pa.table({"x": np.r_[np.zeros(10), np.arange(100.0)]})
    on = "abs(l.x - r.x) < 0.5"
    condition = parse(on, left.schema, right.schema)
    samples = (sample_of(condition, Side.LEFT, left, 600), sample_of(condition, Side.RIGHT, right, 110))
    for unique in (None, *Side):
        routing = choose_router(Task(condition, samples, 8, unique))
        check_router(routing.router, left, right, on, unique=unique)
    routing = choose_router(Task(condition, samples, 8))
    assert "split" in routing.choice.why or routing.choice.name == "one_bucket"


def test_blocks_are_cut_along_columns_that_rise_together_where_the_inequalities_go_apart() -> None:
    rng = generator(0)
    tables = []
    for above in (0.1, 0.0):
        a = rng.random(500)
        tables.append(pa.table({"a": a, "b": a + rng.normal(0, 1e-3, 500), "c": rng.random(500) + above}))
    left, right = tables
    on = "l.a < r.a AND l.c < r.c AND l.b > r.b"
    condition = parse(on, left.schema, right.schema)
    samples = (sample_of(condition, Side.LEFT, left, 500), sample_of(condition, Side.RIGHT, right, 500))
    router = choose_router(Task(condition, samples, 8)).router
    assert isinstance(router, BlockRouter | HomeRouter)
    assert {text_of(comparison.left) for comparison in router.comparisons[:2]} == {"l.a", "l.b"}
    check_router(router, left, right, on)


def test_cells_are_spread_over_tasks() -> None:
    loads = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 3.0])
    placed = in_tasks(loads, 3)
    assert np.bincount(placed, loads).tolist() == [6.0, 6.0, 6.0]
