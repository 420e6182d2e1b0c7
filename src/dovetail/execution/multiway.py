"""Joins of several tables in process, from Arrow to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import one_batch
from dovetail.columns.taking import Gatherer, gather, take_rows
from dovetail.condition import columns_of, matching
from dovetail.condition.expression import type_of
from dovetail.condition.graph import Edge, Graph
from dovetail.condition.mirror import mirrored
from dovetail.condition.predicates import Condition
from dovetail.core.codes import is_fixed
from dovetail.core.metrics import Counters
from dovetail.core.parts import chunk_ranges
from dovetail.core.rows import Matches, Rows, Side
from dovetail.core.threads import allow_threads, in_order
from dovetail.execution.driver import Driver
from dovetail.execution.in_process import ARRIVAL_SHARE, BATCH_ROWS, LINE_BYTES, by_turns, one_after_the_other
from dovetail.execution.out_of_core import InputAtRest
from dovetail.execution.output import MOST_BYTES, result_batches, results_share
from dovetail.kernels import equality
from dovetail.kernels.equality import Equality
from dovetail.kernels.searching import expand
from dovetail.kernels.sorting import row_type
from dovetail.kernels.taking import is_run, mark, take_numbers
from dovetail.matching import Matcher, build_matcher
from dovetail.operators.protocol import Workspace
from dovetail.planning.plan import JoinPlan
from dovetail.planning.statistics import estimated_pairs, sample_table
from dovetail.sources.protocol import Scan
from dovetail.storage.allocator import GrowthWatch
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

PIECE = 1 << 20  # partial results at a time
FEWEST = 1 << 12  # at least this many, however small the memory
ENTRY_BYTES = 64  # per partial result and input: row numbers before and after, pairs, orders
AHEAD = 1  # chunks of a part of a step that wait until earlier ones are taken
WORTH_A_THREAD = 1 << 14  # minimal number of partial results

T = TypeVar("T")
Partial = dict[str, Rows]
Inputs = Mapping[str, pa.RecordBatch]
Emit = Callable[[Matches], Iterator[T]]


class JoinStep(NamedTuple):
    """Joins one more input along an edge whose left side is already joined, and checks the edges that this closes."""

    known: str
    new: str
    condition: Condition
    checks: tuple[Edge, ...]

    @property
    def only_looks_up(self) -> bool:
        """Whether looking a row up costs no more than finding out whether it was looked up before."""
        strategy = self.condition.strategy
        keys = [type_of(key) for pair in strategy.equal_keys for key in pair]
        return bool(keys) and all(map(is_fixed, keys)) and not self.condition.conjuncts_beside(strategy.equal)


def filter_inputs(graph: Graph, tables: Mapping[str, pa.Table]) -> dict[str, pa.RecordBatch]:
    """The rows of each input that pass its filters, as one batch."""
    batches = {}
    for alias, table in tables.items():
        batch = one_batch(table.combine_chunks(), table.schema)
        alive = graph.passing(alias, batch)
        batches[alias] = batch if alive is None or alive.all() else take_rows(batch, np.flatnonzero(alive))
    return batches


def join_all_at_rest(graph: Graph, inputs: Inputs, emit: Emit[T], most: int = PIECE, threads: int = 1) -> Iterator[T]:
    """Call `emit` with all results, in chunks of at most about the given size, and return what it yields.

    Results and their order are the same for any number of threads; threads also call `emit`.
    """
    start, steps = join_order(graph, inputs)
    chain = _Chain(graph, inputs, steps, most, min(threads, max(1, most // WORTH_A_THREAD)))
    total = inputs[start].num_rows
    for first in range(0, total, most):
        rows = np.arange(first, min(first + most, total), dtype=row_type(total))
        yield from chain.extend(0, {start: rows}, emit)


def join_order(graph: Graph, inputs: Inputs) -> tuple[str, list[JoinStep]]:
    """A greedy join order: the edge with the fewest pairs in a sample, then always the fewest partial results."""
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
        condition = replace(best.condition, filters=((), ()))  # rows that fail the filters are already removed
        condition = condition if best.left == known else mirrored(condition)
        steps.append(JoinStep(known, new, condition, tuple(closing[1:])))
        joined.add(new)
    return start, steps


def _pairs(edge: Edge, inputs: Inputs) -> float:
    tables = [pa.Table.from_batches([inputs[alias]]) for alias in (edge.left, edge.right)]
    samples = [sample_table(edge.condition, side, tables[side]) for side in Side]
    return estimated_pairs(edge.condition, (samples[0], samples[1]))


@dataclass(frozen=True, slots=True)
class _Chain:
    """The steps in sequence: each extends up to `most` partial results at a time, on all threads."""

    graph: Graph
    inputs: Inputs
    steps: Sequence[JoinStep]
    most: int
    threads: int

    def extend(self, number: int, found: Partial, emit: Emit[T]) -> Iterator[T]:
        """What `emit` yields for the results that extend these partial ones."""
        step = self.steps[number]
        with allow_threads(self.threads):
            known = _keep_known(step, found[step.known], self.inputs)
            right = _read(step.condition, Side.RIGHT, self.inputs[step.new])
            parts = build_matcher(step.condition, known.batch, right).split(self.threads)
        capacity = max(1, self.most // max(1, len(parts)))
        if number + 1 < len(self.steps):
            grown = in_order(
                [partial(self._grow, step, known, part, found, capacity) for part in parts], self.threads, AHEAD
            )
            for more in _regroup(grown, self.most):
                yield from self.extend(number + 1, more, emit)
        else:
            tasks = [partial(self._emit_part, step, known, part, found, capacity, emit) for part in parts]
            yield from in_order(tasks, self.threads, AHEAD)

    def _grow(self, step: JoinStep, known: _Known, part: Matcher, found: Partial, capacity: int) -> Iterator[Partial]:
        """The partial results extended by rows of the new input."""
        for lefts, rights in part.pairs(capacity):
            for places, partners in known.expand(lefts, rights, capacity):
                more = {alias: _pick(rows, places) for alias, rows in found.items()}
                more[step.new] = partners
                for edge in step.checks:
                    more = _check_edge(edge, self.inputs, more)
                if len(more[step.new]):
                    yield more

    def _emit_part(
        self, step: JoinStep, known: _Known, part: Matcher, found: Partial, capacity: int, emit: Emit[T]
    ) -> Iterator[T]:
        for rows in self._grow(step, known, part, found, capacity):
            good = self.graph.checked(self.inputs, rows)
            matches = self.graph.matches(self.inputs, rows)
            if good is not None:
                matches = matches.only(good)
            if matches.size:
                yield from emit(matches)


class _Known(NamedTuple):
    """The rows of the known input; `places`: the partial results of each row, if it is in several."""

    batch: pa.RecordBatch
    places: Equality | None = None

    def expand(self, lefts: Rows, rights: Rows, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        """Pairs of known and new rows as pairs of partial results and new rows."""
        if self.places is None:
            yield lefts, rights
            return
        starts, counts = self.places.starts[lefts], (self.places.ends - self.places.starts)[lefts]
        starts, counts = starts.astype(np.int64), counts.astype(np.int64)
        for begin, end, size in chunk_ranges(counts, int(counts.sum()), capacity):
            pairs, places = expand(starts, counts, begin, end, size)
            yield self.places.rows[places], rights[pairs]


def _keep_known(step: JoinStep, rows: Rows, inputs: Inputs) -> _Known:
    """The rows of the known input, without duplicates if looking them up is expensive."""
    batch = _read(step.condition, Side.LEFT, inputs[step.known])
    if is_run(rows):
        return _Known(batch.slice(int(rows[0]), len(rows)))
    if step.only_looks_up:
        return _Known(pa.RecordBatch.from_arrays(gather([(Gatherer(batch), rows)]), schema=batch.schema))
    seen = np.zeros(batch.num_rows, np.bool_)
    mark(seen, rows)
    once = np.flatnonzero(seen)
    if len(once) == len(rows):
        return _Known(take_rows(batch, rows))
    known = batch if len(once) == batch.num_rows else take_rows(batch, once)
    return _Known(known, equality.prepare(once, rows.astype(np.int64)))


def _pick(rows: Rows, places: Rows) -> Rows:
    if is_run(places):
        return rows[int(places[0]) : int(places[0]) + len(places)]
    return take_numbers(rows, places)


def _regroup(partials: Iterable[Partial], most: int) -> Iterator[Partial]:
    """The same partial results in chunks of exactly `most`; only the last one is smaller.

    The number of threads must not determine which of them are joined together: kernels may sort them.
    """
    waiting: list[Partial] = []
    size = 0
    for found in partials:
        waiting.append(found)
        size += _size(found)
        while size >= most:
            together = _concatenate(waiting)
            yield {alias: rows[:most] for alias, rows in together.items()}
            size -= most
            waiting = [{alias: rows[most:] for alias, rows in together.items()}]
    if size:
        yield _concatenate(waiting)


def _size(found: Partial) -> int:
    return len(next(iter(found.values())))


def _concatenate(partials: Sequence[Partial]) -> Partial:
    if len(partials) == 1:
        return partials[0]
    return {alias: np.concatenate([found[alias] for found in partials]) for alias in partials[0]}


def _read(condition: Condition, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Only the columns that the condition reads."""
    names = {column.name for e in condition.conjuncts for column in columns_of(e) if column.side is side}
    return batch.select([name for name in batch.schema.names if name in names])


