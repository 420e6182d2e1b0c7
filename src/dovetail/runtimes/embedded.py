"""Joins in process: Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from dovetail.batch import Arrival, End, Event, Phase, Side, one_batch
from dovetail.estimate import Estimate, Estimator
from dovetail.metrics import Counters, Observer, Progress
from dovetail.operators import operator_class
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.plan import JoinPlan
from dovetail.runtimes.at_rest import join_at_rest
from dovetail.runtimes.chunked import Chunked, chunk_size
from dovetail.runtimes.diagonal import DiagonalJoin
from dovetail.runtimes.driver import Driver
from dovetail.runtimes.output import output_schema, result_batches
from dovetail.runtimes.running import Running
from dovetail.runtimes.watching import Watch
from dovetail.runtimes.witness import Witness
from dovetail.runtimes.work import Joining
from dovetail.sources.feed import WAIT_MS, Feed
from dovetail.sources.local import as_source
from dovetail.sources.protocol import Source
from dovetail.sources.reader import Retry
from dovetail.sources.scans import Scan
from dovetail.state.blocks import BlockStore
from dovetail.state.budget import Budget

BATCH_ROWS = 1 << 16  # rows of a table at rest that arrive at once
STREAM_ROWS = 4096  # rows of a progressive join that arrive at once: small, for early results
LINE_SHARE = 64  # of the budget, for rows of one side that wait: with the batch at hand, less than a block
LINE_BYTES = 1 << 24  # the same where there is no budget

Rows: TypeAlias = pa.Table | Source


@dataclass(frozen=True, slots=True)
class Step:
    """New results of a progressive join, and how far it is."""

    batch: pa.RecordBatch
    phase: Phase
    results: int  # so far, with this batch
    estimate: Estimate | None  # None while it cannot be honest
    aggregates: Mapping[str, Estimate | None] | None = None  # where they were asked for instead of results


def join_tables(
    plan: JoinPlan, left: pa.Table, right: pa.Table, suffix: str, observer: Observer | None = None
) -> pa.Table:
    """The whole join of two tables.

    By a kernel that sees both sides complete, or by an operator: the smaller side then comes first, so that only it has
    to be kept.
    """
    schema = output_schema(left.schema, right.schema, suffix, plan.how)
    tables = (left, right)
    first = Side.LEFT if left.nbytes <= right.nbytes else Side.RIGHT
    chunk_bytes = chunk_size(plan.memory_bytes)
    if plan.at_rest and max(left.nbytes, right.nbytes) <= chunk_bytes:
        sides = (one_batch(left, left.schema), one_batch(right, right.schema))
        return pa.Table.from_batches(join_at_rest(plan.condition, plan.how, *sides, schema, observer), schema)
    if plan.at_rest:
        chunks = Chunked(Joining(plan.condition, plan.how, schema), first, None, chunk_bytes)
        arrivals = (
            (side, batch) for side in (first, first.other) for batch in small_batches(tables[side], chunk_bytes)
        )
        return pa.Table.from_batches(Watch(observer).counted(chunks.run(arrivals)), schema)
    batches = []
    for step in run(plan, one_after_the_other(tables, first), schema, BATCH_ROWS):
        batches.append(step.batch)
        if observer is not None:
            observer(Progress("joining", step.results))
    return pa.Table.from_batches(batches, schema)


def join_progressively(
    plan: JoinPlan,
    left: Rows,
    right: Rows,
    suffix: str,
    wait_ms: float = WAIT_MS,
    retry: Retry | None = None,
    witness: Witness | None = None,
) -> Running[Step]:
    """Results as they come: rows of tables arrive in turn, those of sources when they come."""
    schema = output_schema(*plan.condition.schemas, suffix, plan.how)
    sizes = Sizes.announced(left, right)
    if isinstance(left, pa.Table) and isinstance(right, pa.Table):
        return run(plan, in_turn((left, right)), schema, STREAM_ROWS, sizes=sizes, witness=witness)
    room_bytes = LINE_BYTES if plan.memory_bytes is None else max(1, plan.memory_bytes // LINE_SHARE)
    sources = (as_source(left), as_source(right))
    feed = Feed(sources, room_bytes=room_bytes, batch_rows=STREAM_ROWS, wait_ms=wait_ms, retry=retry)
    running = run(plan, feed.events(), schema, STREAM_ROWS, len(sources) * room_bytes, sizes, witness)
    return running.wrapped(lambda steps: _fed(steps, feed))


def join_along_diagonal(
    plan: JoinPlan, scans: tuple[Scan, Scan], suffix: str, observer: Observer | None = None
) -> Iterator[Step]:
    """Results as they come: both inputs are read as the window slides."""
    join = DiagonalJoin(plan, scans, output_schema(*plan.condition.schemas, suffix, plan.how))
    for phase, batch in join.results():
        yield Step(batch, phase, join.counters.results, None)
        if observer is not None:
            observer(Progress("joining", join.counters.results))


def _fed(steps: Iterator[Step], feed: Feed) -> Iterator[Step]:
    with closing(feed):
        yield from steps


@dataclass(slots=True)
class Sizes:
    """How many rows each side has, where that is known: from the start, or when it has ended."""

    rows: list[int | None] = field(default_factory=lambda: [None, None])

    @classmethod
    def announced(cls, left: Rows, right: Rows) -> Sizes:
        """Tables know it, and so do sources with a number of `rows`."""
        return cls([_row_count(left), _row_count(right)])

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, while their rows are counted: what came in the end counts, whatever was announced."""
        came = [0, 0]
        for event in events:
            match event:
                case Arrival(side, batch):
                    came[side] += batch.num_rows
                    if came[side] > (self.rows[side] or 0):
                        self.rows[side] = None
                case End(side):
                    self.rows[side] = came[side]
            yield event


