"""Joins on two inequalities: sweep over one attribute, look up the other in a bit set.

    right rows by a    r4  r0  r7  r2  r5  r1       at positions 0, 1, 2, …; by a, the partners of l are from `start` on
    bits                0   0   1   0   1   1       1: its b also matches l; the sweep over b only ever adds
    a left row l              start ^------>        every 1 from here on is a result

The bits are kept in three levels of 64-bit words; the upper two show which words below are not empty, so the next 1 is
found in a few steps. A right row is added once, a left row costs a look-up, a pair a step.

`prepare` converts codes to positions, per operator, so that later no keys are compared and no ties occur. By the first
attribute, it drops left rows without partners and right rows that no left row reaches. It counts the candidates by each
attribute, and puts the more selective one into the bits, where the 1s are then denser. Codes come from `core/codes.py`,
without nulls; rows are positions in the given arrays. Only `pairs` enumerates, chunk by chunk; the rest takes O(n log
n). Totals follow from the rows: the sum of `row_sums`, the minimum over the right rows that `right_exists` marks.

Rows that are kept for many joins are sorted once and probed many times:

    part  = build((a, b), operators)          the immutable side, in both orders
    rows  = arrange((a, b), operators)        a batch that probes, sorted once for all parts
    join  = probe(rows, part, operators)      merges only

There, codes are oriented so that the partners of a probe are always the upper end: `left operator right` for probes on
the left, so `a` of a part is on the right of the operator. For parts on the left, flip the operators.

Khayyat et al., Lightning Fast and Space Efficient Inequality Joins, PVLDB 8(13), 2015. Its L1', L2' and P' are `right`,
the order of `added`, and `added`; its offsets are `start` and `reach`. Deviations: two levels above the bit array
instead of the filter of section 4.1; equality per operator, since one flag for both predicates is wrong with ties; no
permutation of the left side; results in chunks of any size. In a part, the permutation from one order to the other and
the sorted arrays are the permutation and offset arrays of SPO-Join; a batch of probes is merged with it instead of
looking up each tuple.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import in_threads
from dovetail.kernels import one_inequality
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import GREATER, GREATER_EQUAL, LESS
from dovetail.kernels.dominance import (
    NONE,
    ONE,
    WITHIN,
    WORD,
    Number,
    count_dominating,
    smallest_dominating,
    sum_dominating,
)
from dovetail.kernels.instructions import ones, trailing_zeros
from dovetail.kernels.one_inequality import CHUNK, Flags, first_partners
from dovetail.kernels.sorting import Rows, Sorted, Words, invert, pick, scatter, sort_codes

Bits = NDArray[np.uint64]
Operators = tuple[int, int]

ALL = np.uint64(2**64 - 1)
NOTHING = np.empty(0, np.uint64)
COARSER = 4  # times fewer parts than other joins are split into
LEAST_PART = 256  # left rows
SAMPLED = 1024  # rows of a side, to split the work evenly
STRIPES = 64  # of the left side; partners are counted for each
FEWEST_HITS = 32  # in the sample, on average over stripes


class TwoInequalities(NamedTuple):
    """The partners of `left[k]` are the right rows at positions p >= start[k] that are in added[reach[k]:].

    `reach` ascends, so a sweep from the last left row to the first only ever adds to the bits.
    """

    left: Rows  # by the swept attribute; without left rows that have no candidates
    start: Rows
    reach: Rows
    right: Rows  # by the attribute in the bits: the row at each position
    added: Rows  # by the swept attribute: the position of each row
    left_rows: int  # size of the whole side
    right_rows: int
    begun: Bits = NOTHING  # the bits before the last left row, if they are set


class Sweep(NamedTuple):
    """The state of an enumeration: the bits added so far, and where to continue."""

    words: Bits
    groups: Bits  # 64 words each
    fields: Bits  # 64 groups each
    at: Words  # left rows to go, right rows to go, position in the current row (-1: its start)


def prepare(
    left: tuple[Words, Words], right: tuple[Words, Words], operators: tuple[int, int], swap: bool | None = None
) -> TwoInequalities:
    """Sort for `left[0] operators[0] right[0] AND left[1] operators[1] right[1]`; <, <=, >, >= as in `kernels.cross`.

    `swap` chooses the attribute to sweep, the second (False) or the first (True), if nothing will be enumerated and
    counting candidates does not pay; the results are the same.
    """
    rows, start, partners = one_inequality.prepare(left[0], right[0], operators[0])
    kept = int(np.searchsorted(start, len(partners)))  # the other left rows have no partner; `start` ascends
    unused = int(start[0]) if kept else len(partners)  # right rows at the front that no left row reaches
    rows, start, partners = rows[:kept], start[:kept], partners[unused:]
    start -= start.dtype.type(unused)
    second = one_inequality.prepare(left[1], right[1], operators[1], rows, partners)
    sizes = len(left[0]), len(right[0])
    if swap is None:
        swap = one_inequality.count(second) < kept * len(partners) - int(start.sum(dtype=np.int64))
    if not swap:
        rows, start = pick(rows, second.left), pick(start, second.left)
        return TwoInequalities(rows, start, second.first, partners, second.right, *sizes)
    reach, start = start, scatter(second.first, second.left)
    return TwoInequalities(rows, start, reach, pick(partners, second.right), invert(second.right), *sizes)


def count(join: TwoInequalities) -> int:
    """The number of pairs."""
    return int(count_dominating(join.start, join.reach, join.added, np.empty(0, np.int64)))


def row_counts(join: TwoInequalities) -> Words:
    """The number of partners of each left row."""
    partners = np.empty(len(join.left), np.int64)
    count_dominating(join.start, join.reach, join.added, partners)
    counts = np.zeros(join.left_rows, np.int64)
    counts[join.left] = partners
    return counts


def row_exists(join: TwoInequalities) -> Flags:
    """Which left rows have a partner."""
    highest = np.full(len(join.added) + 1, -1, join.added.dtype)  # highest position of the rows added from here on
    highest[:-1] = np.maximum.accumulate(join.added[::-1])[::-1]
    exists = np.zeros(join.left_rows, np.bool_)
    exists[join.left] = highest[join.reach] >= join.start
    return exists


def right_exists(join: TwoInequalities) -> Flags:
    """Which right rows have a partner."""
    exists = np.zeros(join.right_rows, np.bool_)
    if len(join.left):
        lowest = np.minimum.accumulate(join.start)
        comers = np.searchsorted(join.reach, np.arange(len(join.added)), side="right")  # left rows that reach this far
        exists[join.right[join.added]] = (comers > 0) & (lowest[comers - 1] <= join.added)
    return exists


def row_sums(join: TwoInequalities, values: NDArray[Number]) -> NDArray[Number]:
    """For each left row, the sum of its partners' `values` (one per right row). Integers wrap at 64 bits."""
    sums = np.zeros(join.left_rows, values.dtype)
    sums[join.left] = sum_dominating(join.start, join.reach, join.added, values[join.right[join.added]])
    return sums


