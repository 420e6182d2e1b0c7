"""The k nearest points in the plane, by a grid; where cells do not suffice, by a tree.

    . | . |        Cells have a few points each, and the points of a row of cells are adjacent in memory. A search
    --+---+--      checks the square of cells around a point, then a larger one as long as its border is nearer
    . |.o |.       than the last point of the list.
    --+---+--
      | . |        Points that a few squares do not decide, because cells are empty or crowded there, are left to the
                   tree (`nearest_points.py`), which handles any distribution.

Positions in the grid are rounded, but distances are not: borders are assumed slightly nearer than they are.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import allowed_threads, in_threads
from dovetail.kernels.compiling import kernel
from dovetail.kernels.nearest_points import FEW_ROWS, Floats, Words, search
from dovetail.kernels.sorting import order_by_count

Cells = NDArray[np.int32]

FEW_POINTS = 1 << 10  # below this number, the tree is as good
POINTS = 2.0  # per cell, at least
MOST_RINGS = 4
CROWD = 32  # times the number of points searched for: a square with more points is left to the tree
MARGIN = 1e-9  # share of a cell's side
ROUNDING = 1e-14  # relative error of a coordinate


class Grid(NamedTuple):
    """Right points by cell, row by row of cells."""

    x: Floats
    y: Floats
    rows: Words
    starts: Cells  # start of each cell, and the end
    corner: tuple[float, float]
    side: float
    columns: int
    lines: int


def nearest(left: Floats, right: Floats, k: int, most: float) -> tuple[Words, Words]:
    """Like `nearest_points.nearest`, without keys."""
    rows = np.empty((len(left), k), np.int64)
    sizes = np.full(len(left), -1)
    grid = _grid(right, k) if len(right) >= FEW_POINTS else None
    if grid is not None:
        order = order_by_count(_cells(left, grid), grid.columns * grid.lines)
        parts = max(1, min(4 * allowed_threads(), len(left) // FEW_ROWS)) if allowed_threads() > 1 else 1
        cuts = np.linspace(0, len(left), parts + 1).astype(np.int64).tolist()
        in_threads([partial(_search, grid, left, order[a:b], k, most, rows, sizes) for a, b in pairwise(cuts)])
    rest = np.flatnonzero(sizes < 0)
    sizes[rest] = 0
    if len(rest):
        search(left, right, None, 0, k, most, rest, rows, sizes)
    return rows, sizes


def _grid(points: Floats, k: int) -> Grid | None:
    """None if the points do not spread over a plane."""
    kept = np.flatnonzero(np.isfinite(points).all(axis=1))
    if not len(kept):
        return None
    points = points[kept] if len(kept) < len(points) else points
    corner = points.min(axis=0)
    width, height = (points.max(axis=0) - corner).tolist()
    per_cell = max(POINTS, k / 2)
    side = float(np.sqrt(width) * np.sqrt(height) * np.sqrt(per_cell / len(points)))
    if not 0 < side < np.inf or width / side >= len(points) or height / side >= len(points):
        return None
    columns, lines = int(width / side) + 1, int(height / side) + 1
    if columns * lines > 4 * len(points):
        return None
    empty = np.empty(0)
    grid = Grid(empty, empty, kept, np.empty(0, np.int32), (float(corner[0]), float(corner[1])), side, columns, lines)
    cells = _cells(points, grid)
    order = order_by_count(cells, columns * lines)
    starts = np.zeros(columns * lines + 1, np.int32)
    np.cumsum(np.bincount(cells, minlength=columns * lines), out=starts[1:])
    return grid._replace(x=points[order, 0], y=points[order, 1], rows=kept[order], starts=starts)


@kernel
def _cells(points: Floats, grid: Grid) -> Cells:
    """The cell of each point; for points outside, the nearest cell at the border."""
    cells = np.empty(len(points), np.int32)
    for i in range(len(points)):
        column = (points[i, 0] - grid.corner[0]) / grid.side
        line = (points[i, 1] - grid.corner[1]) / grid.side
        column = max(0.0, min(column, grid.columns - 1.0)) if column == column else 0.0
        line = max(0.0, min(line, grid.lines - 1.0)) if line == line else 0.0
        cells[i] = np.int32(line) * np.int32(grid.columns) + np.int32(column)
    return cells


@kernel
def _search(grid: Grid, left: Floats, order: Words, k: int, most: float, rows: Words, sizes: Words) -> None:
    """Fill in rows and sizes for left points that are done; the others keep a negative size."""
    best = np.empty(k)
    found = np.empty(k, np.int64)
    for place in range(len(order)):
        i = order[place]
        x, y = left[i, 0], left[i, 1]
        if not (abs(x) < np.inf and abs(y) < np.inf):
            sizes[i] = 0
            continue
        u, v = x - grid.corner[0], y - grid.corner[1]
        column = int(max(0.0, min(u / grid.side, grid.columns - 1.0)))
        line = int(max(0.0, min(v / grid.side, grid.lines - 1.0)))
        margin = MARGIN * grid.side + ROUNDING * (abs(u) + abs(v))
        for ring in range(1, MOST_RINGS + 1):
            first, last = max(column - ring, 0), min(column + ring, grid.columns - 1)
            top, bottom = max(line - ring, 0), min(line + ring, grid.lines - 1)
            border = np.inf
            if first > 0:
                border = min(border, u - first * grid.side)
            if last < grid.columns - 1:
                border = min(border, (last + 1) * grid.side - u)
            if top > 0:
                border = min(border, v - top * grid.side)
            if bottom < grid.lines - 1:
                border = min(border, (bottom + 1) * grid.side - v)
            border = max(border - margin, 0.0)
            size = 0
            limit = most
            looked = 0
            for at in range(top, bottom + 1):
                start = grid.starts[at * grid.columns + first]
                end = grid.starts[at * grid.columns + last + 1]
                looked += end - start
                if looked > CROWD * (k + 8):
                    break
                for j in range(np.uint64(start), np.uint64(end)):
                    dx, dy = x - grid.x[j], y - grid.y[j]
                    total = dx * dx + dy * dy
                    if total <= limit and total < np.inf and (size < k or total < best[k - 1]):
                        to = size if size < k else k - 1
                        size = min(size + 1, k)
                        while to > 0 and best[to - 1] > total:
                            best[to] = best[to - 1]
                            found[to] = found[to - 1]
                            to -= 1
                        best[to] = total
                        found[to] = grid.rows[j]
                        if size == k:
                            limit = best[k - 1]
            if looked > CROWD * (k + 8):
                break
            if border * border >= limit:
                sizes[i] = size
                for j in range(size):
                    rows[i, j] = found[j]
                break
