"""Windowed joins of two streams on any condition.

    left  --pack, to all cells--+
                                +--> groupBy(cell).transformWithStateInPandas --> figures, unpack --> a DataFrame
    right --pack, to all cells--+

inner                        a row probes what all cells keep of the other stream; the cells take turns keeping rows
left, left_semi, left_anti   a left row is kept and probes in one cell, right rows are kept in all of them: that cell
                             knows whether the row has a partner
aggregates                   a left row probes in one cell and is not kept, right rows are kept in all of them
with an equality             a row is kept and probes in the cell of its key only; the others are told that it came

Which cell keeps a row follows from its number in the micro-batch and from the batch's id and size, not from anything
counted before. So an inner join can go on with another number of cells: those that are no longer used are probed until
what they keep has expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.types import StructType

from dovetail.batch import Side, take_rows
from dovetail.errors import PlanError
from dovetail.operators.spo import event_times
from dovetail.spark.arrivals import NEVER, POSITION_BITS, packet
from dovetail.spark.packing import PACKED, Rewrite, as_planned, collected, packed_rows, with_all
from dovetail.spark.streaming import unpack
from dovetail.spark.window_cell import WindowProcessor
from dovetail.spark.window_plan import FIGURES, RESULTS, WindowJoin
from dovetail.spark.workers import settle
from dovetail.window import Window


def join_windowed(frames: tuple[DataFrame, DataFrame], join: WindowJoin, schema: StructType) -> DataFrame:
    """The windowed join as a streaming DataFrame."""
    sides = [Side.LEFT] if join.self_join else list(Side)
    packed = [frames[side].mapInArrow(_to_cells(side, join), PACKED) for side in sides]
    found = (
        reduce(DataFrame.unionAll, packed)
        .groupBy("cell")
        .transformWithStateInPandas(
            statefulProcessor=WindowProcessor(join),
            outputStructType=RESULTS,
            outputMode="Append",
            timeMode="ProcessingTime" if join.has_timers else "None",
        )
    )
    try:
        watched = found.observe(join.metrics, *(F.sum(name).alias(name) for name in FIGURES))
    except AnalysisException as error:  # its name is also the name of its state, so that it must be unique
        raise PlanError(
            f"a query has two joins called {join.metrics!r}: give one of them another name, as in metrics='second'."
        ) from error
    return watched.mapInArrow(unpack, schema)


def _to_cells(side: Side, join: WindowJoin) -> Rewrite:
    """A function for mapInArrow that sends packed rows to all cells, or to those where they can have partners."""
    labels = np.array(join.labels, np.int32)
    schema = join.plan.condition.schema(side)
    # Rows that match nothing are results of some join types and of aggregates, and may be late.
    wanted = bool(join.aggregates) or join.plan.how in ("left", "left_anti")
    kept = join.window.by_time or (wanted and side is Side.LEFT)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        for piece, rows in enumerate(collected(batches)):
            batch = as_planned(rows, schema)
            newest = _newest(join.window, side, batch)
            seq = [(partition << POSITION_BITS) + piece] * len(labels)
            if join.router is None:
                everything = packet(batch, np.arange(batch.num_rows), batch.num_rows, newest)
                yield packed_rows(labels, side, seq, [everything] * len(labels))
                continue
            visits = join.router.route(side, batch, np.arange(batch.num_rows))
            if kept:
                visits = with_all(visits, batch.num_rows, partition % join.cells)
            here = [np.sort(visits.rows[visits.cells == cell]) for cell in range(len(labels))]
            yield packed_rows(labels, side, seq, [packet(take_rows(batch, r), r, batch.num_rows, newest) for r in here])
        settle()

    return pack


def _newest(window: Window, side: Side, batch: pa.RecordBatch) -> int:
    if window.on is None:
        return NEVER
    return int(event_times(batch.column(window.on[side])).max(initial=NEVER))
