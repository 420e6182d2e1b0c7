"""Joins in process, from Arrow to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from dovetail.columns.batches import one_batch, row_bytes, table_batches
from dovetail.core.metrics import Counters, Observer, Progress
from dovetail.core.rows import Arrival, End, Event, Phase, Side
from dovetail.errors import PlanError
from dovetail.estimation.measures import Measures
from dovetail.execution.at_rest import Joining, Watch, join_at_rest, limit_work
from dovetail.execution.drawing import Drawing
from dovetail.execution.driver import Driver
from dovetail.execution.monitor import JoinMonitor
from dovetail.execution.out_of_core import chunk_size, join_in_cells, join_in_chunks, keep_within, load, route_inputs
from dovetail.execution.output import LARGEST_BYTES, multi_schema, output_schema, results_share
from dovetail.execution.parallel import ParallelJoin, plan_workers
from dovetail.execution.sampling import Sampling
from dovetail.execution.steps import (
    Rows,
    Sizes,
    Step,
    StepBuilder,
    decode_batch,
    decode_events,
    decode_plan,
    encode_steps,
    has_dictionaries,
    limit_rows,
    limit_steps,
)
from dovetail.matching.matcher import FEW_ROWS
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.options import WAIT_MS
from dovetail.planning.plan import JoinPlan
from dovetail.sources.protocol import Scan, as_source
from dovetail.sources.reader import Feed, Retry
from dovetail.storage.allocator import GrowthWatch
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget, parse_bytes

__all__ = ["BATCH_ROWS", "STREAM_ROWS", "Step", "in_turn", "join_progressively", "join_tables"]

S = TypeVar("S")

BATCH_ROWS = 1 << 16  # rows per arrival, for tables at rest
STREAM_ROWS = 4096  # rows per arrival, for a progressive join: small, for early results
LARGEST_STREAM_ROWS = 1 << 16  # the limit as batches grow, if memory allows
ARRIVAL_SHARE = 32  # at most 1/32 of the budget arrives at once (driver.py: rows_per_piece)
LINE_SHARE = 128  # part of the budget for waiting rows of one side: with a batch and a sample, at most a block
LINE_BYTES = 1 << 24  # the same without a budget


def join_tables(
    plan: JoinPlan,
    left: Scan,
    right: Scan,
    schema: pa.Schema,
    observer: Observer | None = None,
    limit: int | None = None,
    threads: int = 1,
    batch_bytes: int = LARGEST_BYTES,
    drop: tuple[int, int] = (0, 0),
) -> Iterator[pa.RecordBatch]:
    """The join of two inputs at rest, in whole or `limit` rows of it, batch by batch.

    Either by a kernel over both complete sides, or by an operator; then the smaller side arrives first, so that only it
    has to be kept. Files are loaded, unless they exceed the budget. A kernel's results omit the last `drop` columns of
    each side.
    """
    chunk_bytes = chunk_size(plan.memory_bytes)
    loaded_bytes = None if plan.memory_bytes is None else chunk_bytes
    inputs = (load(left, loaded_bytes), load(right, loaded_bytes))
    first = Side.LEFT if inputs[0].nbytes <= inputs[1].nbytes else Side.RIGHT
    threads = threads if sum(rows.scan.rows for rows in inputs) >= FEW_ROWS else 1
    if plan.at_rest and max(rows.nbytes for rows in inputs) <= chunk_bytes:
        tables = [rows.scan.to_table() for rows in inputs]
        sides = [one_batch(table, table.schema) for table in tables]
        share = max(len(table.to_batches()) for table in tables) == 1  # otherwise the sides are copies
        work = Joining(plan.condition, plan.how, schema, drop, batch_bytes=batch_bytes, share=share, threads=threads)
        work = keep_within(work, plan.memory_bytes)
        yield from join_at_rest(work, (sides[0], sides[1]), observer, limit)
    elif plan.at_rest:
        work = Joining(plan.condition, plan.how, schema, drop, threads=threads)
        work = keep_within(limit_work(work, limit), plan.memory_bytes)
        routing = route_inputs(work, inputs, plan.memory_bytes) if limit is None else None
        if routing is not None:
            results = join_in_cells(work, inputs, routing.router, first, plan.memory_bytes)
        else:
            results = join_in_chunks(work, inputs, first, plan.memory_bytes)
        yield from limit_rows(Watch(observer).count_batches(results), limit)
    else:
        most_bytes = LINE_BYTES if plan.memory_bytes is None else plan.memory_bytes // ARRIVAL_SHARE
        arrivals = one_after_the_other({side: inputs[side].batches(most_bytes) for side in (first, first.other)})
        for step in limit_steps(run(plan, arrivals, schema, BATCH_ROWS), limit):
            yield step.batch
            if observer is not None:
                observer(Progress("joining", step.results))


def join_progressively(
    plan: JoinPlan,
    inputs: Sequence[Rows],
    suffix: str,
    wait_ms: float = WAIT_MS,
    retry: Retry | None = None,
    monitor: JoinMonitor | None = None,
    aggregates: Mapping[str, str] | None = None,
    workers: int = 1,
    left_s: Callable[[], float | None] = lambda: None,
) -> ProgressiveJoin[Step]:
    """Results as they are found, or aggregates over them. Tables are interleaved; sources are joined on arrival."""
    if plan.memory_bytes is not None and workers == 1 and len(inputs) == len(Side) and has_dictionaries(plan):
        schema = plan_schema(plan, suffix)
        running = _join_events(
            decode_plan(plan), inputs, suffix, wait_ms, retry, monitor, aggregates, left_s, decoded=True
        )
        return running.wrapped(lambda steps: encode_steps(steps, schema))
    if workers > 1:
        schema, sizes = plan_schema(plan, suffix), Sizes.from_inputs(inputs)
        return in_parallel(plan, (inputs[0], inputs[1]), schema, sizes, aggregates, workers)
    return _join_events(plan, inputs, suffix, wait_ms, retry, monitor, aggregates, left_s)


def _join_events(
    plan: JoinPlan,
    inputs: Sequence[Rows],
    suffix: str,
    wait_ms: float,
    retry: Retry | None,
    monitor: JoinMonitor | None,
    aggregates: Mapping[str, str] | None,
    left_s: Callable[[], float | None],
    *,
    decoded: bool = False,
) -> ProgressiveJoin[Step]:
    """Join with one operator. `decoded`: the plan is for rows without dictionaries."""
    schema, sizes = plan_schema(plan, suffix), Sizes.from_inputs(inputs)
    decode = decode_events if decoded else iter
    tables = [rows for rows in inputs if isinstance(rows, pa.Table)]
    if len(tables) == len(inputs):
        most_rows = _largest_arrival(plan, tables)
        events = in_turn(tables, most_rows=most_rows, build=_builds(plan))
        drawing = (
            partial(Drawing, tables=tables, decode=decode_batch if decoded else None)
            if len(tables) == len(Side)
            else None
        )
        return run(plan, decode(events), schema, most_rows, 0, sizes, monitor, aggregates, drawing)
    capacity_bytes = LINE_BYTES if plan.memory_bytes is None else max(1, plan.memory_bytes // LINE_SHARE)
    sources = [as_source(rows) for rows in inputs]
    feed = Feed(
        sources, capacity_bytes=capacity_bytes, batch_rows=STREAM_ROWS, wait_ms=wait_ms, retry=retry, left_s=left_s
    )
    line_bytes = len(sources) * capacity_bytes
    running = run(plan, decode(feed.events()), schema, STREAM_ROWS, line_bytes, sizes, monitor, aggregates)
    return running.wrapped(lambda steps: _close_after(steps, feed))


def _largest_arrival(plan: JoinPlan, tables: Sequence[pa.Table]) -> int:
    """Rows per arrival once the first results are out. With a window of rows, their order changes the result."""
    if "window" in plan.parameters:
        return STREAM_ROWS
    if plan.memory_bytes is None or not plan.spec.spills:
        return LARGEST_STREAM_ROWS
    width = max(map(row_bytes, tables))
    return min(LARGEST_STREAM_ROWS, max(STREAM_ROWS, plan.memory_bytes // ARRIVAL_SHARE // width))


def _builds(plan: JoinPlan) -> bool:
    """Whether both inputs are kept in memory and joined on arrival, so that the order of arrival does not matter."""
    return (
        len(plan.graph.aliases) == len(Side)
        and plan.spec.emits_at_arrival
        and not plan.spec.spills
        and "window" not in plan.parameters
    )


def plan_schema(plan: JoinPlan, suffix: str) -> pa.Schema:
    """The schema of the result of a join in process."""
    if len(plan.graph.aliases) > len(Side):
        return multi_schema(plan.graph.schemas)
    return output_schema(*plan.condition.schemas, suffix, plan.how)


def in_parallel(
    plan: JoinPlan,
    tables: tuple[pa.Table, pa.Table],
    schema: pa.Schema,
    sizes: Sizes,
    aggregates: Mapping[str, str] | None,
    workers: int,
) -> ProgressiveJoin[Step]:
    """The same with several threads."""
    plan, cells = plan_workers(plan, tables, workers)
    most_rows = _largest_arrival(plan, tables)
    join = ParallelJoin(plan, cells, tables, schema, most_rows, sizes, aggregates or {})
    events = in_turn(tables, STREAM_ROWS * plan.cells, most_rows * plan.cells)
    return ProgressiveJoin(join.steps(sizes.watch(events)), join.name)


def _close_after(steps: Iterator[Step], feed: Feed) -> Iterator[Step]:
    with closing(feed):
        yield from steps


def run(
    plan: JoinPlan,
    events: Iterable[Event],
    schema: pa.Schema,
    batch_rows: int,
    line_bytes: int = 0,
    sizes: Sizes | None = None,
    monitor: JoinMonitor | None = None,
    aggregates: Mapping[str, str] | None = None,
    drawing: Callable[[Workspace, Measures], Drawing] | None = None,
) -> ProgressiveJoin[Step]:
    """Drive the plan's operator. Wrong parameters raise at once.

    `line_bytes`: the size of the input buffer, which is reserved from the budget. `drawing`: draws rows from both whole
    inputs, if they are tables.
    """
    is_expected = sizes is not None and len(sizes.rows) == len(Side)
    sizes = sizes or Sizes()
    events = sizes.watch(events)
    counters = Counters()
    growth = None if plan.memory_bytes is None else GrowthWatch(plan.memory_bytes)
    results_bytes, aside = results_share(plan.memory_bytes, spills=plan.spec.spills)
    limit = None if plan.memory_bytes is None else plan.memory_bytes - aside
    budget = Budget(limit, "bytes", counters, None if growth is None else growth.look)
    budget.hold("line of arrivals", 0, line_bytes)
    blocks = BlockStore(counters=counters)
    given = {"measures": aggregates or {}} if plan.spec.reports_blocks else {}
    workspace = Workspace.of(plan, budget, blocks, batch_rows, counters, parameters=given)
    builder = StepBuilder(workspace, sizes, aggregates or {}, results_bytes, pairs_only=plan.how == "inner")
    if not plan.spec.reports_blocks and is_expected and plan.how == "inner" and "window" not in plan.parameters:
        rows = (sizes.rows[0], sizes.rows[1])
        sampling = Sampling(
            workspace, builder.measures, rows, owned=line_bytes > 0, all_meet=lambda: operator.joins_at_arrival
        )
        events = sampling.watch(events)
    if drawing is not None and plan.how == "inner" and "window" not in plan.parameters:
        events = drawing(workspace, builder.measures).watch(events)
    operator = plan.make_operator(workspace)
    steps = _steps(operator, workspace, events, schema, builder, monitor)
    return ProgressiveJoin(steps, plan.operator.name, operator)


def _steps(
    operator: JoinOperator,
    workspace: Workspace,
    events: Iterable[Event],
    schema: pa.Schema,
    builder: StepBuilder,
    monitor: JoinMonitor | None,
) -> Generator[Step, None, None]:
    """The steps of a join. Leaving the loop early frees memory and files."""
    counters = workspace.counters
    try:
        driver = Driver(operator, workspace)
        if monitor is not None:
            estimator = workspace.estimator
            monitor.meet(
                lambda: operator.usage, lambda: builder.estimate_results(counters.results), lambda: estimator.objection
            )
            events = monitor.events(events)
        last: Step | None = None  # held back in cleanup, since the last step has the final figures
        for phase, results in driver.run(events):
            if monitor is not None:
                monitor.record_results(phase, results.size)
            done = counters.results - results.size
            for batch in builder.batches(results, schema):
                done += batch.num_rows
                step = builder.step(batch, phase, counters.results if builder.measures else done)
                if operator.spec.adapts:
                    step = replace(step, operator=operator.running.operator, reason=operator.running.reason)
                if last is not None:
                    yield last
                last = step if phase is Phase.CLEANUP or builder.all_came else None
                if last is None:
                    yield step
                del batch, step
            del results  # before more work is done: these may be the last references to rows already dropped
        if last is not None or builder.measures:
            yield builder.last(last, schema, counters.results)
        if monitor is not None:
            monitor.tell()
    finally:
        workspace.blocks.close()


def one_after_the_other(inputs: Mapping[int, Iterable[pa.RecordBatch]]) -> Iterator[Event]:
    """All rows of one input before those of the next. Put smaller inputs first, so that only they are kept."""
    for number, batches in inputs.items():
        for batch in batches:
            yield Arrival(number, batch)
            del batch
        yield End(number)


def by_turns(inputs: Mapping[int, Iterable[pa.RecordBatch]]) -> Iterator[Event]:
    """One batch of each input in turn."""
    waiting = {number: iter(batches) for number, batches in inputs.items()}
    while waiting:
        for number, batches in list(waiting.items()):
            batch = next(batches, None)
            if batch is None:
                del waiting[number]
            yield End(number) if batch is None else Arrival(number, batch)


def in_turn(
    tables: Sequence[pa.Table], rows: int = STREAM_ROWS, most_rows: int = STREAM_ROWS, *, build: bool = False
) -> Iterator[Event]:
    """Small batches of each input in turn, in proportion to their sizes, so that all end at about the same time.

    Batches grow up to `most_rows`: the first results come early, and later ones cost less. `build`: from then on, one
    input after the other, the smaller one first, so that the rows of the last are probed and not kept.
    """
    longest = max(1, *(table.num_rows for table in tables))
    positions = dict.fromkeys(range(len(tables)), 0)
    while positions and not (build and rows == most_rows):
        for number, position in list(positions.items()):
            table = tables[number]
            if position >= table.num_rows:  # in the next round, so that pairs are found on arrival
                del positions[number]
                yield End(number)
                continue
            size = max(1, table.num_rows * rows // longest)
            for batch in table_batches(table, position, size):
                yield Arrival(number, batch)
            positions[number] = position + size
        rows = min(2 * rows, max(rows, most_rows))
    for number in sorted(positions, key=lambda number: tables[number].nbytes):
        for batch in table_batches(tables[number], positions[number], most_rows=most_rows):
            yield Arrival(number, batch)
        yield End(number)


class ProgressiveJoin(Iterator[S], Generic[S]):
    """An iterator over the steps. Leaving the loop, `close` and the end of a `with` free memory and files."""

    def __init__(self, steps: Generator[S, None, None], name: str, operator: JoinOperator | None = None) -> None:
        self._steps = steps
        self._name = name
        self._operator = operator  # None: there are several

    def __next__(self) -> S:
        return next(self._steps)

    def __repr__(self) -> str:
        return f"<ProgressiveJoin by {self._name}: iterate over it for steps>"

    def memory(self, memory: str | float | None) -> None:
        """Resize the memory budget: an increase takes effect at once, a decrease when memory is freed. None: no
        limit."""
        if self._operator is None or not self._operator.spec.resizable:
            raise PlanError(f"the memory of {self._name} is fixed; only pmj in one worker can be resized.")
        nbytes = None if memory is None else parse_bytes(memory)
        self._operator.resize(None if nbytes is None else nbytes - results_share(nbytes, spills=True)[1])

    def wrapped(self, wrap: Callable[[Iterator[S]], Iterator[S]]) -> ProgressiveJoin[S]:
        """The same join, with its steps passed through `wrap`."""
        return ProgressiveJoin(_all_of(wrap, self), self._name, self._operator)

    def close(self) -> None:
        self._steps.close()

    def __enter__(self) -> ProgressiveJoin[S]:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _all_of(wrap: Callable[[Iterator[S]], Iterator[S]], running: ProgressiveJoin[S]) -> Generator[S, None, None]:
    try:
        yield from wrap(running)
    finally:
        running.close()
