"""The state of a cell between micro-batches: a manifest in Spark's state store, segments in a directory.

    manifest of the last commit --> restore --> the micro-batch --> segments --> the next manifest

The manifest is committed with the micro-batch; until then nothing that the last one names is removed. If the
micro-batch fails at any point, Spark runs it again from there.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

from dovetail.operators.protocol import JoinOperator, Manifest, Usage
from dovetail.spark.exchange.packing import to_bytes
from dovetail.spark.session.workers import settle
from dovetail.spark.streaming.state_dir import check_layout
from dovetail.spark.streaming.stream_join import CellJoin
from dovetail.storage.segments import SegmentStore
from dovetail.storage.stored_state import CELL, write_copy


class CellState:
    """Made anew for each micro-batch. `value` is Spark's: a row with a column."""

    def __init__(self, value: Any, join: Path, cell: int, batch: int, *, stay_mapped: bool = True) -> None:
        self._value = value
        self._join, self._cell, self._batch = join, cell, batch
        document = value.get()
        self._text: str | None = None if document is None else document[0]
        self._stored: dict[str, Any] | None = None if self._text is None else json.loads(self._text)
        version = 1 + (self._stored["version"] if self._stored is not None else 0)
        self.segments = SegmentStore(join / CELL.format(cell), version, stay_mapped=stay_mapped)

    @property
    def is_new(self) -> bool:
        return self._stored is None

    @property
    def notes(self) -> Any:
        """What was kept besides the operator; None if there is nothing yet."""
        return None if self._stored is None else self._stored["notes"]

    def restore(self, operator: JoinOperator) -> None:
        stored = self._stored
        if stored is not None:
            operator.restore(Manifest(stored["version"], stored["state"], tuple(stored["segments"])))

    def commit(self, manifest: Manifest, notes: Any) -> None:
        """Keep a snapshot of the operator, and remove segments that no manifest can need."""
        stored = self._stored
        if stored is not None:
            self.segments.sweep(stored["version"], [*stored["segments"], *stored["previous"]])
        document = {
            "version": manifest.version,
            "batch": self._batch,
            "state": manifest.state,
            "segments": manifest.segments,
            "previous": stored["segments"] if stored is not None else [],
            "notes": notes,
        }
        text = json.dumps(document)
        self._value.update((text,))
        write_copy(self._join, self._cell, text, self._text)

    def note(self, notes: Any) -> None:
        """Keep other notes, with the operator as it was."""
        self._value.update((json.dumps({**(self._stored or {}), "notes": notes}),))


Join = TypeVar("Join", bound=CellJoin)


class CellProcessor(ABC, Generic[Join]):
    """Runs the cells of one Spark task, one micro-batch at a time. Rows out are packed results, and figures."""

    def __init__(self, join: Join) -> None:
        self._join = join

    def start(self, handle: StatefulProcessorHandle, manifest: Any) -> None:
        """Before the first cell; `manifest` is Spark's, of the cell that it calls us for."""
        self._handle = handle
        self._manifest = manifest

    @abstractmethod
    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]: ...

    @abstractmethod
    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]: ...

    def close(self) -> None:
        settle()

    def _state(self, cell: int) -> CellState:
        """What the last micro-batch has left of a cell."""
        join, setting = self._join, self._join.setting
        directory = join_directory(setting.state_dir, setting.metrics, join.layout)
        return CellState(self._manifest, directory, cell, batch_id(), stay_mapped=not join.keeps_to_memory)

    def _pack_results(self, batch: pa.RecordBatch) -> pd.DataFrame:
        return self._row(to_bytes(batch).to_pybytes(), *(0 for _ in self._join.figures))

    def _count_row(self, *values: int) -> pd.DataFrame:
        return self._row(None, *values)

    def _held(self, usage: Usage, state_bytes: int) -> tuple[int, ...]:
        """The figures HELD of a cell."""
        rows = usage.resident_rows + usage.spilled_rows
        return usage.resident_bytes, usage.spilled_rows, usage.spilled_bytes, state_bytes, 1, rows

    def _row(self, payload: bytes | None, *values: int) -> pd.DataFrame:
        figures = zip(self._join.figures, values, strict=True)
        return pd.DataFrame({"payload": [payload], **{name: [value] for name, value in figures}})


def join_directory(state_dir: str, name: str, layout: dict[str, Any]) -> Path:
    """Where this query keeps the state of a join. The query's id stays the same when it is started again."""
    directory = Path(state_dir) / str(_task().getLocalProperty("sql.streaming.queryId")) / quote(name, safe="")
    check_layout(directory, layout)
    return directory


def batch_id() -> int:
    """The number of the micro-batch."""
    return int(_task().getLocalProperty("streaming.sql.batchId") or 0)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "cells are joined inside Spark tasks"
    return context
