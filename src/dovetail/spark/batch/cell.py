"""Joins the cells of one Spark task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

import pyarrow as pa

from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Side
from dovetail.execution.at_rest import Work
from dovetail.execution.driver import Driver
from dovetail.execution.out_of_core import Chunked, chunk_size
from dovetail.execution.output import result_batches
from dovetail.execution.steps import limit_rows
from dovetail.operators.protocol import Workspace
from dovetail.planning.plan import JoinPlan
from dovetail.spark.exchange.packing import Rewrite, unpack_rows
from dovetail.spark.session.workers import freeze_modules
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

BATCH_ROWS = 1 << 16


def operator_cells(plan: JoinPlan, first: Side, drop: tuple[int, int], schema: pa.Schema) -> Rewrite:
    """A function for mapInArrow that runs the plan's operator on packed rows. All rows of side `first` come first.

    The last `drop` columns of each side are keys that Spark added. They are not part of the result.
    """
    check_parameters(plan)

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, rows in groupby(unpack_rows(batches), key=lambda packed: packed[0]):
            counters = Counters()
            blocks = BlockStore(counters=counters)
            try:
                for _, pairs in _driver(plan, blocks, counters).run(_events(rows, first)):
                    yield from result_batches(pairs, schema, drop=drop)
            finally:
                blocks.close()
        freeze_modules()

    return join


def check_parameters(plan: JoinPlan) -> None:
    """Refuse invalid parameters of the plan's operator before any work is done."""
    _driver(plan, BlockStore(), Counters())


def _driver(plan: JoinPlan, blocks: BlockStore, counters: Counters) -> Driver:
    """The driver of the plan's operator in a cell."""
    workspace = Workspace.of(plan, Budget(plan.memory_bytes, "bytes", counters), blocks, BATCH_ROWS, counters)
    return Driver(plan.make_operator(workspace), workspace)


def cells_at_rest(work_in: Callable[[int], Work], first: Side, memory_bytes: int | None) -> Rewrite:
    """A function for mapInArrow that processes one cell after the other."""

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for label, rows in groupby(unpack_rows(batches), key=lambda packed: packed[0]):
            blocks = BlockStore()
            try:
                cell = Chunked(work_in(label), first, blocks, chunk_size(memory_bytes))
                yield from cell.run((Side(number), batch) for _, number, batch in rows)
            finally:
                blocks.close()
        freeze_modules()

    return join


def limit_task(work: Rewrite, limit: int | None) -> Rewrite:
    """The same work, stopped when the task has this many rows."""
    if limit is None:
        return work

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from limit_rows(work(batches), limit)
        for _ in batches:  # Spark does not reuse a worker that leaves input unread
            pass

    return join


def _events(rows: Iterator[tuple[int, int, pa.RecordBatch]], first: Side) -> Iterator[Event]:
    ended = False
    for _, number, batch in rows:
        side = Side(number)
        if side is not first and not ended:
            ended = True
            yield End(first)
        yield Arrival(side, batch)
