"""Chooses the router for windowed streams. There are no statistics of the data when a query starts.

equality             hash of the keys: a row is in one cell
bands, distances     stripes, where there are enough cells that a row skips most of them
anything else        None: every row visits all cells, which take turns keeping them

Rows of which it matters are stored in one cell at most, which can tell whether they have a partner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Band, Condition, Distance, Literal, keyed_rows
from dovetail.condition.expression import type_of
from dovetail.condition.render import text_of
from dovetail.condition.types import is_list
from dovetail.core.codes import Floats
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.kernels.hashing import hash_codes
from dovetail.planning.plan import Choice
from dovetail.routing.grid import Slabs, WindowAxis, band_axis, distance_axis
from dovetail.routing.hash import HashRouter, home_cells
from dovetail.routing.protocol import Router, Spread, Visits

FAR = 2.0**50  # stripes from zero: beyond, neighbours cannot be told apart. Visitors look everywhere, from halfway on


@dataclass(frozen=True, slots=True)
class StripeRouter:
    condition: Condition
    axis: WindowAxis
    cells: int

    needs_spread = False

    @property
    def width(self) -> float:
        return (self.axis.high - self.axis.low) or 1.0

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        alive, columns = keyed_rows(self.condition, side, batch, self.axis.keys(side))
        rows = np.arange(batch.num_rows) if alive is None else alive
        with np.errstate(over="ignore", invalid="ignore"):
            if side is self.axis.home:
                return Visits(rows, self._homes(self.axis.places(columns)))
            places, cells = self._visits(*self.axis.reach(columns))
            return Visits(rows[places], cells.astype(np.int32))

    def _homes(self, values: Floats) -> NDArray[np.int32]:
        stripes = values / self.width
        near = np.abs(stripes) < FAR  # not NaN
        return np.where(near, self._cells(np.where(near, stripes, 0.0)), 0).astype(np.int32)

    def _visits(self, low: Floats, high: Floats) -> tuple[Slabs, Slabs]:
        """Which rows visit which cells, each once, by the ends of their ranges."""
        low, high = np.floor(low / self.width), np.floor(high / self.width)
        near = (np.abs(low) < FAR / 2) & (np.abs(high) < FAR / 2) & (high - low < self.cells)
        few, many = np.flatnonzero(near), np.flatnonzero(~near)
        counts = np.maximum(high[few] - low[few] + 1, 0).astype(np.int64)
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        cells = self._cells(np.repeat(low[few], counts) + offsets)
        visits = np.repeat(few, counts) * self.cells + cells
        everywhere = (many[:, None] * self.cells + np.arange(self.cells)).ravel()
        visits = np.unique(np.concatenate([visits, everywhere]))
        return visits // self.cells, visits % self.cells

    def _cells(self, stripes: Floats) -> Slabs:
        return home_cells(hash_codes(np.floor(stripes).astype(np.int64)), self.cells).astype(np.int64)


MANY = 8
"""The number of cells from which stripes are cheaper: a row is sent to three at most. Stripes may be skewed, round-
robin never is."""


def window_router(condition: Condition, how: JoinType, cells: int) -> tuple[Router | None, Choice]:
    """The router of joins within windows, for so many cells as `window_cells` says."""
    if condition.equalities:
        why = "equal keys share a cell; the other cells only receive the arrival"
        return HashRouter(condition, cells), Choice("hash", why)
    home = home_side(how)
    axis = _axis(condition, home) if cells >= MANY else None
    if axis is not None:
        why = (
            f"of {text_of(axis.at)}; a row of {home.other.alias} is sent to those that can hold its partners, the "
            f"other cells only receive the arrival"
        )
        return StripeRouter(condition, axis, cells), Choice("stripes", why)
    if how == "inner":
        why = "rows are stored round-robin; every row probes all cells"
    elif how is JoinType.FULL:
        why = "one cell knows which rows of both sides have a partner; an equality in the condition allows for more"
    else:
        why = (
            f"rows of {home.alias} are stored in one cell each, which knows whether they have a partner; rows of "
            f"{home.other.alias} in all cells"
        )
    return None, Choice("round_robin", why)


def home_side(how: JoinType) -> Side:
    """The side whose rows are in one cell each."""
    return how.tracked[0] if how.tracked else Side.LEFT


def window_cells(condition: Condition, how: JoinType, cells: int) -> int:
    """How many of the cells can be used: without equal keys, no cell but an only one knows of all partners of both."""
    return 1 if how is JoinType.FULL and not condition.equalities else cells


def _axis(condition: Condition, home: Side) -> WindowAxis | None:
    for predicate in condition.strategy.predicates:
        match predicate:
            case Band():
                return band_axis(predicate, home)
            case Distance(left, radius=Literal()):
                return distance_axis(predicate, home, 0, 0 if is_list(type_of(left[0])) else None)
    return None
