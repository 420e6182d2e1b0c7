"""The interface of cells for the stream processor (cell_processor.py): arrivals, progress, timers and figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Generic, TypeVar

import pandas as pd
import pyarrow as pa

from dovetail.core.metrics import Counters, Estimate
from dovetail.core.rows import Phase
from dovetail.execution.driver import Driver, Found
from dovetail.execution.output import result_batches
from dovetail.operators.protocol import Resumable, Usage
from dovetail.spark.streaming.stream_join import CellJoin
from dovetail.storage.blocks import BlockStore

Join = TypeVar("Join", bound=CellJoin)


class Cell(ABC, Generic[Join]):
    """One cell in one micro-batch."""

    timer: int | None = None  # as set by the last micro-batch; None: not set
    ended: tuple[bool, ...] = ()  # by input; empty: none
    is_over: bool = False  # no more results are wanted or possible

    def __init__(self, join: Join) -> None:
        self._join = join
        self._counters = Counters()
        self.usage = Usage()
        self.state_bytes = 0  # of the segments named by the manifest
        self.reactive = 0  # results found by background work

    def open(self, blocks: BlockStore) -> Resumable:
        """Create the operator. Its state is restored later."""
        workspace = self._join.workspace(blocks, self._counters)
        self._workspace, self._operator = workspace, self._join.plan.make_operator(workspace)
        self._driver = Driver(self._operator, workspace, self.ended)
        return self._operator

    def leave(self) -> None:
        """Release the operator."""
        del self._workspace, self._operator, self._driver

    @abstractmethod
    def run(self, rows: Iterator[pd.DataFrame] | None, now: int) -> Iterator[pa.RecordBatch]:
        """The results of the rows that arrived. None: a timer has expired. `now`: on the clock of the join."""

    @abstractmethod
    def next_timer(self, now: int) -> int | None:
        """When the cell's next timer expires. None: never."""

    @abstractmethod
    def to_json(self) -> Any:
        """The state of the cell besides its operator."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is nothing to do without new rows."""
        return False

    def estimate(self, emitted: int) -> Estimate | None:
        """The estimated number of results of all micro-batches. `emitted` of them were emitted."""
        return None

    def figures(self) -> dict[str, int]:
        """Figures, named as in core/figures.py."""
        held = {"state_bytes": self.state_bytes, **asdict(self.usage)}
        return held | {"cells": 1, "largest_cell_rows": self.usage.resident_rows + self.usage.spilled_rows}

    def _rows(self, found: Iterator[Found]) -> Iterator[pa.RecordBatch]:
        """Drop references to emitted results before the next are requested: they may be the last to evicted rows."""
        join, most_bytes = self._join, self._join.pack_bytes
        for phase, results in found:
            self.reactive += 0 if phase is Phase.ARRIVING else results.size
            yield from result_batches(results, join.schema, drop=join.drop, most_bytes=most_bytes)
            del results
