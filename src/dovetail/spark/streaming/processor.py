"""What Spark runs for the cells of a join of streams.

Spark unpickles it in two places: in workers, and once more beside the driver when a query starts, where it only asks
which state there is. So the join itself is unpickled with the first row: the start of a query then takes a second
instead of three, which the imports take.
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
    """Passes everything on to the cells' own."""

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
    """The join, the same one in all micro-batches that a worker runs: what was derived from its condition is kept."""
    found: CellJoin = pickle.loads(join)
    return found
