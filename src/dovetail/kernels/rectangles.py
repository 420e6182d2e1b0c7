"""Joins intersecting rectangles: strips along y, and in each strip a sweep along x.

    y ^  +----+
      |  |  l |            strip 2     Both sides are cut into strips with about equally many rows, sorted by x.
      | -|- - |- - - -                 A rectangle is joined with those that begin before it ends:
      |  |  +-|---+        strip 1       left   |------|            right  |------|
      |  +--|-+ r |                      right     |------|         left      |------|
      | - - | - - | - -                In each strip that is a run of the other side, and y is compared along the run.
      +--------------> x               Of the strips that a pair shares, only the lowest reports it.
      +--------------> x               If a pair shares several strips, only the lowest one reports it.
Exact: codes are compared, nothing is computed. The four comparisons are the definition, so a rectangle that ends before
it begins (low > high) intersects those that contain the gap; it is swept as a point. A strict comparison is a
non-strict one with the next code. The number of strips depends on the heights: a tall rectangle is in several strips,
and the total number of entries is at most about twice the number of rectangles.

Patel, DeWitt, Partition based spatial-merge join, SIGMOD 1996; the lowest common strip is the reference point of
Dittrich, Seeger, Data redundancy and duplicate detection in spatial join processing, ICDE 2000. Deviation: strips of
equal depth instead of hashed tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from dovetail.kernels import candidates
from dovetail.kernels.candidates import Bytes, Candidates, Visits, blocks
from dovetail.kernels.compiling import kernel
from dovetail.kernels.sorting import row_type, sort_codes
from dovetail.kernels.windows import CHUNK, Flags, Rows, Words

LEAST, MOST = -(2**63), 2**63 - 1
DEPTH = 512  # rectangles per strip, at least
MOST_STRIPS = 1 << 12
SAMPLE = 8  # sampled rectangles per strip, to find its bounds
SLOTS = 4  # per strip, to look up the strip of a code
COPIES = 2  # entries per rectangle, at most


class Sides(NamedTuple):
    """The bounds of one side's rectangles, as codes by row."""

    x_low: Words
    x_high: Words
    y_low: Words
    y_high: Words


class Closed(NamedTuple):
    """Whether rectangles that only touch intersect: low <= other high and high >= other low, instead of < and >."""

    low: bool = True
    high: bool = True


CLOSED = Closed()


class Rectangles(NamedTuple):
    """Left rectangles with the right ones that begin no earlier, and right ones with the left ones that begin later."""

    onward: Candidates
    backward: Candidates


class _Strips(NamedTuple):
    """Strip k begins at bounds[k - 1]; codes of slot s are in the strips slots[s] .. slots[s + 1]."""

    bounds: Words
    slots: Words
    lowest: np.int64
    shift: np.uint64


class _Entries(NamedTuple):
    """Rectangles by strip and by where they begin in x; each one is entered in every strip that it touches."""

    strips: Words  # start of each strip
    rows: Rows
    opens: Flags  # whether this is the lowest strip of the rectangle
    begins: Words  # the lower of x_low and x_high
    x_low: Words
    x_high: Words
    y_low: Words
    y_high: Words


def prepare(left: Sides, right: Sides, x: Closed = CLOSED, y: Closed = CLOSED) -> Rectangles:
    """Partners by l.low <= r.high and l.high >= r.low in x and in y; strict where not closed."""
    sizes = (len(left.x_low), len(right.x_low))
    right, kept = _shrunk(right, x, y)
    strips = _strips(left, right)
    touched = [_touched_strips(strips, side, row_type(max(sizes))) for side in (left, right)]
    number = len(strips.bounds) + 1
    # Use half as many strips while there are too many entries.
    while sum(int((lasts - firsts).sum()) for firsts, lasts in touched) > (COPIES - 1) * sum(sizes):
        touched = [both >> 1 for both in touched]
        number >>= 1
    ours, theirs = (_entries(side, both[0], both[1], number) for side, both in zip((left, right), touched, strict=True))
    if kept is not None:
        theirs = theirs._replace(rows=kept[theirs.rows].astype(theirs.rows.dtype))
    return Rectangles(_candidates(ours, theirs, False, sizes), _candidates(theirs, ours, True, sizes[::-1]))


