"""Band joins in one attribute: low <= l - r <= high.

Both sides are sorted. The partners of a left row are a window of the right order, and windows move forwards with the
left rows, so two cursors find them all. `windows.py` describes what can be done with windows.

    right   ..........r r r r r r r...........
                      ^ first with l - r <= high
                                    ^ first with l - r < low

Exact. Integers, decimals and times are codes: edges beyond 64 bits saturate, never wrap. For doubles, rounding is
monotone: l - r as computed never falls when l grows nor rises when r does. So the windows of the *computed* difference
are found by computing it, without a check per pair. If the condition is spelled another way (l <= r + 5, float32), a
wider and a narrower window enclose the true edges, and the condition itself is checked for the few values in between:

    right   .....? ? r r r r r r r ? ?........      ? = checked, once for each two values

NaN and infinities follow Spark: inf - inf is NaN, and NaN is larger than everything, so neither is ever in a band.

The band join as a sort and a merge: DeWitt, Naughton, Schneider, An evaluation of non-equijoin algorithms, VLDB 1991.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.codes import float_codes
from dovetail.core.threads import both, in_ranges
from dovetail.kernels.compiling import kernel
from dovetail.kernels.sorting import row_type, sort_codes
from dovetail.kernels.windows import CHUNK, Check, Rows, Windows, Words

Floats = NDArray[np.float64]

LEAST, MOST = -(2**63), 2**63 - 1
ZERO, ONE = np.uint64(0), np.uint64(1)
LARGEST = float(np.finfo(np.float64).max)
SMALLEST = 5e-324
DOUBLE_STEP = 2.0**-50  # relative error of another spelling of a band in doubles, at most
SINGLE_STEP = 2.0**-21  # the same for float32


def prepare(left: Words, right: Words, low: int, high: int) -> Windows:
    """Partners by low <= l - r <= high over codes. The bounds may be any integers."""
    mine, theirs = both(lambda: sort_codes(left), lambda: sort_codes(right))
    lows, highs = (_edges(mine.codes, amount) for amount in (high, low - 1))
    starts, ends = _new_places(len(left), len(right))

    def merge(start: int, end: int) -> None:
        if start < end:
            some, others = lows.of(mine.codes, start, end), highs.of(mine.codes, start, end)
            first = np.searchsorted(theirs.codes, [some[0], others[0]]).astype(np.uint64)
            _merge(some, others, theirs.codes, first, starts[start:end], ends[start:end])
            starts[max(start, lows.last) : end] = len(right)
            ends[max(start, highs.last) : end] = len(right)

    in_ranges(merge, len(left))
    return _windows(mine.order, theirs.order, starts, ends)


class _Edges(NamedTuple):
    """l - amount for each l, cut off at 64 bits: before place `first`, and from `last` on, above all codes."""

    amount: np.uint64
    first: int
    last: int

    def of(self, codes: Words, start: int, end: int) -> Words:
        edges = (codes[start:end].view(np.uint64) - self.amount).view(np.int64)
        edges[: max(0, self.first - start)] = LEAST
        edges[max(0, self.last - start) :] = MOST
        return edges


def _edges(codes: Words, amount: int) -> _Edges:
    first, last = _count_below(codes, LEAST + amount), _count_below(codes, MOST + amount + 1)
    return _Edges(np.uint64(amount % 2**64), first, last)


def _count_below(codes: Words, bound: int) -> int:
    if bound <= LEAST:
        return 0
    return len(codes) if bound > MOST else int(np.searchsorted(codes, np.int64(bound)))


def _new_places(lefts: int, rights: int) -> tuple[Rows, Rows]:
    """Initial starts and ends of windows: the end of the right side."""
    type_ = row_type(max(lefts, rights))
    places = np.empty(lefts, type_), np.empty(lefts, type_)

    def fill(start: int, end: int) -> None:
        for some in places:
            some[start:end] = rights

    in_ranges(fill, lefts)
    return places


def _windows(left_order: Rows, right_order: Rows, starts: Rows, ends: Rows) -> Windows:
    type_ = starts.dtype
    in_ranges(lambda start, end: np.maximum(starts[start:end], ends[start:end], out=ends[start:end]), len(starts))
    return Windows(left_order.astype(type_, copy=False), right_order.astype(type_, copy=False), starts, ends)


@kernel
def _merge(lows: Words, highs: Words, right: Words, first: NDArray[np.uint64], starts: Rows, ends: Rows) -> None:
    """The first positions of codes that are not below the edges; `first` has those of the first two edges.

    Each step moves on one side or the other without an unpredictable branch. The two merges are independent, so they
    share a loop.
    """
    n, m = np.uint64(len(lows)), np.uint64(len(right))
    i = a = ZERO
    j, b = first[0], first[1]
    while (i < n and j < m) or (a < n and b < m):
        if i < n and j < m:
            behind = np.uint64(right[j] < lows[i])
            starts[i] = j + behind  # final unless more follows
            i += ONE - behind
            j += behind
        if a < n and b < m:
            behind = np.uint64(right[b] < highs[a])
            ends[a] = b + behind
            a += ONE - behind
            b += behind


class _Sorted(NamedTuple):
    """Doubles in Spark's order, and the positions where finite values begin and end and NaNs begin."""

    order: Rows
    codes: Words
    values: Floats
    first_finite: int
    first_infinite: int
    first_nan: int

    @property
    def is_finite(self) -> bool:
        return self.first_finite == 0 and self.first_infinite == len(self.codes)


