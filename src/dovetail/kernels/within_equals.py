"""Inequalities and bands within equal keys: the partners of a left row by equality are sorted by a further attribute,
so that those that also satisfy it are adjacent.

    right rows by bucket     4 0 7 | 2 6 | …        the three rows of one key, …
    codes of the attribute   9 1 5 | 3 3 |
    arranged                 0 7 4 | 2 6 |          … in the order of the attribute: l < r is a range of these

With several inequalities, one gives the ranges; the others are checked code by code when pairs are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.codes import LEAST, MOST, add_saturating
from dovetail.core.threads import in_ranges
from dovetail.kernels import equality
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import GREATER, GREATER_EQUAL, LESS, holds
from dovetail.kernels.equality import Equality, sort_range
from dovetail.kernels.sorting import pick, row_type, sort_codes
from dovetail.kernels.windows import CHUNK, Flags, Rows, Words

Matrix = NDArray[np.int64]

LONG = 1 << 10  # rows of a range, from which on sorting the whole side costs less


def with_inequality(join: Equality, left: Words, right: Words, operator: int) -> Equality:
    """Those of the pairs with `left operator right`, one of <, <=, >, >= as numbered in `kernels.cross`."""
    rows, codes = _arranged(join, right)
    starts, ends = join.starts.copy(), join.ends.copy()
    if operator in (GREATER, GREATER_EQUAL):
        _cut_ranges(codes, left, operator == GREATER, starts, ends, ends)
    else:
        _cut_ranges(codes, left, operator != LESS, starts, ends, starts)
    return join._replace(rows=rows, starts=starts, ends=ends)


def with_band(join: Equality, left: Words, right: Words, low: int, high: int) -> Equality:
    """Those of the pairs with low <= left - right <= high."""
    rows, codes = _arranged(join, right)
    starts, ends = join.starts.copy(), join.ends.copy()
    lows, highs = _shifted(left, high), _shifted(left, low)
    _cut_ranges(codes, lows.codes, True, starts, ends, starts)
    _cut_ranges(codes, highs.codes, False, starts, ends, ends)
    nothing = lows.above | highs.below
    ends[nothing] = starts[nothing]
    return join._replace(rows=rows, starts=starts, ends=ends)


class _Shifted(NamedTuple):
    codes: Words
    below: Flags  # rows whose value does not fit in 64 bits
    above: Flags


def _shifted(codes: Words, amount: int) -> _Shifted:
    """codes - amount, clamped to LEAST .. MOST."""
    return _Shifted(add_saturating(codes, -amount), codes < LEAST + amount, codes > MOST + amount)


def _arranged(join: Equality, codes: Words) -> tuple[Rows, Words]:
    """The right rows, in each range by code, and their codes."""
    widths = in_ranges(partial(_widest, join), len(join.starts))
    rows = join.rows.copy()
    if max(widths) > LONG:
        _arrange(join, sort_codes(codes).order, rows)
        return rows, pick(codes, rows)
    sorted_codes = np.empty(len(rows), np.int64)
    behind = np.zeros(len(rows), rows.dtype)
    in_ranges(lambda start, end: _mark_ranges(join, start, end, behind), len(join.starts))
    in_ranges(lambda start, end: _sort_ranges(behind, start, end, codes, rows, sorted_codes), len(rows))
    return rows, sorted_codes


def _widest(join: Equality, start: int, end: int) -> int:
    return int((join.ends[start:end] - join.starts[start:end]).max(initial=0))


@kernel
def _mark_ranges(join: Equality, first: int, last: int, behind: Rows) -> None:
    """Where the range ends that begins at a place, for the ranges of some left rows."""
    for k in range(first, last):
        if join.starts[k] < join.ends[k]:
            behind[join.starts[k]] = join.ends[k]


@kernel
def _sort_ranges(behind: Rows, first: int, last: int, codes: Words, rows: Rows, sorted_codes: Words) -> None:
    """The ranges that begin at some of the places."""
    for start in range(first, last):
        for place in range(start, behind[start]):
            sorted_codes[place] = codes[rows[place]]
        sort_range(sorted_codes, rows, start, behind[start])


@kernel
def _arrange(join: Equality, order: Rows, rows: Rows) -> None:
    """All ranges at once, where some are long: rows in the order of the whole side go each to its range."""
    places = np.full(len(rows), -1, rows.dtype)  # where the range of a row begins
    filled = np.full(len(rows), -1, rows.dtype)  # how much of the range that begins here is filled
    for k in range(len(join.starts)):
        start = join.starts[k]
        if start < join.ends[k] and filled[start] < 0:
            filled[start] = 0
            for place in range(start, join.ends[k]):
                places[join.rows[place]] = start
    for i in range(len(order)):
        start = places[order[i]]
        if start >= 0:
            rows[start + filled[start]] = order[i]
            filled[start] += 1


def _cut_ranges(codes: Words, bounds: Words, before_equals: bool, starts: Rows, ends: Rows, cuts: Rows) -> None:
    def cut(start: int, end: int) -> None:
        mine = slice(start, end)
        _cut(codes, bounds[mine], before_equals, starts[mine], ends[mine], cuts[mine])

    in_ranges(cut, len(bounds))


@kernel
def _cut(codes: Words, bounds: Words, before_equals: bool, starts: Rows, ends: Rows, cuts: Rows) -> None:
    """In each range, the first position with a code larger than the bound, or (before equals) as large."""
    for k in range(len(bounds)):
        first, last = np.uint64(starts[k]), np.uint64(ends[k])
        bound = bounds[k]
        while first < last:
            middle = (first + last) >> np.uint64(1)
            if codes[middle] < bound or (codes[middle] == bound and not before_equals):
                first = middle + np.uint64(1)
            else:
                last = middle
        cuts[k] = first


class Checked(NamedTuple):
    """The pairs of `join` for which all operators hold: left[c, row] operators[c] right[c, place]."""

    join: Equality
    left: Matrix
    right: Matrix  # by position in `join.rows`
    operators: Words


def check(join: Equality, codes: list[tuple[Words, Words]], operators: list[int]) -> Checked:
    """With further inequalities."""
    left = np.empty((len(codes), len(codes[0][0])), np.int64)
    right = np.empty((len(codes), len(join.rows)), np.int64)

    def place(start: int, end: int) -> None:
        for (_, theirs), placed in zip(codes, right, strict=True):
            placed[start:end] = theirs[join.rows[start:end]]

    def copy(start: int, end: int) -> None:
        for (mine, _), copied in zip(codes, left, strict=True):
            copied[start:end] = mine[start:end]

    in_ranges(place, len(join.rows))
    in_ranges(copy, left.shape[1])
    return Checked(join, left, right, np.array(operators))


def count(checked: Checked) -> int:
    return sum(len(lefts) for lefts, _ in pairs(checked))


def row_counts(checked: Checked) -> Words:
    counts = np.zeros(checked.join.left_rows, np.int64)
    for lefts, _ in pairs(checked):
        counts += np.bincount(lefts, minlength=len(counts))
    return counts


def row_exists(checked: Checked) -> Flags:
    exists = np.zeros(checked.join.left_rows, np.bool_)
    for lefts, _ in pairs(checked):
        exists[lefts] = True
    return exists


def right_exists(checked: Checked) -> Flags:
    exists = np.zeros(len(checked.join.rows), np.bool_)
    for _, rights in pairs(checked):
        exists[rights] = True
    return exists


def split(checked: Checked, parts: int) -> list[Checked]:
    """The same pairs in order, in several joins."""
    return [checked._replace(join=join) for join in equality.split(checked.join, parts)]


def pairs(checked: Checked, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `capacity`; only the last is smaller."""
    type_ = row_type(checked.join.left_rows)
    at = np.zeros(2, np.int64)  # position in `starts`, and how many of its candidates have been checked
    while True:
        lefts, rights = np.empty(capacity, type_), np.empty(capacity, checked.join.rows.dtype)
        size = int(_emit(checked, at, lefts, rights))
        if size < capacity:
            if size:
                yield lefts[:size].copy(), rights[:size].copy()
            return
        yield lefts, rights


@kernel
def _emit(checked: Checked, at: Words, lefts: Rows, rights: Rows) -> int:
    """Fill both arrays with the next pairs; returns how many. Only at the end are they fewer than fit."""
    join = checked.join
    out = 0
    k = at[0]
    while k < len(join.starts):
        row = join.first + k
        for place in range(join.starts[k] + at[1], join.ends[k]):
            if out == len(lefts):
                at[0], at[1] = k, place - join.starts[k]
                return out
            good = True
            for c in range(len(checked.operators)):
                good &= holds(checked.operators[c], checked.left[c, row], checked.right[c, place])
            lefts[out] = row  # always written, but kept only if it is a pair
            rights[out] = join.rows[place]
            out += good
        at[1] = 0
        k += 1
    at[0] = k
    return out
