"""The length that intervals cover, counting overlaps once. Intervals of a group are in order of their starts."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Number = TypeVar("Number", np.int64, np.float64)


@kernel
def add_lengths(
    order: NDArray[np.int64],
    groups: NDArray[np.int64],
    starts: NDArray[Number],
    ends: NDArray[Number],
    covered: NDArray[Number],
) -> None:
    """Add the length that the intervals cover to that of their groups; `order` is by group, then by start."""
    group = np.int64(-1)
    reached = starts[0] if len(starts) else covered[0]
    for place in range(len(order)):
        i = order[place]
        start, end = starts[i], ends[i]
        if groups[i] != group:
            group = groups[i]
            reached = start
        start = max(start, reached)
        if end > start:
            covered[group] += end - start
            reached = end
