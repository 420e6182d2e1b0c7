"""Points nearer than a radius, as cubes in the cells of a grid: how a sweep finds pairs in many dimensions.

Each point becomes the cube of side `radius` around it. Points that are near enough have cubes that meet, their cells
are nested, and so are the intervals of these cells along the Z-curve: what a sweep needs. (Codes of the points
themselves would not do: near points can have codes with no common prefix.)

The grid is learned from the first rows: a dimension is halved as long as its cells are larger than the radius. Points
outside of it belong to its outermost cells, so it need not fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.batch import Side
from dovetail.condition import Distance, Expression, Literal, columns_of, types
from dovetail.condition.expression import type_of
from dovetail.kernels.z_order import (
    Cells,
    Corners,
    Halvings,
    enclosing_cells,
    halvings_of,
    meet_here,
    no_halvings,
    point_codes,
)
from dovetail.keys import list_lengths
from dovetail.state.rough_codes import numbers

Words = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_BITS = 62  # of a code
COPIES = 4  # cells of a cube
DOUBLE, SINGLE = 2.0**-48, 2.0**-20  # relative errors, with room to spare


class Cubes:
    def __init__(self, distance: Distance, copies: int = COPIES) -> None:
        assert isinstance(distance.radius, Literal)
        self._distance = distance
        self._radius = float(distance.radius.value)
        self._copies = copies
        self._origin: Floats | None = None  # None: nothing was learned yet
        self._scale = np.empty(0)  # cells per unit
        self._bits = np.empty(0, np.int64)
        self._halvings: Halvings = no_halvings()
        read = [type_of(column) for source in distance.source for column in columns_of(source)]
        is_single = any(pa.types.is_float32(t) or pa.types.is_float16(t) or types.is_list(t) for t in read)
        self._slack = SINGLE if is_single else DOUBLE

    def keys(self, side: Side) -> list[Expression]:
        return list(self._distance.left if side is Side.LEFT else self._distance.right)

    def learn(self, columns: tuple[list[pa.Array], list[pa.Array]]) -> None:
        """Lay the grid over these rows of both sides."""
        if self._origin is not None:
            return
        both = [_points(side, None) for side in columns]
        width = max(points.shape[1] for points in both)
        points = np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1]))) for p in both])
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return
        low, high = points.min(axis=0), points.max(axis=0)
        with np.errstate(over="ignore", divide="ignore"):
            cells = (high - low) / max(self._radius, np.finfo(np.float64).tiny)
        bits = np.floor(np.log2(np.clip(cells, 1, 2.0**30))).astype(np.int64)
        while bits.sum() > MOST_BITS:
            bits[bits.argmax()] -= 1
        extent = np.where(high > low, high - low, 1.0)
        self._lay(low, 2.0**bits / extent, bits)

    def _lay(self, origin: Floats, scale: Floats, bits: Words) -> None:
        self._origin, self._scale, self._bits = origin, scale, bits
        self._halvings = halvings_of(bits)

    def cells(self, columns: list[pa.Array]) -> Cells:
        points = self._read(columns)
        reach = self._reach(points)
        return enclosing_cells(self._grid(points - reach), self._grid(points + reach), self._halvings, self._copies)

    def lows(self, columns: list[pa.Array]) -> Words:
        """The lowest corners of the cubes, as cells of the grid."""
        points = self._read(columns)
        return self._grid(points - self._reach(points))

    def codes(self, columns: list[pa.Array]) -> Words:
        """One place on the curve for each row."""
        return point_codes(self.lows(columns), self._halvings)

    def meet_here(self, left: Corners, right: Corners, left_rows: Any, right_rows: Any) -> NDArray[np.bool_]:
        """Which pairs belong to the two cells in which they were found."""
        return meet_here(left, right, left_rows, right_rows, self._halvings)

    def to_json(self) -> Any:
        return None if self._origin is None else [self._origin.tolist(), self._scale.tolist(), self._bits.tolist()]

    def restore(self, fields: Any) -> None:
        if fields is not None:
            self._lay(np.array(fields[0]), np.array(fields[1]), np.array(fields[2], np.int64))

    def _read(self, columns: list[pa.Array]) -> Floats:
        return _points(columns, len(self._bits))

    def _reach(self, points: Floats) -> Floats:
        """Half of the radius, and a little more: distances may have been rounded down."""
        with np.errstate(invalid="ignore"):
            return self._radius / 2 * (1 + SINGLE) + self._slack * np.abs(points)

    def _grid(self, points: Floats) -> Words:
        """Rounding is monotone, so that corners keep their order. NaN, which matches nothing, goes anywhere."""
        with np.errstate(invalid="ignore", over="ignore"):
            places = (points - self._origin) * self._scale if self._origin is not None else points
        inside = np.clip(np.nan_to_num(places, nan=0.0, posinf=2.0**40, neginf=-1.0), 0, 2.0**self._bits - 1)
        return np.floor(inside).astype(np.int64)


def _points(columns: list[pa.Array], width: int | None) -> Floats:
    """One line for each point. Lists are cut or filled up with zeros: only those of one length can match."""
    if not types.is_list(columns[0].type):
        points = np.stack([numbers(column) for column in columns], axis=1)
        return points if width is None else points[:, :width]
    lists = columns[0]
    lengths = list_lengths(lists)
    longest = int(lengths.max(initial=0))
    points = np.zeros((len(lists), longest))
    elements = pc.fill_null(lists.flatten().cast(pa.float64()), np.nan)
    points[np.arange(longest) < lengths[:, None]] = np.asarray(elements)
    if width is None or width == longest:
        return points
    return np.pad(points, ((0, 0), (0, max(0, width - longest))))[:, :width]
