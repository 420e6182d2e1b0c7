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
counted before. So an inner join can go on with another number of cells: those that are no longer used are probed until what
they keep has expired.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

from dovetail.batch import Side, take_rows
from dovetail.condition.aggregates import Aggregate
from dovetail.errors import PlanError
from dovetail.metrics import Counters
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.operators.spo import Spo, event_times
from dovetail.plan import JoinPlan
from dovetail.routers.protocol import Router
from dovetail.runtimes.output import result_batches
from dovetail.runtimes.window_aggregate import WindowAggregate
from dovetail.spark.arrivals import NEVER, POSITION_BITS, Ordered, Packet, in_order, placed
from dovetail.spark.packing import PACKED, Rewrite, as_planned, collected, from_bytes, packed_rows, to_bytes, with_all
from dovetail.spark.partitions import spread_labels
from dovetail.spark.state import check_layout
from dovetail.spark.workers import settle
from dovetail.state.budget import Budget
from dovetail.state.places import Places
from dovetail.state.segments import SegmentStore
from dovetail.window import Window

FORMAT = 2  # of the state: to be raised when a release writes another
FIGURES = ("matches", "window_rows", "late_rows", "merges", "probe_us", "merge_us", "cell_us")
RESULTS = "payload binary, " + ", ".join(f"{name} bigint" for name in FIGURES)
WITHIN = "__within"  # of packets: the column with positions in the piece
SIZE, NEWEST = b"size", b"newest"  # of the whole piece


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
    self_join: bool = False  # the left stream is the right one, too
    router: Router | None = None  # sends rows that can match to one cell; None: every row visits all cells
    aggregates: tuple[Aggregate, ...] = ()  # of left rows over right ones, instead of pairs

    @property
    def in_turns(self) -> bool:
        """Whether cells take turns keeping rows of both sides; else left rows are in one cell, right rows in all."""
        return self.router is None and self.plan.how == "inner" and not self.aggregates

    @property
    def labels(self) -> list[int]:
        """One per cell; of an inner join also those that it does not use now, and may have used or use later."""
        reached = max(self.cells, self.partitions) if self.in_turns else self.cells
        return spread_labels(reached, self.partitions)

    @property
    def layout(self) -> dict[str, Any]:
        """All that must stay the same for the state to mean the same. Ready for JSON."""
        condition, window = self.plan.condition, self.window
        layout = {
            "format": FORMAT,
            "condition": condition.text,
            "self_join": self.self_join,
            "how": self.plan.how if not self.aggregates else "aggregate",
            "window": [window.size, list(window.on or ()), window.scope],
            "partitions": self.partitions,
            "by": "turns" if self.router is None else "value",
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        }
        return layout | {"cells": len(self.labels)}