def _row_count(rows: Rows) -> int | None:
    count = rows.num_rows if isinstance(rows, pa.Table) else getattr(rows, "rows", None)
    return count if isinstance(count, int) and count >= 0 else None


def run(
    plan: JoinPlan,
    events: Iterable[Event],
    schema: pa.Schema,
    batch_rows: int,
    line_bytes: int = 0,
    sizes: Sizes | None = None,
    witness: Witness | None = None,
) -> Running[Step]:
    """Drive the plan's operator. What is wrong with its parameters is said at once.

    `line_bytes`: what rows that have come and wait may take; it is set aside from the budget.
    """
    sizes = sizes or Sizes()
    events = sizes.watch(events)
    counters = Counters()
    budget = Budget(plan.memory_bytes, "bytes", counters)
    budget.hold("line of arrivals", 0, line_bytes)
    blocks = BlockStore(counters=counters)
    parameters = {**plan.parameters} if plan.how == "inner" else {**plan.parameters, "how": plan.how}
    workspace = Workspace(plan.condition, budget, blocks, batch_rows, counters, parameters=parameters)
    operator = operator_class(plan.operator.name)(workspace)
    return Running(_steps(operator, workspace, events, schema, sizes, witness), operator)


def _steps(
    operator: JoinOperator,
    workspace: Workspace,
    events: Iterable[Event],
    schema: pa.Schema,
    sizes: Sizes,
    witness: Witness | None,
) -> Generator[Step, None, None]:
    """Leaving the loop early frees memory and files."""
    counters = workspace.counters
    try:
        driver = Driver(operator, workspace)
        if witness is not None:
            witness.meet(lambda: operator.usage, lambda: _expected(workspace.estimator, sizes, counters.results))
            events = witness.events(events)
        last: Step | None = None  # held back in the end, since all is known after it
        for phase, pairs in driver.run(events):
            if witness is not None:
                witness.found(phase, pairs.size)
            done = counters.results - pairs.size
            for batch in result_batches(pairs, schema):
                done += batch.num_rows
                step = Step(batch, phase, done, _expected(workspace.estimator, sizes, done))
                if last is not None:
                    yield last
                last = step if phase is Phase.CLEANUP else None
                if last is None:
                    yield step
        if last is not None:
            yield replace(last, estimate=_expected(workspace.estimator, sizes, last.results))
        if witness is not None:
            witness.tell()
    finally:
        workspace.blocks.close()


def _expected(estimator: Estimator, sizes: Sizes, results: int) -> Estimate | None:
    """What is known of the total: it is no less than what there is already."""
    left_rows, right_rows = sizes.rows
    if left_rows is None or right_rows is None:
        return None
    estimate = estimator.estimate(left_rows, right_rows)
    if estimate is None:
        return None
    total, low, high, confidence = estimate
    return Estimate(max(total, results), max(low, results), max(high, results), confidence)


def small_batches(table: pa.Table, most_bytes: int) -> list[pa.RecordBatch]:
    """The rows of a table in batches of about so many bytes."""
    rows = max(1, most_bytes * table.num_rows // max(1, table.nbytes))
    return list(table.to_batches(max_chunksize=rows))


def one_after_the_other(tables: tuple[pa.Table, pa.Table], first: Side) -> Iterator[Event]:
    for side in (first, first.other):
        for batch in tables[side].to_batches():
            yield Arrival(side, batch)
        yield End(side)


def in_turn(inputs: tuple[pa.Table, pa.Table]) -> Iterator[Event]:
    """A small batch of each side in turn, in proportion to their sizes, so that both end at about the same time."""
    most = max(1, *(table.num_rows for table in inputs))
    sizes = [max(1, table.num_rows * STREAM_ROWS // most) for table in inputs]
    batches = {side: iter(inputs[side].to_batches(max_chunksize=sizes[side])) for side in Side}
    while batches:
        for side in list(batches):
            batch = next(batches[side], None)
            if batch is None:
                del batches[side]
                yield End(side)
            else:
                yield Arrival(side, batch)
