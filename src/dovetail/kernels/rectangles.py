"""Rectangles that intersect: strips along y, and in each of them a sweep along x.

    y ^  +----+
      |  |  l |            strip 2     Both sides are cut into strips that hold about equally many of them, and sorted by
      | -|- - |- - - -                 x. A rectangle meets the ones that begin while it lasts:
      |  |  +-|---+        strip 1       left   |------|            right  |------|
      |  +--|-+ r |                      right     |------|         left      |------|
      | - - | - - | - -                In each strip that is a run of the other side, and y is compared along the run.
      +--------------> x               Of the strips that a pair shares, only the lowest reports it.

Exact: codes are compared, nothing is computed. The four comparisons are the definition, so a rectangle that ends before
it begins (low > high) meets those that contain the gap; it is swept as a point. A strict comparison is one with the
next code. Strips are as many as the heights allow: a tall rectangle is in several, all of them in about twice as many
places as there are rectangles.

Patel, DeWitt, Partition based spatial-merge join, SIGMOD 1996; the lowest common strip is the reference point of
Dittrich, Seeger, Data redundancy and duplicate detection in spatial join processing, ICDE 2000. Deviation: strips of
equal depth instead of hashed tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels import candidates
from dovetail.kernels.candidates import Bytes, Candidates
from dovetail.kernels.cells import Visits
from dovetail.kernels.compiling import kernel
from dovetail.kernels.listing import CHUNK, Flags, Rows, Words
from dovetail.kernels.sorting import row_type, sort_codes

Matrix = NDArray[np.int64]  # one line of codes per rectangle: x low, y low, x high, y high

LEAST, MOST = -(2**63), 2**63 - 1
X_LOW, Y_LOW, X_HIGH, Y_HIGH = range(4)
MOST_STRIPS = 1 << 13
DEPTH = 512  # rectangles in a strip, at least
SAMPLE = 8  # per strip, to find its border
COPIES = 2  # entries per rectangle, about


class Sides(NamedTuple):
    """The borders of one side's rectangles, as codes by row."""

    x_low: Words
    x_high: Words
    y_low: Words
    y_high: Words


class Closed(NamedTuple):
    """Whether rectangles that only touch intersect: low <= other high and high >= other low, or < and >."""

    low: bool = True
    high: bool = True


CLOSED = Closed()


class Rectangles(NamedTuple):
    """Left rectangles with the right ones that begin no earlier, and right ones with the left ones that begin later."""

    onward: Candidates
    backward: Candidates


class _Sorted(NamedTuple):
    """Rectangles by where they begin in x."""

    codes: Matrix
    rows: Words


class _Entries(NamedTuple):
    """Rectangles, strip by strip and by x; one is entered in every strip that it touches."""

    begins: Words  # by strip
    rows: Rows
    codes: Matrix
    opens: Flags  # whether this is the lowest strip of the rectangle


def prepare(left: Sides, right: Sides, x: Closed = CLOSED, y: Closed = CLOSED) -> Rectangles:
    """Partners by l.low <= r.high and l.high >= r.low in x and in y; strict where not closed."""
    sizes = (len(left.x_low), len(right.x_low))
    mine = _sorted(_matrix(left), np.arange(sizes[0]))
    theirs = _sorted(*_shrunk(_matrix(right), x, y))
    bounds = _bounds(mine.codes, theirs.codes)
    touched = [_touch(side.codes, bounds) for side in (mine, theirs)]
    shift = _shift(touched, COPIES * sum(sizes))
    strips = (len(bounds) >> shift) + 1
    type_ = row_type(max(sizes))
    ours, others = (
        _enter(side.codes, side.rows.astype(type_), firsts >> shift, lasts >> shift, strips)
        for side, (firsts, lasts) in zip((mine, theirs), touched, strict=True)
    )
    return Rectangles(_candidates(ours, others, False, sizes), _candidates(others, ours, True, sizes[::-1]))


def _candidates(mine: _Entries, theirs: _Entries, later: bool, sizes: tuple[int, ...]) -> Candidates:
    boxes, firsts, lasts = _runs(mine, theirs, later)
    visits = Visits(mine.rows, theirs.rows, theirs.begins, boxes, firsts, lasts)
    return Candidates(visits, partial(_flag, mine, theirs), sizes[0], sizes[1])


def _matrix(sides: Sides) -> Matrix:
    return np.stack([sides.x_low, sides.y_low, sides.x_high, sides.y_high], axis=1)


def _shrunk(codes: Matrix, x: Closed, y: Closed) -> tuple[Matrix, Words]:
    """Right rectangles for which <= means what < did, and their rows: those beyond which no code is left meet none."""
    good = np.ones(len(codes), np.bool_)
    for low, high, closed in ((X_LOW, X_HIGH, x), (Y_LOW, Y_HIGH, y)):
        if not closed.low:
            good &= codes[:, high] != LEAST
            codes[:, high] -= 1
        if not closed.high:
            good &= codes[:, low] != MOST
            codes[:, low] += 1
    rows = np.flatnonzero(good)
    return codes[rows], rows


def _sorted(codes: Matrix, rows: Words) -> _Sorted:
    order = sort_codes(np.minimum(codes[:, X_LOW], codes[:, X_HIGH])).order
    return _Sorted(codes[order], rows[order])


