"""The clairvoyant bound: no policy can find more results of an equality join while its rows still arrive.

Rows of both relations come in random order at fixed rates, memory holds M of them, nothing stalls. A resident row earns
results at the rate at which its value arrives on the other side, whatever else is resident. So at every fraction t of
the stream the best content of memory is greedy: of all rows that have come, those whose value is most frequent on the
other side. What that earns, integrated over t, is a bound on the online results of any policy that knows as much.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def online_bound(left_counts: ArrayLike, right_counts: ArrayLike, memory_rows: float) -> float:
    """The largest share of all results that can be found online.

    `counts[v]` is how many rows each side has of value v over the whole stream, so that unequal speeds are unequal
    counts. With counts of partitions it bounds policies that tell partitions apart, but not the values in them.
    """
    if memory_rows <= 0:
        return 0.0
    left, right = np.asarray(left_counts, np.float64), np.asarray(right_counts, np.float64)
    rows = np.concatenate([left, right])  # classes: a value of a side
    worth = np.concatenate([right, left])  # partners that each row of the class meets over the whole stream
    best_first = np.argsort(-worth, kind="stable")
    rows, worth = rows[best_first], worth[best_first]
    upto = np.cumsum(rows)
    before = upto - rows
    # At time t a class has rows * t rows, and better classes take before * t: it is held whole until memory is full
    # (full), then the room that is left, until there is none (gone).
    full = memory_rows / np.maximum(upto, memory_rows)
    gone = memory_rows / np.maximum(before, memory_rows)
    held = rows * full**2 / 2 + memory_rows * (gone - full) - before * (gone**2 - full**2) / 2
    return float(worth @ held / (left @ right))
