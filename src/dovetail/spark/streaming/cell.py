"""A cell of a join of streams without a window: one operator, one micro-batch at a time.

    rows arrived        arrive, then end the inputs that a marker row ends; react in the time that is left
    a timer expired     no input for this cell: react in slices until there is no pending work; then report every second
                        that the cell waits, without loading its state
    all inputs ended    react likewise, then clean up; the cell is finished
    limit reached       rows that arrive are dropped; the cell is finished

Timers are for operators that leave work for later, and for streams that end: it must be told from a stall. They expire
in every micro-batch, with input for other cells or without. How long a cell reacts is in pace.py. What it finds is
committed with the micro-batch, like anything else: another attempt may do more of the work, or less.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

from dovetail.core.join_types import JoinType
from dovetail.core.metrics import HEARTBEAT_S, Counters, Estimate
from dovetail.core.rows import Arrival, Phase, Side, Stall
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.execution.driver import Driver, Found
from dovetail.execution.output import result_batches
from dovetail.execution.steps import limit_rows
from dovetail.operators.protocol import Usage
from dovetail.spark.exchange.packing import collected, from_bytes
from dovetail.spark.streaming.cell_state import CellProcessor, CellState
from dovetail.spark.streaming.pace import Pace
from dovetail.spark.streaming.reports import Report, Totals
from dovetail.spark.streaming.stream_join import StreamJoin
from dovetail.storage.allocator import stay_small, trim_heap
from dovetail.storage.blocks import BlockStore
from dovetail.storage.stored_state import count_bytes

REST_S = 5.0  # of a micro-batch, when all inputs have ended and nothing can come that would have to wait
HEARTBEAT_MS = int(1000 * HEARTBEAT_S)


class JoinProcessor(CellProcessor[StreamJoin]):
    """Runs the operator of one cell, one micro-batch at a time."""

    def start(self, handle: StatefulProcessorHandle, manifest: Any) -> None:
        super().start(handle, manifest)
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

    def _step(self, cell: int, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pd.DataFrame]:
        """One micro-batch; without rows, a timer has expired."""
        join, setting, kept = self._join, self._join.setting, self._state(cell)
        notes = _Notes.read(kept.notes, join.inputs)
        reports = self._read_reports()
        totals = Totals(0, None) if reports is None else reports.totals(share_rows=join.cells_share_rows)
        missing = totals.missing(setting.limit)
        outcome = _Outcome()
        if missing == 0:  # rows that arrive are dropped
            notes.stop()
            self._set_timer(notes, rows is not None, now)
            kept.close(notes.to_json(), kept.emitted)
        elif rows is not None or notes.more or setting.ends_when_idle:
            outcome = yield from self._work(kept, notes, rows, now, missing)
            if reports is not None:
                reports.write(cell, Report.from_estimate(kept.emitted + outcome.results, outcome.estimate))
            if join.keeps_to_memory:
                if self._operator() is not None:  # its parts know each other
                    gc.collect()
                trim_heap()  # the next cell of this task needs the memory
        else:
            self._set_timer(notes, False, now)
            kept.note(notes.to_json())
        reported = () if reports is None else totals.figures(limit_reached=outcome.results == missing)
        held = self._held(notes.usage, notes.state_bytes)
        counted = (outcome.results, outcome.reactive, int(notes.finished), notes.resident_rows)
        yield self._count_row(*counted, *held, reported=reported)

    def _work(
        self, kept: CellState, notes: _Notes, rows: Iterator[pd.DataFrame] | None, now: int, missing: int | None
    ) -> Generator[pd.DataFrame, None, _Outcome]:
        """What the operator does, until there are no results `missing`."""
        notes.pace.begin(time.time(), self._join.cells_per_core)
        counters = Counters()
        step = _Step(self._join, kept.segments, notes, counters)
        operator = step.operator
        self._operator = weakref.ref(operator)
        kept.restore(operator)
        batches = step.arrivals(rows) if rows is not None else step.left_over()
        yield from map(self._pack_results, collected(limit_rows(batches, missing), self._join.pack_bytes))
        results = counters.results if missing is None else min(counters.results, missing)
        if results == missing:
            notes.stop()
        notes.usage = operator.usage
        self._set_timer(notes, rows is not None, now)
        notes.pace.end(time.time(), notes.more)
        emitted, reactive = kept.emitted + results, min(step.reactive, results)
        if results == missing:
            kept.close(notes.to_json(), emitted)
            return _Outcome(results, reactive)
        manifest = operator.snapshot()
        notes.state_bytes = count_bytes(manifest.state)
        kept.commit(manifest, notes.to_json(), emitted)
        return _Outcome(results, reactive, step.estimate(emitted))

    def _set_timer(self, notes: _Notes, fed: bool, now: int) -> None:
        """When the cell's next timer expires; never, if it is finished."""
        if not self._join.has_timers:
            return
        if fed and notes.timer is not None:  # otherwise it is the one that has expired
            self._handle.deleteTimer(notes.timer)
        notes.timer = None if notes.finished else now + (1 if notes.more else HEARTBEAT_MS)
        if notes.timer is not None:
            self._handle.registerTimer(notes.timer)


