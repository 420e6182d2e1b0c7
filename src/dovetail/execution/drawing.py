"""Draws rows at random from both tables, to check estimates: a fair sample in any order of arrival.

    left   - - # - - - # - # - - -   \\
                                       all pairs of the drawn rows, with positions --> Estimator
    right  # - - - # - - - - # - -   /

Estimates of a progressive join extrapolate from the rows that have arrived. This is wrong if the orders of the inputs
depend on each other, and only future rows may show it. Rows of tables can be read ahead: a few when the first rows
arrive, then more as the join proceeds, so that this never takes more than a small part of its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import one_batch, row_bytes
from dovetail.core.rows import Arrival, Event, Matches, Side
from dovetail.estimation.drawn_sample import DrawnSample
from dovetail.estimation.estimate import Words
from dovetail.estimation.measures import Measures
from dovetail.estimation.order import FEW_ROWS, PlacedMatches, fitting_rows
from dovetail.operators.protocol import Workspace
from dovetail.planning.statistics import read_columns

FEWEST_ROWS = 4096  # drawn from each side at first,
ON_A_LINE = 32  # or more, so that matches would form a line if the orders were the same
BUDGET_SHARE = 8  # rows beyond these take at most 1/8 of the budget
SHARE = 32  # later, 1/32 of all rows that have arrived, from each side,
GROWTH = 2  # each time at least twice as many as before,
MOST_ROWS = 1 << 16  # at most
MOST_MATCHES = 1 << 18  # expected matches of the drawn rows, about


class Drawing:
    """`decode`: removes dictionary encoding, if the condition is bound to decoded columns."""

    def __init__(
        self,
        workspace: Workspace,
        measures: Measures,
        tables: Sequence[pa.Table],
        decode: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    ) -> None:
        self._condition = workspace.condition
        self._estimator = workspace.estimator
        self._budget = workspace.budget
        self._measures = measures
        self._tables = [
            tables[side] if measures else tables[side].select(read_columns(self._condition, side)) for side in Side
        ]
        self._decode = decode
        self._rng = np.random.default_rng(0)
        self._arrived = 0
        self._rows = self._tables[0].num_rows, self._tables[1].num_rows
        self._drawn = 0  # rows of each side, last time
        self._most = MOST_ROWS

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            yield event
            self.note(event)

    def note(self, event: Event) -> None:
        """Draw rows, if at least twice as many as last time are due."""
        if not isinstance(event, Arrival) or min(self._rows) < FEW_ROWS:
            return
        self._arrived += event.batch.num_rows
        wanted = max(FEWEST_ROWS, math.isqrt(ON_A_LINE * max(self._rows)), self._arrived // SHARE)
        if min(wanted, self._most) >= GROWTH * self._drawn:
            self._draw(wanted)

    def _draw(self, wanted: int) -> None:
        if not self._drawn:
            _, few = self._take(FEW_ROWS)
            self._most = min(MOST_ROWS, fitting_rows(self._condition, *few, MOST_MATCHES))
            if (limit := self._budget.limit) is not None and self._budget.unit == "bytes":
                width = max(map(row_bytes, few))
                self._most = min(self._most, max(FEWEST_ROWS, limit // BUDGET_SHARE // width))
        self._drawn = min(wanted, self._most)
        places, batches = self._take(self._drawn)
        found = PlacedMatches.between(self._condition, batches, places, self._rows)
        pairs = Matches.pairs(batches[0], found.lefts, batches[1], found.rights)
        self._estimator.draw(DrawnSample(found, self._measures.values_of(pairs)))

    def _take(self, count: int) -> tuple[tuple[Words, Words], tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Positions and rows of both sides, in random order; at most half of each side, so that some remain."""
        places, batches = [], []
        for table in self._tables:
            places.append(self._rng.choice(table.num_rows, max(1, min(count, table.num_rows // 2)), replace=False))
            batch = one_batch(table.take(places[-1]), table.schema)
            batches.append(batch if self._decode is None else self._decode(batch))
        return (places[0], places[1]), (batches[0], batches[1])
