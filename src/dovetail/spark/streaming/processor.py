"""The processor that Spark runs for the cells of a streaming join.

Spark unpickles it in two places: in workers, and beside the driver when a query starts, where it only asks for the
state's schema. So the join itself is unpickled with the first row. A query then starts in one second instead of three,
which the imports would take.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

if TYPE_CHECKING:
    import pandas as pd

    from dovetail.spark.streaming.cell_processor import CellProcessor
    from dovetail.spark.streaming.stream_join import CellJoin

SCHEMA = "manifest string"


class Processor(StatefulProcessor):
    """Forwards all calls to the cells' processor."""

    def __init__(self, join: CellJoin) -> None:
        self._pickled: bytes = cloudpickle.dumps(join)  # type: ignore[no-untyped-call]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._manifest = handle.getValueState("manifest", SCHEMA)
        self._cells: CellProcessor | None = None

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        return self._started().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        return self._started().handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        if self._cells is not None:
            self._cells.close()

    def _started(self) -> CellProcessor:
        if self._cells is None:
            from dovetail.spark.streaming.cell_processor import CellProcessor

            self._cells = CellProcessor(_unpickled(self._pickled))
            self._cells.start(self._handle, self._manifest)
        return self._cells


@lru_cache(maxsize=32)
def _unpickled(join: bytes) -> CellJoin:
    """The join, shared by all micro-batches of a worker, so that values derived from its condition are cached."""
    found: CellJoin = pickle.loads(join)
    return found
