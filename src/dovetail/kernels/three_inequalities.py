"""Aggregates over partners by three inequalities, without enumerating pairs.

    events of the sweep      + + ? + ? + + ?        +: a right row is added, ?: a left row looks up those before it
    halved recursively       + + ? + | ? + + ?      rows added in the first half count for look-ups in the second,
    by the third attribute   + + ? | + …            processed from the largest: each look-up finds those not less

The first two inequalities are a join of `kernels.two_inequalities`, whose sweep this is. The third requires that a
number of the right row is not less than one of the left row. Halves are merged as in merge sort, in O(n log^2 n) in
total: within blocks of a few events, all pairs are compared; larger halves look up positions in a Fenwick tree. Nothing
is ever subtracted, so floats lose nothing to cancellation.

Bentley, Multidimensional divide-and-conquer, CACM 23(4), 1980.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels import two_inequalities
from dovetail.kernels.compiling import kernel
from dovetail.kernels.dominance import NONE, ONE
from dovetail.kernels.one_inequality import CHUNK, Flags
from dovetail.kernels.sorting import Rows, Words, invert, sort_codes
from dovetail.kernels.two_inequalities import TwoInequalities

Values = NDArray[Any]  # int64 or float64

BLOCK = 1024  # events in which all pairs are compared: this is cheaper than another level


class Events(NamedTuple):
    """The sweep, one entry per event."""

    keys: Words  # by the third attribute; on ties, additions come before look-ups
    places: Rows  # position that is added, or the first one that is looked up
    rows: Rows  # row in `added`, or ~k for left row k


class ThreeInequalities(NamedTuple):
    """The pairs of `two` whose right row has a `third` not less than the left row's `least`."""

    two: TwoInequalities
    least: Words  # by left row
    third: Words  # by right row
    events: Events


def prepare(two: TwoInequalities, least: Words, third: Words) -> ThreeInequalities:
    """Numbers must leave one bit free, since they are doubled."""
    looks, adds = len(two.left), len(two.added)
    look_at = adds - two.reach.astype(np.int64) + np.arange(looks)[::-1]
    add_at = np.arange(adds)[::-1] + looks - np.searchsorted(two.reach, np.arange(adds), side="right")
    keys = np.empty(looks + adds, np.int64)
    keys[look_at], keys[add_at] = 2 * least[two.left], 2 * third[two.right[two.added]] + 1
    places = np.empty(looks + adds, two.added.dtype)
    places[look_at], places[add_at] = two.start, two.added
    rows = np.empty(looks + adds, two.added.dtype)
    rows[look_at], rows[add_at] = ~np.arange(looks), np.arange(adds)
    return ThreeInequalities(two, least, third, Events(keys, places, rows))


def count(join: ThreeInequalities) -> int:
    """The number of pairs."""
    return int(row_counts(join).sum())


def row_counts(join: ThreeInequalities) -> Words:
    """The number of partners of each left row."""
    return row_sums(join, np.ones(join.two.right_rows, np.int64))


def row_sums(join: ThreeInequalities, values: Values) -> Values:
    """For each left row, the sum of its partners' `values` (one per right row). Integers wrap at 64 bits."""
    two = join.two
    sums = np.zeros(two.left_rows, values.dtype)
    sums[two.left] = _combine_values(join, values[two.right[two.added]], values.dtype.type(0), False)
    return sums


def smallest_partners(join: ThreeInequalities, codes: Words) -> Rows:
    """For each left row, the partner with the smallest code; -1 if it has none. For the largest, pass `~codes`."""
    two = join.two
    by_code = sort_codes(codes).order
    ranks = invert(by_code)[two.right[two.added]].astype(np.int64)
    best = _combine_values(join, ranks, np.int64(len(codes)), True)
    partners = np.full(two.left_rows, -1, by_code.dtype)
    found = best < len(codes)
    partners[two.left[found]] = by_code[best[found]]
    return partners


def row_exists(join: ThreeInequalities) -> Flags:
    """Which left rows have a partner."""
    return row_counts(join) > 0


