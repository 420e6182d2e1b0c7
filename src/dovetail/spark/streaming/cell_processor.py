"""The stream processor: runs the cells of a join, windowed or not, one micro-batch at a time.

    manifest of the last micro-batch --> operator --> rows of this one, or a timer --> results, figures, manifest

Kinds of cells differ: see stream_cell.py and window_cell.py. The results of a cell are committed with the micro-batch.
All attempts at it emit the same rows.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

from dovetail.core.figures import FIGURES
from dovetail.execution.steps import limit_rows
from dovetail.spark.exchange.packing import collected, to_bytes
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.streaming.as_of_join import AsOfCell, AsOfJoin
from dovetail.spark.streaming.cell import Cell
from dovetail.spark.streaming.cell_state import CellState, batch_id, join_directory
from dovetail.spark.streaming.reports import Report, Reports, Totals
from dovetail.spark.streaming.stream_cell import StreamCell
from dovetail.spark.streaming.stream_join import CellJoin, StreamJoin
from dovetail.spark.streaming.window_cell import WindowCell
from dovetail.spark.streaming.window_join import WindowJoin
from dovetail.storage.allocator import stay_small, trim_heap
from dovetail.storage.stored_state import count_bytes


class CellProcessor:
    """Runs the cells of one Spark task. It returns packed results, and figures."""

    def __init__(self, join: CellJoin) -> None:
        self._join = join

    def start(self, handle: StatefulProcessorHandle, manifest: Any) -> None:
        """Called before the first cell of a micro-batch. `manifest` is Spark's state of that cell."""
        self._handle = handle
        self._manifest = manifest
        self._fed: set[int] = set()  # cells with input in this micro-batch
        self._batch, self._layout = batch_id(), self._join.layout
        self._place = join_directory(self._join)
        if self._join.returns_memory:
            stay_small()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        self._fed.add(key[0])
        return self._micro_batch(key[0], rows, self._now(timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        if key[0] in self._fed:  # it was set before, and has been set again
            return iter(())
        return self._micro_batch(key[0], None, self._now(timerValues))

    def close(self) -> None:
        freeze_modules()

    def _now(self, timer_values: TimerValues) -> int:
        """The time of the micro-batch on the clock of the join: the same for all cells and attempts."""
        match self._join.clock:
            case "EventTime":
                return timer_values.getCurrentWatermarkInMs()
            case "ProcessingTime":
                return timer_values.getCurrentProcessingTimeInMs()
        return 0

    def _cell(self, label: int, notes: Any) -> Cell[Any]:
        join = self._join
        if isinstance(join, WindowJoin):
            return WindowCell(join, label, notes)
        if isinstance(join, AsOfJoin):
            return AsOfCell(join, notes)
        assert isinstance(join, StreamJoin)
        return StreamCell(join, notes)

    def _micro_batch(self, label: int, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pd.DataFrame]:
        """Run one cell. Without rows, a timer has expired."""
        join, began = self._join, time.perf_counter()
        stay_mapped = not join.keeps_to_memory
        kept = CellState(self._manifest, self._place, self._layout, label, self._batch, stay_mapped=stay_mapped)
        cell = self._cell(label, kept.notes)
        reports = Reports(self._place / "reports", self._batch) if join.keeps_reports else None
        totals = Totals(0, None) if reports is None else reports.totals(share_rows=join.cells_share_rows)
        missing = totals.missing(join.setting.limit)
        results = 0
        if missing == 0:  # arriving rows are dropped
            cell.is_over = True
            self._set_timer(cell, rows is not None, now)
            kept.close(cell.to_json(), kept.emitted)
        elif rows is None and cell.is_waiting:
            self._set_timer(cell, False, now)
            kept.note(cell.to_json())
        else:
            results, report = yield from self._work(kept, cell, rows, now, missing)
            if reports is not None:
                reports.write(label, report)
        figures: dict[str, int | None] = {"results": results, **cell.figures()}
        figures["cell_us"] = int(1e6 * (time.perf_counter() - began))
        if reports is not None:
            figures |= totals.figures(limit_reached=results == missing)
        yield _row(None, figures)

    def _work(
        self, kept: CellState, cell: Cell[Any], rows: Iterator[pd.DataFrame] | None, now: int, missing: int | None
    ) -> Generator[pd.DataFrame, None, tuple[int, Report]]:
        """Run the operator, for at most `missing` results. Returns the number of results, and the report."""
        results = 0

        def pack(batch: pa.RecordBatch) -> pd.DataFrame:
            nonlocal results
            results += batch.num_rows
            return _row(to_bytes(batch).to_pybytes(), {})

        operator = cell.open(kept.segments)
        kept.restore(operator)
        yield from map(pack, collected(limit_rows(cell.run(rows, now), missing), self._join.pack_bytes))
        emitted = kept.emitted + results
        cell.usage, cell.reactive = operator.usage, min(cell.reactive, results)
        if results == missing:
            cell.is_over = True
            self._set_timer(cell, rows is not None, now)
            kept.close(cell.to_json(), emitted)
            report = Report(emitted)
        else:
            self._set_timer(cell, rows is not None, now)
            manifest = operator.snapshot()
            cell.state_bytes = count_bytes(manifest.state)
            kept.commit(manifest, cell.to_json(), emitted)
            report = Report.from_estimate(emitted, cell.estimate(emitted))
        cell.leave()
        if self._join.returns_memory:
            still = weakref.ref(operator)
            del operator
            if still() is not None:  # its objects form reference cycles
                gc.collect()
            trim_heap()  # the next cell of this task needs the memory
        return results, report

    def _set_timer(self, cell: Cell[Any], fed: bool, now: int) -> None:
        if not self._join.has_timers:
            return
        if fed and cell.timer is not None:  # otherwise this timer has just expired
            self._handle.deleteTimer(cell.timer)
        cell.timer = None if cell.is_over else cell.next_timer(now)
        if cell.timer is not None:
            self._handle.registerTimer(cell.timer)


def _row(payload: bytes | None, figures: Mapping[str, int | None]) -> pd.DataFrame:
    # One block of objects: separate columns for the figures would take more than twice the time.
    return pd.DataFrame([[payload, *map(figures.get, FIGURES)]], columns=["payload", *FIGURES], dtype=object)
