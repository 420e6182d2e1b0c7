"""Cut an answer of known size into pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def pieces_of(counts: NDArray[np.int64], total: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Consecutive rows (start, end, pairs) with at most `most` pairs each; more only where a single row has more."""
    if total == 0:
        return
    if total <= most:
        yield 0, len(counts), total
        return
    ends = np.cumsum(counts)
    start, done = 0, 0
    while done < total:
        end = int(np.searchsorted(ends, done + most, side="right"))
        end = max(end, start + 1)
        reached = int(ends[end - 1])
        if reached > done:
            yield start, end, reached - done
        start, done = end, reached
