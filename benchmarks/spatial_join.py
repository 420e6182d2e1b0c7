"""Joins of points and rectangles in process, one thread: ours against scipy's cKDTree, shapely's STRtree, and BLAS.

All start from arrays and return the row numbers of both sides. Building trees is included in the time; creating
shapely's boxes is not, since they are its table format (creating them costs more than its join). Seconds are CPU
seconds of the join alone; computing the answers, which depend on every pair, is not included.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import shapely  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy.spatial import cKDTree  # type: ignore[import-untyped]

from benchmarks.band_join import CHUNK, Answer, answer
from benchmarks.datasets import read_columns
from dovetail.core.codes import float_codes
from dovetail.kernels import band, band2d, candidates, distance, rectangles, similarity

BLOCK = 1024  # rows of a block of plain BLAS

Floats = NDArray[np.float64]


class Points(NamedTuple):
    left: NDArray[Any]  # one row per point
    right: NDArray[Any]
    reach: float


class Boxes(NamedTuple):
    left: tuple[Floats, ...]  # xmin, ymin, xmax, ymax
    right: tuple[Floats, ...]
    left_shapes: NDArray[Any]
    right_shapes: NDArray[Any]


# Data.


def taxi(reach: float) -> Points:
    """Every other New York taxi pickup against the rest; taxi stands, stations and (0, 0) are crowded."""
    table = read_columns("nyc_taxi_2013_lonlat", "pickup_lon", "pickup_lat")
    rows = np.column_stack([np.asarray(column) for column in table.columns])
    return Points(rows[::2].copy(), rows[1::2].copy(), reach)


def uniform(rows: int, reach: float) -> Points:
    rng = np.random.default_rng(0)
    return Points(rng.random((rows, 2)), rng.random((rows, 2)), reach)


def rivers_and_borders() -> Boxes:
    """The bounding rectangles of the line segments of rivers and borders in the United States."""
    sides = []
    for name in ("geo_us_rivers", "geo_us_borders"):
        table = read_columns(name, "xmin", "ymin", "xmax", "ymax")
        sides.append(tuple(np.asarray(column) for column in table.columns))
    return Boxes(sides[0], sides[1], shapely.box(*sides[0]), shapely.box(*sides[1]))


def fashion(reach: float) -> Points:
    """Images of clothes as 16 brightness values, joined with themselves."""
    table = read_columns("fashion16", *(f"f{k}" for k in range(16)))
    rows = np.column_stack([np.asarray(column) for column in table.columns])
    return Points(rows, rows, reach)


# Contenders: |l.x - r.x| <= reach and |l.y - r.y| <= reach.


def dovetail_band(points: Points) -> tuple[Answer, float]:
    (lx, ly), (rx, ry), reach = _columns(points.left), _columns(points.right), points.reach
    started = time.process_time()
    join = band2d.prepare(band.prepare_floats(lx, rx, -reach, reach), band.prepare_floats(ly, ry, -reach, reach))
    chunks = list(candidates.pairs(join, CHUNK))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def kdtree_band(points: Points) -> tuple[Answer, float]:
    return _kdtree(points, np.inf)


# Contenders: Euclidean distance <= reach.


def dovetail_distance(points: Points) -> tuple[Answer, float]:
    left, right = _columns(points.left), _columns(points.right)
    started = time.process_time()
    chunks = list(candidates.pairs(distance.prepare(left, right, points.reach), CHUNK))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def dovetail_similarity(points: Points) -> tuple[Answer, float]:
    started = time.process_time()
    chunks = list(candidates.pairs(similarity.prepare(points.left, points.right, points.reach), CHUNK))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def kdtree_distance(points: Points) -> tuple[Answer, float]:
    return _kdtree(points, 2.0)


def kdtree_similarity(points: Points) -> tuple[Answer, float]:
    return _kdtree(points, 2.0, balanced=True)


def blas_distance(points: Points) -> tuple[Answer, float]:
    """Squared distances by one matrix product per block, in single precision; small ones are computed again exactly."""
    left, right, limit = points.left, points.right, points.reach**2
    started = time.process_time()
    left_squares, right_squares = ((m * m).sum(axis=1) for m in (left, right))
    slack = np.float32(limit + 1e-5 * float(left_squares.max() + right_squares.max()))
    chunks = []
    for top in range(0, len(left), BLOCK):
        for first in range(0, len(right), BLOCK):
            sums = left[top : top + BLOCK] @ right[first : first + BLOCK].T
            sums *= -2
            sums += left_squares[top : top + BLOCK, None]
            sums += right_squares[first : first + BLOCK]
            near = np.flatnonzero(sums <= slack)
            i, j = near // sums.shape[1] + top, near % sums.shape[1] + first
            exact = np.sqrt(((left[i].astype(np.float64) - right[j]) ** 2).sum(axis=1)) <= points.reach
            chunks.append((i[exact], j[exact]))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def _kdtree(points: Points, norm: float, balanced: bool = False) -> tuple[Answer, float]:
    """The fastest way to get pairs from two trees; `query_ball_tree` and `query_ball_point` take 2 to 4 times as long.

    Balanced trees cost more to build and only pay off in many dimensions.
    """
    started = time.process_time()
    left, right = (cKDTree(m, balanced_tree=balanced, compact_nodes=balanced) for m in (points.left, points.right))
    found = left.sparse_distance_matrix(right, points.reach, p=norm, output_type="ndarray")
    seconds = time.process_time() - started
    return answer([(found["i"], found["j"])]), seconds


def _columns(rows: Floats) -> list[Floats]:
    return [np.ascontiguousarray(column) for column in rows.T]


# Contenders: rectangles that intersect, touching ones included.


def dovetail_rectangles(boxes: Boxes) -> tuple[Answer, float]:
    started = time.process_time()
    left, right = (_sides(side) for side in (boxes.left, boxes.right))
    chunks = list(rectangles.pairs(rectangles.prepare(left, right), CHUNK))
    seconds = time.process_time() - started
    return answer(chunks), seconds


def _sides(box: tuple[Floats, ...]) -> rectangles.Sides:
    x_low, y_low, x_high, y_high = (float_codes(column) for column in box)
    return rectangles.Sides(x_low, x_high, y_low, y_high)


def strtree_rectangles(boxes: Boxes) -> tuple[Answer, float]:
    """Build a tree of the smaller side, and query it with the whole larger side at once: faster than vice versa."""
    started = time.process_time()
    left, right = shapely.STRtree(boxes.right_shapes).query(boxes.left_shapes)
    seconds = time.process_time() - started
    return answer([(left, right)]), seconds
