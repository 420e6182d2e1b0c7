"""A cell of a join of streams without a window: one operator, one micro-batch at a time.

    rows came           arrive, then what a marker says: an input has ended
    a timer expired     nothing came to this cell: react for a moment, and again until nothing is left to do;
                        then say every second that the cell waits, without looking at its state
    all inputs ended    react likewise, then clean up; the cell is finished

Timers are for operators that leave work for later, and for streams that end: it must be told from a stall. They expire
in micro-batches without input. What such a micro-batch finds is committed with it, like anything else.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from dovetail.core.metrics import HEARTBEAT_S, Counters
from dovetail.core.rows import Arrival, Side, Stall
from dovetail.execution.driver import Driver, Found
from dovetail.execution.output import result_batches
from dovetail.operators.protocol import Workspace
from dovetail.operators.registry import OperatorSpec, operator_class, operator_spec
from dovetail.planning.plan import JoinPlan
from dovetail.routing.hypercube import Hypercube
from dovetail.routing.protocol import Router
from dovetail.spark.exchange.packing import PACK_BYTES, Rewrite, collected, from_bytes, multi_packer, packer, to_bytes
from dovetail.spark.exchange.partitions import spread_labels
from dovetail.spark.session.workers import settle
from dovetail.spark.streaming.cell_state import SCHEMA, CellState, cell_directory
from dovetail.storage.allocator import stay_small, trim_heap
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

FORMAT = 4  # of the segments, with the hashes in them: to be raised when a release writes others
FIGURES = ("results", "resident_rows", "spilled_rows", "reactive", "finished")
RESULTS = "payload binary, " + ", ".join(f"{name} bigint" for name in FIGURES)
PACKS = 32  # that a budget holds at least
SMALLEST_PACK = 1 << 20
REACT_S = 0.5  # of a micro-batch without input, for each cell
REST_S = 5.0  # the same when all inputs have ended, and nothing can come that would have to wait
HEARTBEAT_MS = int(1000 * HEARTBEAT_S)
BATCH_ROWS = 1 << 16
SMALL_BYTES = 1 << 23
ROW_SHARE = 3 / 4
"""Of a cell's memory, for rows. The rest is for copies: of rows that arrive and are evicted, and of those that stay."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a join of streams runs, whatever it joins."""

    partitions: int  # of Spark's state store
    state_dir: str
    metrics: str  # the name of our figures in the query's progress, and of the join in the state directory
    has_ends: bool = False  # the last column of each input tells rows that are none, but say that it has ended
    ends_when_idle: bool = False  # the first micro-batch without input is the end of all inputs


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """All that the workers need to know of a join of two streams or of several; travels with the query."""

    plan: JoinPlan
    router: Router | Hypercube
    drop: tuple[int, ...]  # key columns at the end of each input that are not part of the result
    schema: pa.Schema  # of the result
    setting: Setting

    @property
    def algorithm(self) -> str:
        return self.plan.operator.name

    @property
    def memory_bytes(self) -> int | None:
        """Of each cell; None: no limit."""
        return self.plan.memory_bytes

    @property
    def inputs(self) -> int:
        """How many there are; they go by number."""
        return len(self.plan.graph.aliases)

    @property
    def spec(self) -> OperatorSpec:
        """What the operator can do."""
        return operator_spec(self.algorithm, self.inputs)

    @property
    def keeps_to_memory(self) -> bool:
        """Whether what does not fit is spilled."""
        return self.memory_bytes is not None and not self.spec.emits_at_arrival

    @property
    def pack_bytes(self) -> int:
        """Rows that travel as one. There are several copies of them for a moment, so that a budget allows for few."""
        if self.memory_bytes is None or not self.keeps_to_memory:
            return PACK_BYTES
        return min(PACK_BYTES, max(SMALLEST_PACK, self.memory_bytes // PACKS))

    @property
    def labels(self) -> list[int]:
        """One per cell, such that Spark spreads them evenly."""
        return spread_labels(self.router.cells, self.setting.partitions)

    @property
    def has_timers(self) -> bool:
        return not self.spec.emits_at_arrival or self.setting.has_ends or self.setting.ends_when_idle

    def packer(self, number: int) -> Rewrite:
        """A function for mapInArrow that routes and packs the rows of an input."""
        if isinstance(self.router, Hypercube):
            return multi_packer(self.router, number, self.labels, self.pack_bytes)
        schema = self.plan.condition.schema(Side(number))
        return packer(Side(number), self.router, schema, self.labels, most_bytes=self.pack_bytes)

    @property
    def layout(self) -> dict[str, Any]:
        """How state is laid out, ready for JSON. The number of partitions decides on the labels of cells."""
        fixed = {"format": FORMAT, "algorithm": self.algorithm, "cells": self.router.cells}
        return {**fixed, "partitions": self.setting.partitions, **self.state_signature}

    @property
    def state_signature(self) -> dict[str, Any]:
        """What must stay the same for the state to mean the same, besides the setting."""
        columns = {
            alias: [[field.name, str(field.type)] for field in schema]
            for alias, schema in self.plan.graph.schemas.items()
        }
        if self.inputs > len(Side):
            return {"condition": self.plan.graph.text, "columns": [[alias, found] for alias, found in columns.items()]}
        keys = [str(equality.left.type) for equality in self.plan.condition.equalities]  # with the session's time zone
        return {"condition": self.plan.graph.text, "keys": keys, "columns": list(columns.values())}


class JoinProcessor(StatefulProcessor):
    """Runs the operator of one cell, one micro-batch at a time."""

    def __init__(self, join: StreamJoin) -> None:
        self._join = join

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._manifest = handle.getValueState("manifest", SCHEMA)
        self._fed: set[int] = set()  # cells to which something came in this micro-batch
        if self._join.keeps_to_memory:
            stay_small()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        self._fed.add(key[0])
        now = timerValues.getCurrentProcessingTimeInMs() if self._join.has_timers else 0
        return self._step(key[0], rows, now)

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        if key[0] in self._fed:  # it was set before, and has been set again
            return iter(())
        return self._step(key[0], None, timerValues.getCurrentProcessingTimeInMs())

    def close(self) -> None:
        settle()

    def _step(self, cell: int, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pd.DataFrame]:
        """One micro-batch; without rows, a timer has expired."""
        join, setting = self._join, self._join.setting
        directory = cell_directory(setting.state_dir, setting.metrics, join.layout, cell)
        kept = CellState(self._manifest, directory, stay_mapped=not join.keeps_to_memory)
        notes = _Notes(**kept.notes) if kept.notes is not None else _Notes([False] * join.inputs)
        found = 0
        if rows is not None or notes.more or setting.ends_when_idle:
            found = yield from self._work(kept, notes, rows, now)
            if join.keeps_to_memory:
                if self._operator() is not None:  # its parts know each other
                    gc.collect()
                trim_heap()  # the next cell of this task needs the memory
        else:
            self._set_timer(notes, False, now)
            kept.note(notes.to_json())
        reactive = found if rows is None else 0
        yield _row(None, found, notes.resident_rows, notes.spilled_rows, reactive, int(notes.finished))

    def _work(
        self, kept: CellState, notes: _Notes, rows: Iterator[pd.DataFrame] | None, now: int
    ) -> Generator[pd.DataFrame, None, int]:
        """What the operator does; returns how many results there were."""
        step = _Step(self._join, kept.segments, notes)
        operator = step.operator
        self._operator = weakref.ref(operator)
        kept.restore(operator)
        batches = step.arrivals(rows) if rows is not None else step.left_over()
        yield from map(_packed, collected(batches, self._join.pack_bytes))
        notes.resident_rows, notes.spilled_rows = operator.usage.resident_rows, operator.usage.spilled_rows
        self._set_timer(notes, rows is not None, now)
        kept.commit(operator, notes.to_json())
        return step.counters.results

    def _set_timer(self, notes: _Notes, fed: bool, now: int) -> None:
        """When the cell is to be looked at next, unless something comes before; never, if it is finished."""
        if not self._join.has_timers:
            return
        if fed and notes.timer is not None:  # otherwise it is the one that has expired
            self._handle.deleteTimer(notes.timer)
        notes.timer = None if notes.finished else now + (1 if notes.more else HEARTBEAT_MS)
        if notes.timer is not None:
            self._handle.registerTimer(notes.timer)


@dataclass(slots=True)
class _Notes:
    """What a cell knows besides its operator."""

    ended: list[bool]  # by input
    more: bool = True  # whether something is left to do
    finished: bool = False
    timer: int | None = None
    resident_rows: int = 0
    spilled_rows: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Step:
    """What an operator does in one micro-batch.

    Results are let go before more are asked for: they may be the last references to evicted rows.
    """

    def __init__(self, join: StreamJoin, blocks: BlockStore, notes: _Notes) -> None:
        self._join = join
        self._notes = notes
        self.counters = Counters()
        budget = _row_budget(join.memory_bytes, self.counters)
        workspace = Workspace(join.plan.graph, budget, blocks, BATCH_ROWS, self.counters)
        self.operator = operator_class(join.algorithm, join.inputs)(workspace)
        self._driver = Driver(self.operator, workspace, notes.ended)

    def arrivals(self, rows: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        """Rows arrive; then inputs end, because a marker may come before rows of another partition."""
        ends = set()
        for frame in rows:
            for number, payload in zip(frame["side"], frame["payload"], strict=True):
                if payload is None:
                    ends.add(int(number))
                else:
                    yield from self._rows(self._driver.handle(Arrival(int(number), from_bytes(payload))))
        for number in sorted(ends):
            self._end(number)
        self._notes.more = True

    def left_over(self) -> Iterator[pa.RecordBatch]:
        """Nothing came: some of the work that is left; all that is missing, once there is none and all have ended."""
        if self._join.setting.ends_when_idle:
            for number in range(self._join.inputs):
                self._end(number)
        deadline = time.monotonic() + (REST_S if all(self._notes.ended) else REACT_S)
        over = False

        def is_over() -> bool:
            nonlocal over
            over = time.monotonic() > deadline
            return over

        yield from self._rows(self._driver.handle(Stall(None, is_over)))
        if over:
            return
        self._notes.more = False
        if all(self._notes.ended) and not self._notes.finished:
            yield from self._rows(self._driver.clean_up())
            self._notes.finished = True

    def _end(self, number: int) -> None:
        """The input has ended. What is missing then is for micro-batches without input to find."""
        if not self._notes.ended[number]:
            self._driver.end(number)
            self._notes.ended[number] = True

    def _rows(self, found: Iterator[Found]) -> Iterator[pa.RecordBatch]:
        for _, results in found:
            yield from result_batches(
                results, self._join.schema, drop=self._join.drop, most_bytes=self._join.pack_bytes
            )
            del results


def _row_budget(memory_bytes: int | None, counters: Counters) -> Budget:
    """For rows. Of little memory all: operators need some blocks, and copies are small beside the worker itself."""
    if memory_bytes is None:
        return Budget(None, "bytes", counters)
    return Budget(max(int(ROW_SHARE * memory_bytes), min(memory_bytes, SMALL_BYTES)), "bytes", counters)


def _packed(batch: pa.RecordBatch) -> pd.DataFrame:
    return _row(to_bytes(batch).to_pybytes())


def _row(payload: bytes | None, *figures: int) -> pd.DataFrame:
    values = figures or (0,) * len(FIGURES)
    return pd.DataFrame({"payload": [payload], **{n: [v] for n, v in zip(FIGURES, values, strict=True)}})
