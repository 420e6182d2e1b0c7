"""Bands and distances as equality of cells: a left row is replicated to every cell that can hold a partner.

    band      low <= l - r <= high    right rows, shifted by low, in cells of width high - low; left rows in two each
    distance  of points <= radius     right rows in squares with four times that side; left rows in nine each

A pair shares only one cell, that of the right row, where the original condition is checked. So a hash join can run such
a condition on copies of the left rows. Doubles get cells of twice the width and one more neighbour, so that rounding
cannot move a partner out of reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Band, Condition, Distance, Expression, Literal, Predicate, closed_bounds, keyed_rows
from dovetail.condition.expression import type_of
from dovetail.core.codes import add_saturating, is_fixed, order_codes
from dovetail.core.rows import Side
from dovetail.kernels import hashing
from dovetail.matching.equal_keys import Hashed, HashKeys

FARTHEST = 2.0**49  # cells from zero; farther rows share one cell: doubles cannot tell neighbours apart
MOST_DIMENSIONS = 2

Words = NDArray[np.int64]


class Axis(NamedTuple):
    """One dimension of the cells: 0 <= l - (r + low) <= width."""

    keys: tuple[Expression, Expression]
    low: float
    width: float
    whole: bool  # whether values are integers, which are exact

    @property
    def reach(self) -> range:
        """The cells of a left row's partners, relative to its own."""
        return range(-1, 1) if self.whole else range(-1, 2)

    def cells(self, side: Side, column: pa.Array) -> Words:
        if self.whole:
            codes = order_codes(column).values
            if side is Side.RIGHT:
                codes = add_saturating(codes, int(self.low))
            return codes // max(1, int(self.width))
        numbers = np.asarray(column.cast(pa.float64()))
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = numbers + self.low if side is Side.RIGHT else numbers
            places = np.floor(numbers / (2 * self.width or 1.0))
        return np.nan_to_num(places, nan=0.0).clip(-FARTHEST, FARTHEST).astype(np.int64)


class CellKeys:
    """Like `HashKeys`, for conditions without an equality."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._axes = axes_of(condition)
        self.checks = condition.conjuncts

    def rehash(self, side: Side) -> None:
        """None: copies of a row have different hashes, which cannot be computed from the row."""

    def copies(self, side: Side, batch: pa.RecordBatch) -> Iterator[Hashed]:
        """The rows that can match, once for each of their cells."""
        rows, columns = keyed_rows(self._condition, side, batch, [axis.keys[side] for axis in self._axes])
        cells = [axis.cells(side, column) for axis, column in zip(self._axes, columns, strict=True)]
        if side is Side.RIGHT:
            yield Hashed(rows, _hash_cells(cells))
            return
        before: list[Words] = []
        every = np.arange(batch.num_rows) if rows is None else rows
        for offsets in product(*(axis.reach for axis in self._axes)):
            hashes = _hash_cells([cell + offset for cell, offset in zip(cells, offsets, strict=True)])
            new = np.ones(len(hashes), np.bool_)
            for other in before:  # if two cells of a row had the same hash, its pairs would be found twice
                new &= hashes != other
            before.append(hashes)
            yield Hashed(every[new], hashes[new])


def axes_of(condition: Condition) -> list[Axis]:
    """The axes of a condition's cells; empty if no band or distance can have cells."""
    return [axis for predicate in condition.predicates for axis in _axes(predicate)][:MOST_DIMENSIONS]


def predicates_with_axes(condition: Condition) -> tuple[Predicate, ...]:
    """The predicates that the axes come from."""
    used: list[Predicate] = []
    axes = 0
    for predicate in condition.predicates:
        if axes < MOST_DIMENSIONS and (more := len(_axes(predicate))):
            used.append(predicate)
            axes += more
    return tuple(used)


def _axes(predicate: Predicate) -> list[Axis]:
    match predicate:
        case Band(left, right) if is_fixed(type_of(left)):
            low, high = closed_bounds(predicate)
            if np.isfinite(low) and np.isfinite(high) and low <= high:
                return [Axis((left, right), low, high - low, not pa.types.is_floating(type_of(left)))]
        case Distance(left, right, Literal(radius)) if len(left) == MOST_DIMENSIONS:
            reach = float(radius)
            return [Axis(keys, -reach, 2 * reach, False) for keys in zip(left, right, strict=True)]
    return []


def spilling_keys(condition: Condition) -> HashKeys | CellKeys:
    """The keys by which a spilling hash join partitions: equalities, if there are any; otherwise cells."""
    return HashKeys(condition) if condition.equalities else CellKeys(condition)


def _hash_cells(cells: list[Words]) -> Words:
    hashes = hashing.hash_codes(cells[0])
    for more in cells[1:]:
        hashing.combine(hashes, hashing.hash_codes(more))
    return hashes