def _candidates(mine: _Entries, theirs: _Entries, later: bool, sizes: tuple[int, ...]) -> Candidates:
    visits = partial(blocks, _runs(mine, theirs, later))
    return Candidates(mine.rows, theirs.rows, visits, partial(_flag, mine, theirs), sizes[0], sizes[1])


def _shrunk(sides: Sides, x: Closed, y: Closed) -> tuple[Sides, Words | None]:
    """Right rectangles adjusted so that <= means what < did, and their rows, without those that match nothing."""
    if all((*x, *y)):
        return sides, None
    good = np.ones(len(sides.x_low), np.bool_)
    for low, high, closed in ((sides.x_low, sides.x_high, x), (sides.y_low, sides.y_high, y)):
        if not closed.low:
            good &= high != LEAST
        if not closed.high:
            good &= low != MOST
    rows = np.flatnonzero(good)
    x_low, x_high, y_low, y_high = (side[rows] for side in sides)
    return Sides(x_low + (not x.high), x_high - (not x.low), y_low + (not y.high), y_high - (not y.low)), rows


def _strips(left: Sides, right: Sides) -> _Strips:
    """Strips of equal depth, from the quantiles of a sample, and a table to look them up."""
    count = len(left.y_low) + len(right.y_low)
    number = 1 << max(min(MOST_STRIPS, count // DEPTH), 1).bit_length() - 1
    every = max(1, count // (SAMPLE * number))
    sides = [side for side in (left, right) if len(side.y_low)]
    sample = np.sort(np.concatenate([side.y_low[::every] for side in sides] or [np.zeros(1, np.int64)]))
    bounds = sample[np.arange(1, number) * len(sample) // number]
    extremes = [int(code) for side in sides for y in (side.y_low, side.y_high) for code in (y.min(), y.max())] or [0]
    lowest, span = min(extremes), max(extremes) - min(extremes)
    shift = max(0, span.bit_length() - (SLOTS * number).bit_length())
    firsts = np.uint64(lowest % 2**64) + (np.arange((span >> shift) + 1, dtype=np.uint64) << np.uint64(shift))
    slots = np.append(np.searchsorted(bounds, firsts.view(np.int64), side="right"), len(bounds))
    return _Strips(bounds, slots, np.int64(lowest), np.uint64(shift))


def _touched_strips(strips: _Strips, sides: Sides, type_: type[np.int32] | type[np.int64]) -> Rows:
    """The first and the last strip of each rectangle."""
    touched = np.empty((2, len(sides.y_low)), type_)
    _touch(strips, sides.y_low, sides.y_high, touched)
    return touched


@kernel
def _touch(strips: _Strips, lows: Words, highs: Words, touched: Rows) -> None:
    for i in range(len(lows)):
        touched[0, i] = _strip_of(strips, min(lows[i], highs[i]))  # the end, if it is before the start
        touched[1, i] = _strip_of(strips, highs[i])


@kernel
def _strip_of(strips: _Strips, code: np.int64) -> int:
    slot = (np.uint64(code) - np.uint64(strips.lowest)) >> strips.shift
    low = strips.slots[slot]
    high = strips.slots[slot + np.uint64(1)]
    while low < high:
        middle = (low + high) >> 1
        if strips.bounds[middle] <= code:
            low = middle + 1
        else:
            high = middle
    return int(low)


def _entries(sides: Sides, firsts: Rows, lasts: Rows, strips: int) -> _Entries:
    order, begins = sort_codes(np.minimum(sides.x_low, sides.x_high))
    return _enter(sides, order.astype(firsts.dtype, copy=False), begins, firsts, lasts, strips)


@kernel
def _enter(sides: Sides, order: Rows, begins: Words, firsts: Rows, lasts: Rows, strips: int) -> _Entries:
    starts = np.zeros(strips + 1, np.int64)
    for row in range(len(order)):
        for s in range(firsts[row], lasts[row] + 1):
            starts[s + 1] += 1
    for s in range(strips):
        starts[s + 1] += starts[s]
    ends = starts[:-1].copy()
    count = starts[strips]
    rows = np.empty(count, order.dtype)
    opens = np.empty(count, np.bool_)
    codes = np.empty((5, count), np.int64)
    for i in range(len(order)):
        row = order[i]
        for s in range(firsts[row], lasts[row] + 1):
            at = ends[s]
            ends[s] = at + 1
            rows[at] = row
            opens[at] = s == firsts[row]
            codes[0, at] = begins[i]
    for at in range(count):
        row = rows[at]
        codes[1, at] = sides.x_low[row]
        codes[2, at] = sides.x_high[row]
        codes[3, at] = sides.y_low[row]
        codes[4, at] = sides.y_high[row]
    return _Entries(starts, rows, opens, codes[0], codes[1], codes[2], codes[3], codes[4])


@kernel
def _runs(boxes: _Entries, points: _Entries, later: bool) -> Visits:
    """For each box, the run of points that begin within it, no earlier than it does (`later`: strictly later)."""
    found = np.empty_like(boxes.rows)
    firsts = np.empty_like(boxes.rows)
    lasts = np.empty_like(boxes.rows)
    out = 0
    for s in range(len(boxes.strips) - 1):
        first = points.strips[s]
        end = points.strips[s + 1]
        for b in range(boxes.strips[s], boxes.strips[s + 1]):
            begin = boxes.begins[b]
            while first < end and (points.begins[first] < begin or (later and points.begins[first] == begin)):
                first += 1
            last = first
            while last < end and points.begins[last] <= boxes.x_high[b]:
                last += 1
            found[out] = b
            firsts[out] = first
            lasts[out] = last
            out += first < last
    return Visits(found[:out], firsts[:out], lasts[:out])


@kernel
def _flag(mine: _Entries, theirs: _Entries, boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows) -> None:
    q = 0
    for v in range(len(boxes)):
        b = boxes[v]
        found = 0
        for p in range(firsts[v], lasts[v]):
            meets = mine.opens[b] | theirs.opens[p]
            meets &= (mine.x_low[b] <= theirs.x_high[p]) & (theirs.x_low[p] <= mine.x_high[b])
            meets &= (mine.y_low[b] <= theirs.y_high[p]) & (theirs.y_low[p] <= mine.y_high[b])
            flags[q] = meets
            found += meets
            q += 1
        counts[v] = found


def count(join: Rectangles) -> int:
    """The number of pairs."""
    return candidates.count(join.onward) + candidates.count(join.backward)


def row_counts(join: Rectangles) -> Words:
    """The number of partners of each left row."""
    return candidates.row_counts(join.onward) + candidates.right_counts(join.backward)


def row_exists(join: Rectangles) -> Flags:
    """Which left rows have a partner."""
    return candidates.row_exists(join.onward) | candidates.right_exists(join.backward)


def right_exists(join: Rectangles) -> Flags:
    """Which right rows have a partner."""
    return candidates.right_exists(join.onward) | candidates.row_exists(join.backward)


def split(join: Rectangles, parts: int) -> list[Rectangles]:
    """The same pairs in order, in several joins."""
    onward, backward = ([*candidates.split(half, parts), replace(half, visits=partial(iter, ()))] for half in join)
    return [*(Rectangles(some, backward[-1]) for some in onward), *(Rectangles(onward[-1], some) for some in backward)]


def pairs(join: Rectangles, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of at most `capacity`."""
    yield from candidates.pairs(join.onward, capacity)
    for rights, lefts in candidates.pairs(join.backward, capacity):
        yield lefts, rights
