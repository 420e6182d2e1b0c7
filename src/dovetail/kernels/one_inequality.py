r"""Joins on one inequality: both sides are sorted; the partners of a left row are a suffix of the right side.

    left, ascending     3   5 5   8                        l < r
                        |    \|    \
    right, ascending    4 4   6 7   9                      first = 0, 2, 2, 4

For > and >=, the codes are flipped, which gives < and <= again. Strict and non-strict differ only in where equal codes
are skipped. Codes come from `core/codes.py`, without nulls; rows are positions in the given arrays. Only `pairs`
enumerates, one chunk at a time; everything else is linear once the sides are sorted.

Aggregates over the whole join follow from those per row: the total sum is the sum of `row_sums`, the overall minimum is
the minimum over the right rows that `right_exists` marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.parts import part_ranges
from dovetail.core.threads import both, in_ranges, in_threads
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import GREATER, GREATER_EQUAL, LESS, LESS_EQUAL
from dovetail.kernels.dominance import Number
from dovetail.kernels.sorting import Rows, Words, invert, pick, row_type, sort_codes

Flags = NDArray[np.bool_]

ONE = np.uint64(1)
FEWER = 16  # with this many times fewer left rows, they are looked up instead of merged
CHUNK = 1 << 20  # pairs


class OneInequality(NamedTuple):
    """The partners of left row `left[k]` are the right rows `right[first[k]:]`. `first` ascends."""

    left: Rows
    first: Rows
    right: Rows


def prepare(
    left: Words, right: Words, operator: int, left_rows: Rows | None = None, right_rows: Rows | None = None
) -> OneInequality:
    """Sort both sides for `left operator right`, one of <, <=, >, >= as numbered in `kernels.cross`.

    With `rows`, only the codes at these rows are joined, and results are positions in `rows`.
    """
    if operator not in (LESS, LESS_EQUAL, GREATER, GREATER_EQUAL):
        raise ValueError(f"an inequality is <, <=, > or >= (2 to 5 in kernels.cross), not {operator}")
    flip = operator in (GREATER, GREATER_EQUAL)
    (left_order, left_codes), (right_order, right_codes) = both(
        lambda: sort_codes(_pick_codes(left, left_rows, flip)),
        lambda: sort_codes(_pick_codes(right, right_rows, flip)),
    )
    strict = operator in (LESS, GREATER)
    return OneInequality(left_order, first_partners(left_codes, right_codes, strict), right_order)


def _pick_codes(codes: Words, rows: Rows | None, flip: bool) -> Words:
    if rows is None:
        return ~codes if flip else codes
    return pick(codes, rows, flip)


def first_partners(left: Words, right: Words, strict: bool) -> Rows:
    """For each left code, the position of the first right code above it (or not below it); both sides ascend."""
    first = np.empty(len(left), row_type(len(right)))
    side: Literal["left", "right"] = "right" if strict else "left"
    looked_up = FEWER * len(left) < len(right)

    def find(start: int, end: int) -> None:
        if looked_up:
            first[start:end] = np.searchsorted(right, left[start:end], side)
        elif start < end:
            begin, middle = np.searchsorted(right, left[[start, (start + end) // 2]], side)
            _merge(left[start:end], right, strict, np.uint64(begin), np.uint64(middle), first[start:end])

    in_ranges(find, len(left))
    return first


def count(join: OneInequality) -> int:
    """The number of pairs."""
    return len(join.left) * len(join.right) - int(join.first.sum(dtype=np.int64))


def row_counts(join: OneInequality) -> Words:
    """The number of partners of each left row."""
    counts = np.empty(len(join.left), np.int64)
    counts[join.left] = len(join.right) - join.first.astype(np.int64)
    return counts


def row_exists(join: OneInequality) -> Flags:
    """Which left rows have a partner."""
    exists = np.empty(len(join.left), np.bool_)
    exists[join.left] = join.first < len(join.right)
    return exists


def right_exists(join: OneInequality) -> Flags:
    """Which right rows have a partner."""
    exists = np.zeros(len(join.right), np.bool_)
    if len(join.left):
        exists[join.right[join.first[0] :]] = True
    return exists


def row_sums(join: OneInequality, values: NDArray[Number]) -> NDArray[Number]:
    """For each left row, the sum of its partners' `values` (one per right row). Integers wrap at 64 bits."""
    from_here = np.zeros(len(join.right) + 1, values.dtype)
    from_here[:-1] = np.cumsum(values[join.right][::-1])[::-1]
    sums = np.empty(len(join.left), values.dtype)
    sums[join.left] = from_here[join.first]
    return sums


