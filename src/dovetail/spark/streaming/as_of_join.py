"""As-of joins of two streams: each left row is emitted with its best right row once no better one can arrive.

    left  --by key, pack--+
                          +--> groupBy(cell).transformWithStateInPandas --> unpack --> a DataFrame
    right --by key, pack--+

Time is Spark's watermark, the lower one of both streams. Every task notifies all cells that it ran: a cell without a
watermark cannot tell which of its first rows are late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext

from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Side
from dovetail.execution.as_of_streams import NEVER, AsOf, AsOfStreams, Paired
from dovetail.execution.output import drop_last_columns, padded_batches, result_batches
from dovetail.matching.best_partners import NO_ROW
from dovetail.operators.protocol import Resumable
from dovetail.routing.routers import Router
from dovetail.spark.exchange.labels import spread_labels
from dovetail.spark.exchange.packing import ARROW_PACKED, Rewrite, from_bytes, packer
from dovetail.spark.streaming.cell import Cell
from dovetail.spark.streaming.pack_order import packs_in_order
from dovetail.spark.streaming.stream_join import CellJoin, Clock
from dovetail.storage.blocks import BlockStore

FORMAT = 1  # of the state; increase it when a release changes the format
MICROSECONDS = 1000  # per unit of a watermark


@dataclass(frozen=True, kw_only=True)
class AsOfJoin(CellJoin):
    """What the workers need to know."""

    asof: AsOf
    router: Router

    @cached_property
    def clock(self) -> Clock:
        return "EventTime"

    @property
    def has_timers(self) -> bool:
        return True

    @cached_property
    def keeps_to_memory(self) -> bool:
        return False

    @cached_property
    def labels(self) -> list[int]:
        return spread_labels(self.router.cells, self.setting.partitions)

    @cached_property
    def layout(self) -> dict[str, Any]:
        condition, limit = self.plan.condition, self.setting.limit
        return {
            "format": FORMAT,
            "as of": condition.text,
            "order": self.asof.best.text,
            "how": self.plan.how,
            "cells": self.router.cells,
            "partitions": self.setting.partitions,
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        } | ({} if limit is None else {"limit": limit})

    def check(self) -> None:
        """Nothing to check: there is no operator with parameters."""

    def packer(self, number: int) -> Rewrite:
        side = Side(number)
        schema = self.plan.condition.schema(side)
        # Left joins emit rows that cannot match, and these may be late.
        pack = packer(side, self.router, schema, self.labels, keep_all=True, most_bytes=self.pack_bytes)

        def pack_and_greet(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from pack(batches)
            yield _greeting(self.labels, side)

        return pack_and_greet


def _greeting(labels: list[int], side: Side) -> pa.RecordBatch:
    """Notifies all cells of a micro-batch."""
    context, size = TaskContext.get(), len(labels)
    last = ((context.partitionId() if context is not None else 0) + 1 << 40) - 1
    columns = [pa.array(labels, pa.int32()), pa.array([side] * size, pa.int8())]
    columns += [pa.array([last] * size, pa.int64()), pa.nulls(size, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_PACKED)


class AsOfCell(Cell[AsOfJoin]):
    """One cell in one micro-batch: rows arrive, then time advances."""

    def __init__(self, join: AsOfJoin, notes: dict[str, Any] | None) -> None:
        super().__init__(join)
        self._heard_ms = 0 if notes is None else int(notes["heard_ms"])  # the watermark of the previous micro-batch
        self.timer = None if notes is None else self._heard_ms + 1
        self._late = self._forgotten = 0

    def to_json(self) -> dict[str, Any]:
        return {"heard_ms": self._heard_ms}

    def open(self, blocks: BlockStore) -> Resumable:
        self._streams = AsOfStreams(self._join.asof, blocks)
        return self._streams

    def leave(self) -> None:
        del self._streams

    def run(self, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pa.RecordBatch]:
        streams = self._streams
        for side, batch in _arrived(rows or (), self._join.pack_bytes):
            streams.arrive(side, batch)
        self._heard_ms = max(now, self._heard_ms)
        horizon = MICROSECONDS * self._heard_ms + 1 if self._heard_ms > 0 else NEVER
        for paired in streams.advance(horizon):
            yield from self._results(paired)
        self._late, self._forgotten = streams.late, streams.forgotten

    def next_timer(self, now: int) -> int | None:
        """At the next watermark."""
        return self._heard_ms + 1

    def figures(self) -> dict[str, int]:
        return super().figures() | {"late_rows": self._late, "evicted_rows": self._forgotten}

    def _results(self, paired: Paired) -> Iterator[pa.RecordBatch]:
        join, (left, right, partners) = self._join, paired
        mine, theirs = drop_last_columns(left, join.drop[0]), drop_last_columns(right, join.drop[1])
        if join.plan.how is JoinType.INNER:
            found = np.flatnonzero(partners != NO_ROW)
            pairs = Matches.pairs(mine, found, theirs, partners[found])
            yield from result_batches(pairs, join.schema, most_bytes=join.pack_bytes)
        else:
            everyone = np.arange(mine.num_rows)
            yield from padded_batches(mine, everyone, theirs, partners, join.schema, join.pack_bytes)


def _arrived(rows: Iterable[pd.DataFrame], most_bytes: int) -> Iterator[tuple[Side, pa.RecordBatch]]:
    for _, side, payload in packs_in_order(rows, most_bytes):
        if payload is not None:
            yield Side(side), from_bytes(payload)