def _check_edge(edge: Edge, inputs: Inputs, partial: Partial) -> Partial:
    left, right = edge.left, edge.right
    good = matching(edge.condition.conjuncts, inputs[left], partial[left], inputs[right], partial[right])
    return {alias: rows[good] for alias, rows in partial.items()}


def join_several(
    plan: JoinPlan, inputs: Mapping[str, Scan], schema: pa.Schema, threads: int = 1, batch_bytes: int = MOST_BYTES
) -> Iterator[pa.RecordBatch]:
    """The whole join: by kernels over complete inputs, or by an operator for several inputs."""
    if not plan.at_rest:
        most_bytes, _ = results_share(plan.memory_bytes, spills=True)
        return _emit_each(_run_operator(plan, inputs), partial(result_batches, schema=schema, most_bytes=most_bytes))
    tables = {alias: rows.to_table() for alias, rows in inputs.items()}
    is_copied = any(plan.graph.filters.values()) or max(table.column(0).num_chunks for table in tables.values()) > 1
    emit = partial(result_batches, schema=schema, most_bytes=batch_bytes, share=not is_copied)
    return _join_tables(plan, tables, emit, threads)


def count_several(plan: JoinPlan, inputs: Mapping[str, Scan], threads: int = 1) -> int:
    """The number of results; no rows are built."""

    def count(results: Matches) -> Iterator[int]:
        yield results.size

    if not plan.at_rest:
        return sum(_emit_each(_run_operator(plan, inputs), count))
    return sum(_join_tables(plan, {alias: rows.to_table() for alias, rows in inputs.items()}, count, threads))


