"""A table whose rows come when they are due, in real time."""

from __future__ import annotations

import threading
import time

import pyarrow as pa

from dovetail.batch import one_batch
from dovetail.sources.protocol import Piece
from dovetail.sources.values import Seconds


class Paced:
    """Gives each row so many seconds after the source was first opened; rows that are due together come together."""

    resumable = True

    def __init__(self, table: pa.Table, seconds: Seconds, name: str = "paced table") -> None:
        self.name = name
        self.schema: pa.Schema = table.schema
        self.rows = one_batch(table.combine_chunks(), table.schema)
        self.seconds = seconds
        self._began = 0.0

    def open(self, position: int | None = None) -> PacedReading:
        if position is None:
            self._began = time.monotonic()
        return PacedReading(self, position or 0)

    def elapsed(self) -> float:
        return time.monotonic() - self._began


class PacedReading:
    def __init__(self, source: Paced, row: int) -> None:
        self._source = source
        self._row = row
        self._closed = threading.Event()

    def __next__(self) -> Piece:
        source, first = self._source, self._row
        if first == source.rows.num_rows:
            raise StopIteration
        wait_s = source.seconds[first] - source.elapsed()
        if wait_s > 0 and self._closed.wait(wait_s):
            raise StopIteration
        self._row = max(first + 1, int(source.seconds.searchsorted(source.elapsed(), side="right")))
        return Piece(source.rows.slice(first, self._row - first), self._row)

    def close(self) -> None:
        self._closed.set()
