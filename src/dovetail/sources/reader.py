"""Reads sources to their end, with retries, and turns them into the events that a join consumes.

A source that fails is reopened at its last position, after increasing pauses. Each source is read by its own thread
into a bounded queue:

    left source  --thread-->  ┌──────┐
                              │ line │ --> Arrival, Stall, End
    right source --thread-->  └──────┘

A full queue blocks its thread (backpressure), so nothing is dropped and a source is not read faster than it is joined.
If the queue is empty and no row has arrived for `wait_ms`, that is a stall: the operator does pending work until rows
arrive. A source that is being reopened counts as stalled until retries are exhausted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import slices
from dovetail.columns.taking import take_rows
from dovetail.core.retrying import backoff, jittered
from dovetail.core.rows import Arrival, End, Event, Side, Stall
from dovetail.core.threads import QueueClosedError
from dovetail.errors import DovetailError, SourceError
from dovetail.options import WAIT_MS
from dovetail.sources.protocol import (
    Piece,
    Position,
    Reading,
    Source,
    cause_of,
    check_piece,
    check_reading,
    conform_schema,
    joined_schema,
)
from dovetail.visible import visible

log = logging.getLogger("dovetail.sources")
IDLE_S = 0.025  # without rows; longer than the usual gap between batches
ADVICE = "The results so far are valid; results of rows that did not arrive are missing."
LARGE = 4  # times the capacity of a queue: larger batches are divided into copies
LEAVING_S = 0.5  # wait for threads when a join is closed; one blocked in a source ends when that returns


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed source is reopened without receiving a batch, and the pauses between attempts.

    Example:
        >>> from dovetail.sources import Retry
        >>> [Retry(tries=4).pause_s(failures) for failures in (1, 2, 3)]
        [0.1, 0.2, 0.4]
    """

    tries: int = 8
    first_pause_ms: float = 100.0
    longest_pause_ms: float = 5000.0

    def pause_s(self, failures: int) -> float:
        """How long to wait after this many consecutive failures: doubled each time, up to the longest pause."""
        return backoff(failures, self.first_pause_ms, self.longest_pause_ms) / 1000


class TimeIsOverError(Exception):
    """Nothing has arrived within the caller's time limit."""


class Reader:
    """Returns the pieces of a source, each once. `who` and `advice` are used in error messages."""

    def __init__(self, source: Source, retry: Retry | None = None, who: str = "the source", advice: str = "") -> None:
        self._source = source
        self._retry = retry or Retry()
        self._who = who
        self._advice = advice
        self._reading: Reading | None = None
        self._closed = threading.Event()
        self.schema = joined_schema(source)
        self.rows = 0  # received so far

    def pieces(self, position: Position = None, until: Position = None) -> Iterator[Piece]:
        """From a position to the end or to another position. Ends early when it is closed from another thread.

        Any failure that cannot be retried is raised as a SourceError: if the thread died silently, others would wait
        forever.
        """
        failures = 0
        while not self._closed.is_set():
            try:
                for piece in self._once(position, until):
                    failures, position = 0, piece.position
                    self.rows += piece.batch.num_rows
                    yield piece
                    del piece  # freed before the next one is read
                return
            except GeneratorExit:
                raise
            except BaseException as error:
                failures += 1
                final = isinstance(error, DovetailError) or not isinstance(error, Exception)
                if final or not self._source.resumable or failures >= self._retry.tries:
                    raise self._source_error(failures, error) from error
                pause_s = jittered(self._retry.pause_s(failures))
                if not self._closed.is_set():
                    told = (self._who, visible(self._source.name, one_line=True), self.rows, pause_s, cause_of(error))
                    log.warning("%s (%s) failed after %d rows, retrying in %.1f s: %s", *told)
                self._closed.wait(pause_s)

    def close(self) -> None:
        """From any thread: a read in progress ends or fails soon."""
        self._closed.set()
        if self._reading is not None:
            _close(self._reading)

    def _once(self, position: Position, until: Position) -> Iterator[Piece]:
        # Sources that always read to the end are not passed one.
        ends = () if until is None else (until,)
        self._reading = reading = check_reading(self._source.open(position, *ends), self._source)
        try:
            while not self._closed.is_set() and (piece := next(reading, None)) is not None:
                piece = check_piece(piece, self._source)
                piece = Piece(self._check_batch(piece.batch), piece.position)
                yield piece
                del piece
        finally:
            _close(reading)

    def _check_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return conform_schema(batch, self.schema)

    def _source_error(self, failures: int, error: BaseException) -> SourceError:
        tries = f"after {failures} tries" if failures > 1 else "at the first try"
        if isinstance(error, DovetailError):
            hope = "A retry cannot fix this."
        elif self._source.resumable:
            hope = f"It could not be resumed: no batch {tries}."
        else:
            hope = "It cannot be resumed: it has no positions."
        told = f"{self._who} ({self._source.name}) failed after {self.rows:,} rows: {cause_of(error)}. {hope}"
        return SourceError(f"{told} {self._advice}".rstrip())


