"""Cells of a space that is halved recursively, one dimension after the other, numbered along the Z-curve.

    level 1     level 2      level 3        A cell is the bits of the halvings that lead to it, most significant first,
    0  |  1     01 | 11      010 011 …      and covers all longer codes that begin with them: an interval of codes.
       |        ---+---      ----+---       Two cells are disjoint, or one is in the other, and so are their intervals.
       |        00 | 10      000 001 …

Each box gets the smallest cell that encloses it. A box across an early halving would get a very large cell, so it is
cut there, and its parts get separate cells, up to a number of copies (GESS). Two boxes may then share several pairs of
cells; the pair that counts contains the lowest corner of their intersection, the reference point.

Orenstein, Merrett, A class of data structures for associative searching, PODS 1984; Dittrich, Seeger, GESS: a scalable
similarity-join algorithm for mining large data sets in high dimensional spaces, KDD 2001.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.kernels.compiling import kernel
from dovetail.kernels.windows import Flags, Rows, Words


class Halvings(NamedTuple):
    """The dimension and the bit that each level tests."""

    axes: Words
    bits: Words


class Cells(NamedTuple):
    rows: Words  # the row of each box
    starts: Words
    ends: Words


def enclosing_cells(lows: Words, highs: Words, halvings: Halvings, copies: int) -> Cells:
    """The cells of boxes from corner `lows[i]` to corner `highs[i]`, in integers, both inclusive."""
    rows = np.empty(len(lows) * copies, np.int64)
    starts, ends = np.empty_like(rows), np.empty_like(rows)
    count = _enclose(lows, highs, halvings, rows, starts, ends)
    return Cells(rows[:count], starts[:count], ends[:count])


@kernel
def _enclose(lows: Words, highs: Words, halvings: Halvings, rows: Words, starts: Words, ends: Words) -> int:
    """Cut the boxes one at a time, the one in the largest cell first."""
    depth = len(halvings.axes)
    copies = len(rows) // max(1, len(lows))
    low = np.empty((copies, lows.shape[1]), np.int64)
    high = np.empty((copies, lows.shape[1]), np.int64)
    level = np.empty(copies, np.int64)
    count = 0
    for i in range(len(lows)):
        low[0] = lows[i]
        high[0] = highs[i]
        level[0] = _common_levels(low[0], high[0], halvings, 0)
        parts = 1
        while parts < copies:
            widest = 0
            for part in range(1, parts):
                if level[part] < level[widest]:
                    widest = part
            if level[widest] == depth:
                break
            axis = halvings.axes[level[widest]]
            bit = halvings.bits[level[widest]]
            cut = (high[widest, axis] >> bit) << bit
            low[parts] = low[widest]
            high[parts] = high[widest]
            low[parts, axis] = cut
            high[widest, axis] = cut - 1
            level[parts] = _common_levels(low[parts], high[parts], halvings, level[widest] + 1)
            level[widest] = _common_levels(low[widest], high[widest], halvings, level[widest] + 1)
            parts += 1
        for part in range(parts):
            code = _code(low[part], halvings)
            below = (np.int64(1) << (depth - level[part])) - 1
            rows[count] = i
            starts[count] = code & ~below
            ends[count] = code | below
            count += 1
    return count


@kernel
def _common_levels(low: Words, high: Words, halvings: Halvings, known: int) -> int:
    """The number of halvings that leave the corners on the same side, of which `known` are already known."""
    for level in range(known, len(halvings.axes)):
        axis, bit = halvings.axes[level], halvings.bits[level]
        if (low[axis] >> bit) & 1 != (high[axis] >> bit) & 1:
            return level
    return len(halvings.axes)


@kernel
def _code(point: Words, halvings: Halvings) -> np.int64:
    code = np.int64(0)
    for level in range(len(halvings.axes)):
        code = (code << 1) | ((point[halvings.axes[level]] >> halvings.bits[level]) & 1)
    return code


@kernel
def point_codes(points: Words, halvings: Halvings) -> Words:
    """The position of each point on the curve."""
    codes = np.empty(len(points), np.int64)
    for i in range(len(points)):
        codes[i] = _code(points[i], halvings)
    return codes


class Corners(NamedTuple):
    """The lowest corners of boxes, and their cells."""

    lows: Words
    starts: Words
    ends: Words


@kernel
def meet_here(left: Corners, right: Corners, left_rows: Rows, right_rows: Rows, halvings: Halvings) -> Flags:
    """Whether the reference point of each pair is in both cells."""
    here = np.empty(len(left_rows), np.bool_)
    point = np.empty(left.lows.shape[1], np.int64)
    for k in range(len(left_rows)):
        i, j = left_rows[k], right_rows[k]
        for d in range(len(point)):
            point[d] = max(left.lows[i, d], right.lows[j, d])
        code = _code(point, halvings)
        first = max(left.starts[i], right.starts[j])
        last = min(left.ends[i], right.ends[j])
        here[k] = first <= code <= last
    return here


def no_halvings() -> Halvings:
    return Halvings(np.empty(0, np.int64), np.empty(0, np.int64))


def halvings_of(bits: Words) -> Halvings:
    """Alternates between dimensions, from the highest bit down; those with more bits start earlier."""
    turns = [(axis, bit) for bit in range(int(bits.max(initial=0)))[::-1] for axis in np.flatnonzero(bits > bit)]
    return Halvings(np.array([a for a, _ in turns], np.int64), np.array([b for _, b in turns], np.int64))
