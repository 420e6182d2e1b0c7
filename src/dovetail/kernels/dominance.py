"""Count and aggregate the partners by two inequalities, without enumerating one pair.

    added by the sweep, by position    .  .  v  .  v  v  .  v        v: value of a right row; .: not added yet
    a left row                            start ^--------->          its aggregate is over what is added from here on

The sweep is that of `kernels.two_inequalities`. An addition and a look-up cost O(log n) each: a Fenwick tree over
positions, read towards the end, in which a node combines the values at the positions that lead to it. Nothing is ever
subtracted, so floats lose nothing to cancellation and infinities do no harm. Counting is faster still: ones are counted
within 64-bit words, running counts kept for blocks of 64 words, and the tree is over blocks only.

Aggregates over the whole join follow from the ones per row: the total sum is the sum of `row_sums`, the smallest value
of all is the smallest over the right rows that `two_inequalities.right_exists` marks.

P. M. Fenwick, A New Data Structure for Cumulative Frequency Tables, Software: Practice and Experience 24(3), 1994.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.bits import ones
from dovetail.kernels.compiling import kernel
from dovetail.kernels.one_inequality import Number
from dovetail.kernels.sorting import Rows, Words, invert, pick, sort_codes
from dovetail.kernels.two_inequalities import NONE, ONE, WITHIN, WORD, TwoInequalities


def count(join: TwoInequalities) -> int:
    """How many pairs there are."""
    return int(_count(join, np.empty(0, np.int64)))


def row_counts(join: TwoInequalities) -> Words:
    """How many partners each left row has."""
    counts = np.zeros(join.left_rows, np.int64)
    partners = np.empty(len(join.left), np.int64)
    _count(join, partners)
    counts[join.left] = partners
    return counts


def row_sums(join: TwoInequalities, values: NDArray[Number]) -> NDArray[Number]:
    """For each left row, the sum of its partners' `values` (one per right row). Integers wrap at 64 bits."""
    sums = np.zeros(join.left_rows, values.dtype)
    sums[join.left] = _sums(join, values[join.right[join.added]])
    return sums


def smallest_partners(join: TwoInequalities, codes: Words) -> Rows:
    """For each left row, the partner with the smallest code; -1 without one. For the largest, give `~codes`."""
    by_code = sort_codes(codes).order
    ranks = pick(invert(by_code), pick(join.right, join.added))
    best = _smallest(join, ranks, by_code.dtype.type(len(by_code)))
    partners = np.full(join.left_rows, -1, by_code.dtype)
    found = best < len(by_code)
    partners[join.left[found]] = by_code[best[found]]
    return partners


@kernel
def _count(join: TwoInequalities, counts: Words) -> np.int64:
    """How many pairs there are; fills `counts`, if it is not empty, with how many each row of `join.left` has."""
    blocks = (np.uint64(len(join.right)) >> (WORD + WORD)) + ONE
    words = np.zeros(blocks << WORD, np.uint64)
    later = np.zeros(blocks << WORD, np.uint16)  # ones in the later words of the same block
    tree = np.zeros(blocks, np.int64)  # by block; read for the ones in later blocks
    total = np.int64(0)
    to_add = np.uint64(len(join.added))
    for k in range(len(join.left) - 1, -1, -1):
        reach = np.uint64(join.reach[k])
        while to_add > reach:
            to_add -= ONE
            position = np.uint64(join.added[to_add])
            w = position >> WORD
            words[w] |= ONE << (position & WITHIN)
            block = w >> WORD
            base = block << WORD
            within = np.uint16(w & WITHIN)
            for i in range(np.uint16(64)):  # always all 64, so that it is a few vector instructions
                later[base + i] += np.uint16(i < within)
            node = block
            while node > NONE:
                tree[node] += 1
                node &= node - ONE
        start = np.uint64(join.start[k])
        w = start >> WORD
        partners = np.int64(ones(words[w] >> (start & WITHIN))) + np.int64(later[w])
        node = (w >> WORD) + ONE
        while node < blocks:
            partners += tree[node]
            node += node & (~node + ONE)
        total += partners
        if len(counts):
            counts[k] = partners
    return total


@kernel
def _sums(join: TwoInequalities, values: NDArray[Number]) -> NDArray[Number]:
    """Sums for each row of `join.left`; `values` in the order of `join.added`."""
    tree = np.zeros(len(join.right) + 1, values.dtype)
    sums = np.empty(len(join.left), values.dtype)
    to_add = np.uint64(len(join.added))
    for k in range(len(join.left) - 1, -1, -1):
        reach = np.uint64(join.reach[k])
        while to_add > reach:
            to_add -= ONE
            node = np.uint64(join.added[to_add]) + ONE
            while node > NONE:
                tree[node] += values[to_add]
                node &= node - ONE
        node = np.uint64(join.start[k]) + ONE
        total = tree[0]  # never added to: zero
        while node < np.uint64(len(tree)):
            total += tree[node]
            node += node & (~node + ONE)
        sums[k] = total
    return sums


@kernel
def _smallest(join: TwoInequalities, ranks: Rows, none: np.signedinteger) -> Rows:
    """The smallest rank for each row of `join.left`, `none` without one; `ranks` in the order of `join.added`."""
    tree = np.full(len(join.right) + 1, none, ranks.dtype)
    best = np.empty(len(join.left), ranks.dtype)
    to_add = np.uint64(len(join.added))
    for k in range(len(join.left) - 1, -1, -1):
        reach = np.uint64(join.reach[k])
        while to_add > reach:
            to_add -= ONE
            node = np.uint64(join.added[to_add]) + ONE
            while node > NONE:
                tree[node] = min(tree[node], ranks[to_add])
                node &= node - ONE
        node = np.uint64(join.start[k]) + ONE
        smallest = none
        while node < np.uint64(len(tree)):
            smallest = min(smallest, tree[node])
            node += node & (~node + ONE)
        best[k] = smallest
    return best
