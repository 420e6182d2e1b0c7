"""A cell of a join of streams without a window: one operator, one micro-batch at a time.

    rows came           arrive, then what a marker says: a side has ended
    a timer expired     nothing came to this cell: react for a moment, and again until nothing is left to do
    both sides ended    react likewise, then clean up; the cell is finished

Timers are for operators that leave work for later. They expire in micro-batches without input, which Spark runs as long
as there are timers to look after. What such a micro-batch finds is committed with it, like anything else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from dovetail.batch import Arrival, Results, Side
from dovetail.metrics import Counters
from dovetail.operators import operator_class
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.plan import JoinPlan
from dovetail.routers.protocol import Router
from dovetail.runtimes.driver import Driver
from dovetail.runtimes.output import result_batches
from dovetail.spark.cell_state import SCHEMA, CellState, cell_directory
from dovetail.spark.packing import collected, from_bytes, to_bytes
from dovetail.spark.workers import settle
from dovetail.state.budget import Budget

BATCH_ROWS = 1 << 16
FORMAT = 2  # of the segments, with the hashes in them: to be raised when a release writes others
FIGURES = ("results", "resident_rows", "spilled_rows", "reactive", "finished")
RESULTS = "payload binary, " + ", ".join(f"{name} bigint" for name in FIGURES)
REACT_S = 0.5  # of a micro-batch without input, for each cell

AT_ARRIVAL = ("shj",)
"""Operators that leave no pair for later."""


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """All that the workers need to know; travels with the query."""

    plan: JoinPlan
    router: Router
    partitions: int  # of Spark's state store
    state_dir: str
    drop: tuple[int, int]  # key columns at the end of each side that are not part of the result
    schema: pa.Schema  # of the result
    metrics: str  # the name of our figures in the query's progress, and of the join in the state directory
    ends: tuple[str, str] | None = None  # SQL of each side: rows that are none, but say that the side has ended
    ends_when_idle: bool = False  # the first micro-batch without input is the end of both sides

    @property
    def has_timers(self) -> bool:
        return self.plan.operator.name not in AT_ARRIVAL

    @property
    def layout(self) -> dict[str, Any]:
        """All that must stay the same for the state to mean the same. Ready for JSON."""
        condition = self.plan.condition
        return {
            "format": FORMAT,
            "condition": condition.text,
            "algorithm": self.plan.operator.name,
            "cells": self.plan.cells,
            "partitions": self.partitions,  # they decide on the labels of the cells
            "keys": [str(equality.left.type) for equality in condition.equalities],  # with the session's time zone
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        }


class JoinProcessor(StatefulProcessor):
    """Runs the plan's operator on one cell, one micro-batch at a time."""

    def __init__(self, join: StreamJoin) -> None:
        self._join = join

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._manifest = handle.getValueState("manifest", SCHEMA)
        self._fed: set[int] = set()  # cells to which something came in this micro-batch

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
        join = self._join
        kept = CellState(self._manifest, cell_directory(join.state_dir, join.metrics, join.layout, cell))
        counters = Counters()
        budget = Budget(join.plan.memory_bytes, "bytes", counters)
        workspace = Workspace(join.plan.condition, budget, kept.segments, BATCH_ROWS, counters)
        operator = operator_class(join.plan.operator.name)(workspace)
        kept.restore(operator)
        work = _Work(operator, workspace, join, _Notes(*(kept.notes or ())))
        for batch in collected(work.arrivals(rows) if rows is not None else work.left_over()):
            yield _row(to_bytes(batch).to_pybytes())
        if join.has_timers and work.more:
            self._handle.registerTimer(now + 1)
        usage, found = operator.usage, counters.results
        kept.commit(operator, work.notes.to_json())
        reactive = found if rows is None else 0
        yield _row(None, found, usage.resident_rows, usage.spilled_rows, reactive, int(work.notes.finished))


@dataclass(slots=True)
class _Notes:
    """What a cell knows besides its operator."""

    left_ended: bool = False
    right_ended: bool = False
    finished: bool = False

    def end(self, side: Side) -> None:
        if side is Side.LEFT:
            self.left_ended = True
        else:
            self.right_ended = True

    def to_json(self) -> list[bool]:
        return [self.left_ended, self.right_ended, self.finished]


class _Work:
    """What an operator does in one micro-batch."""

    def __init__(self, operator: JoinOperator, workspace: Workspace, join: StreamJoin, notes: _Notes) -> None:
        self._operator = operator
        self._counters = workspace.counters
        self._join = join
        self._driver = Driver(operator, workspace, (notes.left_ended, notes.right_ended))
        self.notes = notes
        self.more = False  # whether something is left to do

    def arrivals(self, rows: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        """Rows arrive; then sides end, because a marker may come before rows of another partition."""
        ends = set()
        for frame in rows:
            for side, payload in zip(frame["side"], frame["payload"], strict=True):
                if payload is None:
                    ends.add(Side(side))
                    continue
                for _, results in self._driver.handle(Arrival(Side(side), from_bytes(payload))):
                    yield from self._rows(results)
        for side in ends:
            self._end(side)
        self.more = True
        if not self._join.has_timers and self.notes.left_ended and self.notes.right_ended:
            yield from self._clean_up()

    def left_over(self) -> Iterator[pa.RecordBatch]:
        """Nothing came: some of the work that is left; all that is missing, once there is none and both sides ended."""
        if self._join.ends_when_idle:
            for side in Side:
                self._end(side)
        deadline = time.monotonic() + REACT_S
        for results in self._operator.react():
            yield from self._counted(results)
            if time.monotonic() > deadline:
                self.more = True
                return
        if self.notes.left_ended and self.notes.right_ended and not self.notes.finished:
            yield from self._clean_up()

    def _end(self, side: Side) -> None:
        if not self._driver.ended[side]:
            self._operator.end(side)
            self.notes.end(side)

    def _clean_up(self) -> Iterator[pa.RecordBatch]:
        for results in self._operator.clean_up():
            yield from self._counted(results)
        self.notes.finished = True
        self.more = False

    def _counted(self, results: Results) -> Iterator[pa.RecordBatch]:
        self._counters.results += results.size
        return self._rows(results)

    def _rows(self, results: Results) -> Iterator[pa.RecordBatch]:
        return result_batches(results, self._join.schema, drop=self._join.drop)


def _row(payload: bytes | None, *figures: int) -> pd.DataFrame:
    values = figures or (0,) * len(FIGURES)
    return pd.DataFrame({"payload": [payload], **{n: [v] for n, v in zip(FIGURES, values, strict=True)}})
