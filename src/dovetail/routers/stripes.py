"""Stripes: the line is cut into equal stripes, dealt out to the cells by hash; nothing has to be known of the data.

    r.x + low <= l.x <= r.x + high        a left row is at home in the stripe of its value,
                                          a right row visits every stripe in which a partner can be: two, as a rule

        stripe      7   |   8   |   9   |   10
        left              x                         in the cell of 8
        right               |---x---|               in the cells of 8 and 9

A stream cannot be sampled beforehand, so that there are no ranges of equally many rows, as in a grid. Stripes are as
wide as the band: narrow ones would copy rows more often, wide ones put more neighbours into one cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Side
from dovetail.condition import Condition, keyed_rows
from dovetail.kernels.hashing import hash_codes
from dovetail.routers.grid import Slabs, Window
from dovetail.routers.hash import home_cells
from dovetail.routers.protocol import Spread, Visits
from dovetail.state.rough_codes import Floats

FAR = 2.0**50  # stripes from zero: beyond, neighbours cannot be told apart. Visitors look everywhere, from halfway on


@dataclass(frozen=True, slots=True)
class StripeRouter:
    condition: Condition
    axis: Window
    cells: int

    deals = False

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
