"""Joins of several complete inputs: one kernel of two sides after the other, partial results as arrays of row numbers.

    o --kernel--> (o, c) --kernel--> (o, c, n) --> rows

A kernel joins an input that is in the partial results, its rows there once each, with one that is not; the pairs then
extend every partial result that has the row. So nothing wide is built before the results are known. Work goes
depth-first in pieces, which bounds what is in between. Edges that close a cycle are checked on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.batch import Rows, Side, one_batch, take_rows
from dovetail.condition import columns_of, matching
from dovetail.condition.graph import Edge, Graph
from dovetail.condition.mirror import mirrored
from dovetail.condition.predicates import Condition
from dovetail.kernels.sorted_probe import expand
from dovetail.matchers import build_matcher, choose_drive
from dovetail.state.pieces import pieces_of
from dovetail.statistics import estimated_pairs, sample_table
from dovetail.tuples import Tuples

PIECE = 1 << 20  # partial results at a time

Partial = dict[str, Rows]
Inputs = Mapping[str, pa.RecordBatch]


class Step(NamedTuple):
    """Join one more input along an edge, its left side being the known input; check the other edges that it closes."""

    known: str
    new: str
    condition: Condition
    checks: tuple[Edge, ...]


def filtered(graph: Graph, tables: Mapping[str, pa.Table]) -> dict[str, pa.RecordBatch]:
    """The rows of each input that pass its filters, in one batch."""
    batches = {}
    for alias, table in tables.items():
        batch = one_batch(table.combine_chunks(), table.schema)
        alive = graph.passing(alias, batch)
        batches[alias] = batch if alive is None or alive.all() else take_rows(batch, np.flatnonzero(alive))
    return batches


def join_all_at_rest(graph: Graph, inputs: Inputs, most: int = PIECE) -> Iterator[Tuples]:
    """All results, in pieces of about so many."""
    start, steps = join_order(graph, inputs)
    for first in range(0, inputs[start].num_rows, most):
        partial: Partial = {start: np.arange(first, min(first + most, inputs[start].num_rows))}
        for rows in _extended(steps, inputs, partial, most):
            good = graph.checked(inputs, rows)
            if good is not None:
                rows = {alias: taken[good] for alias, taken in rows.items()}
            if len(rows[start]):
                yield Tuples(inputs, rows)


def join_order(graph: Graph, inputs: Inputs) -> tuple[str, list[Step]]:
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
        condition = best.condition if best.left == known else mirrored(best.condition)
        steps.append(Step(known, new, condition, tuple(closing[1:])))
        joined.add(new)
    return start, steps


def _pairs(edge: Edge, inputs: Inputs) -> float:
    tables = [pa.Table.from_batches([inputs[alias]]) for alias in (edge.left, edge.right)]
    samples = [sample_table(edge.condition, side, tables[side]) for side in Side]
    return estimated_pairs(edge.condition, choose_drive(edge.condition), (samples[0], samples[1]))


def _extended(steps: Sequence[Step], inputs: Inputs, partial: Partial, most: int) -> Iterator[Partial]:
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
        for begin, end, size in pieces_of(matches, int(matches.sum()), most):
            taken, places = expand(starts[which], matches, begin, end, size)
            more = {alias: rows[taken] for alias, rows in partial.items()}
            more[step.new] = partners[places]
            for edge in step.checks:
                more = _checked(edge, inputs, more)
            if len(more[step.new]):
                yield from _extended(rest, inputs, more, most)


def _once(rows: Rows, of: int) -> tuple[Rows, Rows]:
    """The different ones of these rows, of so many, in ascending order, and which of them each row is."""
    seen = np.zeros(of, np.bool_)
    seen[rows] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[rows]


def _read(condition: Condition, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Only the columns that the condition reads."""
    names = {column.name for e in condition.conjuncts for column in columns_of(e) if column.side is side}
    return batch.select([name for name in batch.schema.names if name in names])


def _checked(edge: Edge, inputs: Inputs, partial: Partial) -> Partial:
    left, right = edge.left, edge.right
    good = matching(edge.condition.conjuncts, inputs[left], partial[left], inputs[right], partial[right])
    return {alias: rows[good] for alias, rows in partial.items()}
