"""Which pairs of a partition have been emitted, and how many may still be missing.

Rows of both sides that are (or were) on disk have been reported together if
    they were in memory together                                                     (storage/residence.py)
    or one was in memory, the other on disk, when memory and disk were joined        (an md-task, at one tick)
Pairs of runs that were merged with each other are recorded with the runs (operators/hashing/runs.py).

Missing pairs are counted by rows, whatever their keys: an arriving row may match all rows that are on disk at that
time; a memory-disk task settles that; a row that is spilled without one keeps its count on disk (RPJ section 5.3, where
the count is divided by the number of different keys of the partition).

Deviation: a spilled row counts the rows that were on disk when it arrived, and not, as printed, those that are on disk
when it is spilled: these were never added, and the sum would become negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.storage.residence import NEVER, Ticks, met_in_memory

Counts = NDArray[np.int64]


class ReportedPairs:
    def __init__(self, partitions: int) -> None:
        self.spilled: Counts = np.zeros((2, partitions), np.int64)  # rows ever flushed
        self.memory_pairs: Counts = np.zeros((2, partitions), np.int64)  # residents with the other side's disk
        self.disk_pairs: Counts = np.zeros(partitions, np.int64)  # disk with disk
        self._tasks = _lists(partitions)  # ticks of the memory-disk tasks
        self._flush_ticks = _lists(partitions)
        self._flushed_rows = _lists(partitions)  # up to and with each flush

    def record_arrivals(self, side: Side, counts: Counts) -> None:
        """So many rows of each partition arrive and are kept."""
        self.memory_pairs[side] += counts * self.spilled[side.other]

    def record_flush(self, side: Side, partition: int, arrived: Ticks, tick: int) -> None:
        """Record the eviction of rows of a partition; `arrived` has their ticks of arrival."""
        unsettled = arrived[arrived > self._last_task(side, partition)]
        pairs = int(self._spilled_before(side.other, partition, unsettled).sum())
        self.memory_pairs[side, partition] -= pairs
        self.disk_pairs[partition] += pairs
        self.spilled[side, partition] += len(arrived)
        self._flush_ticks[side][partition].append(tick)
        self._flushed_rows[side][partition].append(int(self.spilled[side, partition]))

    def met_disk(self, side: Side, partition: int, tick: int) -> None:
        """All residents of the partition have been joined with what the other side has on disk."""
        self._tasks[side][partition].append(tick)
        self.memory_pairs[side, partition] = 0

    def met_on_disk(self, partition: int) -> None:
        """Everything on disk has been joined."""
        self.disk_pairs[partition] = 0

    def find_reported(
        self, partition: int, arrived_l: Ticks, left_l: Ticks, arrived_r: Ticks, left_r: Ticks
    ) -> NDArray[np.bool_]:
        """Which of the aligned pairs are out. Rows in memory have left NEVER."""
        out = met_in_memory(arrived_l, left_l, arrived_r, left_r)
        out |= self._met_by_task(Side.LEFT, partition, arrived_l, left_l, left_r)
        out |= self._met_by_task(Side.RIGHT, partition, arrived_r, left_r, left_l)
        return out

    def _met_by_task(
        self, side: Side, partition: int, arrived: Ticks, left: Ticks, other_left: Ticks
    ) -> NDArray[np.bool_]:
        """Whether some task found the row in memory and the other one on disk (RPJ Fig. 7, l. 7-8).

        Deviation: the same task must satisfy both; as printed, the last one is compared with the other row, which
        would suppress pairs that were never reported.
        """
        ticks = self._tasks[side][partition]
        if not ticks:
            return np.zeros(len(arrived), np.bool_)
        padded = np.array([*ticks, NEVER])
        met: NDArray[np.bool_] = padded[np.searchsorted(padded, np.maximum(arrived, other_left))] < left
        return met

    def _last_task(self, side: Side, partition: int) -> int:
        ticks = self._tasks[side][partition]
        return ticks[-1] if ticks else 0

    def _spilled_before(self, side: Side, partition: int, ticks: Ticks) -> Counts:
        """How many rows of the side were on disk at each tick."""
        rows = np.array([0, *self._flushed_rows[side][partition]])
        before: Counts = rows[np.searchsorted(self._flush_ticks[side][partition], ticks)]
        return before

    def to_json(self) -> dict[str, Any]:
        return {
            "spilled": self.spilled.tolist(),
            "memory_pairs": self.memory_pairs.tolist(),
            "disk_pairs": self.disk_pairs.tolist(),
            "tasks": self._tasks,
            "flush_ticks": self._flush_ticks,
            "flushed_rows": self._flushed_rows,
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        self.spilled = np.array(fields["spilled"], np.int64)
        self.memory_pairs = np.array(fields["memory_pairs"], np.int64)
        self.disk_pairs = np.array(fields["disk_pairs"], np.int64)
        self._tasks = fields["tasks"]
        self._flush_ticks = fields["flush_ticks"]
        self._flushed_rows = fields["flushed_rows"]


def _lists(partitions: int) -> list[list[list[int]]]:
    """An empty list for each side and partition."""
    return [[[] for _ in range(partitions)] for _ in Side]
