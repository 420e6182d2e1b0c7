"""The join of one cell inside a Spark task."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dovetail.batch import Arrival, End, Event, Side
from dovetail.metrics import Counters
from dovetail.operators import operator_class
from dovetail.operators.protocol import Workspace
from dovetail.plan import JoinPlan
from dovetail.runtimes.driver import Driver
from dovetail.runtimes.output import result_batches
from dovetail.spark.packing import Rewrite, from_bytes, rows_at_once
from dovetail.spark.workers import settle
from dovetail.state.blocks import BlockStore
from dovetail.state.budget import Budget

BATCH_ROWS = 1 << 16


def cell_joiner(plan: JoinPlan, first: Side, drop: tuple[int, int], schema: pa.Schema) -> Rewrite:
    """A function for mapInArrow that joins the packed rows of one cell, all of side `first` coming before the other.

    `drop` columns at the end of each side are keys that Spark added; they are not part of the result.
    """

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counters = Counters()
        blocks = BlockStore(counters=counters)
        budget = Budget(plan.memory_bytes, "bytes", counters)
        workspace = Workspace(plan.condition, budget, blocks, BATCH_ROWS, counters)
        try:
            driver = Driver(operator_class(plan.operator.name)(workspace), workspace)
            for _, pairs in driver.run(arrivals(batches, first)):
                yield from result_batches(pairs, schema, rows_at_once(pairs), drop)
        finally:
            blocks.close()
        settle()

    return join


def arrivals(batches: Iterator[pa.RecordBatch], first: Side) -> Iterator[Event]:
    """Packed rows, sorted by side, as events."""
    ended = False
    for batch in batches:
        for side, payload in zip(batch.column("side").to_pylist(), batch.column("payload"), strict=True):
            if side != first and not ended:
                ended = True
                yield End(first)
            yield Arrival(Side(side), from_bytes(payload.as_buffer()))
