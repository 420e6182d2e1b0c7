"""Points in many dimensions within a Euclidean distance: strips along the leading axes, or all pairs by BLAS.

The rows are rotated to their principal axes, so that the first coordinates are the most selective:

    few candidates    boxes of the radius around left rows, along the three leading axes, visit cells of right rows
                      (`cells.py`); all coordinates of the visited rows are summed, 64 rows at a time
    many candidates   tiles of 1,024 x 1,024 rows: the squared distances are one matrix product

A sample decides which is cheaper. Either way the sums are approximate: rotation, float32 and cancellation have a
bounded error, and pairs within that bound of the radius are computed again. So the result is exact as written: sqrt((l0
- r0)² + (l1 - r1)² + …) <= radius over the original numbers, in doubles, from left to right. If the condition is
spelled another way, pairs very close to the radius are checked.

Rows with NaN or infinite coordinates never match. `candidates.py` describes what can be done with the join.

Böhm, Braunmüller, Krebs, Kriegel, Epsilon grid order, SIGMOD 2001, for strips of the radius as an order on rows.
Deviations: principal axes instead of the given ones, and only three of them; a matrix product if they do not help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels import band, windows
from dovetail.kernels.candidates import ASK, Bytes, Candidates, Flag, Visits, blocks
from dovetail.kernels.cells import visit
from dovetail.kernels.compiling import kernel
from dovetail.kernels.distance import limits_of
from dovetail.kernels.sorting import row_type
from dovetail.kernels.windows import Check, Rows

Matrix = NDArray[Any]  # float32 or float64

LEADING = 3  # axes
SAMPLE = 2048  # rows of each side, to find the axes
GLIMPSE = 512  # rows of each side, to estimate the number of candidates
TILE = 1024  # rows
LANES = np.uint64(64)  # rows summed at a time
# Nanoseconds per pair, from a trial: only their ratio matters.
SCAN = 0.22  # per dimension of a candidate, including the extra ones that cells let in
PRODUCT = (1.6, 0.012)  # per pair in a tile, and per dimension
TURNING = 2.0**-46  # error of a rotated coordinate, relative to the size of the rows, with a margin
ROUGH = 2.0**-8  # with an error this small, relative to the radius, few pairs are computed again
OVERFLOWS, UNDERFLOWS = 1e150, 1e-150  # numbers above, radii below: squares in doubles are unreliable
UNSEEN = 2.0**-537  # a smaller difference has a square of zero


class _Frame(NamedTuple):
    """The rows along their principal axes, scaled to at most about 1."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    scale: float
    error: float  # of a distance, at most
    largest: float  # distance from the origin


class _Limits(NamedTuple):
    """Sums up to `sure` are near, sums above `near` are not."""

    sure: Any
    near: Any


class _Exact(NamedTuple):
    """The original rows, and exact limits, or limits between which pairs are checked."""

    left: Matrix
    right: Matrix
    left_rows: Rows  # by box
    right_rows: Rows  # by point
    limits: _Limits


class _Rough(NamedTuple):
    """Rows in the frame, in the precision that the limits are for."""

    boxes: Matrix
    points: Matrix  # one row per axis, padded for the last lanes
    limits: _Limits


def prepare(
    left: Matrix,
    right: Matrix,
    radius: float,
    closed: bool = True,
    check: Check | None = None,
    slack: float = 0.0,
    tiles: bool | None = None,
) -> Candidates:
    """Partners are at most `radius` apart (less, if not closed). Rows are float32 or float64, with two or more columns.

    `check` decides where rounding might, if the condition is not written as above; the distances it computes may be off
    by slightly more than `slack`. `tiles` forces all pairs (True) or strips; the result is the same.
    """
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1] or left.shape[1] < 2:
        raise ValueError(f"rows need equally many numbers, two or more; got shapes {left.shape} and {right.shape}")
    type_ = row_type(max(len(left), len(right)))
    limits = _Limits(*limits_of(radius, closed, check is not None, slack))
    left_rows, right_rows = (np.flatnonzero(np.isfinite(m).all(axis=1)).astype(type_) for m in (left, right))
    if limits.near < 0:
        left_rows = left_rows[:0]  # no distance is negative
    exact = _Exact(left, right, left_rows, right_rows, limits)
    frame = _frame(left[left_rows], right[right_rows])
    if tiles is None:
        tiles = _prefers_tiles(frame, _near_limit(exact, frame))
    return (_tiles if tiles else _strips)(frame, exact, check)


