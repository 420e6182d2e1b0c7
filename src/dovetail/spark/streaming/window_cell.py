"""A cell of a windowed join: runs `spo` on the rows sent to it, one micro-batch at a time.

    manifest of the last micro-batch --> operator --> rows of this one, in the order of arrival --> results, manifest

If a stream may pause (`window(idle=…)`), every micro-batch sets a timer. When it expires and no row has arrived, event
time follows the clock, so windows close and rows without a partner are emitted. The clock is that of the micro-batch,
which Spark logs before it runs, so all cells and all attempts see the same time.

If inputs have watermarks, the clock is Spark's watermark, and the timer expires with the next one. As in Spark's own
joins, a row is late if it is not after the watermark of the previous micro-batch, and rows expire at that of this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from dovetail.columns.batches import empty_batch
from dovetail.columns.taking import take_rows
from dovetail.core.rows import Arrival, Side, Watermark
from dovetail.execution.driver import Found
from dovetail.matching.window_positions import Placement, late_flags
from dovetail.operators.protocol import WindowCosts, WindowedOperator
from dovetail.routing import home_side
from dovetail.spark.streaming.arrival_order import NEVER, Ordered, in_order, packets, placed
from dovetail.spark.streaming.cell import Cell
from dovetail.spark.streaming.cell_state import batch_id
from dovetail.spark.streaming.window_join import WindowJoin, newest_time

Arrived = tuple[Ordered, Ordered]


class WindowCell(Cell[WindowJoin]):
    """Runs `spo` on the rows sent to a cell, using what the cell was told about other rows."""

    def __init__(self, join: WindowJoin, label: int, notes: list[Any] | None) -> None:
        super().__init__(join)
        self._cell = join.labels.index(label)
        self._progress = _Progress.read(notes)
        self.timer = None if notes is None else self._pause_after
        self._idle = False  # whether nothing has arrived at any cell
        self._late = 0
        self._costs: WindowCosts | None = None

    def to_json(self) -> list[Any]:
        return self._progress.to_json()

    def run(self, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pa.RecordBatch]:
        """Without rows: the inputs have been idle for `idle`, or the watermark has advanced."""
        sides = in_order(packets(rows) if rows is not None else ())
        if self._join.self_join and self._join.router is None:
            sides = (sides[0], sides[0]._replace(newest=newest_time(self._join.window, Side.RIGHT, sides[0].batch)))
        self._idle = self._progress.hear(sides, now)
        operator = cast(WindowedOperator, self._operator)
        self._costs = operator.costs
        self._late = late_rows(self._join, sides, operator.horizon)
        return self._aggregates(operator, sides) if self._join.aggregates else self._results(sides)

    def next_timer(self, now: int) -> int | None:
        kept = self.usage.resident_rows + self.usage.spilled_rows
        return None if self._idle and not kept and not self._join.window.by_watermark else self._pause_after

    @property
    def _pause_after(self) -> int:
        """The time of the timer: a pause after the last input, or the next watermark."""
        return self._progress.heard_ms + max(1, (self._join.window.idle or 0) // 1000)

    def figures(self) -> dict[str, int]:
        counters, costs = self._counters, self._costs
        done = {"late_rows": self._late, "evicted_rows": counters.evicted_rows, "merges": counters.merges}
        if costs is not None:
            done |= {"probe_us": int(1e6 * costs.probe_seconds), "merge_us": int(1e6 * costs.merge_seconds)}
        return super().figures() | done

    def _results(self, sides: Arrived) -> Iterator[pa.RecordBatch]:
        """The results of the join."""
        for side in Side:
            batch, placement = self._share(side, sides[side])
            yield from self._rows(self._driver.handle(Arrival(side, batch, placement)))
        yield from self._rows(self._pass_time(sides))

    def _aggregates(self, operator: WindowedOperator, sides: Arrived) -> Iterator[pa.RecordBatch]:
        """Left rows with aggregates over the right rows that arrived before them. Only right rows are kept."""
        batch, placement = self._share(Side.RIGHT, sides[Side.RIGHT])
        for _ in self._driver.handle(Arrival(Side.RIGHT, batch, placement)):
            pass  # left rows are not kept
        batch, placement = self._share(Side.LEFT, sides[Side.LEFT])
        yield operator.aggregate(self._join.aggregates, self._join.schema, batch, placement.positions)
        for _ in self._pass_time(sides):
            pass

    def _pass_time(self, sides: Arrived) -> Iterator[Found]:
        """After all rows of the micro-batch are joined: rows that can no longer match expire."""
        progress = self._progress
        progress.count(sides)
        return self._driver.handle(Watermark(progress.horizon(self._join), progress.arrived))

    @property
    def _home(self) -> Side:
        """The side whose rows are in one cell each, if cells do not take turns."""
        return Side.LEFT if self._join.aggregates else home_side(self._join.plan.how)

    def _share(self, side: Side, rows: Ordered) -> tuple[pa.RecordBatch, Placement]:
        """The rows that probe in this cell, and which of them it stores."""
        batch = rows.batch
        if batch is None:
            batch = empty_batch(self._join.plan.condition.schema(side))
        places = placed(side, rows, self._progress.arrived, self._join.self_join)
        if self._join.router is not None:
            return batch, Placement(places)
        if self._join.in_turns:
            return batch, Placement(places, (rows.numbers + batch_id()) % self._join.cells == self._cell)
        if side is not self._home:
            return batch, Placement(places)
        # Consecutive rows share a cell: fewer right rows then arrive between them.
        homes = rows.own * self._join.cells // max(1, rows.size)
        chosen = np.flatnonzero((homes + batch_id()) % self._join.cells == self._cell)
        return take_rows(batch, chosen), Placement(places.of(chosen))


class _Progress:
    """What a cell has seen of both streams."""

    def __init__(
        self, arrived: tuple[int, int] = (0, 0), newest: tuple[int, int] = (NEVER, NEVER), heard_ms: int = 0
    ) -> None:
        self.arrived = arrived
        self.newest = newest  # newest event time of each stream
        self.heard_ms = heard_ms  # the last clock time that was applied

    @classmethod
    def read(cls, notes: list[Any] | None) -> _Progress:
        if notes is None:
            return cls()
        left, right, newest, heard_ms = notes
        # Releases up to 0.1 stored one newest time for both streams.
        times = (newest, newest) if isinstance(newest, int) else (newest[0], newest[1])
        return cls((left, right), times, heard_ms)

    def hear(self, sides: Arrived, now: int) -> bool:
        """Advance to the clock. Returns whether nothing has arrived; event time then follows the clock."""
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
        """Rows that arrive later are at or after the horizon, or they are late."""
        if join.window.by_watermark:
            return 1000 * self.heard_ms + 1 if self.heard_ms > 0 else NEVER
        if join.window.by_time:
            return join.window.horizon(self.newest)
        return self.arrived[0] if join.self_join else sum(self.arrived)

    def to_json(self) -> list[Any]:
        return [*self.arrived, list(self.newest), self.heard_ms]


def late_rows(join: WindowJoin, sides: Arrived, horizon: int) -> int:
    """The number of rows before the horizon. Rows of a self-join are on both sides, but are counted once."""
    late = 0
    for side, rows in zip([Side.LEFT] if join.self_join else Side, sides, strict=not join.self_join):
        if rows.batch is not None:
            late += int((rows.tells & late_flags(join.window, side, rows.batch, horizon)).sum())
    return late
