"""A source controlled by a test: returns rows, waits at gates, breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa

from dovetail.sources import Piece


class Gate:
    """A source waits at row `at` until the gate is opened; closing the reader also opens it."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.opened = threading.Event()
        self.reached = threading.Event()


class Scripted:
    """The rows of a table, in batches; at each row in `breaks` the source breaks once."""

    name = "scripted"

    def __init__(
        self,
        table: pa.Table,
        *,
        batch_rows: int = 7,
        gates: list[Gate] | None = None,
        breaks: list[int] | None = None,
        resumable: bool = True,
        error: Exception | None = None,
    ) -> None:
        self.schema = table.schema
        self.resumable = resumable
        self.rows = table.combine_chunks().to_batches()[0] if table.num_rows else None
        self.batch_rows = batch_rows
        self.gates = gates or []
        self.breaks = list(breaks or [])
        self.error = error or ConnectionError("the line is dead")
        self.opened: list[int] = []  # the start row of each open
        self.given = 0  # number of rows, from the first
        self.readings: list[ScriptedReading] = []

    def open(self, position: int | None = None) -> ScriptedReading:
        self.opened.append(position or 0)
        self.readings.append(ScriptedReading(self, position or 0))
        return self.readings[-1]


class ScriptedReading:
    def __init__(self, source: Scripted, row: int) -> None:
        self._source = source
        self._row = row
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        source, first = self._source, self._row
        for gate in source.gates:
            if gate.at == first:
                gate.reached.set()
                while not gate.opened.wait(0.01) and not self.closed.is_set():
                    pass
        if first in source.breaks:
            source.breaks.remove(first)
            raise source.error
        if source.rows is None or first >= source.rows.num_rows:
            raise StopIteration
        stops = [first + source.batch_rows, *(gate.at for gate in source.gates), *source.breaks]
        self._row = min(stop for stop in stops if stop > first)
        batch = source.rows.slice(first, self._row - first)
        source.given = max(source.given, first + batch.num_rows)
        return Piece(batch, self._row)

    def close(self) -> None:
        self.closed.set()
