"""Probe sorted arrays with whole batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]


@kernel
def find_hashes(resident: Words, probing: Words) -> tuple[Words, Words]:
    """Where each probing hash stands in the sorted resident hashes: first position and number of equals.

    Hashes are spread evenly over all 64-bit numbers, so interpolation finds the neighbourhood in a step or two.
    """
    n = len(resident)
    starts = np.zeros(len(probing), np.int64)
    counts = np.zeros(len(probing), np.int64)
    if n == 0:
        return starts, counts
    scale = n / 18446744073709551616.0
    for i in range(len(probing)):
        h = probing[i]
        position = int((np.float64(h) + 9223372036854775808.0) * scale)
        position = min(max(position, 0), n - 1)
        # Gallop from the guess until [low, high) holds the first position with a hash >= h.
        low = position
        step = 1
        while low > 0 and resident[low - 1] >= h:
            low = max(0, low - step)
            step *= 2
        high = max(low, position)
        step = 1
        while high < n and resident[high] < h:
            low = high + 1
            high = min(n, high + step)
            step *= 2
        while low < high:
            middle = (low + high) >> 1
            if resident[middle] < h:
                low = middle + 1
            else:
                high = middle
        starts[i] = low
        while low < n and resident[low] == h:
            low += 1
        counts[i] = low - starts[i]
    return starts, counts


@kernel
def find_sorted(resident: Words, probing: Words) -> tuple[Words, Words]:
    """Where each probing word stands in the sorted resident words: first position and number of equals.

    The search gallops from where the last one ended: probing words that ascend, too, are found in a step or two.
    """
    n = len(resident)
    starts = np.zeros(len(probing), np.int64)
    counts = np.zeros(len(probing), np.int64)
    position = 0
    for i in range(len(probing)):
        word = probing[i]
        if i > 0 and word == probing[i - 1]:
            starts[i] = starts[i - 1]
            counts[i] = counts[i - 1]
            continue
        # [low, high) will hold the first position with a word that is not smaller.
        low = position
        high = position
        step = 1
        while low > 0 and resident[low - 1] >= word:
            high = low
            low = max(0, low - step)
            step *= 2
        step = 1
        while high < n and resident[high] < word:
            low = high + 1
            high = min(n, high + step)
            step *= 2
        while low < high:
            middle = (low + high) >> 1
            if resident[middle] < word:
                low = middle + 1
            else:
                high = middle
        starts[i] = low
        position = low
        while position < n and resident[position] == word:
            position += 1
        counts[i] = position - low
    return starts, counts


@kernel
def expand(starts: Words, counts: Words, start: int, end: int, pairs: int) -> tuple[Words, Words]:
    """Ranges as pairs: row i with positions starts[i] .. starts[i] + counts[i], for rows start..end."""
    probing = np.empty(pairs, np.int64)
    resident = np.empty(pairs, np.int64)
    out = 0
    for i in range(start, end):
        for position in range(starts[i], starts[i] + counts[i]):
            probing[out] = i
            resident[out] = position
            out += 1
    return probing, resident