def smallest_partners(join: TwoInequalities, codes: Words) -> Rows:
    """For each left row, the partner with the smallest code; -1 if it has none. For the largest, pass `~codes`."""
    by_code = sort_codes(codes).order
    ranks = pick(invert(by_code), pick(join.right, join.added))
    best = smallest_dominating(join.start, join.reach, join.added, ranks, by_code.dtype.type(len(codes)))
    partners = np.full(join.left_rows, -1, by_code.dtype)
    found = best < len(codes)
    partners[join.left[found]] = by_code[best[found]]
    return partners


def pairs(join: TwoInequalities, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `capacity`; only the last is smaller."""
    if capacity < 1:
        raise ValueError(f"a chunk needs room for at least one pair, not {capacity}")
    sweep = start_sweep(join)
    while True:
        lefts, rights = np.empty(capacity, join.left.dtype), np.empty(capacity, join.right.dtype)
        size = emit(join, sweep, lefts, rights)
        if size < capacity:
            if size:
                yield lefts[:size].copy(), rights[:size].copy()  # copied so that unused memory is released
            return
        yield lefts, rights


def split(join: TwoInequalities, parts: int) -> list[TwoInequalities]:
    """The same pairs in order, in several joins. Each repeats the bits that those before it add, so use few parts."""
    cuts = _even_cuts(join, max(1, min(parts // COARSER, len(join.left) // LEAST_PART)))[::-1]
    ranges = [(start, end) for end, start in itertools.pairwise(cuts.tolist()) if start < end]  # from the last left row
    if len(ranges) < 2:
        return [join]
    reached = [len(join.added), *(int(join.reach[end - 1]) for _, end in ranges)]
    words = (len(join.right) >> 6) + 1
    bits = in_threads([partial(_bits_of, join.added[to:begin], words) for begin, to in itertools.pairwise(reached)])
    for before, here in itertools.pairwise(bits):
        here |= before
    return [
        join._replace(left=join.left[start:end], start=join.start[start:end], reach=join.reach[start:end], begun=begun)
        for (start, end), begun in zip(ranges, bits, strict=True)
    ]


def _even_cuts(join: TwoInequalities, parts: int) -> Words:
    """Positions that split left rows into parts of about equal work: a look-up per row, and its partners."""
    whole = np.linspace(0, len(join.left), parts + 1).astype(np.int64)
    if parts == 1 or min(len(join.left), len(join.added)) < SAMPLED:
        return whole
    lefts, rights = (np.linspace(0, size - 1, SAMPLED).astype(np.int64) for size in (len(join.left), len(join.added)))
    met = (join.reach[lefts, None] <= rights) & (join.start[lefts, None] <= join.added[rights])
    hits = met.reshape(STRIPES, -1).sum(axis=1)
    if hits.sum() < STRIPES * FEWEST_HITS:  # the sample is too small to be reliable
        return whole
    work = len(join.left) / STRIPES * (1 + hits * STRIPES / SAMPLED * len(join.added) / SAMPLED)
    done = np.append(0, np.cumsum(work))
    places = np.linspace(0, len(join.left), len(done))
    return np.interp(np.linspace(0, done[-1], parts + 1), done, places).astype(np.int64)


def start_sweep(join: TwoInequalities) -> Sweep:
    """For callers of `emit` with their own arrays; every call changes it."""
    size = (len(join.right) >> 6) + 1
    if not len(join.begun):
        words, groups = np.zeros(size, np.uint64), np.zeros((size >> 6) + 1, np.uint64)
        return Sweep(words, groups, _summary(groups), np.array([len(join.left), len(join.added), -1]))
    groups = _summary(join.begun)
    return Sweep(join.begun.copy(), groups, _summary(groups), np.array([len(join.left), int(join.reach[-1]), -1]))


@kernel
def _summary(words: Bits) -> Bits:
    """A bit per word: whether it is not empty."""
    summary = np.zeros((len(words) >> 6) + 1, np.uint64)
    for w in range(np.uint64(len(words))):
        summary[w >> WORD] |= np.uint64(words[w] != NONE) << (w & WITHIN)
    return summary


@kernel
def _bits_of(positions: Rows, size: int) -> Bits:
    words = np.zeros(size, np.uint64)
    for i in range(len(positions)):
        position = np.uint64(positions[i])
        words[position >> WORD] |= ONE << (position & WITHIN)
    return words


@kernel
def emit(join: TwoInequalities, sweep: Sweep, lefts: Rows, rights: Rows) -> np.int64:
    """Fill both arrays with the next pairs; returns how many. Only at the end are they fewer than fit."""
    to_go = np.uint64(sweep.at[0])
    to_add = np.uint64(sweep.at[1])
    position = NONE
    under_way = sweep.at[2] >= 0
    end = np.uint64(len(join.right))
    capacity = np.uint64(len(rights))
    out = NONE
    while to_go > NONE and out < capacity:
        k = to_go - ONE
        reach = np.uint64(join.reach[k])
        while to_add > reach:
            to_add -= ONE
            _add(sweep, np.uint64(join.added[to_add]))
        position = np.uint64(sweep.at[2] if under_way else join.start[k])
        under_way = False
        left = join.left[k]
        if position < end:
            w = position >> WORD
            g = w >> WORD
            word = sweep.words[w] & (ALL << (position & WITHIN))
            group = sweep.groups[g] & ((ALL << (w & WITHIN)) << ONE)  # the later words in this group
            while True:
                base = w << WORD
                if ones(word) > capacity - out:
                    while out < capacity:
                        lefts[out] = left
                        rights[out] = join.right[base + trailing_zeros(word)]
                        word &= word - ONE
                        out += ONE
                    position = base + trailing_zeros(word)  # the first that did not fit
                    under_way = True
                    break
                while word != NONE:
                    lefts[out] = left
                    rights[out] = join.right[base + trailing_zeros(word)]
                    word &= word - ONE
                    out += ONE
                if group == NONE:
                    g = _next_group(sweep, g)
                    if g == ALL:
                        break
                    group = sweep.groups[g]
                w = (g << WORD) + trailing_zeros(group)
                group &= group - ONE
                word = sweep.words[w]
        if under_way:
            break
        to_go -= ONE
    sweep.at[2] = np.int64(position) if under_way else np.int64(-1)
    sweep.at[0] = np.int64(to_go)
    sweep.at[1] = np.int64(to_add)
    return np.int64(out)


@kernel
def _add(sweep: Sweep, position: np.uint64) -> None:
    w = position >> WORD
    g = w >> WORD
    sweep.words[w] |= ONE << (position & WITHIN)
    sweep.groups[g] |= ONE << (w & WITHIN)
    sweep.fields[g >> WORD] |= ONE << (g & WITHIN)


@kernel
def _next_group(sweep: Sweep, g: np.uint64) -> np.uint64:
    """The next group that is not empty; ALL if there is none."""
    f = g >> WORD
    field = sweep.fields[f] & ((ALL << (g & WITHIN)) << ONE)
    while field == NONE:
        f += ONE
        if f >= np.uint64(len(sweep.fields)):
            return ALL
        field = sweep.fields[f]
    return (f << WORD) + trailing_zeros(field)


class Arranged(NamedTuple):
    """Rows by each attribute, ascending in the direction of its operator."""

    first: Sorted
    second: Sorted


class OrderedPart(NamedTuple):
    """Rows by each attribute, and the mapping between the two orders."""

    first: Sorted
    second: Sorted
    second_to_first: Rows  # position by the first attribute, indexed by position by the second
    first_to_second: Rows
    rows: int  # rows numbered so far, including removed ones


def arrange(codes: tuple[Words, Words], operators: Operators) -> Arranged:
    first, second = (
        sort_codes(~column if operator in (GREATER, GREATER_EQUAL) else column)
        for column, operator in zip(codes, operators, strict=True)
    )
    return Arranged(first, second)


def build(codes: tuple[Words, Words], operators: Operators) -> OrderedPart:
    first, second = arrange(codes, operators)
    second_to_first = pick(invert(first.order), second.order)
    return OrderedPart(first, second, second_to_first, invert(second_to_first), len(codes[0]))


def without(part: OrderedPart, gone: NDArray[np.bool_]) -> OrderedPart:
    """The part without some rows; the others keep their numbers."""
    first, second = (_remove_from_order(order, gone) for order in (part.first, part.second))
    places = np.empty(len(gone), first.order.dtype)
    places[first.order] = np.arange(len(first.order))
    second_to_first = places[second.order]
    return OrderedPart(first, second, second_to_first, invert(second_to_first), part.rows)


def _remove_from_order(order: Sorted, gone: NDArray[np.bool_]) -> Sorted:
    stays = ~gone[order.order]
    return Sorted(order.order[stays], order.codes[stays])


def probe(probes: Arranged, part: OrderedPart, operators: Operators) -> TwoInequalities:
    """The join of the probes (left) with the part (right), the more selective attribute in the bits."""
    size = len(probes.first.order)
    strict = [operator in (LESS, GREATER) for operator in operators]
    starts = first_partners(probes.first.codes, part.first.codes, strict[0])
    reaches = first_partners(probes.second.codes, part.second.codes, strict[1])
    by_row = np.empty(size, starts.dtype)
    if int(starts.sum(dtype=np.int64)) >= int(reaches.sum(dtype=np.int64)):  # the first is more selective
        by_row[probes.first.order] = starts
        start = by_row[probes.second.order]
        return TwoInequalities(
            probes.second.order, start, reaches, part.first.order, part.second_to_first, size, part.rows
        )
    by_row[probes.second.order] = reaches
    start = by_row[probes.first.order]
    return TwoInequalities(probes.first.order, start, starts, part.second.order, part.first_to_second, size, part.rows)