def _sort_floats(values: Floats) -> _Sorted:
    order, codes = sort_codes(float_codes(values))
    edges = float_codes(np.array([-LARGEST, np.inf, np.nan]))
    first_finite, first_infinite, first_nan = (int(place) for place in np.searchsorted(codes, edges))
    return _Sorted(order, codes, code_floats(codes), first_finite, first_infinite, first_nan)


def prepare_floats(
    left: Floats, right: Floats, low: float, high: float, low_closed: bool = True, high_closed: bool = True
) -> Windows:
    """Partners by low <= l - r <= high, with the difference computed in doubles; strict where not closed."""
    low = _finite(low) if low_closed else math.nextafter(_finite(low), math.inf)
    high = _finite(high) if high_closed else math.nextafter(_finite(high), -math.inf)
    mine, theirs = both(lambda: _sort_floats(left), lambda: _sort_floats(right))
    return _windows(mine.order, theirs.order, *_places(mine, theirs, low, high))


def _places(mine: _Sorted, theirs: _Sorted, low: float, high: float) -> tuple[Rows, Rows]:
    """Starts and ends of windows, with the difference computed in doubles."""
    starts, ends = _new_places(len(mine.order), len(theirs.order))
    starts[: mine.first_finite] = ends[: mine.first_finite] = 0
    finite = slice(mine.first_finite, mine.first_infinite)
    partners = theirs.values[: theirs.first_infinite]
    starts[finite] = ends[finite] = len(partners)
    values, begins, finals = mine.values[finite], starts[finite], ends[finite]

    def merge(start: int, end: int) -> None:
        if start < end:
            some, first = values[start:end], theirs.first_finite
            _merge_floats(some, partners, low, high, first, begins[start:end], finals[start:end])

    in_ranges(merge, len(values))
    return starts, ends


def code_floats(codes: Words) -> Floats:
    """The doubles that have these codes."""
    bits = codes >> 63
    bits &= MOST
    bits ^= codes
    return bits.view(np.float64)


def _finite(bound: float) -> float:
    if not math.isfinite(bound):
        raise ValueError(f"a band needs finite bounds; got {bound}")
    return bound


@kernel
def _merge_floats(left: Floats, right: Floats, low: float, high: float, first: int, starts: Rows, ends: Rows) -> None:
    """Like `_merge`, for right values from position `first` on: where l - r <= high begins and l - r >= low ends."""
    n, m = np.uint64(len(left)), np.uint64(len(right))
    i = a = ZERO
    j, b = _first_within(left[0], right, first, high), _first_beyond(left[0], right, first, low)
    while (i < n and j < m) or (a < n and b < m):
        if i < n and j < m:
            behind = np.uint64(left[i] - right[j] > high)
            starts[i] = j + behind
            i += ONE - behind
            j += behind
        if a < n and b < m:
            behind = np.uint64(left[a] - right[b] >= low)
            ends[a] = b + behind
            a += ONE - behind
            b += behind


