"""Boxes against points: cells in one dimension or two, a sweep along another.

Every left row is a box, every right row a point, both given by places: in each dimension the box holds the points whose
places in that dimension's order are in its window (`windows.py`). So a cell is a range of places.

        :  . :        :             A box visits the cells that it touches (here three), and in each of them
        :+---:------+ :             the run of points that its window along the sweep holds.
      . :|  .:   .  |.:  .
        :+---:------+ :             A point is in one cell, so no pair is met twice.
      sweep ^   cells ->

Cells adapt to the data. They begin and end where windows do, so that a box touches a few of them whatever the metric;
places that no point has take no room, and many equal points are one place after the other. Where boxes hold many points
the cells are cut finer, until what a box visits and does not hold is little.

Partitioned plane sweep: Patel, DeWitt, Partition based spatial-merge join, SIGMOD 1996. Deviations: only boxes are
replicated, so that no reference point is needed to report a pair once; cells follow the data instead of a fixed grid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel
from dovetail.kernels.listing import Rows
from dovetail.kernels.windows import Windows

Numbers = NDArray[np.int64]


class Box(NamedTuple):
    """Windows by left row instead of in left order, and places by right row."""

    starts: Rows
    ends: Rows
    places: Rows


def boxes(windows: Windows) -> Box:
    starts, ends = np.empty_like(windows.starts), np.empty_like(windows.ends)
    starts[windows.left_order] = windows.starts
    ends[windows.left_order] = windows.ends
    places = np.empty_like(windows.right_order)
    places[windows.right_order] = np.arange(len(places), dtype=places.dtype)
    return Box(starts, ends, places)


class Visits(NamedTuple):
    """Left row lefts[v] visits the points firsts[v] .. lasts[v]; points[p] is a right row."""

    points: Rows
    lefts: Rows
    firsts: Rows
    lasts: Rows


@kernel
def cut(starts: Rows, ends: Rows, points: int) -> Numbers:
    """Cut the places into strips: where windows begin and end, one window after the other that does not meet the last."""
    cuts = np.empty(2 * len(starts) + 2, np.int64)
    cuts[0] = 0
    out = 1
    for i in range(len(starts)):
        if starts[i] < ends[i] and starts[i] >= cuts[out - 1]:
            if starts[i] > cuts[out - 1]:
                cuts[out] = starts[i]
                out += 1
            cuts[out] = ends[i]
            out += 1
    if cuts[out - 1] < points:
        cuts[out] = points
        out += 1
    return cuts[:out]


@kernel
def cut_finer(cuts: Numbers, parts: Numbers) -> Numbers:
    finer = np.empty(parts.sum() + 1, np.int64)
    out = 0
    for s in range(len(cuts) - 1):
        size = cuts[s + 1] - cuts[s]
        p = min(parts[s], size)
        for k in range(p):
            finer[out] = cuts[s] + k * size // p
            out += 1
    finer[out] = cuts[len(cuts) - 1]
    return finer[: out + 1]


@kernel
def visit(sweep_lefts, sweep_starts, sweep_ends, sweep_rights, starts, ends, places, cuts, counted):
    m = len(sweep_rights)
    strips = len(cuts) - 1
    strip_at = np.empty(m, np.int32)
    for s in range(strips):
        for p in range(cuts[s], cuts[s + 1]):
            strip_at[p] = s
    # points by strip, in sweep order: a strip's number of points is its width
    fill = cuts[:-1].copy()
    points = np.empty_like(sweep_rights)
    at = np.empty_like(sweep_rights)
    for k in range(m):
        row = sweep_rights[k]
        s = strip_at[places[row]]
        points[fill[s]] = row
        at[fill[s]] = k
        fill[s] += 1
    # boxes
    begin = np.zeros(strips + 1, np.int64)
    n = len(sweep_lefts)
    for i in range(n):
        row = sweep_lefts[i]
        if sweep_starts[i] < sweep_ends[i] and starts[row] < ends[row]:
            for s in range(strip_at[starts[row]], strip_at[ends[row] - 1] + 1):
                begin[s + 1] += 1
    for s in range(strips):
        begin[s + 1] += begin[s]
    boxes_ = np.empty(begin[strips], np.int32)
    fill = begin[:-1].copy()
    for i in range(n):
        row = sweep_lefts[i]
        if sweep_starts[i] < sweep_ends[i] and starts[row] < ends[row]:
            for s in range(strip_at[starts[row]], strip_at[ends[row] - 1] + 1):
                boxes_[fill[s]] = i
                fill[s] += 1
    lefts = np.empty(len(boxes_), sweep_lefts.dtype)
    firsts = np.empty(len(boxes_), sweep_lefts.dtype)
    lasts = np.empty(len(boxes_), sweep_lefts.dtype)
    out = 0
    per_strip = np.zeros(strips, np.int64)
    for s in range(strips):
        first = cuts[s]
        last = cuts[s]
        end = cuts[s + 1]
        for b in range(begin[s], begin[s + 1]):
            i = boxes_[b]
            while first < end and at[first] < sweep_starts[i]:
                first += 1
            while last < end and at[last] < sweep_ends[i]:
                last += 1
            lefts[out] = sweep_lefts[i]
            firsts[out] = first
            lasts[out] = last
            per_strip[s] += last - first
            out += first < last
    return points, lefts[:out], firsts[:out], lasts[:out], per_strip, begin