def join_windowed(frames: tuple[DataFrame, DataFrame], join: WindowJoin, schema: StructType) -> DataFrame:
    """The windowed join as a streaming DataFrame."""
    sides = [Side.LEFT] if join.self_join else list(Side)
    packed = [frames[side].mapInArrow(_to_cells(side, join), PACKED) for side in sides]
    found = (
        reduce(DataFrame.unionAll, packed)
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
            whole = {SIZE: str(batch.num_rows), NEWEST: str(_newest(join.window, side, batch))}
            seq = [(partition << POSITION_BITS) + piece] * len(labels)
            if join.router is None:
                everything = _packet(batch, np.arange(batch.num_rows), whole)
                yield packed_rows(labels, side, seq, [everything] * len(labels))
                continue
            visits = join.router.route(side, batch, np.arange(batch.num_rows))
            if kept:
                visits = with_all(visits, batch.num_rows, partition % join.cells)
            here = [np.sort(visits.rows[visits.cells == cell]) for cell in range(len(labels))]
            yield packed_rows(labels, side, seq, [_packet(take_rows(batch, r), r, whole) for r in here])
        settle()

    return pack


def _packet(rows: pa.RecordBatch, within: NDArray[np.int64], whole: dict[bytes, str]) -> pa.Buffer:
    """Rows of a piece with their positions in it, and what is known of the whole piece."""
    numbered = rows.append_column(WITHIN, pa.array(within, pa.int64()))
    return to_bytes(numbered.replace_schema_metadata(whole))


def _newest(window: Window, side: Side, batch: pa.RecordBatch) -> int:
    if window.on is None:
        return NEVER
    return int(event_times(batch.column(window.on[side])).max(initial=NEVER))


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
        sides = in_order(_packets(rows))
        if self._join.self_join:
            sides = (sides[0], sides[0])
        # Where every cell sees all rows, one of them tells which are late.
        tells = cell == 0 or self._join.router is not None
        late = late_rows(self._join, sides, operator.horizon) if tells else 0
        work = self._aggregates if self._join.aggregates else self._results
        matches = 0
        for batch in collected(work(operator, state, cell, sides)):
            matches += batch.num_rows
            yield _row(to_bytes(batch).to_pybytes())
        manifest = operator.snapshot()
        if stored is not None:
            segments.sweep(stored["version"], [*stored["segments"], *stored["previous"]])
        self._manifest.update((json.dumps(_document(manifest, state, stored)),))
        costs = operator.costs
        spent = (costs.probe_seconds, costs.merge_seconds, time.perf_counter() - started)
        micros = (int(1e6 * seconds) for seconds in spent)
        yield _row(None, matches, operator.usage.resident_rows, late, counters.merges, *micros)

    def close(self) -> None:
        settle()

    def _workspace(self, segments: SegmentStore, counters: Counters) -> Workspace:
        plan = self._join.plan
        parameters = {"window": self._join.window, "how": plan.how, "self_join": self._join.self_join}
        budget = Budget(plan.memory_bytes, "bytes", counters)
        return Workspace(plan.condition, budget, segments, 1 << 16, counters, parameters=parameters)

    def _results(
        self, operator: Spo, state: _Progress, cell: int, sides: tuple[Ordered, Ordered]
    ) -> Iterator[pa.RecordBatch]:
        """The join's results."""
        for side in Side:
            batch, places, stores = self._share(state, cell, side, sides[side])
            for results in operator.admit(side, batch, places, stores):
                yield from result_batches(results, self._join.schema, drop=self._join.drop)
        state.count(sides)
        for results in operator.advance(state.arrived, state.horizon(self._join)):
            yield from result_batches(results, self._join.schema, drop=self._join.drop)

    def _aggregates(
        self, operator: Spo, state: _Progress, cell: int, sides: tuple[Ordered, Ordered]
    ) -> Iterator[pa.RecordBatch]:
        """Left rows with aggregates over the right rows that came before them. Only right rows are kept."""
        batch, places, _ = self._share(state, cell, Side.RIGHT, sides[Side.RIGHT])
        for _ in operator.admit(Side.RIGHT, batch, places):
            pass  # there are no left rows to meet
        aggregate = WindowAggregate(operator, self._join.aggregates, self._join.schema)
        batch, places, _ = self._share(state, cell, Side.LEFT, sides[Side.LEFT])
        yield aggregate.over(batch, places)
        state.count(sides)
        for _ in operator.advance(state.arrived, state.horizon(self._join)):
            pass

    def _share(
        self, state: _Progress, cell: int, side: Side, rows: Ordered
    ) -> tuple[pa.RecordBatch, Places, NDArray[np.bool_] | None]:
        """The rows that look for partners in this cell, and which of them it keeps (None: all)."""
        batch = rows.batch
        if batch is None:
            batch = pa.RecordBatch.from_pylist([], self._join.plan.condition.schema(side))
        places = placed(side, rows, state.arrived, self._join.self_join)
        if self._join.router is not None:
            return batch, places, None
        if self._join.in_turns:
            return batch, places, (rows.numbers + _batch_id()) % self._join.cells == cell
        if side is Side.RIGHT:
            return batch, places, None
        # Neighbours by arrival: then fewer of the right rows are before some of them and behind others.
        homes = rows.own * self._join.cells // max(1, rows.size)
        chosen = np.flatnonzero((homes + _batch_id()) % self._join.cells == cell)
        return take_rows(batch, chosen), places.of(chosen), None


class _Progress:
    """What a cell has seen of both streams."""

    def __init__(self, left: int = 0, right: int = 0, newest: int = NEVER) -> None:
        self.arrived = (left, right)
        self.newest = newest  # event time

    def count(self, sides: tuple[Ordered, Ordered]) -> None:
        self.arrived = (self.arrived[0] + sides[0].size, self.arrived[1] + sides[1].size)
        self.newest = max(self.newest, sides[0].newest, sides[1].newest)

    def horizon(self, join: WindowJoin) -> int:
        """Rows to come are not before it, or they are late."""
        if join.window.by_time:
            return self.newest - join.window.delay
        return self.arrived[0] if join.self_join else sum(self.arrived)

    def to_json(self) -> list[int]:
        return [*self.arrived, self.newest]


def late_rows(join: WindowJoin, sides: tuple[Ordered, Ordered], horizon: int) -> int:
    """How many rows come behind the horizon. Those of a self-join are on both sides, and are counted once."""
    late = 0
    for side, rows in zip([Side.LEFT] if join.self_join else Side, sides, strict=not join.self_join):
        if join.window.on is not None and rows.batch is not None:
            times = event_times(rows.batch.column(join.window.on[side]))
            late += int(((times < horizon) & (times > NEVER)).sum())
    return late


def _packets(frames: Iterator[pd.DataFrame]) -> Iterator[Packet]:
    for frame in frames:
        for side, seq, payload in zip(frame["side"], frame["seq"], frame["payload"], strict=True):
            batch = from_bytes(payload)
            last = batch.num_columns - 1
            rows = batch.select(range(last)).replace_schema_metadata(None)
            within = np.asarray(batch.column(last))
            whole = batch.schema.metadata
            yield Packet(Side(side), int(seq), rows, within, int(whole[SIZE]), int(whole[NEWEST]))


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
