"""The clairvoyant bound on the results of an equality join that any policy can find while rows still arrive.

Rows of both relations arrive in random order at fixed rates, memory holds M of them, nothing stalls. A resident row
yields results at the rate at which its value arrives on the other side, whatever else is resident. So at every fraction
t of the stream the best content of memory is greedy: of all rows that have arrived, those whose value is most frequent
on the other side. Their yield, integrated over t, bounds the online results of any policy with the same information.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def online_bound(left_counts: ArrayLike, right_counts: ArrayLike, memory_rows: float) -> float:
    """The largest share of all results that can be found online.

    `counts[v]` is the number of rows with value v on each side over the whole stream, so unequal speeds are unequal
    counts. With counts of partitions it bounds policies that distinguish partitions, but not the values in them.
    """
    if memory_rows <= 0:
        return 0.0
    left, right = np.asarray(left_counts, np.float64), np.asarray(right_counts, np.float64)
    rows = np.concatenate([left, right])  # classes: a value of a side
    worth = np.concatenate([right, left])  # partners of each row of the class over the whole stream
    best_first = np.argsort(-worth, kind="stable")
    rows, worth = rows[best_first], worth[best_first]
    upto = np.cumsum(rows)
    before = upto - rows
    # At time t a class has rows * t rows, and better classes take before * t: all of it is held until memory is full
    # (full), then as much as fits, until nothing does (gone).
    full = memory_rows / np.maximum(upto, memory_rows)
    gone = memory_rows / np.maximum(before, memory_rows)
    held = rows * full**2 / 2 + memory_rows * (gone - full) - before * (gone**2 - full**2) / 2
    return float(worth @ held / (left @ right))
