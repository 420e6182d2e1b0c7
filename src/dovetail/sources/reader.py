"""A source read to its end over breaks: it is opened again where it was, after pauses that grow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from dovetail.errors import DovetailError, SourceError
from dovetail.sources.local import conform_schema, joined_schema
from dovetail.sources.protocol import Piece, Position, Reading, Source, cause_of

log = logging.getLogger("dovetail.sources")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a source that broke is opened again, in a row without a batch, and the pauses between."""

    tries: int = 8
    first_pause_ms: float = 100.0
    longest_pause_ms: float = 5000.0

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row: twice as long each time, up to the longest pause."""
        return min(self.first_pause_ms * 2.0 ** (failures - 1), self.longest_pause_ms) / 1000


class Reader:
    """Gives the pieces of a source, each once. `who` and `advice` are for people, in errors."""

    def __init__(self, source: Source, retry: Retry | None = None, who: str = "the source", advice: str = "") -> None:
        self._source = source
        self._retry = retry or Retry()
        self._who = who
        self._advice = advice
        self._reading: Reading | None = None
        self._closed = threading.Event()
        self.schema = joined_schema(source)
        self.rows = 0  # that came

    def pieces(self, position: Position = None, until: Position = None) -> Iterator[Piece]:
        """From a position on, to the end or to another position; ends early when it is closed from another thread.

        A source that cannot go on raises SourceError, whatever it was: a thread that dies silently would leave others
        waiting.
        """
        failures = 0
        while not self._closed.is_set():
            try:
                for piece in self._once(position, until):
                    failures, position = 0, piece.position
                    self.rows += piece.batch.num_rows
                    yield piece
                return
            except GeneratorExit:
                raise
            except BaseException as error:
                failures += 1
                final = isinstance(error, DovetailError) or not isinstance(error, Exception)
                if final or not self._source.resumable or failures >= self._retry.tries:
                    raise self._source_error(failures, error) from error
                pause_s = self._retry.pause_s(failures)
                if not self._closed.is_set():
                    told = (self._who, self._source.name, self.rows, pause_s, cause_of(error))
                    log.warning("%s (%s) failed after %d rows, retrying in %.1f s: %s", *told)
                self._closed.wait(pause_s)

    def close(self) -> None:
        """From any thread: a read under way ends or fails soon."""
        self._closed.set()
        if self._reading is not None:
            _close(self._reading)

    def _once(self, position: Position, until: Position) -> Iterator[Piece]:
        # Sources that know no other end than their own are not asked for one.
        ends = () if until is None else (until,)
        self._reading = reading = self._source.open(position, *ends)
        try:
            while not self._closed.is_set() and (piece := next(reading, None)) is not None:
                yield Piece(self._check_batch(piece.batch), piece.position)
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
    """Let go of a connection; one that is broken already may complain, and a generator that runs cannot be closed."""
    with suppress(Exception):
        reading.close()
