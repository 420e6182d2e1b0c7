"""An ordered index from keys to rows: insert and delete in batches, look up ranges, scan from either end.

Keys live in a few sorted runs whose sizes grow geometrically, as in a log-structured merge tree: a batch becomes a run,
and runs of similar size are merged. Insertion costs O(log n) copies per row over its life, a look-up one binary search
per run. Deleted rows are marked, and dropped at the next merge.

Keys are int64 order codes (see core/codes.py), or Python objects for types without codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.parts import chunk_ranges
from dovetail.core.rows import Rows
from dovetail.kernels.searching import expand

Keys = NDArray[Any]

MOST = 1 << 20  # pairs per piece
FAN = 4  # a run is merged with its older neighbour unless that is this many times larger


class SortedKeys(NamedTuple):
    """A run: keys and their rows."""

    keys: Keys  # ascending
    rows: Rows  # 32-bit in an index

    def ranges(
        self, low: Keys | None, high: Keys | None, low_closed: bool, high_closed: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The start and the number of the keys between low[i] and high[i]."""
        starts = np.zeros(_probes(low, high), np.int64)
        ends = np.full(len(starts), len(self.keys), np.int64)
        if low is not None:
            starts = np.searchsorted(self.keys, low, side="left" if low_closed else "right").astype(np.int64)
        if high is not None:
            ends = np.searchsorted(self.keys, high, side="right" if high_closed else "left").astype(np.int64)
        return starts, np.maximum(ends - starts, 0)


