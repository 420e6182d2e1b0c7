"""Windowed joins of two streams on any condition: every row visits every cell, and is kept in one of them.

    left  --pack, copy to all cells--+
                                     +--> groupBy(cell).transformWithStateInPandas --> figures, unpack --> a DataFrame
    right --pack, copy to all cells--+

inner                        a row probes what all cells keep of the other stream; the cells take turns keeping rows
left, left_semi, left_anti   a left row is kept and probes in one cell, right rows are kept in all of them: that cell
                             knows whether the row has a partner

Which cell keeps a row follows from its number in the micro-batch and from the batch's id, not from anything counted
before. So an inner join can go on with another number of cells: those that are no longer used are probed until what
they keep has expired.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

from dovetail.batch import Results, Side, take_rows
from dovetail.errors import PlanError
from dovetail.metrics import Counters
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.operators.spo import Spo, event_times
from dovetail.plan import JoinPlan
from dovetail.runtimes.output import result_batches
from dovetail.spark.arrivals import POSITION_BITS, Ordered, Packet, in_order, placed
from dovetail.spark.packing import PACKED, Rewrite, as_planned, collected, from_bytes, packed_rows, to_bytes
from dovetail.spark.partitions import spread_labels
from dovetail.spark.state import check_layout
from dovetail.spark.workers import settle
from dovetail.state.budget import Budget
from dovetail.state.segments import SegmentStore
from dovetail.window import Window

FORMAT = 1  # of the state: to be raised when a release writes another
FIGURES = ("matches", "window_rows", "late_rows", "probe_us", "merges")
RESULTS = "payload binary, " + ", ".join(f"{name} bigint" for name in FIGURES)
NEVER = -(2**62)  # event time of no row


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """All that the workers need to know; travels with the query."""

    plan: JoinPlan
    window: Window
    cells: int  # that take turns keeping rows
    partitions: int  # of Spark's state store
    state_dir: str
    drop: tuple[int, int]  # key columns at the end of each side that are not part of the result
    schema: pa.Schema  # of the result
    metrics: str  # the name of our figures in the query's progress, and of the join in the state directory

    @property
    def labels(self) -> list[int]:
        """One per cell; more than there are now, so that cells of earlier runs are reached."""
        return spread_labels(max(self.cells, self.partitions), self.partitions)

    @property
    def layout(self) -> dict[str, Any]:
        """All that must stay the same for the state to mean the same. Ready for JSON."""
        condition, window = self.plan.condition, self.window
        layout = {
            "format": FORMAT,
            "condition": condition.text,
            "how": self.plan.how,
            "window": [window.size, window.on, window.scope],
            "partitions": self.partitions,
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        }
        return layout if self.plan.how == "inner" else layout | {"cells": self.cells}


def join_windowed(frames: tuple[DataFrame, DataFrame], join: WindowJoin, schema: StructType) -> DataFrame:
    """The windowed join as a streaming DataFrame."""
    schemas = join.plan.condition.schemas
    packed = [frames[side].mapInArrow(_to_all(side, schemas[side], join.labels), PACKED) for side in Side]
    found = (
        packed[0]
        .unionAll(packed[1])
        .groupBy("cell")
        .transformWithStateInPandas(
            statefulProcessor=WindowProcessor(join), outputStructType=RESULTS, outputMode="Append", timeMode="None"
        )
    )
    try:
        watched = found.observe(join.metrics, *(F.sum(name).alias(name) for name in FIGURES))
    except AnalysisException as error:  # its name is also the name of its state, so that it must be unique
        raise PlanError(
            f"a query has two joins called {join.metrics!r}: give one of them another name, as in metrics='second'."
        ) from error
    return watched.mapInArrow(_unpack, schema)


def _to_all(side: Side, schema: pa.Schema, labels: list[int]) -> Rewrite:
    """A function for mapInArrow that sends packed rows to all cells."""
    cells = np.array(labels, np.int32)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        position = 0
        for batch in collected(batches):
            payload = to_bytes(as_planned(batch, schema))
            seq = (partition << POSITION_BITS) + position
            position += batch.num_rows
            yield packed_rows(cells, side, [seq] * len(cells), [payload] * len(cells))
        settle()

    return pack


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column("payload"):
            if payload.is_valid:
                yield from_bytes(payload.as_buffer())
    settle()


class WindowProcessor(StatefulProcessor):
    """Runs `spo` on one cell, one micro-batch at a time."""

    def __init__(self, join: WindowJoin) -> None:
        self._join = join

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "manifest string")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        (label,) = key
        cell = self._join.labels.index(label)
        document = self._manifest.get()
        stored = None if document is None else json.loads(document[0])
        segments = SegmentStore(_cell_directory(self._join, label))
        counters = Counters()
        operator = Spo(self._workspace(segments, counters))
        state = _Progress() if stored is None else _Progress(*stored["progress"])
        if stored is not None:
            operator.restore(Manifest(stored["version"], stored["state"], tuple(stored["segments"])))
        started = time.perf_counter()
        found = self._results(operator, state, cell, _packets(rows))
        matches = 0
        for batch in collected(b for r in found for b in result_batches(r, self._join.schema, drop=self._join.drop)):
            matches += batch.num_rows
            yield _row(to_bytes(batch).to_pybytes())
        manifest = operator.snapshot()
        if stored is not None:
            segments.sweep(stored["version"], [*stored["segments"], *stored["previous"]])
        self._manifest.update((json.dumps(_document(manifest, state, stored)),))
        late = counters.late_rows if cell == 0 or self._join.plan.how != "inner" else 0
        spent = int(1e6 * (time.perf_counter() - started))
        yield _row(None, matches, operator.usage.resident_rows, late, spent, counters.merges)

    def close(self) -> None:
        settle()

    def _workspace(self, segments: SegmentStore, counters: Counters) -> Workspace:
        plan = self._join.plan
        parameters = {"window": self._join.window, "how": plan.how}
        budget = Budget(plan.memory_bytes, "bytes", counters)
        return Workspace(plan.condition, budget, segments, 1 << 16, counters, parameters=parameters)

    def _results(self, operator: Spo, state: _Progress, cell: int, packets: Iterator[Packet]) -> Iterator[Results]:
        sides = in_order(packets)
        for side in Side:
            yield from self._admitted(operator, state, cell, side, sides[side])
        state.count(sides, self._join.window)
        yield from operator.advance(state.arrived, state.horizon(self._join.window))

    def _admitted(self, operator: Spo, state: _Progress, cell: int, side: Side, rows: Ordered) -> Iterator[Results]:
        if rows.batch is None:
            return
        places = placed(side, rows.numbers, state.arrived)
        mine = (rows.numbers + _batch_id()) % self._join.cells == cell
        if self._join.plan.how == "inner":
            yield from operator.admit(side, rows.batch, places, mine)
        elif side is Side.LEFT:
            chosen = np.flatnonzero(mine)
            yield from operator.admit(side, take_rows(rows.batch, chosen), places.of(chosen))
        else:
            yield from operator.admit(side, rows.batch, places)


class _Progress:
    """What a cell has seen of both streams."""

    def __init__(self, left: int = 0, right: int = 0, newest: int = NEVER) -> None:
        self.arrived = (left, right)
        self.newest = newest  # event time

    def count(self, sides: tuple[Ordered, Ordered], window: Window) -> None:
        self.arrived = (self.arrived[0] + len(sides[0].numbers), self.arrived[1] + len(sides[1].numbers))
        for side, rows in zip(Side, sides, strict=True):
            if window.on is not None and rows.batch is not None:
                times = event_times(rows.batch.column(window.on[side]))
                self.newest = max(self.newest, int(times.max(initial=NEVER)))

    def horizon(self, window: Window) -> int:
        """Rows to come are not before it, or they are late."""
        return self.newest - window.delay if window.by_time else sum(self.arrived)

    def to_json(self) -> list[int]:
        return [*self.arrived, self.newest]


def _packets(frames: Iterator[pd.DataFrame]) -> Iterator[Packet]:
    for frame in frames:
        for side, seq, payload in zip(frame["side"], frame["seq"], frame["payload"], strict=True):
            yield Packet(Side(side), int(seq), from_bytes(payload))


def _row(payload: bytes | None, *figures: int) -> pd.DataFrame:
    values = figures or (0,) * len(FIGURES)
    return pd.DataFrame({"payload": [payload], **{n: [v] for n, v in zip(FIGURES, values, strict=True)}})


def _document(manifest: Manifest, state: _Progress, stored: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "state": manifest.state,
        "segments": manifest.segments,
        "previous": stored["segments"] if stored is not None else [],
        "progress": state.to_json(),
    }


def _batch_id() -> int:
    context = TaskContext.get()
    assert context is not None, "cells are joined inside Spark tasks"
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)


def _cell_directory(join: WindowJoin, label: int) -> Path:
    """Where this query keeps the segments of a cell. The query's id stays the same when it is started again."""
    context = TaskContext.get()
    assert context is not None, "cells are joined inside Spark tasks"
    query = str(context.getLocalProperty("sql.streaming.queryId"))
    directory = Path(join.state_dir) / query / quote(join.metrics, safe="")
    check_layout(directory, join.layout)
    return directory / f"cell-{label}"
