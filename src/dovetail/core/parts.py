"""Cut rows into consecutive parts that have about equally many pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import in_ranges

FINER = 8  # parts per thread, so that all threads end at about the same time
LEAST_PART = 1 << 14  # pairs that are worth a separate task
GOOD_PART = 1 << 17  # pairs that fill a large piece of memory: small new pieces cost more than what they hold
BLOCK = 1 << 12  # rows whose pairs are counted together
BLOCKS_AT_ONCE = 8


def part_ranges(count: Callable[[int, int], NDArray[np.int64]], rows: int, parts: int) -> list[tuple[int, int]]:
    """Consecutive rows (start, end) in parts of about equally many pairs; fewer if there are few pairs.

    `count(start, end)` says how many pairs each of these rows has.
    """
    counts = _block_counts(count, rows)
    total = int(counts.sum())
    each, of_a_thread = -(-total // parts), -(-total * FINER // parts)
    most = max(LEAST_PART, each, min(GOOD_PART, of_a_thread))
    if total <= most:
        return [(0, rows)] if total else []
    found = []
    for first, last, pairs in chunk_ranges(counts, total, most):
        start, end = first * BLOCK, min(rows, last * BLOCK)
        if pairs <= most:
            found.append((start, end))
        else:
            within = chunk_ranges(count(start, end), pairs, most)
            found += [(start + some, start + behind) for some, behind, _ in within]
    return found


def _block_counts(count: Callable[[int, int], NDArray[np.int64]], rows: int) -> NDArray[np.int64]:
    """The pairs of each block of rows, counted in pieces that stay in the cache."""
    found = np.zeros(-(-rows // BLOCK), np.int64)

    def add(start: int, end: int) -> None:
        first, last = -(-start // BLOCK), -(-end // BLOCK)  # blocks that begin in the range
        for begin in range(first, last, BLOCKS_AT_ONCE):
            behind = min(last, begin + BLOCKS_AT_ONCE)
            counts = count(begin * BLOCK, min(rows, behind * BLOCK))
            found[begin:behind] = np.add.reduceat(counts, np.arange(0, len(counts), BLOCK))

    in_ranges(add, rows)
    return found


def chunk_ranges(counts: NDArray[np.int64], total: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Consecutive rows (start, end, pairs) with at most `most` pairs each; more only if a single row has more."""
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