@kernel
def _first_within(value: float, right: Floats, first: int, high: float) -> np.uint64:
    """The first position from `first` on where value - r <= high."""
    start, end = np.uint64(first), np.uint64(len(right))
    while start < end:
        middle = (start + end) >> ONE
        if value - right[middle] > high:
            start = middle + ONE
        else:
            end = middle
    return start


@kernel
def _first_beyond(value: float, right: Floats, first: int, low: float) -> np.uint64:
    """The first position from `first` on where value - r < low."""
    start, end = np.uint64(first), np.uint64(len(right))
    while start < end:
        middle = (start + end) >> ONE
        if value - right[middle] >= low:
            start = middle + ONE
        else:
            end = middle
    return start


def prepare_checked(
    left: Floats, right: Floats, low: float, high: float, check: Check, step: float = DOUBLE_STEP
) -> Windows:
    """Partners by `check`, which is a spelling of low <= l - r <= high, strict or not, over doubles.

    It must be off by at most `step` times the size of the operands, be monotone like all bands, and depend only on the
    two values. It may match NaN with NaN, and infinities with equal infinities.
    """
    mine, theirs = both(lambda: _sort_floats(left), lambda: _sort_floats(right))
    if mine.is_finite and theirs.is_finite:
        starts, ends = _places(mine, theirs, _finite(low), _finite(high))
        if _all_sure(mine.values, theirs.values, starts, ends, low, high, step):
            return _windows(mine.order, theirs.order, starts, ends)
    outer_starts, outer_ends = _rough_windows(mine, theirs, _finite(low), _finite(high), step)
    inner_starts, inner_ends = _rough_windows(mine, theirs, low, high, -step)
    # The largest double represents infinity: close enough to search, but not to be certain.
    inner_starts, inner_ends = (e.clip(theirs.first_finite, theirs.first_infinite) for e in (inner_starts, inner_ends))
    inner_ends[: mine.first_finite] = 0
    inner_ends[mine.first_infinite :] = 0
    _reach_likes(outer_starts, outer_ends, mine, theirs)
    unsure = inner_ends <= inner_starts  # nothing is certain: the whole outer window is checked
    inner_starts[unsure] = outer_ends[unsure]
    inner_ends[unsure] = outer_ends[unsure]
    starts = inner_starts.copy()
    ends = np.where(unsure, outer_starts, inner_ends)
    edges = (outer_starts, inner_starts, inner_ends, outer_ends)
    most = max(CHUNK, int((outer_ends - outer_starts).max(initial=0)))
    place = 0
    while place < len(left):
        asked_left, asked_right, next_place = _doubtful(mine.codes, theirs.codes, *edges, place, most)
        good = check(mine.order[asked_left], theirs.order[asked_right])
        _extend_windows(asked_left[good], asked_right[good], theirs.codes, starts, ends)
        place = next_place
    first = _group_starts(mine.codes)  # equal rows were checked once
    starts, ends = _forwards(starts[first], ends[first])
    type_ = row_type(max(len(left), len(right)))
    return _windows(mine.order, theirs.order, starts.astype(type_), ends.astype(type_))


def _forwards(starts: Words, ends: Words) -> tuple[Words, Words]:
    """Move empty windows to the end of the last one, so that all windows only move forwards."""
    empty = ends <= starts
    reached = np.maximum.accumulate(np.where(empty, 0, ends))
    return np.where(empty, reached, starts), np.where(empty, reached, ends)


def _reach_likes(starts: Words, ends: Words, mine: _Sorted, theirs: _Sorted) -> None:
    """Extend windows so that infinities can match equal infinities, and NaN can match NaN, for any bounds."""
    starts[: mine.first_finite] = 0
    ends[: mine.first_finite] = np.maximum(ends[: mine.first_finite], theirs.first_finite)
    infinite = slice(mine.first_infinite, mine.first_nan)
    starts[infinite] = np.minimum(starts[infinite], theirs.first_infinite)
    ends[infinite] = theirs.first_nan
    starts[mine.first_nan :] = theirs.first_nan
    ends[mine.first_nan :] = len(theirs.order)


