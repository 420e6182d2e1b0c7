"""Which pairs were already joined in memory: the residence rule.

Every row becomes resident at one tick of a logical clock (`arrived`) and is evicted at a later one (`left`; never,
while it is in memory). Each tick belongs to one event. Two rows were joined in memory if and only if their residences
overlap:

    max(arrived) < min(left)

Rows of one arriving batch share a tick, and so do all rows of one flush. The DINER and RPJ papers call the two ticks
ATS and DTS; their closed intervals on a coarse clock would lose pairs, so every tick here belongs to one event.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ticks = NDArray[np.int64]

NEVER = 2**62


class Clock:
    """A counter that never shows the same time twice."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def tick(self) -> int:
        self.now += 1
        return self.now


def met_in_memory(arrived_a: Ticks, left_a: Ticks, arrived_b: Ticks, left_b: Ticks) -> NDArray[np.bool_]:
    """Which of the aligned pairs were in memory together when the later row of the two arrived."""
    met: NDArray[np.bool_] = np.maximum(arrived_a, arrived_b) < np.minimum(left_a, left_b)
    return met