def pairs(join: ThreeInequalities, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of at most `capacity`."""
    for lefts, rights in two_inequalities.pairs(join.two, capacity):
        good = join.third[rights] >= join.least[lefts]
        if good.any():
            yield lefts[good], rights[good]


def _combine_values(join: ThreeInequalities, values: Values, nothing: Any, smallest: bool) -> Values:
    """The sums, or the minima, of values in the order of `added`."""
    found = np.full(len(join.two.left), nothing, values.dtype)
    tree = np.full(len(join.two.added) + 1, nothing, values.dtype)
    _over_dominating(join.events, values, smallest, nothing, tree, found)
    return found


@kernel
def _over_dominating(events: Events, values: Values, smallest: bool, nothing: Any, tree: Values, found: Values) -> None:
    """Fill `found`, one entry per left row. It and the tree start as `nothing`; each block resets the tree."""
    size = len(events.keys)
    for start in range(0, size, BLOCK):
        _scan_block(events, values, smallest, start, min(start + BLOCK, size), found)
    halves = _sorted_blocks(events)
    merged = Events(np.empty_like(events.keys), np.empty_like(events.places), np.empty_like(events.rows))
    first = np.empty(size, np.bool_)
    width = BLOCK
    while width < size:
        for start in range(0, size, 2 * width):
            middle, end = min(start + width, size), min(start + 2 * width, size)
            _merge(halves, merged, first, start, middle, end)
            if middle < end:
                _merge_halves(merged, first, values, smallest, nothing, start, end, tree, found)
        halves, merged = merged, halves
        width *= 2


@kernel
def _scan_block(events: Events, values: Values, smallest: bool, start: int, end: int, found: Values) -> None:
    """Combine each look-up in a block with all additions before it in the block."""
    keys, places = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    added = np.empty(BLOCK, values.dtype)
    n = 0
    for i in range(start, end):
        row = events.rows[i]
        if row >= 0:
            keys[n], places[n], added[n] = events.keys[i], events.places[i], values[row]
            n += 1
            continue
        key, place, total = events.keys[i], np.int64(events.places[i]), found[~row]
        if smallest:
            for j in range(n):
                if (keys[j] >= key) & (places[j] >= place):
                    total = min(total, added[j])
        else:
            for j in range(n):
                if (keys[j] >= key) & (places[j] >= place):
                    total += added[j]
        found[~row] = total


@kernel
def _sorted_blocks(events: Events) -> Events:
    """Each block sorted by descending keys."""
    order = np.empty(len(events.keys), np.int64)
    for start in range(0, len(order), BLOCK):
        order[start : start + BLOCK] = start + np.argsort(-events.keys[start : start + BLOCK], kind="mergesort")
    return Events(events.keys[order], events.places[order], events.rows[order])


@kernel
def _merge(halves: Events, merged: Events, first: Flags, start: int, middle: int, end: int) -> None:
    """Merge two halves; `first` records what comes from the first half."""
    i, j = start, middle
    for out in range(start, end):
        first[out] = j >= end or (i < middle and halves.keys[i] >= halves.keys[j])
        at = i if first[out] else j
        merged.keys[out], merged.places[out], merged.rows[out] = halves.keys[at], halves.places[at], halves.rows[at]
        i, j = i + first[out], j + (not first[out])


@kernel
def _merge_halves(
    events: Events,
    first: Flags,
    values: Values,
    smallest: bool,
    nothing: Any,
    start: int,
    end: int,
    tree: Values,
    found: Values,
) -> None:
    """Combine additions in the first half with look-ups in the second."""
    size = np.uint64(len(tree))
    for i in range(start, end):
        row = events.rows[i]
        if first[i] and row >= 0:
            node = np.uint64(events.places[i]) + ONE
            value = values[row]
            while node > NONE:
                tree[node] = min(tree[node], value) if smallest else tree[node] + value
                node &= node - ONE
        elif not first[i] and row < 0:
            node = np.uint64(events.places[i]) + ONE
            total = found[~row]
            while node < size:
                total = min(total, tree[node]) if smallest else total + tree[node]
                node += node & (~node + ONE)
            found[~row] = total
    for i in range(start, end):
        if first[i] and events.rows[i] >= 0:
            node = np.uint64(events.places[i]) + ONE
            while node > NONE:
                tree[node] = nothing
                node &= node - ONE