def _bounds(left: Matrix, right: Matrix) -> Words:
    """Where strips begin, but the first: quantiles of a sample. One less than a power of two, for a search in steps."""
    count = len(left) + len(right)
    strips = 1 << max(min(MOST_STRIPS, count // DEPTH), 1).bit_length() - 1
    every = max(1, count // (SAMPLE * strips))
    lows = np.sort(np.concatenate([np.minimum(c[::every, Y_LOW], c[::every, Y_HIGH]) for c in (left, right)]))
    if strips == 1 or len(lows) == 0:
        return np.empty(0, np.int64)
    return lows[np.arange(1, strips) * len(lows) // strips]


def _shift(touched: list[tuple[Words, Words]], most: int) -> int:
    """How many times to halve the number of strips, until rectangles are entered at most so many times."""
    shift = 0
    while sum(int(((lasts >> shift) - (firsts >> shift) + 1).sum()) for firsts, lasts in touched) > most:
        shift += 1
    return shift


@kernel
def _touch(codes: Matrix, bounds: Words) -> tuple[Words, Words]:
    """The first and the last strip of each rectangle. One that ends before it begins is a point, at its end."""
    firsts = np.empty(len(codes), np.int64)
    lasts = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        low = min(codes[i, Y_LOW], codes[i, Y_HIGH])
        high = codes[i, Y_HIGH]
        first = 0
        step = (len(bounds) + 1) >> 1
        while step > 0:  # a binary search that never branches on data
            first += step * (bounds[first + step - 1] <= low)
            step >>= 1
        last = first
        step = 1
        while last + step <= len(bounds) and bounds[last + step - 1] <= high:
            last += step
            step *= 2
        while step > 0:
            if last + step <= len(bounds) and bounds[last + step - 1] <= high:
                last += step
            step >>= 1
        firsts[i] = first
        lasts[i] = last
    return firsts, lasts


@kernel
def _enter(codes: Matrix, rows: Rows, firsts: Words, lasts: Words, strips: int) -> _Entries:
    begins = np.zeros(strips + 1, np.int64)
    for i in range(len(codes)):
        for s in range(firsts[i], lasts[i] + 1):
            begins[s + 1] += 1
    for s in range(strips):
        begins[s + 1] += begins[s]
    ends = begins[:-1].copy()
    count = begins[strips]
    entries = _Entries(begins, np.empty(count, rows.dtype), np.empty((count, 4), np.int64), np.empty(count, np.bool_))
    for i in range(len(codes)):
        for s in range(firsts[i], lasts[i] + 1):
            at = ends[s]
            ends[s] = at + 1
            entries.rows[at] = rows[i]
            for k in range(4):
                entries.codes[at, k] = codes[i, k]
            entries.opens[at] = s == firsts[i]
    return entries


@kernel
def _runs(boxes: _Entries, points: _Entries, later: bool) -> tuple[Rows, Rows, Rows]:
    """For each box, the run of points that begin while it lasts, no earlier than it does (`later`: not together)."""
    found = np.empty_like(boxes.rows)
    firsts = np.empty_like(boxes.rows)
    lasts = np.empty_like(boxes.rows)
    out = 0
    for s in range(len(boxes.begins) - 1):
        first = points.begins[s]
        end = points.begins[s + 1]
        for b in range(boxes.begins[s], boxes.begins[s + 1]):
            start = min(boxes.codes[b, X_LOW], boxes.codes[b, X_HIGH])
            while first < end:
                begin = min(points.codes[first, X_LOW], points.codes[first, X_HIGH])
                if begin > start or (begin == start and not later):
                    break
                first += 1
            last = first
            while last < end and min(points.codes[last, X_LOW], points.codes[last, X_HIGH]) <= boxes.codes[b, X_HIGH]:
                last += 1
            found[out] = b
            firsts[out] = first
            lasts[out] = last
            out += first < last
    return found[:out], firsts[:out], lasts[:out]


@kernel
def _flag(mine: _Entries, theirs: _Entries, boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows) -> None:
    q = 0
    for v in range(len(boxes)):
        box = mine.codes[boxes[v]]
        opens = mine.opens[boxes[v]]
        found = 0
        for p in range(firsts[v], lasts[v]):
            x = (box[X_LOW] <= theirs.codes[p, X_HIGH]) & (theirs.codes[p, X_LOW] <= box[X_HIGH])
            y = (box[Y_LOW] <= theirs.codes[p, Y_HIGH]) & (theirs.codes[p, Y_LOW] <= box[Y_HIGH])
            meets = x & y & (opens | theirs.opens[p])
            flags[q] = meets
            found += meets
            q += 1
        counts[v] = found


def count(join: Rectangles) -> int:
    """How many pairs there are."""
    return candidates.count(join.onward) + candidates.count(join.backward)


def row_counts(join: Rectangles) -> Words:
    """How many partners each left row has."""
    return candidates.row_counts(join.onward) + candidates.right_counts(join.backward)


def row_exists(join: Rectangles) -> Flags:
    """Which left rows have a partner."""
    return candidates.row_exists(join.onward) | candidates.right_exists(join.backward)


def right_exists(join: Rectangles) -> Flags:
    """Which right rows have a partner."""
    return candidates.right_exists(join.onward) | candidates.row_exists(join.backward)


def pairs(join: Rectangles, room: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of at most `room`."""
    yield from candidates.pairs(join.onward, room)
    for rights, lefts in candidates.pairs(join.backward, room):
        yield lefts, rights
