"""Union: the alternatives of a disjunction, each by a router of its own.

    l.a = r.a OR l.b = r.b     cells 0..3   hash of a; in them l.a = r.a is joined
                               cells 4..7   hash of b; in them l.b = r.b, without what l.a = r.a finds

A row visits cells of every alternative, and two rows may share several cells. A cell joins its alternative only, and no
pair satisfies two. For join types that track partners the rows of a side would have to be in one cell: not here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.routing.protocol import Router, Spread, Visits


@dataclass(frozen=True, slots=True)
class UnionRouter:
    branches: tuple[Condition, ...]
    routers: tuple[Router, ...]  # one for each

    @property
    def cells(self) -> int:
        return sum(router.cells for router in self.routers)

    @property
    def needs_spread(self) -> bool:
        return any(router.needs_spread for router in self.routers)

    def branch(self, cell: int) -> Condition:
        """What is joined in a cell."""
        ends = list(accumulate(router.cells for router in self.routers))
        return self.branches[bisect_right(ends, cell)]

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, cells, first = [], [], 0
        for router in self.routers:
            visits = router.route(side, batch, spread)
            rows.append(visits.rows)
            cells.append(visits.cells + np.int32(first))
            first += router.cells
        return Visits(np.concatenate(rows), np.concatenate(cells))
