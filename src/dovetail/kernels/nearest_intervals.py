"""The nearest interval of each left one; the distance is 0 if they overlap or touch.

    right   |----|   |-----------|     |--|
    left               |---|                      overlaps the second: of those that start before the left one
                                                  ends, the one that ends last decides
    left                            |-|           none overlaps: that one is the nearest before it, and the next
                                                  one to start is the nearest after it

Right intervals are in the order of their starts, left ones in the order of their ends. One sweep remembers the right
interval of each key that ends last. Ends must not be before starts.
"""

from __future__ import annotations

import numpy as np

from dovetail.kernels.as_of import NONE, Floats, Keys, Rows, Words
from dovetail.kernels.compiling import kernel


def last_to_end(left_ends: Words, right_starts: Words, right_ends: Words, keys: tuple[Keys, Keys], size: int) -> Rows:
    """For each left position, the right interval of its key that ends last, of those that start before its end."""
    found = np.empty(len(left_ends), np.int32 if len(right_starts) < 2**31 else np.int64)
    memory = np.full(max(size, 1), NONE, found.dtype)
    _sweep(left_ends, right_starts, right_ends, *keys, memory, found)
    return found


@kernel
def _sweep(
    left_ends: Words,
    right_starts: Words,
    right_ends: Words,
    left_keys: Keys,
    right_keys: Keys,
    memory: Rows,
    found: Rows,
) -> None:
    at = 0
    keyed = len(left_keys) > 0
    for i in range(len(left_ends)):
        while at < len(right_starts) and right_starts[at] <= left_ends[i]:
            key = np.uint32(right_keys[at]) if keyed else np.uint32(0)
            last = memory[key]
            if last < 0 or right_ends[at] > right_ends[np.uint64(last)]:
                memory[key] = at
            at += 1
        found[i] = memory[np.uint32(left_keys[i]) if keyed else np.uint32(0)]


@kernel
def nearer(
    left_starts: Words, left_ends: Words, right_starts: Words, right_ends: Words, before: Rows, behind: Rows
) -> None:
    """Put the nearer of two right intervals into `before`, all by position."""
    for i in range(len(before)):
        if behind[i] < 0:
            continue
        if before[i] < 0:
            before[i] = behind[i]
            continue
        end, start = right_ends[np.uint64(before[i])], right_starts[np.uint64(behind[i])]
        back = np.uint64(left_starts[i]) - np.uint64(end) if end < left_starts[i] else np.uint64(0)
        if np.uint64(start) - np.uint64(left_ends[i]) < back:
            before[i] = behind[i]


@kernel
def nearer_floats(
    left_starts: Floats, left_ends: Floats, right_starts: Floats, right_ends: Floats, before: Rows, behind: Rows
) -> None:
    """The same for doubles. A distance that is not finite does not count."""
    for i in range(len(before)):
        back = max(left_starts[i] - right_ends[np.uint64(before[i])], 0.0) if before[i] >= 0 else np.inf
        forth = right_starts[np.uint64(behind[i])] - left_ends[i] if behind[i] >= 0 else np.inf
        if not back < np.inf:
            before[i] = NONE
            back = np.inf
        if forth < back:
            before[i] = behind[i]