def _frame(left: Matrix, right: Matrix) -> _Frame:
    """Rotate the rows so that they spread most along the first axis, and so on."""
    dimensions = left.shape[1]
    size = max(float(np.abs(m).max(initial=0.0)) for m in (left, right))
    scale = 2.0 ** min(-math.frexp(size)[1], 1000)
    scaled = [m.astype(np.float64) * scale for m in (left, right)]
    sample = np.concatenate([m[:: max(1, len(m) // SAMPLE)] for m in scaled] + [np.zeros((1, dimensions))])
    centre = sample.mean(axis=0)
    axes = np.linalg.eigh((sample - centre).T @ (sample - centre))[1][:, ::-1]
    turned = [(m - centre) @ axes for m in scaled]
    largest = math.sqrt(max(float(np.square(m).sum(axis=1).max(initial=0.0)) for m in turned))
    return _Frame(turned[0], turned[1], scale, 2 * math.sqrt(dimensions) * TURNING * dimensions**1.5, largest)


def _near_limit(exact: _Exact, frame: _Frame) -> float:
    """The largest distance in the frame that can be near, limited by the size of the frame."""
    dimensions = frame.left.shape[1]
    radius = max(math.sqrt(max(exact.limits.near, 0.0)), 2 * math.sqrt(dimensions) * UNSEEN)
    return min(radius * frame.scale, 4.0 * math.sqrt(dimensions))


def _sure(exact: _Exact, frame: _Frame) -> float:
    """The largest distance in the frame that is certainly near; negative if there is none."""
    radius = math.sqrt(max(exact.limits.sure, 0.0))
    if radius < UNDERFLOWS or frame.scale < 1 / OVERFLOWS:
        return -1.0
    return min(radius * frame.scale, 4.0 * math.sqrt(frame.left.shape[1]))


def _prefers_tiles(frame: _Frame, radius: float) -> bool:
    """Whether the matrix product of all pairs costs less than the candidates of strips."""
    mine, theirs = (m[:: max(1, len(m) // GLIMPSE), :LEADING] for m in (frame.left, frame.right))
    apart = np.abs(mine[:, None, :] - theirs[None, :, :]).max(axis=2)
    share = float((apart <= radius).mean()) if apart.size else 0.0
    dimensions = frame.left.shape[1]
    return bool(share * SCAN * dimensions > PRODUCT[0] + PRODUCT[1] * dimensions)


def _strips(frame: _Frame, exact: _Exact, check: Check | None) -> Candidates:
    """Candidates by the leading axes."""
    reach = _near_limit(exact, frame) + frame.error
    axes = range(min(LEADING, frame.left.shape[1]))
    columns = [(np.ascontiguousarray(frame.left[:, a]), np.ascontiguousarray(frame.right[:, a])) for a in axes]
    bands = [band.prepare_floats(mine, theirs, -reach, reach) for mine, theirs in columns]
    sweep, *across = sorted(bands, key=windows.count)  # sweep along the most selective one
    met = visit(sweep, *across)
    type_, limits = _scan_limits(frame, exact)
    boxes = frame.left[met.left].astype(type_)
    points = np.zeros((boxes.shape[1], len(met.right) + int(LANES)), type_)
    points[:, : len(met.right)] = frame.right[met.right].T
    exact = exact._replace(left_rows=exact.left_rows[met.left], right_rows=exact.right_rows[met.right])
    flag = partial(_flag_runs, _Rough(boxes, points, limits), exact)
    return _candidates(exact, partial(blocks, met.visits), flag, check)


def _scan_limits(frame: _Frame, exact: _Exact) -> tuple[type[np.float32] | type[np.float64], _Limits]:
    """The error of the sums, in single precision if that is precise enough."""
    dimensions = frame.left.shape[1]
    near, sure = _near_limit(exact, frame), _sure(exact, frame)
    for type_, bits in ((np.float32, 23), (np.float64, 52)):
        error = frame.error + 2 * frame.largest * 2.0**-bits
        if error < near * ROUGH or type_ is np.float64:
            slack = (dimensions + 4) * 2.0**-bits
            break
    return type_, _Limits(type_(_square(sure - error) * (1 - slack)), type_((near + error) ** 2 * (1 + slack)))


def _square(distance: float) -> float:
    return distance * distance if distance > 0 else -1.0


def _tiles(frame: _Frame, exact: _Exact, check: Check | None) -> Candidates:
    """All pairs, a tile at a time. |a - b|² = |a|² + |b|² - 2ab is the product of (-2a, |a|², 1) and (b, 1, |b|²)."""
    type_, limits = _product_limits(frame, exact)
    squares = [np.square(m).sum(axis=1, keepdims=True) for m in (frame.left, frame.right)]
    ones = [np.ones_like(s) for s in squares]
    boxes = np.concatenate([-2 * frame.left, squares[0], ones[0]], axis=1).astype(type_)
    points = np.concatenate([frame.right, ones[1], squares[1]], axis=1).astype(type_)

    def flag(box_rows: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows) -> None:
        sums = np.matmul(boxes[box_rows], points[firsts[0] : lasts[0]].T)  # all visits of a tile are alike
        _flag_tile(sums, limits, exact, box_rows, firsts, flags, counts)

    return _candidates(exact, partial(_all_tiles, len(boxes), len(points), exact.left_rows.dtype), flag, check)


def _product_limits(frame: _Frame, exact: _Exact) -> tuple[type[np.float32] | type[np.float64], _Limits]:
    """Like `_scan_limits`; the product also loses digits when large squares cancel."""
    dimensions = frame.left.shape[1]
    near, sure = _near_limit(exact, frame), _sure(exact, frame)
    for type_, bits in ((np.float32, 23), (np.float64, 52)):
        error = frame.error + 2 * frame.largest * 2.0**-bits
        lost = (dimensions + 4) * 4 * frame.largest**2 * 2.0**-bits
        if (error < near * ROUGH and lost < near**2 * ROUGH) or type_ is np.float64:
            break
    return type_, _Limits(type_(_square(sure - error) - lost), type_((near + error) ** 2 + lost))


def _all_tiles(lefts: int, rights: int, type_: np.dtype[Any]) -> Iterator[Visits]:
    for top in range(0, lefts, TILE):
        boxes = np.arange(top, min(top + TILE, lefts), dtype=type_)
        for first in range(0, rights, TILE):
            last = min(first + TILE, rights)
            yield Visits(boxes, np.full_like(boxes, first), np.full_like(boxes, last))


def _candidates(exact: _Exact, visits: Callable[[], Iterator[Visits]], flag: Flag, check: Check | None) -> Candidates:
    return Candidates(exact.left_rows, exact.right_rows, visits, flag, len(exact.left), len(exact.right), check)


@kernel
def _decide(exact: _Exact, box: int, point: int) -> int:
    """The flag of a pair, computed by definition."""
    left = exact.left[exact.left_rows[box]]
    right = exact.right[exact.right_rows[point]]
    total = 0.0
    for k in range(len(left)):
        difference = np.float64(left[k]) - np.float64(right[k])
        total += difference * difference
    return 2 * int(total <= exact.limits.near) - int(total <= exact.limits.sure)


@kernel
def _flag_runs(
    rough: _Rough, exact: _Exact, boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows
) -> None:
    points, limits = rough.points, rough.limits
    dimensions = np.uint64(len(points))
    half = dimensions >> np.uint64(1)
    sums = np.empty(LANES, points.dtype)
    begin = np.uint64(0)
    for v in range(len(boxes)):
        box = rough.boxes[boxes[v]]
        last = np.uint64(lasts[v])
        found = 0
        for p in range(np.uint64(firsts[v]), last, LANES):
            for k in range(LANES):
                difference = points[0, p + k] - box[0]
                sums[k] = difference * difference
            for d in range(np.uint64(1), half):
                coordinate = box[d]
                for k in range(LANES):
                    difference = points[d, p + k] - coordinate
                    sums[k] += difference * difference
            lanes = min(LANES, last - p)
            near = 0
            for k in range(LANES):
                near += sums[k] <= limits.near
            if near == 0:  # the leading half of the axes decides for most rows
                for k in range(lanes):
                    flags[begin + k] = 0
            else:
                for d in range(max(half, np.uint64(1)), dimensions):
                    coordinate = box[d]
                    for k in range(LANES):
                        difference = points[d, p + k] - coordinate
                        sums[k] += difference * difference
                for k in range(lanes):
                    flag = 2 * int(sums[k] <= limits.near) - int(sums[k] <= limits.sure)
                    if flag == ASK:
                        flag = _decide(exact, boxes[v], p + k)
                    flags[begin + k] = flag
                    found += flag > 0
            begin += lanes
        counts[v] = found


@kernel
def _flag_tile(
    sums: Matrix, limits: _Limits, exact: _Exact, boxes: Rows, firsts: Rows, flags: Bytes, counts: Rows
) -> None:
    begin = np.uint64(0)
    width = np.uint64(sums.shape[1])
    for v in range(len(boxes)):
        found = unsure = np.uint32(0)
        for k in range(width):
            near, sure = np.uint32(sums[v, k] <= limits.near), np.uint32(sums[v, k] <= limits.sure)
            flags[begin + k] = near + near - sure
            found += near
            unsure += near - sure
        if unsure > 0:
            for k in range(width):
                if flags[begin + k] == ASK:
                    flags[begin + k] = _decide(exact, boxes[v], firsts[v] + k)
                    found -= flags[begin + k] == 0
        counts[v] = found
        begin += width
