"""A workload: tables and when each of their rows arrives, to be played in real time or on a simulated clock."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import one_batch
from dovetail.errors import InputError
from dovetail.sources.protocol import Piece
from dovetail.sources.values import Seconds

WAKE_S = 0.05  # to see whether the clock has started, or the reading was left


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows are in order of arrival; `seconds[i]` belongs to `tables[i]`."""

    tables: tuple[pa.Table, ...]
    seconds: tuple[Seconds, ...]

    def __post_init__(self) -> None:
        for table, seconds in zip(self.tables, self.seconds, strict=True):
            if table.num_rows != len(seconds) or np.any(np.diff(seconds) < 0):
                raise InputError(
                    f"a table of {table.num_rows:,} rows needs as many arrival times, in ascending order; "
                    f"got {len(seconds):,}."
                )

    @property
    def end_s(self) -> float:
        """When the last row arrives."""
        return max((float(seconds[-1]) for seconds in self.seconds if len(seconds)), default=0.0)

    def merged(self) -> tuple[NDArray[np.int64], Seconds]:
        """The input and the time of each arrival, all inputs in one line."""
        inputs = np.repeat(np.arange(len(self.seconds)), [len(seconds) for seconds in self.seconds])
        seconds = np.concatenate(self.seconds)
        order = np.argsort(seconds, kind="stable")
        return inputs[order], seconds[order]

    def sources(self, speed: float = 1.0) -> tuple[Paced, ...]:
        """The tables as sources that give each row when it is due, `speed` times as fast."""
        return tuple(Paced(table, seconds / speed) for table, seconds in zip(self.tables, self.seconds, strict=True))


class Paced:
    """Gives each row so many seconds after the source was begun; rows that are due together come together.

    Opening it from the start begins it. Until then, rows are due at 0 or earlier, or not at all.
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
        """Stop the clock, or let it go on from where it stands."""
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
