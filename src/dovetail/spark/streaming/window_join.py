"""Windowed joins of two streams on any condition.

    left  --pack, to all cells--+
                                +--> groupBy(cell).transformWithStateInPandas --> unpack --> a DataFrame
    right --pack, to all cells--+

inner                        a row probes what all cells keep of the other stream; the cells take turns keeping rows
left, left_semi, left_anti   a left row is kept and probes in one cell, right rows are kept in all of them: that cell
                             knows whether the row has a partner
aggregates                   a left row probes in one cell and is not kept, right rows are kept in all of them
with an equality             a row is kept and probes in the cell of its key only; the others are told that it came
with a band, many cells      the same, but a right row is kept and probes in the cells of all stripes within its reach
right                        as left, the other way round; full: as left, in one cell, unless there is an equality

Which cell keeps a row follows from its number in the micro-batch and from the batch's id and size, not from anything
counted before. So an inner join can go on with another number of cells: those that are no longer used are probed until
what they keep has expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from dovetail.columns.taking import take_rows
from dovetail.condition.select import Aggregate
from dovetail.core.rows import Side
from dovetail.matching.window_positions import event_times
from dovetail.routing.routers import Router, Visits
from dovetail.spark.exchange.labels import spread_labels
from dovetail.spark.exchange.packing import Rewrite, as_planned, collected, packed_rows, with_all
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.streaming.arrival_order import NEVER, POSITION_BITS, packet
from dovetail.spark.streaming.stream_join import CellJoin, Clock
from dovetail.window import Window

FORMAT = 2  # of the state: to be raised when a release writes another


@dataclass(frozen=True, kw_only=True)
class WindowJoin(CellJoin):
    """A join within a window, which bounds what is kept."""

    window: Window
    cells: int  # that take turns keeping rows
    self_join: bool = False  # the left stream is the right one, too
    router: Router | None = None  # sends rows that can match to one cell; None: every row visits all cells
    aggregates: tuple[Aggregate, ...] = ()  # of left rows over right ones, instead of pairs

    @property
    def _parameters(self) -> dict[str, Any]:
        return {"window": self.window, "self_join": self.self_join}

    def packer(self, number: int) -> Rewrite:
        return _packer(Side(number), self)

    @cached_property
    def in_turns(self) -> bool:
        """Whether cells take turns keeping rows of both sides; else left rows are in one cell, right rows in all."""
        return self.router is None and self.plan.how == "inner" and not self.aggregates

    @cached_property
    def clock(self) -> Clock:
        if self.window.by_watermark:
            return "EventTime"
        return "ProcessingTime" if self.has_timers else "None"

    @cached_property
    def has_timers(self) -> bool:
        """Whether windows have to close while nothing arrives; by Spark's watermark, late rows are told by it, too."""
        return self.window.by_watermark or self._closes_by_the_clock

    @property
    def _closes_by_the_clock(self) -> bool:
        return self.window.idle is not None and bool(self.plan.how.preserved) and not self.aggregates

    @cached_property
    def labels(self) -> list[int]:
        """One per cell; of an inner join also those that it does not use now, and may have used or use later."""
        reached = max(self.cells, self.setting.partitions) if self.in_turns else self.cells
        return spread_labels(reached, self.setting.partitions)

    @cached_property
    def layout(self) -> dict[str, Any]:
        condition, window = self.plan.condition, self.window
        layout = {
            "format": FORMAT,
            "condition": condition.text,
            "self_join": self.self_join,
            "how": self.plan.how if not self.aggregates else "aggregate",
            "window": [window.size, list(window.on or ()), window.scope]
            if window.limits is None
            else [list(part) for part in window.limits],
            "partitions": self.setting.partitions,
            "by": "turns" if self.router is None else "value",
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        }
        clock = {"clock": "watermark"} if window.by_watermark else {}
        limit = {} if self.setting.limit is None else {"limit": self.setting.limit}
        return layout | {"cells": len(self.labels)} | clock | limit


def window_inputs(frames: tuple[DataFrame, DataFrame], join: WindowJoin) -> Sequence[DataFrame]:
    """The streams that are read: of a self-join, one."""
    return frames[:1] if join.self_join else frames


def newest_time(window: Window, side: Side, batch: pa.RecordBatch | None) -> int:
    """The newest event time of rows in the role of a side."""
    if window.on is None or batch is None:
        return NEVER
    return int(event_times(batch.column(window.on[side])).max(initial=NEVER))


def _packer(side: Side, join: WindowJoin) -> Rewrite:
    labels = np.array(join.labels, np.int32)
    schema = join.plan.condition.schema(side)
    # Rows that match nothing are results of some join types and of aggregates, and may be late.
    kept = join.window.by_time or side in (join.plan.how.preserved if not join.aggregates else (Side.LEFT,))

    roles = list(Side) if join.self_join and join.router is not None else [side]  # else one packet is for both

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        for piece, rows in enumerate(collected(batches, join.pack_bytes)):
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
        freeze_modules()

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