class _Outcome(NamedTuple):
    """What came of a cell in a micro-batch."""

    results: int = 0
    reactive: int = 0  # of them, due to background work
    estimate: Estimate | None = None  # of the results of all micro-batches


@dataclass(slots=True)
class _Notes:
    """What a cell knows besides its operator."""

    ended: list[bool]  # by input
    more: bool = True  # whether something is left to do
    finished: bool = False
    timer: int | None = None
    resident_rows: int = 0
    spilled_rows: int = 0
    pace: Pace = field(default_factory=Pace)
    resident_bytes: int = 0
    spilled_bytes: int = 0
    state_bytes: int = 0  # of segments that the manifest names
    arrived: list[int] | None = None  # rows by input; None: not known, because 0.1 did not count them

    @classmethod
    def read(cls, kept: dict[str, Any] | None, inputs: int) -> _Notes:
        """Those of the last micro-batch, if there was one."""
        if kept is None:
            return cls([False] * inputs, arrived=[0] * inputs)
        return cls(**{**kept, "pace": Pace(**kept.get("pace", {}))})  # 0.1.0 has none

    @property
    def usage(self) -> Usage:
        """What the operator held."""
        return Usage(self.resident_rows, self.resident_bytes, self.spilled_rows, self.spilled_bytes)

    @usage.setter
    def usage(self, held: Usage) -> None:
        self.resident_rows, self.resident_bytes = held.resident_rows, held.resident_bytes
        self.spilled_rows, self.spilled_bytes = held.spilled_rows, held.spilled_bytes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def stop(self) -> None:
        """No more results are wanted."""
        self.more, self.finished = False, True


class _Step:
    """What an operator does in one micro-batch.

    References to emitted results are dropped before asking for more: they may be the last references to evicted rows.
    """

    def __init__(self, join: StreamJoin, blocks: BlockStore, notes: _Notes, counters: Counters) -> None:
        self._join = join
        self._notes = notes
        self.reactive = 0  # results that did not come with arriving rows
        workspace = join.workspace(blocks, counters)
        self.operator = join.make_operator(workspace)
        self._workspace = workspace
        self._driver = Driver(self.operator, workspace, notes.ended)

    def arrivals(self, rows: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        """Rows arrive; then inputs end, because a marker may come before rows of another partition."""
        ends = set()
        for frame in rows:
            for number, payload in zip(frame["side"], frame["payload"], strict=True):
                if payload is None:
                    ends.add(int(number))
                else:
                    batch = from_bytes(payload)
                    if self._notes.arrived is not None:
                        self._notes.arrived[number] += batch.num_rows
                    yield from self._rows(self._driver.handle(Arrival(int(number), batch)))
        for number in sorted(ends):
            self._end(number)
        self._notes.more = True
        yield from self._react()

    def left_over(self) -> Iterator[pa.RecordBatch]:
        """The inputs are idle."""
        if self._join.setting.ends_when_idle:
            for number in range(self._join.inputs):
                self._end(number)
        return self._react()

    def estimate(self, emitted: int) -> Estimate | None:
        """Of all results of the cell, once its inputs have ended: only then their sizes are known."""
        if self._notes.finished:
            return Estimate(emitted, emitted, emitted, CONFIDENCE)
        arrived = self._notes.arrived
        if self._join.plan.how is not JoinType.INNER or arrived is None or len(arrived) != len(Side):
            return None
        own = self.operator.estimator
        estimator = self._workspace.estimator if own is None else own
        return estimator.estimate(arrived[0], arrived[1]) if all(self._notes.ended) else None

    def _react(self) -> Iterator[pa.RecordBatch]:
        """Do a slice of pending work; once there is none and all inputs have ended, clean up."""
        now, join = time.time(), self._join
        deadline = self._notes.pace.deadline(now, join.setting.latency_s, join.cells_per_core)
        if all(self._notes.ended):
            deadline = now + REST_S
        over = False

        def is_over() -> bool:
            nonlocal over
            over = time.time() > deadline
            return over

        yield from self._rows(self._driver.handle(Stall(None, is_over)))
        if over:
            return
        self._notes.more = False
        if all(self._notes.ended) and not self._notes.finished:
            yield from self._rows(self._driver.clean_up())
            self._notes.finished = True

    def _end(self, number: int) -> None:
        """The input has ended. What is missing then is for background work to find."""
        if not self._notes.ended[number]:
            self._driver.end(number)
            self._notes.ended[number] = True

    def _rows(self, found: Iterator[Found]) -> Iterator[pa.RecordBatch]:
        for phase, results in found:
            self.reactive += 0 if phase is Phase.ARRIVING else results.size
            yield from result_batches(
                results, self._join.schema, drop=self._join.drop, most_bytes=self._join.pack_bytes
            )
            del results
