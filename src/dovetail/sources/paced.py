"""A table as a source whose rows arrive at given times."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import one_batch
from dovetail.sources.protocol import Piece

Seconds = NDArray[np.float64]

WAKE_S = 0.05  # how often to check whether the clock has started, or the reading was closed


class Paced:
    """Emits row i `seconds[i]` after the source was started. Rows due at the same time arrive together.

    Opening it at the first row starts the clock. Before that, only rows with a time of 0 or less are due.
    """

    resumable = True

    def __init__(self, table: pa.Table, seconds: Seconds, name: str = "paced table") -> None:
        self.name = name
        self.schema: pa.Schema = table.schema
        self.rows = one_batch(table.combine_chunks(), table.schema)
        self.seconds = seconds
        self._began: float | None = None
        self._stands_at: float | None = None

    def begin(self) -> None:
        self._began = time.monotonic()

    def open(self, position: int | None = None) -> PacedReading:
        if position is None:
            self.begin()
        return PacedReading(self, position or 0)

    def hold(self, still: bool) -> None:
        """Stop the clock, or let it continue."""
        if still and self._stands_at is None:
            self._stands_at = self.elapsed()
        elif not still and self._stands_at is not None:
            self._began, self._stands_at = time.monotonic() - self._stands_at, None

    def elapsed(self) -> float:
        if self._stands_at is not None:
            return self._stands_at
        return 0.0 if self._began is None else time.monotonic() - self._began

    def due(self) -> int:
        """The number of rows that are due by now."""
        return int(self.seconds.searchsorted(self.elapsed(), side="right"))

    def ended(self) -> bool:
        return self.due() == len(self.seconds)


class PacedReading:
    def __init__(self, source: Paced, row: int) -> None:
        self._source = source
        self._row = row
        self._closed = threading.Event()

    def __iter__(self) -> PacedReading:
        return self

    def __next__(self) -> Piece:
        source, first = self._source, self._row
        if first == source.rows.num_rows:
            raise StopIteration
        while (wait_s := source.seconds[first] - source.elapsed()) > 0:
            if self._closed.wait(min(wait_s, WAKE_S)):
                raise StopIteration
        self._row = max(first + 1, source.due())
        return Piece(source.rows.slice(first, self._row - first), self._row)

    def close(self) -> None:
        self._closed.set()
