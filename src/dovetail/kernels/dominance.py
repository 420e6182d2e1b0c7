"""Counts and aggregates points that dominate others in two ranks, without enumerating pairs.

    added by the sweep, by position    .  .  v  .  v  v  .  v        v: value of a right row; .: not added yet
    a left row                            start ^--------->          its aggregate covers what is added from here on

Positions, `start`, `reach` and `added` are those of `kernels.two_inequalities`, and so is the sweep, from the last left
row to the first. An addition and a look-up cost O(log n) each: a Fenwick tree over positions, read towards the end; a
node combines the values at the positions that lead to it. Nothing is ever subtracted, so floats lose nothing to
cancellation, and infinities are handled. Counting is faster still: bits are counted within 64-bit words, running counts
are kept for blocks of 64 words, and the tree is over blocks only.

P. M. Fenwick, A New Data Structure for Cumulative Frequency Tables, Software: Practice and Experience 24(3), 1994.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import ones
from dovetail.kernels.sorting import Rows, Words

Number = TypeVar("Number", np.float64, np.int64)

NONE = np.uint64(0)
ONE = np.uint64(1)
WORD = np.uint64(6)  # 2^6 bits in a word, 2^6 words in a block
WITHIN = np.uint64(63)


@kernel
def count_dominating(start: Rows, reach: Rows, added: Rows, counts: Words) -> np.int64:
    """The number of pairs. Fills `counts`, unless it is empty, with the number for each left row."""
    blocks = (np.uint64(len(added)) >> (WORD + WORD)) + ONE
    words = np.zeros(blocks << WORD, np.uint64)
    later = np.zeros(blocks << WORD, np.uint16)  # ones in later words of the same block
    tree = np.zeros(blocks, np.int64)  # counts the ones in later blocks
    total = np.int64(0)
    to_add = np.uint64(len(added))
    for k in range(len(start) - 1, -1, -1):
        while to_add > np.uint64(reach[k]):
            to_add -= ONE
            position = np.uint64(added[to_add])
            w = position >> WORD
            words[w] |= ONE << (position & WITHIN)
            node = w >> WORD
            first = node << WORD
            within = np.uint16(w & WITHIN)
            for i in range(np.uint16(64)):  # always all 64, which compiles to a few vector instructions
                later[first + i] += np.uint16(i < within)
            while node > NONE:
                tree[node] += 1
                node &= node - ONE
        position = np.uint64(start[k])
        w = position >> WORD
        partners = np.int64(ones(words[w] >> (position & WITHIN))) + np.int64(later[w])
        node = (w >> WORD) + ONE
        while node < blocks:
            partners += tree[node]
            node += node & (~node + ONE)
        total += partners
        if len(counts):
            counts[k] = partners
    return total


@kernel
def sum_dominating(start: Rows, reach: Rows, added: Rows, values: NDArray[Number]) -> NDArray[Number]:
    """For each left row, the sum of its partners' values, which are in the order of `added`."""
    tree = np.zeros(len(added) + 1, values.dtype)
    sums = np.empty(len(start), values.dtype)
    to_add = np.uint64(len(added))
    for k in range(len(start) - 1, -1, -1):
        while to_add > np.uint64(reach[k]):
            to_add -= ONE
            node = np.uint64(added[to_add]) + ONE
            while node > NONE:
                tree[node] += values[to_add]
                node &= node - ONE
        node = np.uint64(start[k]) + ONE
        total = tree[0]  # nothing is ever added to this entry: zero
        while node < np.uint64(len(tree)):
            total += tree[node]
            node += node & (~node + ONE)
        sums[k] = total
    return sums


@kernel
def smallest_dominating(start: Rows, reach: Rows, added: Rows, ranks: Rows, none: np.signedinteger[Any]) -> Rows:
    """For each left row, the smallest rank of a partner, or `none`; ranks are in the order of `added`."""
    tree = np.full(len(added) + 1, none, ranks.dtype)
    best = np.empty(len(start), ranks.dtype)
    to_add = np.uint64(len(added))
    for k in range(len(start) - 1, -1, -1):
        while to_add > np.uint64(reach[k]):
            to_add -= ONE
            node = np.uint64(added[to_add]) + ONE
            while node > NONE:
                tree[node] = min(tree[node], ranks[to_add])
                node &= node - ONE
        node = np.uint64(start[k]) + ONE
        smallest = none
        while node < np.uint64(len(tree)):
            smallest = min(smallest, tree[node])
            node += node & (~node + ONE)
        best[k] = smallest
    return best