def smallest_partners(join: OneInequality, codes: Words) -> Rows:
    """For each left row, the partner with the smallest code; -1 if it has none. For the largest, pass `~codes`."""
    by_code = sort_codes(codes).order
    ranks = pick(invert(by_code), join.right)
    best = np.full(len(join.right) + 1, -1, by_code.dtype)
    best[:-1] = by_code[np.minimum.accumulate(ranks[::-1])[::-1]]
    partners = np.empty(len(join.left), by_code.dtype)
    partners[join.left] = best[join.first]
    return partners


def pairs(join: OneInequality, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `capacity`; only the last is smaller."""
    if capacity < 1:
        raise ValueError(f"a chunk needs room for at least one pair, not {capacity}")
    missing = count(join)
    at = np.zeros(2, np.int64)  # position in `left`, and how many of its partners are already listed
    while missing > 0:
        size = min(capacity, missing)
        lefts, rights = np.empty(size, join.left.dtype), np.empty(size, join.right.dtype)
        _emit(join, at, lefts, rights)
        missing -= size
        yield lefts, rights


def split(join: OneInequality, parts: int) -> list[OneInequality]:
    """The same pairs in several joins, of about as many each, one after the other."""

    def count(start: int, end: int) -> Words:
        return len(join.right) - join.first[start:end].astype(np.int64)

    def cut(start: int, end: int) -> OneInequality:
        first = join.first[start]  # they ascend
        return OneInequality(join.left[start:end], join.first[start:end] - first, join.right[first:])

    return in_threads([partial(cut, *rows) for rows in part_ranges(count, len(join.first), parts)])


@kernel
def _merge(left: Words, right: Words, strict: bool, begin: np.uint64, middle: np.uint64, first: Rows) -> None:
    """For each left code, the position of the first right code that is larger, or (not strict) at least as large.

    Both halves of the left side are merged in parallel, from positions `begin` and `middle` of the right one: each step
    waits for the one before, so two chains of steps take little longer than one.
    """
    n = np.uint64(len(left))
    m = np.uint64(len(right))
    half = n >> ONE
    i, j = np.uint64(0), begin
    a, b = half, middle
    while i < half and j < m and a < n and b < m:
        first[i] = j
        first[a] = b
        low = _skips(left[i], right[j], strict)
        high = _skips(left[a], right[b], strict)
        j += low
        i += ONE - low
        b += high
        a += ONE - high
    _merge_rest(left, right, strict, first, i, half, j)
    _merge_rest(left, right, strict, first, a, n, b)


@kernel
def _merge_rest(
    left: Words, right: Words, strict: bool, first: Rows, i: np.uint64, end: np.uint64, j: np.uint64
) -> None:
    m = np.uint64(len(right))
    while i < end and j < m:
        first[i] = j
        skip = _skips(left[i], right[j], strict)
        j += skip
        i += ONE - skip
    while i < end:
        first[i] = m
        i += ONE


@kernel
def _skips(left: np.int64, right: np.int64, strict: bool) -> np.uint64:
    """1 if the right code comes before all partners of the left one, else 0; without an unpredictable branch."""
    return np.uint64((right < left) | (strict & (right == left)))


@kernel
def _emit(join: OneInequality, at: Words, lefts: Rows, rights: Rows) -> None:
    """Fill both arrays with the next pairs; there must be enough of them."""
    k = np.uint64(at[0])
    done = np.uint64(at[1])
    m = np.uint64(len(join.right))
    capacity = np.uint64(len(rights))
    out = np.uint64(0)
    while out < capacity:
        position = np.uint64(join.first[k]) + done
        size = min(m - position, capacity - out)
        for i in range(size):
            lefts[out + i] = join.left[k]
            rights[out + i] = join.right[position + i]
        out += size
        done += size
        if position + size == m:
            k += ONE
            done = np.uint64(0)
    at[0] = k
    at[1] = done
