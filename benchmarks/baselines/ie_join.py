"""IE-Join of two tables at rest: two inequalities, solved with two sort orders, a permutation and a bit array.

    L1'  right rows by x'     partners by predicate 1 are a suffix, from the offset of x on
    B'   a bit per L1' place  1: also a partner by predicate 2; the sweep over L2 and L2' only sets bits
    P'   L2' -> L1'

Khayyat et al., Lightning fast and space efficient inequality joins, PVLDB 8(13), 2015. Where an order has to be
descending, keys are negated, so that the first operator is < or <= and the second > or >=. Deviation: equality is
handled per operator; the single flag of the paper is wrong when only one of the two is strict.
"""

from __future__ import annotations

import numpy as np

from benchmarks.baselines.intersection import NONE, ONE, WITHIN
from benchmarks.baselines.predicates import Floats, Query, Words
from benchmarks.baselines.windowed import Pairs
from benchmarks.baselines.work import BITS, COMPARISONS, WORDS, Counts, Work
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import GREATER, GREATER_EQUAL, LESS, LESS_EQUAL
from dovetail.kernels.instructions import trailing_zeros

SIX, ALL = np.uint64(6), np.uint64(2**64 - 1)
STRICT = (LESS, GREATER)


def ie_join_at_rest(query: Query, left: Floats, right: Floats, work: Work) -> Pairs:
    """All pairs of two tables, [row, key], by two inequalities."""
    first, second = (predicate.operator for predicate in query.predicates)
    if not {first, second} <= {LESS, LESS_EQUAL, GREATER, GREATER_EQUAL}:
        raise ValueError("IE-Join needs two inequalities: each one of <, <=, >, >=")
    signs = np.array(
        [-1.0 if first in (GREATER, GREATER_EQUAL) else 1.0, -1.0 if second in (LESS, LESS_EQUAL) else 1.0]
    )
    left_rows, right_rows = (np.flatnonzero(~np.isnan(side).any(axis=1)) for side in (left, right))
    x, y = (left[left_rows] * signs).T
    x_right, y_right = (right[right_rows] * signs).T
    by_x, by_y, left_by_y = (np.argsort(keys, kind="stable") for keys in (x_right, y_right, y))
    places = np.empty(len(by_x), np.int64)
    places[by_x] = np.arange(len(by_x))
    starts = np.searchsorted(x_right[by_x], x[left_by_y], side="right" if first in STRICT else "left")
    ends = np.searchsorted(y_right[by_y], y[left_by_y], side="left" if second in STRICT else "right")
    work.counts[COMPARISONS] += (len(x) + len(x_right)) * max(1, len(x_right)).bit_length() * 2
    return Pairs(*_sweep(starts, ends, places[by_y], left_rows[left_by_y], right_rows[by_x], work.counts))


@kernel
def _sweep(
    starts: Words, ends: Words, permutation: Words, left_rows: Words, right_rows: Words, counts: Counts
) -> tuple[Words, Words]:
    """For each left row in the order of y: set the bits of right rows now in reach, then read from its offset on."""
    size = len(permutation)
    bits = np.zeros((size >> 6) + 1, np.uint64)
    lefts = np.empty(1024, np.int64)
    rights = np.empty(1024, np.int64)
    out = 0
    added = 0
    for row in range(len(starts)):
        while added < ends[row]:
            bit = np.uint64(permutation[added])
            bits[bit >> SIX] |= ONE << (bit & WITHIN)
            added += 1
        if out + size > len(lefts):
            more = np.empty(2 * len(lefts) + size, np.int64)
            more[:out] = lefts[:out]
            lefts = more
            more = np.empty(len(lefts), np.int64)
            more[:out] = rights[:out]
            rights = more
        mask = ALL << np.uint64(starts[row] & 63)
        for w in range(starts[row] >> 6, len(bits)):
            word = bits[w] & mask
            mask = ALL
            while word != NONE:
                lefts[out] = left_rows[row]
                rights[out] = right_rows[(w << 6) + np.int64(trailing_zeros(word))]
                word &= word - ONE
                out += 1
        counts[WORDS] += len(bits) - (starts[row] >> 6)
    counts[BITS] += added
    return lefts[:out], rights[:out]
