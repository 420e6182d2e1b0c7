"""Intersects the rows that satisfy each of two predicates, with bit arrays or a hash set.

Both are from the paper: SPO-Join evaluates predicates on different machines and intersects their matches. A bit stands
for a position of arrival, counted from the first that can occur.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.predicates import Words
from benchmarks.baselines.work import BITS, HASHED, WORDS, Counts
from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import trailing_zeros

Bits = NDArray[np.uint64]
Intersect = Callable[[Sequence[Words], int, int, Counts], Words]

ONE, WITHIN = np.uint64(1), np.uint64(63)
NONE = np.uint64(0)
SPREAD = np.uint64(0x9E3779B97F4A7C15)


def intersect_bits(parts: Sequence[Words], first: int, size: int, counts: Counts) -> Words:
    """A bit array of `size` bits per part, then their AND; bit 0 is position `first`."""
    if len(parts) == 1:
        return parts[0]
    one, other = parts
    bits = np.zeros((2, (size >> 6) + 1), np.uint64)
    return _and_bits(one, other, first, bits, counts)


def intersect_hash(parts: Sequence[Words], first: int, size: int, counts: Counts) -> Words:
    """Build a hash set of one part, and look up the other in it."""
    if len(parts) == 1:
        return parts[0]
    one, other = parts
    places = 1 << max(3, (2 * len(one) - 1).bit_length())
    return _look_up(one, other, np.full(places, -1, np.int64), counts)


INTERSECTIONS: dict[str, Intersect] = {"bit": intersect_bits, "hash": intersect_hash}


@kernel
def _and_bits(one: Words, other: Words, first: int, bits: Bits, counts: Counts) -> Words:
    for row in one:
        bit = np.uint64(row - first)
        bits[0, bit >> np.uint64(6)] |= ONE << (bit & WITHIN)
    for row in other:
        bit = np.uint64(row - first)
        bits[1, bit >> np.uint64(6)] |= ONE << (bit & WITHIN)
    found = np.empty(min(len(one), len(other)), np.int64)
    out = 0
    for w in range(bits.shape[1]):
        word = bits[0, w] & bits[1, w]
        while word != NONE:
            found[out] = first + (w << 6) + np.int64(trailing_zeros(word))
            word &= word - ONE
            out += 1
    counts[BITS] += len(one) + len(other)
    counts[WORDS] += 2 * bits.shape[1]
    return found[:out]


@kernel
def _look_up(one: Words, other: Words, table: Words, counts: Counts) -> Words:
    last = np.uint64(len(table) - 1)
    for row in one:
        at = (np.uint64(row) * SPREAD >> np.uint64(20)) & last
        while table[at] >= 0:
            at = (at + ONE) & last
        table[at] = row
    found = np.empty(min(len(one), len(other)), np.int64)
    out = 0
    for row in other:
        at = (np.uint64(row) * SPREAD >> np.uint64(20)) & last
        while table[at] >= 0 and table[at] != row:
            at = (at + ONE) & last
        if table[at] == row:
            found[out] = row
            out += 1
    counts[HASHED] += len(one) + len(other)
    return found[:out]
