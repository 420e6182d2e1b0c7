"""Boxes against points: cells in one dimension or two, and a sweep along one more.

Left rows are boxes, right rows are points. In each dimension, the points within a box are a window of the points'
order there (see `windows.py`), so cells are cut from that order, not from the numbers.

        :  . :        :             A box visits the cells that it touches (here three), and in each of them
        :+---:------+ :             the run of points that its window along the sweep holds.
      . :|  .:   .  |.:  .
        :+---:------+ :             A point is in one cell, so no pair is met twice.
      sweep ^   cells ->

Cells adapt to the data. They begin and end where boxes do, so that a box touches few of them whatever the metric, and
empty space and many equal points cost nothing extra. Where a visit finds many points the cells are cut finer, so that
little of what a box visits lies outside of it.

A partitioned plane sweep: Patel, DeWitt, Partition based spatial-merge join, SIGMOD 1996. Deviations: only boxes are
replicated, so that no reference point is needed to report a pair once; cells follow the data instead of a fixed grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.kernels.compiling import kernel
from dovetail.kernels.listing import Rows, Words
from dovetail.kernels.sorting import sort_codes
from dovetail.kernels.windows import Windows

GOOD_VISIT = 25.0  # points of a visit that cost about as much as the visit itself
MOST_PARTS = 64.0


class Visits(NamedTuple):
    """The box left[boxes[v]] may hold the points points[firsts[v] : lasts[v]], and no others."""

    left: Rows  # left rows along the sweep
    points: Rows  # right rows: cell by cell, along the sweep
    cells: Words  # where the points of each cell begin and end; visits come cell by cell, too
    boxes: Rows
    firsts: Rows
    lasts: Rows


class _Strips(NamedTuple):
    """One dimension, cut: the strip of each right row, and the strips that each left row touches (firsts .. lasts)."""

    points: Rows
    firsts: Rows
    lasts: Rows


class _Cells(NamedTuple):
    """Those that have points, by strip of the first dimension and then of the second, if there is one."""

    columns: Words  # the cells of the first dimension's strip x are columns[x] .. columns[x + 1]
    strips: Words  # of the second dimension, by cell
    points: Words  # the cell of each right row along the sweep


class _Load(NamedTuple):
    """By cell: how many visits it has, and how many points they meet."""

    visits: Words
    met: Words


def visit(sweep: Windows, *across: Windows) -> Visits:
    """Which points the boxes may hold. `across` are the dimensions that are cut, one or two."""
    cuts = [_cut(windows.starts, windows.ends, len(windows.right)) for windows in across]
    cells, visits, load = _visit_cells(sweep, across, cuts)
    columns = np.repeat(np.arange(len(cells.columns) - 1), np.diff(cells.columns))
    strips = (columns, cells.strips)[: len(cuts)]
    finer = [_cut_finer(c, _parts(s, load, len(c) - 1, 1 / (1 + len(cuts)))) for c, s in zip(cuts, strips, strict=True)]
    if any(len(new) > len(old) for new, old in zip(finer, cuts, strict=True)):
        _, visits, _ = _visit_cells(sweep, across, finer)
    return visits


def _parts(strips: Words, load: _Load, count: int, power: float) -> Words:
    """Into how many parts each strip is cut: finer cells mean more visits and fewer points in each of them."""
    visits, met = (np.bincount(strips, weights, count) for weights in load)
    parts = (met / np.maximum(visits, 1) / GOOD_VISIT) ** power
    whole: Words = np.rint(parts.clip(1, MOST_PARTS)).astype(np.int64)
    return whole


def _visit_cells(sweep: Windows, across: Sequence[Windows], cuts: Sequence[Words]) -> tuple[_Cells, Visits, _Load]:
    """Points into cells, boxes into the cells that they touch, then a sweep through each."""
    x = _strips(across[0], cuts[0], sweep)
    if len(across) == 1:
        y = _Strips(x.points, np.zeros_like(x.firsts), np.zeros_like(x.lasts))
        cells = _Cells(np.arange(len(cuts[0])), np.zeros(len(cuts[0]) - 1, np.int64), x.points.astype(np.int64))
    else:
        y = _strips(across[1], cuts[1], sweep)
        cells = _occupied(x.points, y.points, len(cuts[0]) - 1, len(cuts[1]) - 1)
    point_cells, places = _sort_points(cells, sweep.right)
    box_cells, boxes = _sort_boxes(cells, x, y, sweep.left)
    firsts, lasts, load = _sweep(sweep, point_cells, places, box_cells, boxes)
    met = firsts < lasts
    return cells, Visits(sweep.left, sweep.right[places], point_cells, boxes[met], firsts[met], lasts[met]), load


def _strips(windows: Windows, cuts: Words, sweep: Windows) -> _Strips:
    """The strips of points and boxes, in the order of the sweep."""
    by_row = _strips_by_row(windows, cuts)
    return _Strips(by_row.points[sweep.right], by_row.firsts[sweep.left], by_row.lasts[sweep.left])


def _occupied(x: Rows, y: Rows, width: int, height: int) -> _Cells:
    """The cells that have points, from the strips of these."""
    order, keys = sort_codes(x.astype(np.int64) * height + y)
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    used = keys[new]
    points = np.empty(len(keys), np.int64)
    points[order] = np.cumsum(new) - 1
    return _Cells(np.searchsorted(used, np.arange(width + 1) * height), used % height, points)


@kernel
def _cut(starts: Rows, ends: Rows, points: int) -> Words:
    """Cut an order of points where boxes begin and end: one box after the other that does not touch the last."""
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
def _cut_finer(cuts: Words, parts: Words) -> Words:
    finer = np.empty(parts.sum() + 1, np.int64)
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
def _strips_by_row(windows: Windows, cuts: Words) -> _Strips:
    at = np.empty(len(windows.right), windows.right.dtype)  # the strip of each place
    points = np.empty_like(at)
    for s in range(len(cuts) - 1):
        for place in range(cuts[s], cuts[s + 1]):
            at[place] = s
            points[windows.right[place]] = s
    firsts = np.empty(len(windows.left), windows.left.dtype)
    lasts = np.empty_like(firsts)
    for i in range(len(windows.left)):
        row = windows.left[i]
        if windows.starts[i] < windows.ends[i]:
            firsts[row] = at[windows.starts[i]]
            lasts[row] = at[windows.ends[i] - 1]
        else:
            firsts[row] = 0
            lasts[row] = -1
    return _Strips(points, firsts, lasts)


@kernel
def _sort_points(cells: _Cells, right: Rows) -> tuple[Words, Rows]:
    """Where the points of each cell begin, and all points, as places along the sweep."""
    begins = np.zeros(len(cells.strips) + 1, np.int64)
    for i in range(len(right)):
        begins[cells.points[i] + 1] += 1
    for c in range(len(cells.strips)):
        begins[c + 1] += begins[c]
    ends = begins[:-1].copy()
    places = np.empty_like(right)
    for i in range(len(right)):
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
def _sort_boxes(cells: _Cells, x: _Strips, y: _Strips, left: Rows) -> tuple[Words, Rows]:
    """Where the boxes of each cell begin, and all boxes, once for each cell they touch, as places along the sweep."""
    begins = np.zeros(len(cells.strips) + 1, np.int64)
    for i in range(len(left)):
        for column in range(x.firsts[i], x.lasts[i] + 1):
            c = _first_cell(cells, column, y.firsts[i])
            while c < cells.columns[column + 1] and cells.strips[c] <= y.lasts[i]:
                begins[c + 1] += 1
                c += 1
    for c in range(len(cells.strips)):
        begins[c + 1] += begins[c]
    ends = begins[:-1].copy()
    boxes = np.empty(begins[len(cells.strips)], left.dtype)
    for i in range(len(left)):
        for column in range(x.firsts[i], x.lasts[i] + 1):
            c = _first_cell(cells, column, y.firsts[i])
            while c < cells.columns[column + 1] and cells.strips[c] <= y.lasts[i]:
                boxes[ends[c]] = i
                ends[c] += 1
                c += 1
    return begins, boxes


@kernel
def _sweep(sweep: Windows, point_cells: Words, places: Rows, box_cells: Words, boxes: Rows) -> tuple[Rows, Rows, _Load]:
    """For each box in each cell, the run of points that are in its window."""
    firsts = np.empty_like(boxes)
    lasts = np.empty_like(boxes)
    load = _Load(np.diff(box_cells), np.zeros(len(box_cells) - 1, np.int64))
    for c in range(len(box_cells) - 1):
        first = last = point_cells[c]
        end = point_cells[c + 1]
        for b in range(box_cells[c], box_cells[c + 1]):
            i = boxes[b]
            while first < end and places[first] < sweep.starts[i]:
                first += 1
            while last < end and places[last] < sweep.ends[i]:
                last += 1
            firsts[b] = first
            lasts[b] = max(first, last)
            load.met[c] += lasts[b] - first
    return firsts, lasts, load
