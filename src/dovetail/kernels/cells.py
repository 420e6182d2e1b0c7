"""Joins boxes with points: cells in one or two dimensions, and a sweep along one more.

Left rows are boxes, right rows are points. In each dimension, the points within a box are a window of the points' order
there (see `windows.py`), so cells are cut from that order, not from the numbers.

        :  . :        :             A box visits the cells that it touches (here three), and in each of them
        :+---:------+ :             the run of points that its window along the sweep holds.
      . :|  .:   .  |.:  .
        :+---:------+ :             A point is in one cell, so no pair is found twice.
      sweep ^   cells ->

Cells adapt to the data. They begin and end where boxes do, so a box touches few of them in any metric, and empty space
and many equal points cost nothing extra. Where a visit contains many points, the cells are cut finer, so that most
visited points are within the box.

A partitioned plane sweep: Patel, DeWitt, Partition based spatial-merge join, SIGMOD 1996. Deviations: only boxes are
replicated, so no reference point is needed to report a pair once; cells follow the data instead of a fixed grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.kernels.candidates import Visits
from dovetail.kernels.compiling import kernel
from dovetail.kernels.sorting import sort_codes
from dovetail.kernels.windows import Rows, Windows, Words

ONE = np.uint64(1)
GOOD_VISIT = 25.0  # points in a visit that cost about as much as the visit itself
MOST_PARTS = 64.0


class Strips(NamedTuple):
    """One dimension, cut into strips. Points and boxes are numbered along the sweep."""

    places: Rows  # of the points, in this dimension's order
    points: Rows  # their strips
    starts: Rows  # the windows of the boxes, in this dimension's order
    ends: Rows
    firsts: Rows  # the first and last strip that each box touches
    lasts: Rows


class Meetings(NamedTuple):
    """The visits of boxes to points. Boxes are left rows along the sweep, points right rows cell by cell."""

    left: Rows  # by box
    right: Rows  # by point
    visits: Visits  # cell by cell
    cells: Words  # where the points of each cell begin and end
    places: Rows  # of the points, along the sweep
    strips: Strips  # the first dimension that was cut


class _Cells(NamedTuple):
    """The cells that have points, by strip of the first dimension and then of the second, if there is one."""

    columns: Words  # the cells of the first dimension's strip x are columns[x] .. columns[x + 1]
    strips: Words  # of the second dimension, by cell
    points: Rows  # the cell of each point along the sweep


class _Load(NamedTuple):
    """Per cell: the number of visits, and the number of points in them."""

    visits: Words
    met: Words


def visit(sweep: Windows, *across: Windows) -> Meetings:
    """The points that boxes may hold. `across`: the one or two dimensions that are cut."""
    cuts = [_cut(windows.starts, windows.ends, len(windows.right)) for windows in across]
    meetings, cells, load = _visit_cells(sweep, across, cuts)
    columns = np.repeat(np.arange(len(cells.columns) - 1), np.diff(cells.columns))
    strips = (columns, cells.strips)[: len(cuts)]
    parts = [_parts(s, load, len(c) - 1, 1 / (1 + len(cuts))) for c, s in zip(cuts, strips, strict=True)]
    finer = [_cut_finer(c, p, int(p.sum())) for c, p in zip(cuts, parts, strict=True)]
    if any(len(new) > len(old) for new, old in zip(finer, cuts, strict=True)):
        meetings, _, _ = _visit_cells(sweep, across, finer)
    return meetings


def _parts(strips: Words, load: _Load, count: int, power: float) -> Words:
    """The number of parts each strip is cut into: finer cells mean more visits with fewer points in each."""
    visits, met = (np.bincount(strips, weights, count) for weights in load)
    parts = (met / np.maximum(visits, 1) / GOOD_VISIT) ** power
    whole: Words = np.rint(parts.clip(1, MOST_PARTS)).astype(np.int64)
    return whole


def _visit_cells(sweep: Windows, across: Sequence[Windows], cuts: Sequence[Words]) -> tuple[Meetings, _Cells, _Load]:
    """Assign points to cells and boxes to the cells that they touch, then sweep through each cell."""
    x = y = _strips(sweep, across[0], cuts[0])
    if len(across) == 1:
        y = y._replace(firsts=np.zeros_like(x.firsts), lasts=np.zeros_like(x.lasts))
        cells = _Cells(np.arange(len(cuts[0])), np.zeros(len(cuts[0]) - 1, np.int64), x.points)
    else:
        y = _strips(sweep, across[1], cuts[1])
        cells = _occupied_cells(x.points, y.points, len(cuts[0]) - 1, len(cuts[1]) - 1)
    point_cells, places = _sort_points(cells)
    box_cells, boxes = _sort_boxes(cells, x, y)
    load = _Load(np.diff(box_cells), np.zeros(len(box_cells) - 1, np.int64))
    visits = _sweep(sweep, point_cells, places, box_cells, boxes, load, int(load.visits.max(initial=0)))
    return Meetings(sweep.left, sweep.right[places], visits, point_cells, places, x), cells, load


def _occupied_cells(x: Rows, y: Rows, width: int, height: int) -> _Cells:
    """The cells that have points, given the strips of the points."""
    order, keys = sort_codes(x.astype(np.int64) * height + y)
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    used = keys[new]
    points = np.empty_like(x)
    points[order] = np.cumsum(new) - 1
    return _Cells(np.searchsorted(used, np.arange(width + 1) * height), used % height, points)


@kernel
def _cut(starts: Rows, ends: Rows, points: int) -> Words:
    """Cut an order of points at the starts and ends of boxes, skipping boxes that overlap the last one."""
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
def _cut_finer(cuts: Words, parts: Words, most: int) -> Words:
    finer = np.empty(most + 1, np.int64)
    finer[0] = cuts[0]
    out = 1
    for s in range(len(parts)):
        size = cuts[s + 1] - cuts[s]
        wanted = min(parts[s], size)
        for part in range(1, wanted + 1):
            finer[out] = cuts[s] + part * size // wanted
            out += 1
    return finer[:out]


@kernel
def _strips(sweep: Windows, windows: Windows, cuts: Words) -> Strips:
    """Convert between two orders, with the data of a row stored together: random access happens only once each way."""
    at = np.empty_like(windows.right)
    by_right = np.empty((len(windows.right), 2), windows.right.dtype)
    for s in range(len(cuts) - 1):
        for place in range(cuts[s], cuts[s + 1]):
            at[place] = s
            by_right[windows.right[place], 0] = place
            by_right[windows.right[place], 1] = s
    by_left = np.empty((len(windows.left), 4), windows.left.dtype)
    for i in range(len(windows.left)):
        box = by_left[windows.left[i]]
        box[0] = windows.starts[i]
        box[1] = windows.ends[i]
        box[2] = 0
        box[3] = -1  # touches no strip
        if windows.starts[i] < windows.ends[i]:
            box[2] = at[windows.starts[i]]
            box[3] = at[windows.ends[i] - 1]
    points = np.empty((2, len(windows.right)), windows.right.dtype)
    for i in range(len(sweep.right)):
        points[0, i] = by_right[sweep.right[i], 0]
        points[1, i] = by_right[sweep.right[i], 1]
    boxes = np.empty((4, len(windows.left)), windows.left.dtype)
    for i in range(len(sweep.left)):
        for k in range(4):
            boxes[k, i] = by_left[sweep.left[i], k]
    return Strips(points[0], points[1], boxes[0], boxes[1], boxes[2], boxes[3])


@kernel
def _sort_points(cells: _Cells) -> tuple[Words, Rows]:
    """Where the points of each cell begin, and all points, as positions along the sweep."""
    begins = np.zeros(len(cells.strips) + 1, np.int64)
    for i in range(len(cells.points)):
        begins[cells.points[i] + 1] += 1
    for c in range(len(cells.strips)):
        begins[c + 1] += begins[c]
    ends = begins[:-1].copy()
    places = np.empty_like(cells.points)
    for i in range(len(cells.points)):
        c = cells.points[i]
        places[ends[c]] = i
        ends[c] += 1
    return begins, places


@kernel
def _first_cell(cells: _Cells, column: int, strip: int) -> int:
    """The first cell of a column that is not before the strip."""
    low = cells.columns[column]
    high = cells.columns[column + 1]
    while low < high:
        middle = (low + high) >> 1
        if cells.strips[middle] < strip:
            low = middle + 1
        else:
            high = middle
    return int(low)


@kernel
def _sort_boxes(cells: _Cells, x: Strips, y: Strips) -> tuple[Words, Rows]:
    """Where the boxes of each cell begin, and all boxes along the sweep, once for each cell they touch."""
    begins = np.zeros(len(cells.strips) + 1, np.int64)
    for i in range(len(x.firsts)):
        for column in range(x.firsts[i], x.lasts[i] + 1):
            c = _first_cell(cells, column, y.firsts[i])
            while c < cells.columns[column + 1] and cells.strips[c] <= y.lasts[i]:
                begins[c + 1] += 1
                c += 1
    for c in range(len(cells.strips)):
        begins[c + 1] += begins[c]
    ends = begins[:-1].copy()
    boxes = np.empty(begins[len(cells.strips)], x.firsts.dtype)
    for i in range(len(x.firsts)):
        for column in range(x.firsts[i], x.lasts[i] + 1):
            c = _first_cell(cells, column, y.firsts[i])
            while c < cells.columns[column + 1] and cells.strips[c] <= y.lasts[i]:
                boxes[ends[c]] = i
                ends[c] += 1
                c += 1
    return begins, boxes


@kernel
def _sweep(
    sweep: Windows, point_cells: Words, places: Rows, box_cells: Words, boxes: Rows, load: _Load, most: int
) -> Visits:
    """For each box in each cell, the run of points in its window; boxes without points are left out."""
    visits = Visits(np.empty_like(boxes), np.empty_like(boxes), np.empty_like(boxes))
    starts, ends = np.empty(most, boxes.dtype), np.empty(most, boxes.dtype)
    firsts, lasts = np.empty(most, boxes.dtype), np.empty(most, boxes.dtype)
    out = 0
    for c in range(len(box_cells) - 1):
        end = np.uint64(point_cells[c + 1])
        begin, count = np.uint64(box_cells[c]), np.uint64(load.visits[c])
        for k in range(count):
            box = boxes[begin + k]
            starts[k] = sweep.starts[box]
            ends[k] = sweep.ends[box]
            firsts[k] = lasts[k] = end
        i = a = np.uint64(0)
        j = b = np.uint64(point_cells[c])
        while (i < count and j < end) or (a < count and b < end):  # two interleaved merges, as in `band.py`
            if i < count and j < end:
                behind = np.uint64(places[j] < starts[i])
                firsts[i] = j + behind
                i += ONE - behind
                j += behind
            if a < count and b < end:
                behind = np.uint64(places[b] < ends[a])
                lasts[a] = b + behind
                a += ONE - behind
                b += behind
        for k in range(count):
            met = lasts[k] - firsts[k]
            visits.boxes[out] = boxes[begin + k]
            visits.firsts[out] = firsts[k]
            visits.lasts[out] = lasts[k]
            load.met[c] += max(met, 0)
            out += met > 0
    return Visits(visits.boxes[:out], visits.firsts[:out], visits.lasts[:out])
