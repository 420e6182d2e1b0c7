"""The residence rule: which pairs were already joined in memory.

Every row becomes resident at one tick of a logical clock (`arrived`) and is evicted at a later one (`left`; NEVER while
it is in memory). Each tick belongs to one event. Two rows were joined in memory if and only if their residences
overlap:

    max(arrived) < min(left)

Rows of one arriving batch share a tick, and so do all rows of one flush. The DINER and RPJ papers call the two ticks
ATS and DTS. Deviation: their closed intervals on a coarse clock would lose pairs, so here every tick belongs to one
event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ticks = NDArray[np.int64]

NEVER = 2**62


class Clock:
    """A counter that never returns the same tick twice."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def tick(self) -> int:
        self.now += 1
        return self.now


def met_in_memory(arrived_a: Ticks, left_a: Ticks, arrived_b: Ticks, left_b: Ticks) -> NDArray[np.bool_]:
    """Which of the aligned pairs were in memory together when the later of the two rows arrived."""
    met: NDArray[np.bool_] = np.maximum(arrived_a, arrived_b) < np.minimum(left_a, left_b)
    return met


class ArrivalTicks:
    """The arrival ticks of many rows, run-length encoded: rows of a batch share a tick."""

    def __init__(self) -> None:
        self._ticks: Ticks = np.empty(0, np.int64)
        self._ends: Ticks = np.empty(0, np.int64)  # of each run: the position after its last row
        self._runs = 0

    def __len__(self) -> int:
        return int(self._ends[self._runs - 1]) if self._runs else 0

    @property
    def nbytes(self) -> int:
        return self._ticks.nbytes + self._ends.nbytes

    def __getitem__(self, positions: Any) -> Any:
        """The ticks of the rows at these positions."""
        return self._ticks[np.searchsorted(self._ends[: self._runs], positions, side="right")]

    def append(self, arrived: int | Ticks, rows: int) -> None:
        """Append rows that arrived at one tick, or each at its own."""
        if not rows:
            return
        ticks = np.atleast_1d(np.asarray(arrived, np.int64))
        starts = np.flatnonzero(np.concatenate([[True], ticks[1:] != ticks[:-1]]))
        ends = len(self) + (np.append(starts[1:], len(ticks)) if len(ticks) == rows else np.array([rows]))
        runs = self._runs + len(starts)
        if runs > len(self._ticks):
            size = runs + self._runs // 8
            self._ticks, self._ends = np.resize(self._ticks, size), np.resize(self._ends, size)
        self._ticks[self._runs : runs], self._ends[self._runs : runs] = ticks[starts], ends
        self._runs = runs

    def remove(self, gone: NDArray[np.bool_]) -> None:
        """Remove the marked rows. The rows after them move up."""
        kept = np.concatenate([[0], np.cumsum(~gone, dtype=np.int32)])
        ends = kept[self._ends[: self._runs]].astype(np.int64)
        alive = np.diff(ends, prepend=0) > 0
        self._ticks, self._ends = self._ticks[: self._runs][alive], ends[alive]
        self._runs = len(self._ends)
