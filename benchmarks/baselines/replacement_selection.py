"""Sorted runs by replacement selection, as in the experiments of the paper on the progressive merge join.

    memory is a heap of the rows of both inputs, by (run, key)
    arriving row --> the smallest row is taken from the heap --> written to its run; the new row belongs to that run if
                                                                 its key is not smaller, otherwise to the next run

Both inputs share one heap, so run k of one input and run k of the other are swept together as they are written. If rows
are in random order, runs are about twice as long as memory.
"""

from __future__ import annotations

import heapq
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]


class Runs(NamedTuple):
    """The run of each row, by input."""

    left: Words
    right: Words

    @property
    def run_pairs(self) -> int:
        return 1 + int(max(self.left.max(initial=-1), self.right.max(initial=-1)))


def replacement_selection(left: Words, right: Words, memory_rows: int) -> Runs:
    """Rows of both inputs arrive in turn; the rest of the longer input arrives at the end."""
    runs = Runs(np.zeros(len(left), np.int64), np.zeros(len(right), np.int64))
    both = min(len(left), len(right))
    in_turn = ((key, side, row) for row in range(both) for side, key in ((0, int(left[row])), (1, int(right[row]))))
    rest = ((int(keys[row]), side, row) for side, keys in enumerate((left, right)) for row in range(both, len(keys)))
    heap: list[tuple[int, int, int, int]] = []
    for key, side, row in chain(in_turn, rest):
        if len(heap) < memory_rows:
            heapq.heappush(heap, (0, key, side, row))
            continue
        run, least, *_ = heap[0]
        leaving = heapq.heapreplace(heap, (run if key >= least else run + 1, key, side, row))
        runs[leaving[2]][leaving[3]] = leaving[0]
    for run, _, side, row in heap:
        runs[side][row] = run
    return runs


def early_results(left: Words, right: Words, runs: Runs) -> int:
    """The number of pairs of equal keys in runs of the same number: these are found while the runs are written."""
    keys = int(max(left.max(initial=0), right.max(initial=0))) + 1
    (left_groups, left_rows), (right_groups, right_rows) = (
        np.unique(run * keys + key, return_counts=True) for run, key in zip(runs, (left, right), strict=True)
    )
    _, at_left, at_right = np.intersect1d(left_groups, right_groups, assume_unique=True, return_indices=True)
    return int(left_rows[at_left] @ right_rows[at_right])
