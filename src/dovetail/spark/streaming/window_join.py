"""Windowed joins of two streams on any condition.

    left  --pack, to all cells--+
                                +--> groupBy(cell).transformWithStateInPandas --> unpack --> a DataFrame
    right --pack, to all cells--+

inner                        a row probes the rows of the other stream in all cells; the cells store rows in turn
left, left_semi, left_anti   a left row is stored and probes in one cell, right rows are stored in all: that cell
                             knows whether the row has a partner
aggregates                   a left row probes in one cell and is not stored, right rows are stored in all cells
with an equality             a row is stored and probes only in the cell of its key; other cells are notified of it
with a band, many cells      the same, but a right row is stored and probes in the cells of all stripes in its reach
right                        like left, with sides swapped; full: like left, in one cell, unless there is an equality

Which cell stores a row depends on its number in the micro-batch and on the batch's id and size, not on earlier counts.
So an inner join can be restarted with another number of cells: those no longer used are probed until their rows have
expired.
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

FORMAT = 2  # of the state; increase it when a release changes the format


@dataclass(frozen=True, kw_only=True)
class WindowJoin(CellJoin):
    """A join within a window, which bounds the state."""

    window: Window
    cells: int  # number of cells that store rows in turn
    self_join: bool = False  # both inputs are the same stream
    router: Router | None = None  # sends rows that can match to one cell; None: every row visits all cells
    aggregates: tuple[Aggregate, ...] = ()  # over right rows for each left row, instead of pairs

    @property
    def _parameters(self) -> dict[str, Any]:
        return {"window": self.window, "self_join": self.self_join}

    def packer(self, number: int) -> Rewrite:
        return _packer(Side(number), self)

    @cached_property
    def in_turns(self) -> bool:
        """Whether cells store rows of both sides in turn. Otherwise left rows are in one cell, right rows in all."""
        return self.router is None and self.plan.how == "inner" and not self.aggregates

    @cached_property
    def clock(self) -> Clock:
        if self.window.by_watermark:
            return "EventTime"
        return "ProcessingTime" if self.has_timers else "None"

    @cached_property
    def has_timers(self) -> bool:
        """Whether windows must close while nothing arrives. With Spark's watermark, timers also identify late rows."""
        return self.window.by_watermark or self._closes_by_the_clock

    @property
    def _closes_by_the_clock(self) -> bool:
        return self.window.idle is not None and bool(self.plan.how.preserved) and not self.aggregates

    @cached_property
    def labels(self) -> list[int]:
        """One per cell. For an inner join, including cells that are not used now but may have been, or may be later."""
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
    """The streams to read. A self-join reads one."""
    return frames[:1] if join.self_join else frames


def newest_time(window: Window, side: Side, batch: pa.RecordBatch | None) -> int:
    """The newest event time of rows as rows of a side."""
    if window.on is None or batch is None:
        return NEVER
    return int(event_times(batch.column(window.on[side])).max(initial=NEVER))


def _packer(side: Side, join: WindowJoin) -> Rewrite:
    labels = np.array(join.labels, np.int32)
    schema = join.plan.condition.schema(side)
    # Some join types and aggregates emit rows that cannot match, and these may be late.
    kept = join.window.by_time or side in (join.plan.how.preserved if not join.aggregates else (Side.LEFT,))

    roles = list(Side) if join.self_join and join.router is not None else [side]  # else one packet serves both

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
    """For each cell: the rows that visit it, and the number of rows of the batch."""
    first = np.full(batch.num_rows, cells, np.int32)
    np.minimum.at(first, visits.rows, visits.cells)
    packets = []
    for cell in range(cells):
        here = np.sort(visits.rows[visits.cells == cell])
        packets.append(packet(take_rows(batch, here), here, first[here] == cell, batch.num_rows, newest))
    return packets
