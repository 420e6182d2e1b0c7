"""Random joins as Spark runs them, but without Spark: rows are routed, packed, gathered by task, and joined by cell.

The result must be the same as in process.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from tests.disjunctions import CONDITIONS as DISJUNCTIONS
from tests.disjunctions import table as disjunctive_rows
from tests.effort import CASES
from tests.fuzz.cases import Case, draw
from tests.fuzz.pairs import check_pairs, check_values, pairs_of
from tests.seed import SEED, seeded

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.condition import Condition, parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.core.tables import arrow_table
from dovetail.errors import InputError
from dovetail.execution import out_of_core
from dovetail.execution.at_rest import Counting, Joining
from dovetail.execution.output import output_schema
from dovetail.matching import matcher as build
from dovetail.planning.planner import InputFacts, plan_join, with_estimate
from dovetail.planning.statistics import Sample, measure
from dovetail.routing import Task, choose_router
from dovetail.routing.routers import UnionRouter
from dovetail.spark.batch.cell import cells_at_rest, operator_cells
from dovetail.spark.batch.tables import Look, Routed, is_both_unique, route
from dovetail.spark.exchange.packing import ARROW_PACKED, Rewrite, packer

SHARDS = 10

Partitions = list[list[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of a TaskContext that tasks use."""

    number: int

    def partitionId(self) -> int:  # noqa: N802  Spark's name
        return self.number


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not freeze modules: in this process, unlike in a Spark worker, objects are not permanent."""
    for module in ("exchange.packing", "batch.cell"):
        monkeypatch.setattr(f"dovetail.spark.{module}.freeze_modules", lambda: None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_cells_give_what_a_join_in_process_gives(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(shard, CASES // 5, SHARDS):
        case = draw(SEED * 1_000_003 + number)
        monkeypatch.setattr(build, "LARGE_GROUP", case.large_group)
        monkeypatch.setattr(out_of_core, "AT_REST", case.share)
        case = replace(case, left=arrow_table(case.left), right=arrow_table(case.right))
        try:
            check(case, monkeypatch)
        except Exception as error:
            error.add_note(str(case))
            raise


def check(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded(case.seed)
    condition = parse(case.on.spark, case.left.schema, case.right.schema)
    sides = (partitions(rng, case.left), partitions(rng, case.right))
    plan = plan_join(condition, case.how, InputFacts(on_spark=True), memory_bytes=case.memory)
    if not plan.at_rest:
        plan = replace(plan, memory_bytes=None)  # with a budget, the operator may refuse the rows
    tasks = rng.choice((1, 2, 4, 7))
    look = Look(None, tasks)
    if rng.random() < 0.8:
        look = Look((sample(rng, condition, Side.LEFT, sides[0]), sample(rng, condition, Side.RIGHT, sides[1])), tasks)
        plan = with_estimate(plan, look.samples)
    output = output_schema(case.left.schema, case.right.schema, "_right", JoinType(case.how))
    routed = route(plan, look)
    passes = [routed]
    if plan.how == "full" and not is_both_unique(routed):
        passes = [route(replace(plan, how=how), look) for how in (JoinType.LEFT, JoinType.RIGHT_ANTI)]
    batches: list[pa.RecordBatch] = []
    for one in passes:
        work = Joining(condition, one.plan.how, output)
        cells = cells_at_rest(one.work_in(work), one.first, plan.memory_bytes)
        if not plan.at_rest:
            cells = operator_cells(one.plan, one.first, (0, 0), output)
        batches += in_cells(sides, one, condition, cells, monkeypatch)
    found = pa.Table.from_batches(batches, output)
    expected = dovetail.join(case.left, case.right, case.on.spark, case.how)
    check_pairs(pairs_of(case, found), pairs_of(case, expected))
    check_values(case, found)
    counted: list[pa.RecordBatch] = []
    for one in passes:
        counting = cells_at_rest(one.work_in(Counting(condition, one.plan.how)), one.first, None)
        counted += in_cells(sides, one, condition, counting, monkeypatch)
    assert sum(batch["rows"][0].as_py() for batch in counted) == expected.num_rows


@pytest.mark.parametrize("on", [on for on in DISJUNCTIONS if "r.y = 3" not in on])
def test_every_pair_of_a_union_is_found_in_one_cell(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded(on)
    left, right = (disjunctive_rows(rng, 60), disjunctive_rows(rng, 50))
    condition = parse(on, left.schema, right.schema)
    sides = (partitions(rng, left), partitions(rng, right))
    samples = sample(rng, condition, Side.LEFT, sides[0]), sample(rng, condition, Side.RIGHT, sides[1])
    branches = condition.branches
    routers = [choose_router(Task(branch, samples, rng.choice((1, 3, 5)))).router for branch in branches]
    router = UnionRouter(branches, tuple(routers))
    tasks = [cell % 3 for cell in range(router.cells)]
    plan = replace(plan_join(condition, facts=InputFacts(on_spark=True)), tasks=len(set(tasks)))
    routed = Routed(plan, router, tasks, Side.LEFT)
    output = output_schema(left.schema, right.schema, "_right")
    joining = cells_at_rest(routed.work_in(Joining(condition, JoinType.INNER, output)), Side.LEFT, None)
    found = pa.Table.from_batches(in_cells(sides, routed, condition, joining, monkeypatch), output)
    expected = dovetail.join(left, right, on)
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, expected.to_pylist()))


@pytest.mark.parametrize("on", DISJUNCTIONS)
def test_an_operator_finds_a_pair_of_a_disjunction_in_one_cell(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator joins by the whole condition; with cells per alternative it would find some pairs twice."""
    rng = seeded(on)
    left, right = (disjunctive_rows(rng, 60), disjunctive_rows(rng, 50))
    condition = parse(on, left.schema, right.schema)
    sides = (partitions(rng, left), partitions(rng, right))
    samples = sample(rng, condition, Side.LEFT, sides[0]), sample(rng, condition, Side.RIGHT, sides[1])
    plan = with_estimate(plan_join(condition, facts=InputFacts(on_spark=True), algorithm="spo"), samples)
    output = output_schema(left.schema, right.schema, "_right")
    routed = route(plan, Look(samples, 4))
    cells = operator_cells(routed.plan, routed.first, (0, 0), output)
    found = pa.Table.from_batches(in_cells(sides, routed, condition, cells, monkeypatch), output)
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, dovetail.join(left, right, on).to_pylist()))


