"""A cell of a windowed join: `spo` on the rows that come to it, one micro-batch at a time.

    manifest of the last micro-batch --> operator --> rows of this one, in the order of arrival --> results, manifest

Where a stream may pause (`window(idle=…)`), a timer is set with every micro-batch. When it expires and no row has
arrived, event time follows the clock, so that windows close and rows without a partner are emitted. The clock is that
of the micro-batch, which Spark logs before it runs: all cells, and all attempts, see the same.

Where inputs have watermarks, the clock is Spark's watermark, and the timer expires with the next one. As in Spark's own
joins, a row is late if it is not behind the watermark of the micro-batch before, and rows leave at that of this one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues

from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, Side, Watermark, empty_batch, take_rows
from dovetail.execution.driver import Driver, Found
from dovetail.execution.output import result_batches
from dovetail.execution.steps import limit_rows
from dovetail.matching.window_positions import Placement, late_flags
from dovetail.operators.protocol import WindowedOperator, Workspace
from dovetail.routing import home_side
from dovetail.spark.exchange.packing import collected
from dovetail.spark.streaming.arrival_order import NEVER, Ordered, in_order, packets, placed
from dovetail.spark.streaming.cell_state import CellProcessor, batch_id
from dovetail.spark.streaming.reports import Report, Totals
from dovetail.spark.streaming.window_join import WindowJoin, newest_time
from dovetail.storage.budget import Budget
from dovetail.storage.segments import SegmentStore
from dovetail.storage.stored_state import count_bytes

Arrived = tuple[Ordered, Ordered]


class WindowProcessor(CellProcessor[WindowJoin]):
    """Runs `spo` on one cell, one micro-batch at a time."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        sides = in_order(packets(rows))
        if self._join.self_join and self._join.router is None:
            sides = (sides[0], sides[0]._replace(newest=newest_time(self._join.window, Side.RIGHT, sides[0].batch)))
        return self._step(key[0], sides, self._now(timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """The inputs have been idle for `idle`, or there is a new watermark and no row."""
        return self._step(key[0], in_order([]), self._now(timerValues))

    def _now(self, timer_values: TimerValues) -> int:
        """The time of this micro-batch, by the clock of the join."""
        match self._join.clock:
            case "EventTime":
                return timer_values.getCurrentWatermarkInMs()
            case "ProcessingTime":
                return timer_values.getCurrentProcessingTimeInMs()
        return 0

    def _step(self, label: int, sides: Arrived, now: int) -> Iterator[pd.DataFrame]:
        """One micro-batch: from the manifest of the last one to the next."""
        cell, kept = self._join.labels.index(label), self._state(label)
        reports = self._read_reports()
        totals = Totals(0, None) if reports is None else reports.totals()
        missing = totals.missing(self._join.setting.limit)
        state = _Progress.read(kept.notes)
        timer, idle = self._timer(state), state.hear(sides, now)
        if missing == 0:  # rows that arrive are dropped
            if self._join.has_timers and not idle and not kept.is_new:
                self._handle.deleteTimer(timer)
            kept.close(state.to_json(), kept.emitted)
            nothing = [0] * len(self._join.figures)
            yield self._count_row(*nothing, reported=totals.figures(limit_reached=True))
            return
        workspace = self._workspace(kept.segments)
        operator = cast(WindowedOperator, self._join.plan.make_operator(workspace))
        kept.restore(operator)
        started = time.perf_counter()
        late = late_rows(self._join, sides, operator.horizon)
        driver = Driver(operator, workspace)
        if self._join.aggregates:
            batches = self._aggregates(driver, operator, state, cell, sides)
        else:
            batches = self._results(driver, state, cell, sides)
        matches = 0
        for batch in collected(limit_rows(batches, missing), self._join.pack_bytes):
            matches += batch.num_rows
            yield self._pack_results(batch)
        if self._join.has_timers:
            if not idle and not kept.is_new:
                self._handle.deleteTimer(timer)
            if not idle or operator.window_rows or self._join.window.by_watermark:
                self._handle.registerTimer(self._timer(state))
        emitted, usage, state_bytes = kept.emitted + matches, operator.usage, 0
        if matches == missing:
            kept.close(state.to_json(), emitted)
        else:
            manifest = operator.snapshot()
            state_bytes = count_bytes(manifest.state)
            kept.commit(manifest, state.to_json(), emitted)
        if reports is not None:
            reports.write(label, Report(emitted))
        costs, counted = operator.costs, workspace.counters
        spent = (costs.probe_seconds, costs.merge_seconds, time.perf_counter() - started)
        micros = (int(1e6 * seconds) for seconds in spent)
        done = (matches, operator.window_rows, late, counted.evicted_rows, counted.merges, *micros)
        reported = () if reports is None else totals.figures(limit_reached=matches == missing)
        yield self._count_row(*done, *self._held(usage, state_bytes), reported=reported)

    def _timer(self, state: _Progress) -> int:
        """When it expires: a pause after the last news, or with the next watermark."""
        return state.heard_ms + max(1, (self._join.window.idle or 0) // 1000)

    def _workspace(self, segments: SegmentStore) -> Workspace:
        join, counters = self._join, Counters()
        budget = Budget(join.plan.memory_bytes, "bytes", counters)
        given = {"window": join.window, "self_join": join.self_join}
        return Workspace.of(join.plan, budget, segments, 1 << 16, counters, parameters=given)

    def _results(self, driver: Driver, state: _Progress, cell: int, sides: Arrived) -> Iterator[pa.RecordBatch]:
        """The join's results."""
        for side in Side:
            batch, placement = self._share(state, cell, side, sides[side])
            yield from self._rows(driver.handle(Arrival(side, batch, placement)))
        state.count(sides)
        yield from self._rows(driver.handle(Watermark(state.horizon(self._join), state.arrived)))

    def _rows(self, found: Iterator[Found]) -> Iterator[pa.RecordBatch]:
        for _, results in found:
            yield from result_batches(results, self._join.schema, drop=self._join.drop)

    def _aggregates(
        self, driver: Driver, operator: WindowedOperator, state: _Progress, cell: int, sides: Arrived
    ) -> Iterator[pa.RecordBatch]:
        """Left rows with aggregates over the right rows that came before them. Only right rows are kept."""
        batch, placement = self._share(state, cell, Side.RIGHT, sides[Side.RIGHT])
        for _ in driver.handle(Arrival(Side.RIGHT, batch, placement)):
            pass  # no left rows are resident
        batch, placement = self._share(state, cell, Side.LEFT, sides[Side.LEFT])
        yield operator.aggregate(self._join.aggregates, self._join.schema, batch, placement.positions)
        state.count(sides)
        for _ in driver.handle(Watermark(state.horizon(self._join), state.arrived)):
            pass

    @property
    def _home(self) -> Side:
        """The side whose rows are in one cell each, where cells do not take turns."""
        return Side.LEFT if self._join.aggregates else home_side(self._join.plan.how)

    def _share(self, state: _Progress, cell: int, side: Side, rows: Ordered) -> tuple[pa.RecordBatch, Placement]:
        """The rows that probe in this cell, and which of them it stores."""
        batch = rows.batch
        if batch is None:
            batch = empty_batch(self._join.plan.condition.schema(side))
        places = placed(side, rows, state.arrived, self._join.self_join)
        if self._join.router is not None:
            return batch, Placement(places)
        if self._join.in_turns:
            return batch, Placement(places, (rows.numbers + batch_id()) % self._join.cells == cell)
        if side is not self._home:
            return batch, Placement(places)
        # Neighbours by arrival: then fewer of the right rows are before some of them and behind others.
        homes = rows.own * self._join.cells // max(1, rows.size)
        chosen = np.flatnonzero((homes + batch_id()) % self._join.cells == cell)
        return take_rows(batch, chosen), Placement(places.of(chosen))


class _Progress:
    """What a cell has seen of both streams."""

    def __init__(
        self, arrived: tuple[int, int] = (0, 0), newest: tuple[int, int] = (NEVER, NEVER), heard_ms: int = 0
    ) -> None:
        self.arrived = arrived
        self.newest = newest  # event time of each stream
        self.heard_ms = heard_ms  # the clock, up to which event time has been told to go

    @classmethod
    def read(cls, notes: list[Any] | None) -> _Progress:
        if notes is None:
            return cls()
        left, right, newest, heard_ms = notes
        # Releases up to 0.1 knew the newest time of both streams together.
        times = (newest, newest) if isinstance(newest, int) else (newest[0], newest[1])
        return cls((left, right), times, heard_ms)

    def hear(self, sides: Arrived, now: int) -> bool:
        """Take note of the clock; tells whether nothing has arrived. Event time then goes as fast as the clock."""
        idle = sides[0].size + sides[1].size == 0
        latest = max(self.newest)
        if idle and latest != NEVER:
            passed = 1000 * max(0, now - self.heard_ms)
            left, right = (passed + (latest if time == NEVER else time) for time in self.newest)
            self.newest = left, right
        self.heard_ms = max(now, self.heard_ms)
        return idle

    def count(self, sides: Arrived) -> None:
        self.arrived = (self.arrived[0] + sides[0].size, self.arrived[1] + sides[1].size)
        self.newest = max(self.newest[0], sides[0].newest), max(self.newest[1], sides[1].newest)

    def horizon(self, join: WindowJoin) -> int:
        """Rows to come are not before it, or they are late."""
        if join.window.by_watermark:
            return 1000 * self.heard_ms + 1 if self.heard_ms > 0 else NEVER
        if join.window.by_time:
            return join.window.horizon(self.newest)
        return self.arrived[0] if join.self_join else sum(self.arrived)

    def to_json(self) -> list[Any]:
        return [*self.arrived, list(self.newest), self.heard_ms]


def late_rows(join: WindowJoin, sides: Arrived, horizon: int) -> int:
    """How many rows come behind the horizon. Those of a self-join are on both sides, and are counted once."""
    late = 0
    for side, rows in zip([Side.LEFT] if join.self_join else Side, sides, strict=not join.self_join):
        if rows.batch is not None:
            late += int((rows.tells & late_flags(join.window, side, rows.batch, horizon)).sum())
    return late