def _close(reading: Reading) -> None:
    """Close a connection. A broken one may raise, and a running generator cannot be closed."""
    with suppress(Exception):
        reading.close()


class Feed:
    """The events of several sources in the order of arrival. Close it to stop the threads."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        capacity_bytes: int,
        batch_rows: int,
        wait_ms: float = WAIT_MS,
        retry: Retry | None = None,
        left_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`left_s`: how much longer to wait for rows. None: without limit."""
        names = _names(len(sources))
        self._readers = [
            Reader(source, retry, f"the {name} source", ADVICE) for name, source in zip(names, sources, strict=True)
        ]
        self._batch_rows = batch_rows
        self._wait_s = wait_ms / 1000
        self._line = _Line(capacity_bytes, len(sources), left_s)
        self._threads = [
            threading.Thread(target=self._read, args=(number,), name=f"dovetail-{name}", daemon=True)
            for number, name in enumerate(names)
        ]

    def events(self) -> Iterator[Event]:
        """Events until all sources have ended. A source that cannot be resumed raises after its rows were consumed."""
        for thread in self._threads:
            thread.start()
        live = len(self._readers)
        while live:
            event = self._line.take(self._wait_s)
            if isinstance(event, SourceError):
                raise event
            live -= isinstance(event, End)
            yield event

    def close(self) -> None:
        self._line.close()
        for reader in self._readers:
            reader.close()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():  # an abandoned join may be closed in any
                thread.join(LEAVING_S)

    # Run by the threads.

    def _read(self, number: int) -> None:
        with suppress(QueueClosedError):
            try:
                for piece in self._readers[number].pieces():
                    self._put(number, piece.batch)
                    del piece
            except SourceError as broken:
                self._line.put(broken)
            else:
                self._line.put(End(number))

    def _put(self, number: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            nbytes = max(1, int(batch.nbytes))
            rows = max(1, self._line.capacity_bytes * batch.num_rows // nbytes)
            # Slices of a large batch would keep all of it in memory, long after the source has freed it.
            is_large = nbytes > LARGE * self._line.capacity_bytes
            for piece in slices(batch, min(rows, self._batch_rows)):
                self._line.put(Arrival(number, _copy(piece) if is_large else piece))


def _copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    return take_rows(batch, np.arange(batch.num_rows))


def _names(inputs: int) -> list[str]:
    """The names of the sources in messages."""
    return [side.name.lower() for side in Side] if inputs == len(Side) else [f"{n + 1}." for n in range(inputs)]


class _Line:
    """Events in the order of arrival. The waiting rows of one input take at most `capacity_bytes`, or are one batch."""

    def __init__(self, capacity_bytes: int, inputs: int, left_s: Callable[[], float | None] = lambda: None) -> None:
        self.capacity_bytes = capacity_bytes
        self._left_s = left_s
        self._events: deque[Event | SourceError] = deque()
        self._bytes = [0] * inputs
        self._changed = threading.Condition()
        self._arrived = time.monotonic()
        self._stalls = 0  # since the last arrival that was consumed
        self._closed = False

    def put(self, event: Event | SourceError) -> None:
        """Wait for a free slot, then enqueue."""
        with self._changed:
            if isinstance(event, Arrival):
                number, size = event.input, event.batch.nbytes
                self._changed.wait_for(
                    lambda: self._closed or not self._bytes[number] or self._bytes[number] + size <= self.capacity_bytes
                )
                self._bytes[number] += size
            if self._closed:
                raise QueueClosedError
            self._events.append(event)
            self._arrived = time.monotonic()
            self._changed.notify_all()

    def take(self, wait_s: float) -> Event | SourceError:
        """The next event. A stall if no rows have come for `wait_s`, and a second one after a longer IDLE_S."""
        with self._changed:
            stalls_s = (wait_s, IDLE_S) if wait_s < IDLE_S else (wait_s,)
            if self._stalls < len(stalls_s):
                left_s = max(0.0, self._arrived + stalls_s[self._stalls] - time.monotonic())
                if not self._changed.wait_for(self.waits, left_s):
                    self._stalls += 1
                    return Stall(None, self.waits, is_short=self._stalls < len(stalls_s))
            if not self._changed.wait_for(self.waits, self._left_s()):
                raise TimeIsOverError
            self._stalls = 0
            event = self._events.popleft()
            if isinstance(event, Arrival):
                self._bytes[event.input] -= event.batch.nbytes
                self._changed.notify_all()
            return event

    def waits(self) -> bool:
        """Whether an event is waiting."""
        return bool(self._events)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