class OrderedIndex:
    def __init__(self) -> None:
        self._runs: list[SortedKeys] = []  # oldest and largest first
        self._dead = np.zeros(0, np.bool_)  # by row
        self._deleted = 0  # number of deleted entries in the runs
        self._entries = 0

    def __len__(self) -> int:
        return self._entries - self._deleted

    @property
    def nbytes(self) -> int:
        return sum(run.keys.nbytes + run.rows.nbytes for run in self._runs) + self._dead.nbytes

    def insert(self, keys: Keys, rows: Rows) -> None:
        """Add rows with their keys. A row number is used only once, also after its deletion."""
        if len(rows) == 0:
            return
        order = np.argsort(keys, kind="stable")
        self._runs.append(SortedKeys(keys[order], rows[order].astype(np.int32)))
        self._entries += len(rows)
        while len(self._runs) > 1 and len(self._runs[-2].rows) < FAN * len(self._runs[-1].rows):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(self._merge_runs([older, newer]))

    def delete(self, rows: Rows) -> None:
        """Delete rows that are in the index."""
        if len(rows):
            self._grow(int(rows.max()) + 1)
        self._dead[rows] = True
        self._deleted += len(rows)
        if 2 * self._deleted > self._entries:
            self._runs = [run for run in [self._merge_runs(self._runs)] if len(run.rows)] if self._runs else []

    def renumber(self, numbers: Rows) -> None:
        """Row i becomes row `numbers[i]`. It is removed if that is negative."""
        runs = []
        for run in self._runs:
            rows = numbers[run.rows]
            stay = rows >= 0
            if self._deleted:
                stay &= ~self._is_dead(run.rows)
            if stay.any():
                runs.append(SortedKeys(run.keys[stay], rows[stay].astype(np.int32)))
        self._runs = runs
        self._entries, self._deleted = sum(len(run.rows) for run in runs), 0
        self._dead = np.zeros(0, np.bool_)

    def find(
        self,
        low: Keys | None,
        high: Keys | None,
        low_closed: bool = True,
        high_closed: bool = True,
        *,
        most: int = MOST,
    ) -> Iterator[tuple[Rows, Rows]]:
        """All (i, row) with low[i] <= key(row) <= high[i]. None is unbounded; bounds that are not closed are strict.

        In pieces of at most `most`, or one probe's matches in a run.
        """
        for run in list(self._runs):
            starts, counts = run.ranges(low, high, low_closed, high_closed)
            for start, end, pairs in chunk_ranges(counts, int(counts.sum()), most):
                probing, positions = expand(starts, counts, start, end, pairs)
                probing, rows = self._alive(probing, run.rows[positions])
                if len(rows):
                    yield probing, rows

    def count(
        self, low: Keys | None, high: Keys | None, low_closed: bool = True, high_closed: bool = True
    ) -> NDArray[np.int64]:
        """An upper bound on the number of rows that `find` returns for each i: deleted rows may be counted."""
        counts = np.zeros(_probes(low, high), np.int64)
        for run in self._runs:
            counts += run.ranges(low, high, low_closed, high_closed)[1]
        return counts

    def lookup(
        self, low: Keys | None, high: Keys | None, low_closed: bool = True, high_closed: bool = True
    ) -> tuple[Rows, Rows]:
        """All results of `find` at once."""
        found = list(self.find(low, high, low_closed, high_closed))
        none = np.empty(0, np.int64)
        return np.concatenate([none, *(p for p, _ in found)]), np.concatenate([none, *(r for _, r in found)])

    def smallest(self, count: int) -> tuple[Keys, Rows]:
        """The `count` rows with the smallest keys, ascending; ties in the order of insertion."""
        return self._end(count, largest=False)

    def largest(self, count: int) -> tuple[Keys, Rows]:
        """The `count` rows with the largest keys, descending; ties latest first."""
        keys, rows = self._end(count, largest=True)
        return keys[::-1], rows[::-1]

    def scan(self) -> tuple[Keys, Rows]:
        """All rows in key order."""
        return self.smallest(len(self))

    def _end(self, count: int, *, largest: bool) -> tuple[Keys, Rows]:
        """The `count` extreme rows, ascending: merged from the parts of the runs' ends that hold `count` live rows."""
        ends = [self._run_end(run, count, largest=largest) for run in self._runs]
        merged = (
            self._merge_runs(ends, forget=False) if ends else SortedKeys(np.empty(0, np.int64), np.empty(0, np.int64))
        )
        take = slice(max(0, len(merged.rows) - count), None) if largest else slice(0, count)
        return merged.keys[take], merged.rows[take].astype(np.int64)

    def _run_end(self, run: SortedKeys, count: int, *, largest: bool) -> SortedKeys:
        alive = np.flatnonzero(~self._is_dead(run.rows))
        keep = alive[max(0, len(alive) - count) :] if largest else alive[:count]
        return SortedKeys(run.keys[keep], run.rows[keep])

    def _merge_runs(self, runs: list[SortedKeys], *, forget: bool = True) -> SortedKeys:
        """Merge several runs into one. A stable sort of sorted runs is a merge, and runs come oldest first."""
        keys = np.concatenate([run.keys for run in runs])
        rows = np.concatenate([run.rows for run in runs])
        if forget and self._deleted:
            alive = ~self._is_dead(rows)
            gone = len(rows) - int(alive.sum())
            keys, rows = keys[alive], rows[alive]
            self._entries -= gone
            self._deleted -= gone
        order = np.argsort(keys, kind="stable")
        return SortedKeys(keys[order], rows[order])

    def _alive(self, probing: Rows, rows: Rows) -> tuple[Rows, Rows]:
        rows = rows.astype(np.int64)
        if not self._deleted:
            return probing, rows
        alive = ~self._is_dead(rows)
        return probing[alive], rows[alive]

    def _is_dead(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether rows are deleted. Rows after the last deleted one are not."""
        if not len(self._dead):
            return np.zeros(len(rows), np.bool_)
        dead: NDArray[np.bool_] = self._dead[np.minimum(rows, len(self._dead) - 1)] & (rows < len(self._dead))
        return dead

    def _grow(self, rows: int) -> None:
        if rows > len(self._dead):
            longer = np.zeros(max(rows, 2 * len(self._dead)), np.bool_)
            longer[: len(self._dead)] = self._dead
            self._dead = longer


def _probes(low: Keys | None, high: Keys | None) -> int:
    return len(low) if low is not None else len(high) if high is not None else 0
