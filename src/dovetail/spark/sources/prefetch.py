"""Prefetches rows from a source for Spark, in a separate thread.

    source --thread--> │ piece │ piece │ piece │     latest(start): how far a micro-batch after `start` can go
                       └ start        latest ┘       between(start, latest): its rows

Requests never wait for the source: a stalled source does not stall the query. A full buffer blocks the thread
(backpressure), so a source is not read faster than it is joined. A range can be requested again until Spark has moved
past it; then it is dropped.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.errors import SourceError
from dovetail.sources.protocol import Position
from dovetail.sources.reader import Reader

ROOM_BYTES = 64 << 20
ADVICE = "Restart the query when the source is available: it resumes where it stopped."
READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "key": lambda parts: tuple(map(_decode_value, parts)),
}


class _Held(NamedTuple):
    batch: pa.RecordBatch
    after: Offset


class PrefetchBuffer:
    """The rows after an offset. With `poll_s` the source never ends: after its end it is asked again for more rows."""

    def __init__(
        self,
        reader: Reader,
        start: Offset,
        until: Position = None,
        poll_s: float | None = None,
        capacity: int = ROOM_BYTES,
    ) -> None:
        self._reader = reader
        self._until = until
        self._poll_s = poll_s
        self._capacity = capacity
        self._last = start
        self._held: deque[_Held] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._finished = False
        self._error: SourceError | None = None
        self._thread = threading.Thread(target=self._read, name="dovetail-inflow", daemon=True)
        self._thread.start()

    def latest(self, start: Offset, most_rows: int | None, wait_s: float | None) -> Offset:
        """The end of a micro-batch. `start` itself if nothing has arrived after `wait_s`. None waits for all rows."""
        with self._changed:
            self._forget(start)
            self._changed.wait_for(lambda: self._held or self._finished, wait_s)
            reached, rows = start, 0
            for batch, after in self._held:
                rows += batch.num_rows
                if rows > (most_rows or rows) and reached is not start:
                    return reached
                reached = after
            if reached is start and self._error is not None:
                raise self._error
            ended = self._finished and self._error is None and self._until is None
            return replace(reached, ended=reached.ended or ended)

    def rows_between(self, start: Offset, end: Offset) -> list[pa.RecordBatch] | None:
        """The rows of a micro-batch. None if they were read in an earlier run, and are not buffered."""
        with self._changed:
            found = [held for held in self._held if start.rows < held.after.rows <= end.rows]
        rows = sum(held.batch.num_rows for held in found)
        return [held.batch for held in found] if rows == end.rows - start.rows else None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._reader.close()

    def _forget(self, start: Offset) -> None:
        while self._held and self._held[0].after.rows <= start.rows:
            self._bytes -= self._held.popleft().batch.nbytes
            self._changed.notify_all()

    # Run by the thread.

    def _read(self) -> None:
        try:
            self._read_through()
            while self._poll_s is not None and not self._pause(self._poll_s):
                self._read_through()
        except SourceError as error:
            self._error = error
        with self._changed:
            self._finished = not self._closed
            self._changed.notify_all()

    def _read_through(self) -> None:
        for batch, position in self._reader.pieces(self._last.position, self._until):
            with self._changed:
                fits = lambda: self._closed or not self._held or self._bytes + batch.nbytes <= self._capacity  # noqa: B023, E731 (used at once)
                self._changed.wait_for(fits)
                if self._closed:
                    return
                self._last = Offset(self._last.rows + batch.num_rows, position)
                self._held.append(_Held(batch, self._last))
                self._bytes += batch.nbytes
                self._changed.notify_all()

    def _pause(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, seconds)


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a stream, stored in Spark's checkpoint as JSON of simple values."""

    rows: int = 0  # from the start
    position: Position = None  # after these rows: a row number, or the last key
    ended: bool = False  # and Spark was notified

    @classmethod
    def read(cls, document: dict[str, Any]) -> Offset:
        return cls(document["rows"], _decode_value(json.loads(document["position"])), document["ended"])

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "position": json.dumps(_encode_value(self.position)), "ended": self.ended}


def _encode_value(value: Any) -> Any:
    match value:
        case tuple():
            return {"key": [_encode_value(part) for part in value]}
        case datetime():  # is a date as well
            return {"datetime": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case time():
            return {"time": value.isoformat()}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": value.hex()}
    return value


def _decode_value(document: Any) -> Any:
    if isinstance(document, dict):
        ((kind, value),) = document.items()
        return READERS[kind](value)
    return document
