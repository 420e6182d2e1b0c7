"""Joins of several tables in process: Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.condition import columns_of, matching
from dovetail.condition.condition import Condition
from dovetail.condition.graph import Edge, Graph
from dovetail.condition.mirror import mirrored
from dovetail.core.metrics import Counters
from dovetail.core.rows import (
    Matches,
    Rows,
    Side,
    chunk_ranges,
    one_batch,
    take_rows,
)
from dovetail.execution.driver import Driver
from dovetail.execution.in_process import BATCH_ROWS, in_turn, one_after_the_other
from dovetail.execution.output import result_batches
from dovetail.kernels.sorted_probe import expand
from dovetail.matching import build_matcher
from dovetail.operators.protocol import Workspace
from dovetail.operators.registry import operator_class
from dovetail.planning.plan import JoinPlan
from dovetail.planning.statistics import estimated_pairs, sample_table
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

PIECE = 1 << 20  # partial results at a time

Partial = dict[str, Rows]
Inputs = Mapping[str, pa.RecordBatch]


class JoinStep(NamedTuple):
    """Join one more input along an edge, its left side being the known input; check the other edges that it closes."""

    known: str
    new: str
    condition: Condition
    checks: tuple[Edge, ...]


def filter_inputs(graph: Graph, tables: Mapping[str, pa.Table]) -> dict[str, pa.RecordBatch]:
    """The rows of each input that pass its filters, in one batch."""
    batches = {}
    for alias, table in tables.items():
        batch = one_batch(table.combine_chunks(), table.schema)
        alive = graph.passing(alias, batch)
        batches[alias] = batch if alive is None or alive.all() else take_rows(batch, np.flatnonzero(alive))
    return batches


def join_all_at_rest(graph: Graph, inputs: Inputs, most: int = PIECE) -> Iterator[Matches]:
    """All results, in chunks of about the given size."""
    start, steps = join_order(graph, inputs)
    for first in range(0, inputs[start].num_rows, most):
        partial: Partial = {start: np.arange(first, min(first + most, inputs[start].num_rows))}
        for rows in _extend_partial(steps, inputs, partial, most):
            good = graph.checked(inputs, rows)
            if good is not None:
                rows = {alias: taken[good] for alias, taken in rows.items()}
            if len(rows[start]):
                yield graph.matches(inputs, rows)


def join_order(graph: Graph, inputs: Inputs) -> tuple[str, list[JoinStep]]:
    """Greedy: the edge with the fewest pairs by a sample, then always what makes the partial results fewest."""
    rows = {alias: max(1, batch.num_rows) for alias, batch in inputs.items()}
    share = {edge: _pairs(edge, inputs) / (rows[edge.left] * rows[edge.right]) for edge in graph.edges}
    first = min(graph.edges, key=lambda edge: share[edge] * rows[edge.left] * rows[edge.right])
    start = max((first.left, first.right), key=lambda alias: rows[alias])
    joined, steps = {start}, []

    def growth(alias: str) -> float:
        closed = [share[e] for e in graph.edges if alias in e.ends and e.other(alias) in joined]
        return rows[alias] * float(np.prod(closed)) if closed else np.inf

    while len(joined) < len(rows):
        new = first.other(start) if len(joined) == 1 else min(rows.keys() - joined, key=lambda a: (growth(a), a))
        closing = sorted((e for e in graph.edges if new in e.ends and e.other(new) in joined), key=share.__getitem__)
        best, known = closing[0], closing[0].other(new)
        condition = replace(best.condition, filters=((), ()))  # the rows that fail them are gone
        condition = condition if best.left == known else mirrored(condition)
        steps.append(JoinStep(known, new, condition, tuple(closing[1:])))
        joined.add(new)
    return start, steps


def _pairs(edge: Edge, inputs: Inputs) -> float:
    tables = [pa.Table.from_batches([inputs[alias]]) for alias in (edge.left, edge.right)]
    samples = [sample_table(edge.condition, side, tables[side]) for side in Side]
    return estimated_pairs(edge.condition, (samples[0], samples[1]))


def _extend_partial(steps: Sequence[JoinStep], inputs: Inputs, partial: Partial, most: int) -> Iterator[Partial]:
    if not steps:
        yield partial
        return
    step, rest = steps[0], steps[1:]
    known, which = _once(partial[step.known], inputs[step.known].num_rows)
    left, right = (
        _read(step.condition, Side.LEFT, inputs[step.known]),
        _read(step.condition, Side.RIGHT, inputs[step.new]),
    )
    if len(known) < left.num_rows:
        left = take_rows(left, known)
    for lefts, rights in build_matcher(step.condition, left, right).pairs(most):
        order = np.argsort(lefts, kind="stable")
        counts = np.bincount(lefts, minlength=len(known)).astype(np.int64)
        starts = np.cumsum(counts) - counts
        partners, matches = rights[order], counts[which]
        for begin, end, size in chunk_ranges(matches, int(matches.sum()), most):
            taken, places = expand(starts[which], matches, begin, end, size)
            more = {alias: rows[taken] for alias, rows in partial.items()}
            more[step.new] = partners[places]
            for edge in step.checks:
                more = _check_edge(edge, inputs, more)
            if len(more[step.new]):
                yield from _extend_partial(rest, inputs, more, most)


def _once(rows: Rows, of: int) -> tuple[Rows, Rows]:
    """The different ones of these rows, of so many, in ascending order, and which of them each row is."""
    seen = np.zeros(of, np.bool_)
    seen[rows] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[rows]


def _read(condition: Condition, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Only the columns that the condition reads."""
    names = {column.name for e in condition.conjuncts for column in columns_of(e) if column.side is side}
    return batch.select([name for name in batch.schema.names if name in names])


def _check_edge(edge: Edge, inputs: Inputs, partial: Partial) -> Partial:
    left, right = edge.left, edge.right
    good = matching(edge.condition.conjuncts, inputs[left], partial[left], inputs[right], partial[right])
    return {alias: rows[good] for alias, rows in partial.items()}


FEWEST = 1 << 12  # partial results at a time, however small the memory
ENTRY_BYTES = 64  # of a partial result and input: row numbers before and after, pairs, orders


def join_several(plan: JoinPlan, tables: Mapping[str, pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The whole join: by kernels that see all inputs complete, or by an operator of several inputs."""
    for results in matches_of_several(plan, tables):
        yield from result_batches(results, schema)


def matches_of_several(plan: JoinPlan, tables: Mapping[str, pa.Table]) -> Iterator[Matches]:
    """All results, by row number."""
    if not plan.at_rest:
        return _run_operator(plan, tables)
    most = PIECE
    if plan.memory_bytes is not None:
        most = min(PIECE, max(FEWEST, plan.memory_bytes // (ENTRY_BYTES * len(tables))))
    return join_all_at_rest(plan.graph, filter_inputs(plan.graph, tables), most)


def _run_operator(plan: JoinPlan, tables: Mapping[str, pa.Table]) -> Iterator[Matches]:
    counters = Counters()
    blocks = BlockStore(counters=counters)
    budget = Budget(plan.memory_bytes, "bytes", counters)
    workspace = Workspace(plan.graph, budget, blocks, BATCH_ROWS, counters, parameters=dict(plan.parameters))
    kind = operator_class(plan.operator.name, len(tables))
    events = in_turn if kind.takes_turns else one_after_the_other
    try:
        driver = Driver(kind(workspace), workspace)
        for _, results in driver.run(events([tables[alias] for alias in plan.graph.aliases])):
            if results.size:
                yield results
    finally:
        blocks.close()