def test_parameters_reach_the_operator_of_a_cell() -> None:
    schema = pa.schema([("k", pa.int64())])
    output, facts = output_schema(schema, schema, "_right"), InputFacts(on_spark=True)

    def cells(**parameters: Any) -> Rewrite:
        condition = parse("l.k = r.k", schema, schema)
        plan = plan_join(condition, facts=facts, algorithm="rpj", memory_bytes=1 << 20, parameters=parameters)
        return operator_cells(plan, Side.LEFT, (0, 0), output)

    cells(n_flush=0.1)
    with pytest.raises(InputError, match="n_flush and decay are shares"):
        cells(n_flush=2.0)


def partitions(rng: random.Random, table: pa.Table) -> Partitions:
    """The table in a few partitions, each of them in a few batches; some are empty."""
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.randrange(3)))
    bounds = [0, *cuts, table.num_rows]
    most = rng.choice((3, 1 << 16))
    return [table.slice(start, end - start).to_batches(max_chunksize=most) for start, end in pairwise(bounds)]


def sample(rng: random.Random, condition: Condition, side: Side, rows: Partitions) -> Sample:
    """The sample of all partitions: some rows of the table, or all, or none."""
    batches = [batch for partition in rows for batch in partition]
    reached = [reach for batch in batches if (reach := measure(condition, side, batch)) is not None]
    whole = one_batch(batches, condition.schema(side))
    some = rng.sample(range(whole.num_rows), min(whole.num_rows, rng.choice((0, 3, 10, 4096))))
    seen = whole.take(pa.array(sorted(some), pa.int64()))
    return Sample(whole.num_rows, seen, reduce(operator.add, reached) if reached else None)


def in_cells(
    sides: tuple[Partitions, Partitions],
    routed: Routed,
    condition: Condition,
    work: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[pa.RecordBatch]:
    """Like `in_cells` of spark/batch/tables.py: gather the rows of both sides by cell, and run the work on them."""
    tasks, kept = routed.plan.tasks, routed.plan.how.preserved
    packed: list[pa.RecordBatch] = []
    for side in Side:
        pack = packer(side, routed.router, condition.schema(side), routed.labels, side in kept)
        for number, partition in enumerate(sides[side]):
            monkeypatch.setattr(TaskContext, "get", lambda number=number: Partition(number))
            packed += pack(iter(partition))
    gathered = pa.Table.from_batches(packed, ARROW_PACKED)
    order = "ascending" if routed.first is Side.LEFT else "descending"
    for task in range(tasks):
        mine = gathered.filter(pc.equal(task_of(gathered["cell"], tasks), task))
        yield from work(iter(mine.sort_by([("cell", "ascending"), ("side", order), ("seq", "ascending")]).to_batches()))


def task_of(cells: pa.ChunkedArray, tasks: int) -> pa.ChunkedArray:
    return pc.subtract(cells, pc.multiply(pc.divide(cells, tasks), tasks))
