"""Streams whose rows are read by parallel tasks. The driver handles only positions, never rows.

    server --number of rows, keys, endpoints--> driver: a micro-batch is a list of ranges
    server --------------------------- rows -----------------------------> a task for each range

This is for servers that announce their rows before they send them. A task waits for its rows, so a source that stalls
within a range delays the micro-batch. The reader on the driver (remote.py) avoids that.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from dovetail.core.retrying import jittered
from dovetail.errors import DovetailError, SourceError
from dovetail.sources.arrow_flight import FlightEndpoint, FlightSource
from dovetail.sources.protocol import Position, Source, cause_of
from dovetail.sources.reader import Reader, Retry
from dovetail.spark.sources.columns import Columns
from dovetail.spark.sources.prefetch import ADVICE, Offset
from dovetail.spark.versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

T = TypeVar("T")


class Span(InputPartition):
    """The rows that one task reads."""

    def __init__(self, start: Position, until: Position, rows: int | None, snapshot: str | None = None) -> None:
        self.start, self.until, self.rows, self.snapshot = start, until, rows, snapshot
        self.ended = False  # this one also marks the end of the stream


class Ranges(ABC):
    """How a source is divided. Lives on the driver; tasks have a copy, for `source_of`."""

    @abstractmethod
    def latest(self, start: Offset, rows: int) -> Offset:
        """The end of a micro-batch after an offset. `start` itself if there are no more rows yet."""

    @abstractmethod
    def cut(self, start: Offset, end: Offset) -> list[Span]:
        """The spans between two offsets. Also called after a restart."""

    @abstractmethod
    def source_of(self, span: Span) -> tuple[Source, tuple[Position, ...]]:
        """The source that a task reads, with its start and end."""

    def stop_now(self) -> None:  # noqa: B027  most have nothing to do
        """From here on, only rows that are available now count."""

    def close(self) -> None:  # noqa: B027
        """Release what is kept for the tasks of a micro-batch."""


class RangedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, ranges: Ranges, columns: Columns, name: str, retry: Retry, most_rows: int, marks_end: bool
    ) -> None:
        self._ranges, self._columns, self._name = ranges, columns, name
        self._retry, self._most_rows, self._marks_end = retry, most_rows, marks_end
        self._failures, self._not_before = 0, 0.0
        self._only_now = False

    def initialOffset(self) -> dict[str, Any]:
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._only_now = True
        self._ask(self._ranges.stop_now, None)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = Offset.read(start)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._most_rows
        reached = self._ask(lambda: self._ranges.latest(before, rows), before)
        moved = reached.rows > before.rows or (self._marks_end and reached.ended > before.ended)
        return reached.to_json() if moved else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = Offset.read(start), Offset.read(end)
        spans = self._ranges.cut(before, after) if after.rows > before.rows else []
        if self._marks_end and after.ended and not before.ended:
            spans = spans or [Span(None, None, 0)]
            spans[-1].ended = True
        return spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        if partition.rows != 0:
            yield from self._columns.fit_batches(self._read(partition))
        if partition.ended:
            yield self._columns.end()

    def commit(self, end: dict[str, Any]) -> None:
        self._ranges.close()

    def stop(self) -> None:
        self._ranges.close()

    def _read(self, span: Span) -> Iterator[pa.RecordBatch]:
        source, bounds = self._ranges.source_of(span)
        rows = 0
        for batch, _ in Reader(source, self._retry).pieces(*bounds):
            rows += batch.num_rows
            yield batch
        if span.rows is not None and rows != span.rows:
            raise SourceError(
                f"{self._name} has changed its rows: {rows:,} instead of {span.rows:,} between {span.start} and "
                f"{span.until}. Without the same rows a micro-batch cannot be repeated."
            )

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        """Ask the server. If it does not answer, it counts as stalled until all tries are used up.

        A query with trigger(availableNow=True) would end there, so it waits instead.
        """
        if self._only_now:
            time.sleep(max(0.0, self._not_before - time.monotonic()))
        elif time.monotonic() < self._not_before:
            return otherwise
        try:
            answer = question()
        except DovetailError:
            raise
        except Exception as error:
            self._failures += 1
            if self._failures >= self._retry.tries:
                raise SourceError(
                    f"{self._name} failed: {cause_of(error)}. No answer after {self._failures} tries. {ADVICE}"
                ) from error
            self._not_before = time.monotonic() + jittered(self._retry.pause_s(self._failures))
            return self._ask(question, otherwise) if self._only_now else otherwise
        self._failures = 0
        return answer


class RowRanges(Ranges):
    """Ranges of a Flight server that supports offsets: positions are row numbers."""

    def __init__(self, source: FlightSource, parts: int) -> None:
        self._source, self._parts = source, parts
        self._now: int | None = None

    def stop_now(self) -> None:
        self._now = self._source.available_rows().rows

    def latest(self, start: Offset, rows: int) -> Offset:
        there, ended = self._source.available_rows()
        reach = there if self._now is None else min(there, self._now)
        reached = max(start.rows, min(reach, start.rows + rows))  # a restarted server may have fewer rows
        return Offset(reached, reached, start.ended or (ended and reached == there))

    def cut(self, start: Offset, end: Offset) -> list[Span]:
        rows = end.rows - start.rows
        parts = max(1, min(self._parts, rows))
        bounds = [start.rows + rows * part // parts for part in range(parts + 1)]
        return [Span(low, high, high - low) for low, high in pairwise(bounds)]

    def source_of(self, span: Span) -> tuple[Source, tuple[Position, ...]]:
        return self._source, (span.start, span.until)


class EndpointRanges(Ranges):
    """Ranges of a Flight server with several endpoints: positions count endpoints, and a task reads one of them.

    The number of rows of an endpoint is unknown until it is read.
    """

    def __init__(self, source: FlightSource, parts: int) -> None:
        self._source, self._parts = source, parts

    def latest(self, start: Offset, rows: int) -> Offset:
        count = self._source.endpoint_count()
        reached = min(count, start.rows + self._parts)
        return Offset(reached, (reached, count), start.ended or reached == count)

    def cut(self, start: Offset, end: Offset) -> list[Span]:
        count = end.position[1]
        return [Span(number, count, None) for number in range(start.rows, end.rows)]

    def source_of(self, span: Span) -> tuple[Source, tuple[Position, ...]]:
        return FlightEndpoint(self._source, span.start, span.until), ()


class KeyRanges(Ranges):
    """Ranges of PostgreSQL: key ranges, counted by the server. Tasks of a micro-batch share one snapshot."""

    def __init__(self, source: Any, parts: int, poll_s: float | None) -> None:
        self._source, self._parts, self._poll_s = source, parts, poll_s
        self._now: Position = None
        self._only_now = False
        self._asked = float("-inf")
        self._finished = False
        self._snapshot: Any = None
        self._planned: tuple[int, int, list[Span]] | None = None  # the last micro-batch

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_snapshot": None, "_planned": None}

    def stop_now(self) -> None:
        self._only_now, self._now = True, self._source.last_key()

    def latest(self, start: Offset, rows: int) -> Offset:
        if start.ended or self._finished:
            return replace(start, ended=True)
        if self._poll_s is not None and time.monotonic() < self._asked + self._poll_s:
            return start
        self.close()
        spans = [] if self._only_now and self._now is None else self._cut(start.position, self._now, rows, rows)
        more = sum(span.rows or 0 for span in spans)
        reached = Offset(start.rows + more, spans[-1].until if spans else start.position)
        self._planned = (start.rows, reached.rows, spans)
        if more == rows:
            return reached
        self._asked = time.monotonic()  # there are no more rows for now
        self._finished = self._poll_s is None or self._only_now
        if not spans:
            self.close()
        return replace(reached, ended=self._finished)

    def cut(self, start: Offset, end: Offset) -> list[Span]:
        if self._planned is not None and self._planned[:2] == (start.rows, end.rows):
            return self._planned[2]
        self.close()
        spans, wanted = self._cut(start.position, end.position, None, end.rows - start.rows), end.rows - start.rows
        found = sum(span.rows or 0 for span in spans)
        if found != wanted:
            raise SourceError(
                f"{self._source.name} has changed its rows: {found:,} instead of {wanted:,} between {start.position} "
                f"and {end.position}. The interrupted micro-batch cannot be repeated."
            )
        return spans

    def source_of(self, span: Span) -> tuple[Source, tuple[Position, ...]]:
        return self._source.seen_in(span.snapshot), (span.start, span.until)

    def close(self) -> None:
        if self._snapshot is not None:
            with suppress(Exception):
                self._snapshot.close()
            self._snapshot = None

    def _cut(self, start: Position, until: Position, most: int | None, rows: int) -> list[Span]:
        from dovetail.sources.postgresql import Snapshot  # needs psycopg

        self._snapshot = Snapshot(self._source)
        ranges = self._source.cut(self._snapshot.connection, start, until, most, max(1, -(-rows // self._parts)))
        return [Span(one.start, one.until, one.rows, self._snapshot.name) for one in ranges]
