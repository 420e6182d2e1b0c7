"""The contract of a router."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side

Spread = NDArray[np.int64]
"""One number per row that decides between equivalent cells. It must not change when a task runs again."""


class Visits(NamedTuple):
    """Row `rows[i]` of the batch visits cell `cells[i]`. A row may visit many cells, or none if it matches nothing."""

    rows: Rows
    cells: NDArray[np.int32]

    def by_cell(self) -> NDArray[np.int64]:
        """Visits in the order of their cells."""
        short = self.cells.astype(np.int16) if self.cells.max(initial=0) < 2**15 else self.cells
        return np.argsort(short, kind="stable")  # short numbers are sorted by counting


class Router(Protocol):
    """Decides by looking at one row at a time. Any two matching rows share exactly one cell."""

    @property
    def cells(self) -> int:
        """Cells are numbered from 0 to this number, exclusive."""

    @property
    def needs_spread(self) -> bool:
        """Whether it uses `spread` at all, so that the caller must see to a repeatable one."""

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits: ...
