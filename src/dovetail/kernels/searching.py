"""Searches for whole batches in sorted words.

Every search starts near the expected position, gallops until it has passed the word, and bisects the rest. Hashes are
expected by interpolation, ascending words where the last search ended.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]


@kernel
def _first_not_smaller(words: Words, word: np.int64, near: int) -> int:
    low = near
    high = near
    step = 1
    while low > 0 and words[low - 1] >= word:
        high = low
        low = max(0, low - step)
        step *= 2
    step = 1
    while high < len(words) and words[high] < word:
        low = high + 1
        high = min(len(words), high + step)
        step *= 2
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def find_hashes(resident: Words, probing: Words) -> tuple[Words, Words]:
    """For each probing hash, its first position in the sorted resident hashes, and the number of equal ones.

    Hashes are spread evenly over all 64-bit numbers, so interpolation finds the neighbourhood in one or two steps.
    """
    n = len(resident)
    starts = np.zeros(len(probing), np.int64)
    counts = np.zeros(len(probing), np.int64)
    if n == 0:
        return starts, counts
    scale = n / 18446744073709551616.0
    for i in range(len(probing)):
        h = probing[i]
        near = int((np.float64(h) + 9223372036854775808.0) * scale)
        position = _first_not_smaller(resident, h, min(max(near, 0), n - 1))
        starts[i] = position
        while position < n and resident[position] == h:
            position += 1
        counts[i] = position - starts[i]
    return starts, counts


@kernel
def find_sorted(resident: Words, probing: Words) -> tuple[Words, Words]:
    """For each probing word, its first position in the sorted resident words, and the number of equal ones.

    Ascending words are found in one or two steps.
    """
    starts = np.zeros(len(probing), np.int64)
    counts = np.zeros(len(probing), np.int64)
    position = 0
    for i in range(len(probing)):
        word = probing[i]
        if i > 0 and word == probing[i - 1]:
            starts[i] = starts[i - 1]
            counts[i] = counts[i - 1]
            continue
        position = _first_not_smaller(resident, word, position)
        starts[i] = position
        while position < len(resident) and resident[position] == word:
            position += 1
        counts[i] = position - starts[i]
    return starts, counts


@kernel
def expand(starts: Words, counts: Words, start: int, end: int, pairs: int) -> tuple[Words, Words]:
    """Expand ranges to pairs: row i with positions starts[i] .. starts[i] + counts[i], for rows start..end."""
    probing = np.empty(pairs, np.int64)
    resident = np.empty(pairs, np.int64)
    out = 0
    for i in range(start, end):
        for position in range(starts[i], starts[i] + counts[i]):
            probing[out] = i
            resident[out] = position
            out += 1
    return probing, resident
