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

from dovetail.operators.protocol import JoinOperator, Manifest
from dovetail.spark.exchange.packing import to_bytes
from dovetail.spark.session.workers import settle
from dovetail.spark.streaming.state_dir import check_layout
from dovetail.spark.streaming.stream_join import CellJoin
from dovetail.storage.segments import SegmentStore


class CellState:
    """Made anew for each micro-batch. `value` is Spark's: a row with a column."""

    def __init__(self, value: Any, directory: Path, *, stay_mapped: bool = True) -> None:
        self._value = value
        document = value.get()
        self._stored: dict[str, Any] | None = None if document is None else json.loads(document[0])
        version = 1 + (self._stored["version"] if self._stored is not None else 0)
        self.segments = SegmentStore(directory, version, stay_mapped=stay_mapped)

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

    def commit(self, operator: JoinOperator, notes: Any) -> None:
        """Keep the operator as it is now, and remove segments that no manifest can need."""
        manifest, stored = operator.snapshot(), self._stored
        if stored is not None:
            self.segments.sweep(stored["version"], [*stored["segments"], *stored["previous"]])
        document = {
            "version": manifest.version,
            "state": manifest.state,
            "segments": manifest.segments,
            "previous": stored["segments"] if stored is not None else [],
            "notes": notes,
        }
        self._value.update((json.dumps(document),))

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
        directory = cell_directory(setting.state_dir, setting.metrics, join.layout, cell)
        return CellState(self._manifest, directory, stay_mapped=not join.keeps_to_memory)

    def _pack_results(self, batch: pa.RecordBatch) -> pd.DataFrame:
        return self._row(to_bytes(batch).to_pybytes(), *(0 for _ in self._join.figures))

    def _count_row(self, *values: int) -> pd.DataFrame:
        return self._row(None, *values)

    def _row(self, payload: bytes | None, *values: int) -> pd.DataFrame:
        figures = zip(self._join.figures, values, strict=True)
        return pd.DataFrame({"payload": [payload], **{name: [value] for name, value in figures}})


def cell_directory(state_dir: str, name: str, layout: dict[str, Any], cell: int) -> Path:
    """Where this query keeps the segments of a cell. The query's id stays the same when it is started again."""
    context = TaskContext.get()
    assert context is not None, "cells are joined inside Spark tasks"
    query = str(context.getLocalProperty("sql.streaming.queryId"))
    directory = Path(state_dir) / query / quote(name, safe="")
    check_layout(directory, layout)
    return directory / f"cell-{cell}"
