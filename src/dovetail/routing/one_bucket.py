"""1-bucket: a grid of cells in which any two rows share one cell, whatever the condition.

                 right rows, dealt out to columns
                 |    |    |
    left rows  --+----+----+--   a left row visits its line of the grid, a right row its column:
    dealt out  --+----+----+--   they meet in exactly one cell
    to lines

Okcan and Riedewald, Processing theta-joins using MapReduce, SIGMOD 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition, passing
from dovetail.core.rows import Side
from dovetail.routing.protocol import Spread, Visits


@dataclass(frozen=True, slots=True)
class OneBucketRouter:
    condition: Condition
    lines: int
    columns: int

    @property
    def cells(self) -> int:
        return self.lines * self.columns

    @property
    def needs_spread(self) -> bool:
        return self.cells > 1

    @classmethod
    def best_shape(cls, condition: Condition, cells: int, left_rows: float, right_rows: float) -> OneBucketRouter:
        """The grid of at most `cells` cells in which a cell gets the fewest rows."""
        shapes = [(lines, cells // lines) for lines in range(1, cells + 1)]
        lines, columns = min(shapes, key=lambda shape: left_rows / shape[0] + right_rows / shape[1])
        return cls(condition, lines, columns)

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        alive = passing(self.condition.filters[side], side, batch)
        rows = np.arange(batch.num_rows) if alive is None else np.flatnonzero(alive)
        if side is Side.LEFT:
            copies = np.arange(self.columns)
            cells = (spread[rows] % self.lines)[:, None] * self.columns + copies
        else:
            copies = np.arange(self.lines)
            cells = (spread[rows] % self.columns)[:, None] + copies * self.columns
        return Visits(np.repeat(rows, len(copies)), cells.astype(np.int32).ravel())