def _join_tables(plan: JoinPlan, tables: Mapping[str, pa.Table], emit: Emit[T], threads: int) -> Iterator[T]:
    most = PIECE
    if plan.memory_bytes is not None:
        most = min(PIECE, max(FEWEST, plan.memory_bytes // (ENTRY_BYTES * len(tables))))
    return join_all_at_rest(plan.graph, filter_inputs(plan.graph, tables), emit, most, threads)


def _emit_each(found: Iterator[Matches], emit: Emit[T]) -> Iterator[T]:
    for results in found:
        yield from emit(results)
        del results  # before more work is done


def _run_operator(plan: JoinPlan, inputs: Mapping[str, Scan]) -> Iterator[Matches]:
    counters = Counters()
    blocks = BlockStore(counters=counters)
    growth = None if plan.memory_bytes is None else GrowthWatch(plan.memory_bytes)
    budget = Budget(plan.memory_bytes, "bytes", counters, None if growth is None else growth.look)
    workspace = Workspace.of(plan, budget, blocks, BATCH_ROWS, counters)
    most_bytes = LINE_BYTES if plan.memory_bytes is None else plan.memory_bytes // ARRIVAL_SHARE
    scans = [inputs[alias] for alias in plan.graph.aliases]
    sizes = [InputAtRest(rows, rows.total_bytes()) for rows in scans]
    smallest_first = sorted(range(len(scans)), key=lambda number: sizes[number].nbytes)
    arrivals = {number: sizes[number].batches(most_bytes) for number in smallest_first}
    try:
        driver = Driver(plan.make_operator(workspace), workspace)
        for _, results in driver.run(by_turns(arrivals) if plan.spec.takes_turns else one_after_the_other(arrivals)):
            if results.size:
                yield results
            del results
    finally:
        blocks.close()
