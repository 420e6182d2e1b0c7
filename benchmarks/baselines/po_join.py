"""PO-Join: batches sorted by both keys, a permutation between the two orders, and a bit array per probe.

    by b     y y y y y y y y     partners by predicate 2 are a range ...
                 |P| | |         ... which the permutation maps to positions in the order of a; bits are set there ...
    by a     0 1 0 1 1 0 1 0     ... and read back over the range of predicate 1
                 ^-------^

SPO-Join, section 3: the mutable part of section 3.2, Algorithm 2 (permutation), Algorithm 3 (offsets), section 3.4
(probe). Deviations: a row is looked up among the keys of the *other* stream. The printed probe looks it up among the
keys of its own stream and follows their offsets, which only bound the position: for rows outside the batch it loses
results and returns false ones. Offsets are computed as printed, for their cost, but count rows, not distinct keys. Bits
start at the permuted position, not at that of an offset of it. Start and end of a range follow from the operator.
One thread; Algorithm 4 divides the list of batches among several.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.intersection import NONE, ONE, WITHIN, Bits
from benchmarks.baselines.predicates import Floats, Query, Tests, Words, find_range
from benchmarks.baselines.two_part import Span, TwoPart, TwoPartJoin
from benchmarks.baselines.work import BITS, COMPARISONS, KEYS, WORDS, Counts
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import NOT_EQUAL
from dovetail.kernels.instructions import trailing_zeros

Positions = NDArray[np.int32]

SIX, ALL = np.uint64(6), np.uint64(2**64 - 1)


@kernel
def permute(by_a: Words, by_b: Words, span: Span, counts: Counts) -> Positions:
    """Algorithm 2: for each row in the order of b, its position in the order of a."""
    positions = np.empty(span.end - span.first, np.int32)
    for position in range(len(by_a)):
        positions[by_a[position] - span.first] = position
    permutation = np.empty(len(by_b), np.int32)
    for k in range(len(by_b)):
        permutation[k] = positions[by_b[k] - span.first]
    counts[KEYS] += len(by_a) + len(by_b)
    return permutation


@kernel
def offset(keys: Floats, others: Floats, counts: Counts) -> Positions:
    """Algorithm 3: for each key, the position of the first of the others that is not below it; both ascend."""
    offsets = np.empty(len(keys), np.int32)
    at = 0
    for k in range(len(keys)):
        while at < len(others) and others[at] < keys[k]:
            counts[COMPARISONS] += 1
            at += 1
        counts[COMPARISONS] += 1
        offsets[k] = at
    return offsets


class Orders(NamedTuple):
    """The rows of a batch by each key; with one predicate there is no order by b."""

    a: Floats
    rows: Words  # by a
    b: Floats
    permutation: Positions  # by b: position by a


class PoBatch:
    """The rows of one stream that were merged together."""

    def __init__(self, span: Span, sorted_keys: list[tuple[Floats, Words]], counts: Counts) -> None:
        self.span = span
        self.offsets: list[Positions] = []  # into the other stream's batch, by key
        (a, rows), (b, by_b) = sorted_keys[0], sorted_keys[-1]
        self.orders = Orders(a, rows, b, permute(rows, by_b, span, counts))
        self._bits = np.zeros((len(rows) >> 6) + 1, np.uint64)

    @property
    def declared_bytes(self) -> int:
        arrays: list[NDArray[Any]] = [*self.orders, *self.offsets, self._bits]
        return sum(array.nbytes for array in arrays)

    def probe(self, keys: Floats, tests: Tests, counts: Counts) -> Words:
        if len(keys) == 1:
            return _find_by_a(self.orders, tests, keys, counts)
        return probe(self.orders, tests, keys, self._bits, counts)


@kernel
def _find_by_a(orders: Orders, tests: Tests, keys: Floats, counts: Counts) -> Words:
    start, end = find_range(orders.a, tests.operators[0], tests.widths[0], keys[0], counts)
    if tests.operators[0] == NOT_EQUAL:
        found = np.concatenate((orders.rows[:start], orders.rows[end:]))
    else:
        found = orders.rows[start : max(start, end)].copy()
    counts[KEYS] += len(found)
    return found


@kernel
def probe(orders: Orders, tests: Tests, keys: Floats, bits: Bits, counts: Counts) -> Words:
    """The partners of one row in a batch. `bits` are all 0 before and after the call."""
    size = len(orders.rows)
    start, end = find_range(orders.b, tests.operators[1], tests.widths[1], keys[1], counts)
    if tests.operators[1] == NOT_EQUAL:
        marked = start + size - end
        _mark(orders.permutation, 0, start, bits)
        _mark(orders.permutation, end, size, bits)
    else:
        marked = max(0, end - start)
        _mark(orders.permutation, start, end, bits)
    counts[BITS] += marked
    found = np.empty(marked, np.int64)
    start, end = find_range(orders.a, tests.operators[0], tests.widths[0], keys[0], counts)
    if tests.operators[0] == NOT_EQUAL:
        out = _read(orders.rows, 0, start, bits, found, 0, counts)
        out = _read(orders.rows, end, size, bits, found, out, counts)
    else:
        out = _read(orders.rows, start, end, bits, found, 0, counts)
    bits[:] = NONE
    counts[WORDS] += len(bits)
    return found[:out]


@kernel
def _mark(permutation: Positions, start: int, end: int, bits: Bits) -> None:
    for k in range(start, end):
        bit = np.uint64(permutation[k])
        bits[bit >> SIX] |= ONE << (bit & WITHIN)


@kernel
def _read(rows: Words, start: int, end: int, bits: Bits, found: Words, out: int, counts: Counts) -> int:
    """Append the rows whose bits are set in start .. end to the `out` rows found before."""
    if start >= end:
        return out
    first = start >> 6
    last = (end - 1) >> 6
    for w in range(first, last + 1):
        word = bits[w]
        if w == first:
            word &= ALL << np.uint64(start & 63)
        if w == last:
            word &= ALL >> np.uint64(63 - ((end - 1) & 63))
        while word != NONE:
            found[out] = rows[(w << 6) + np.int64(trailing_zeros(word))]
            word &= word - ONE
            out += 1
    counts[WORDS] += last + 1 - first
    return out


class PoJoin(TwoPartJoin):
    """SPO-Join in one process."""

    def _merged(self) -> None:
        """Algorithm 3 for each predicate, from left to right."""
        left, right = (index.unpublished for index in self.indexes)
        if left is right:
            return  # a self-join: a batch's own positions
        assert isinstance(left, PoBatch)
        assert isinstance(right, PoBatch)
        for name in ("a", "b")[: len(self.query.predicates)]:
            mine, theirs = getattr(left.orders, name), getattr(right.orders, name)
            left.offsets.append(offset(mine, theirs, self.merging.counts))


def po_join(
    query: Query, window: int, delta: int, intersection: str = "bit", order: int = 4, merge_arrivals: int = 0
) -> PoJoin:
    """`intersection` applies to the mutable part: "bit", as in SPO-Join, or "hash", the alternative in the paper."""
    index = partial(TwoPart, delta=delta, build=PoBatch, order=order, intersection=intersection)
    return PoJoin(query, window, index, merge_arrivals)