def _rough_windows(mine: _Sorted, theirs: _Sorted, low: float, high: float, step: float) -> tuple[Words, Words]:
    """The windows of finite numbers, widened by `step`; narrowed if it is negative."""
    lefts = mine.values[: mine.first_nan].clip(-LARGEST, LARGEST)
    rights = theirs.values[: theirs.first_nan].clip(-LARGEST, LARGEST)
    starts = np.full(len(mine.order), theirs.first_nan, np.int64)
    ends = np.full(len(mine.order), theirs.first_nan, np.int64)
    starts[: len(lefts)], ends[: len(lefts)] = _rough_places(lefts, rights, low, high, step)
    return starts, np.maximum(starts, ends)


@kernel
def _rough_places(left: Floats, right: Floats, low: float, high: float, step: float) -> tuple[Words, Words]:
    starts = np.empty(len(left), np.int64)
    ends = np.empty(len(left), np.int64)
    start = 0
    end = 0
    least = math.copysign(SMALLEST, step)  # the margin if both are zero: an edge itself is never certain
    for i in range(len(left)):
        reach = high + (abs(left[i]) * step + abs(high) * step + least)
        # The reach varies slightly from row to row, so a cursor may have to move back.
        while start > 0 and left[i] - right[start - 1] <= reach:
            start -= 1
        while start < len(right) and left[i] - right[start] > reach:
            start += 1
        reach = low - (abs(left[i]) * step + abs(low) * step + least)
        while end > 0 and left[i] - right[end - 1] < reach:
            end -= 1
        while end < len(right) and left[i] - right[end] >= reach:
            end += 1
        starts[i] = start
        ends[i] = end
    return starts, ends


@kernel
def _all_sure(left: Floats, right: Floats, starts: Rows, ends: Rows, low: float, high: float, step: float) -> bool:
    """Whether the values next to every edge are far enough from it that no spelling of the band could differ."""
    for i in range(len(left)):
        start, end = starts[i], ends[i]
        margin = (abs(left[i]) + abs(high)) * step + SMALLEST
        if start > 0 and left[i] - right[start - 1] <= high + margin:
            return False
        if start < len(right) and left[i] - right[start] >= high - margin:
            return False
        margin = (abs(left[i]) + abs(low)) * step + SMALLEST
        if end > 0 and left[i] - right[end - 1] <= low + margin:
            return False
        if end < len(right) and left[i] - right[end] >= low - margin:
            return False
    return True


@kernel
def _doubtful(
    left: Words,
    right: Words,
    outer_starts: Words,
    inner_starts: Words,
    inner_ends: Words,
    outer_ends: Words,
    place: int,
    capacity: int,
) -> tuple[Words, Words, int]:
    """The positions to check, one for each two values, from `place` on as long as they certainly fit in `capacity`."""
    lefts = np.empty(capacity, np.int64)
    rights = np.empty(capacity, np.int64)
    out = 0
    while place < len(left):
        if out + outer_ends[place] - outer_starts[place] > capacity:
            break
        if place == 0 or left[place] != left[place - 1]:
            for j in range(outer_starts[place], inner_starts[place]):
                if j == outer_starts[place] or right[j] != right[j - 1]:
                    lefts[out] = place
                    rights[out] = j
                    out += 1
            for j in range(inner_ends[place], outer_ends[place]):
                if j == inner_ends[place] or right[j] != right[j - 1]:
                    lefts[out] = place
                    rights[out] = j
                    out += 1
        place += 1
    return lefts[:out], rights[:out], place


@kernel
def _extend_windows(lefts: Words, rights: Words, right: Words, starts: Words, ends: Words) -> None:
    """Extend the windows by the values that passed the check."""
    for k in range(len(lefts)):
        i = lefts[k]
        j = rights[k]
        starts[i] = min(starts[i], j)
        while j < len(right) and right[j] == right[rights[k]]:
            j += 1
        ends[i] = max(ends[i], j)


def _group_starts(codes: Words) -> Words:
    """For each position, the first position with the same code."""
    new = np.empty(len(codes), np.bool_)
    new[:1] = True
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    return np.maximum.accumulate(np.where(new, np.arange(len(codes)), 0))
