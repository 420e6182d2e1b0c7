"""Windowed joins of two streams on any condition.

    left  --pack, to all cells--+
                                +--> groupBy(cell).transformWithStateInPandas --> figures, unpack --> a DataFrame
    right --pack, to all cells--+

inner                        a row probes what all cells keep of the other stream; the cells take turns keeping rows
left, left_semi, left_anti   a left row is kept and probes in one cell, right rows are kept in all of them: that cell
                             knows whether the row has a partner
aggregates                   a left row probes in one cell and is not kept, right rows are kept in all of them
with an equality             a row is kept and probes in the cell of its key only; the others are told that it came
with a band, many cells      the same, but a right row is kept and probes in the cells of all stripes within its reach

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

from dovetail.core.rows import Side, take_rows
from dovetail.errors import PlanError
from dovetail.routing.protocol import Visits
from dovetail.spark.exchange.packing import PACKED, Rewrite, as_planned, collected, packed_rows, with_all
from dovetail.spark.session.workers import settle
from dovetail.spark.streaming.arrival_order import POSITION_BITS, packet
from dovetail.spark.streaming.late_rows import warn_of_late_rows
from dovetail.spark.streaming.streams import unpack
from dovetail.spark.streaming.window_cell import WindowProcessor, newest_time
from dovetail.spark.streaming.window_plan import FIGURES, RESULTS, WindowJoin


def join_windowed(frames: tuple[DataFrame, DataFrame], join: WindowJoin, schema: StructType) -> DataFrame:
    """The windowed join as a streaming DataFrame."""
    if join.window.by_time:
        warn_of_late_rows(frames[0].sparkSession)
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
    wanted = bool(join.aggregates) or bool(join.plan.how.preserved)
    kept = join.window.by_time or (wanted and side is Side.LEFT)

    roles = list(Side) if join.self_join and join.router is not None else [side]  # else one packet is for both

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        for piece, rows in enumerate(collected(batches)):
            batch = as_planned(rows, schema)
            seq = [(partition << POSITION_BITS) + piece] * len(labels)
            if join.router is None:
                everyone = np.arange(batch.num_rows)
                newest = newest_time(join.window, side, batch)
                first, others = (
                    packet(batch, everyone, np.full(batch.num_rows, tells), batch.num_rows, newest)
                    for tells in (True, False)
                )
                yield packed_rows(labels, side, seq, [first] + [others] * (len(labels) - 1))
                continue
            for role in roles:
                visits = join.router.route(role, batch, np.arange(batch.num_rows))
                if kept:
                    visits = with_all(visits, batch.num_rows, partition % join.cells)
                newest = newest_time(join.window, role, batch)
                yield packed_rows(labels, role, seq, _packets(batch, visits, len(labels), newest))
        settle()

    return pack


def _packets(batch: pa.RecordBatch, visits: Visits, cells: int, newest: int) -> list[pa.Buffer]:
    """For each cell the rows that visit it, and how many the batch has."""
    first = np.full(batch.num_rows, cells, np.int32)
    np.minimum.at(first, visits.rows, visits.cells)
    packets = []
    for cell in range(cells):
        here = np.sort(visits.rows[visits.cells == cell])
        packets.append(packet(take_rows(batch, here), here, first[here] == cell, batch.num_rows, newest))
    return packets
