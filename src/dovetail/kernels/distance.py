"""Points within a Euclidean distance, in two dimensions or three.

    . .   :          Boxes of the radius around the left points visit cells of right points (`cells.py`); for the points
     +-:-----+       visited, the sum of squares decides. One dimension is swept, the others are cut.
     | :  o  |  .
     +-:-----+       Exact as written: sqrt((lx - rx)² + (ly - ry)²) <= radius, computed in doubles from left to right.
       : .

No root is computed per pair: computed roots never fall when the sum rises, so there is a largest sum whose root is
still within the radius, and it is determined once. If the condition is spelled another way (squares against a constant,
another order of the sum), pairs very close to the radius are checked.

NaN and infinite coordinates never match. `candidates.py` describes what can be done with the join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels import band, windows
from dovetail.kernels.candidates import Bytes, Candidates, blocks
from dovetail.kernels.cells import visit
from dovetail.kernels.compiling import kernel
from dovetail.kernels.windows import Check, Rows

Floats = NDArray[np.float64]

STEP = 2.0**-45  # relative error of another spelling, at most
LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).tiny)  # below, squares lose digits
UNSEEN = 2.0**-537  # a smaller difference has a square of zero


class _Points(NamedTuple):
    x: Floats
    y: Floats
    z: Floats  # empty in the plane


class _Limits(NamedTuple):
    """Sums up to `sure` are near, sums above `near` are not; those in between are checked."""

    sure: float
    near: float


def prepare(
    left: Sequence[Floats],
    right: Sequence[Floats],
    radius: float,
    closed: bool = True,
    check: Check | None = None,
    slack: float = 0.0,
) -> Candidates:
    """Partners are at most `radius` apart (less, if not closed). `left` and `right` are two or three coordinates.

    `check` decides where rounding might, if the condition is not written as above; the distances it computes may be off
    by slightly more than `slack`.
    """
    limits = _Limits(*limits_of(radius, closed, check is not None, slack))
    reach = reach_of(limits.near)
    bands = [band.prepare_floats(mine, theirs, -reach, reach) for mine, theirs in zip(left, right, strict=True)]
    sweep, *across = sorted(bands, key=windows.count)  # sweep along the most selective one
    met = visit(sweep, *across)
    boxes = _points([mine[met.left] for mine in left])
    points = _points([theirs[met.right] for theirs in right])
    flag = partial(_flag_plane if len(left) == 2 else _flag_space, limits, boxes, points)
    return Candidates(met.left, met.right, partial(blocks, met.visits), flag, len(left[0]), len(right[0]), check)


def _points(columns: Sequence[Floats]) -> _Points:
    return _Points(columns[0], columns[1], columns[2] if len(columns) == 3 else np.empty(0))


def largest_sum(radius: float, closed: bool) -> float:
    """The largest sum of squares whose computed root is within the radius; negative if there is none."""
    if not math.isfinite(radius):
        raise ValueError(f"a distance join needs a finite radius; got {radius}")
    if radius < 0 or (radius == 0 and not closed):
        return -1.0
    most = radius if closed else math.nextafter(radius, -math.inf)
    total = min(most * most, LARGEST)
    while math.sqrt(total) > most:
        total = math.nextafter(total, -math.inf)
    while total < LARGEST and math.sqrt(math.nextafter(total, math.inf)) <= most:
        total = math.nextafter(total, math.inf)
    return total


def limits_of(radius: float, closed: bool, asked: bool, slack: float) -> tuple[float, float]:
    """The sum of squares up to which all are near, and the one above which none is; equal if nothing is checked.

    Either may be out of range: then none is certainly near, or none is certainly too far.
    """
    if not asked:
        return (largest_sum(radius, closed),) * 2
    return (
        largest_sum(max(radius - slack, -1.0), closed) * (1 - STEP) - SMALLEST,
        largest_sum(min(radius + slack, LARGEST), closed) * (1 + STEP) + SMALLEST,
    )


def reach_of(total: float) -> float:
    """The largest distance of two points in one dimension if the sum of squares is at most `total`."""
    return min(max(math.sqrt(total) * (1 + STEP), UNSEEN), LARGEST) if total >= 0 else -1.0


@kernel
def _flag_plane(
    limits: _Limits, left: _Points, right: _Points, boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows
) -> None:
    q = np.uint64(0)
    for v in range(len(boxes)):
        first = np.uint64(firsts[v])
        length = np.uint64(lasts[v]) - first
        x, y = left.x[boxes[v]], left.y[boxes[v]]
        found = 0
        for k in range(length):
            dx, dy = x - right.x[first + k], y - right.y[first + k]
            total = dx * dx + dy * dy
            near = np.uint8(total <= limits.near)
            flags[q + k] = near + near - np.uint8(total <= limits.sure)  # 1 is yes, 2 is ASK
            found += int(near)
        counts[v] = found
        q += length


@kernel
def _flag_space(
    limits: _Limits, left: _Points, right: _Points, boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows
) -> None:
    q = np.uint64(0)
    for v in range(len(boxes)):
        first = np.uint64(firsts[v])
        length = np.uint64(lasts[v]) - first
        x, y, z = left.x[boxes[v]], left.y[boxes[v]], left.z[boxes[v]]
        found = 0
        for k in range(length):
            dx, dy, dz = x - right.x[first + k], y - right.y[first + k], z - right.z[first + k]
            total = dx * dx + dy * dy + dz * dz
            near = np.uint8(total <= limits.near)
            flags[q + k] = near + near - np.uint8(total <= limits.sure)
            found += int(near)
        counts[v] = found
        q += length
