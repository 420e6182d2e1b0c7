"""Rows that are drawn by chance from both tables, to check estimates: whatever the order, they are a fair sample.

    left   - - # - - - # - # - - -   \\
                                       all pairs of the drawn rows, with their places --> Estimator
    right  # - - - # - - - - # - -   /

Estimates of a progressive join extrapolate from rows that have arrived. That is wrong where the orders of both inputs
depend on each other, and rows to come may be the only ones to tell. Tables are there, so that rows to come can be looked
at: a few when the first ones arrive, then more as the join goes on, so that they never take more than a part of its
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition
from dovetail.core.rows import Arrival, Event, Matches, Side, one_batch
from dovetail.estimation.drawn_sample import DrawnSample
from dovetail.estimation.estimate import Estimator, Words
from dovetail.estimation.measures import Measures
from dovetail.estimation.order import PlacedMatches
from dovetail.matching import build_matcher
from dovetail.planning.statistics import read_columns

FEWEST_ROWS = 4096  # drawn from each side at first,
ON_A_LINE = 32  # and so many that their matches would be on a line, if orders were the same
SHARE = 4  # one in so many of the rows that have arrived is drawn later on,
MOST_ROWS = 1 << 16  # at most
FIRST_ROWS = 512  # that say how many matches to expect
MOST_MATCHES = 1 << 18  # of the rows that are drawn, about
BLOCKS = 8  # into which they are divided for sums
ROOM = 1 << 18  # pairs that are listed at once


class Drawing:
    def __init__(
        self,
        condition: Condition,
        estimator: Estimator,
        measures: Measures,
        tables: tuple[pa.Table, pa.Table],
        decode: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
    ) -> None:
        self._condition = condition
        self._estimator = estimator
        self._measures = measures
        self._tables = tables if measures else tuple(tables[side].select(read_columns(condition, side)) for side in Side)
        self._decode = decode
        self._rng = np.random.default_rng(0)
        self._arrived = 0
        self._next = 0  # how many rows must have arrived before the next draw

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            yield event
            self.note(event)

    def note(self, event: Event) -> None:
        """Draw rows, if it is time to."""
        if isinstance(event, Arrival) and all(table.num_rows for table in self._tables):
            self._arrived += event.batch.num_rows
            if self._arrived >= self._next:
                self._next = 2 * self._arrived
                self._draw()

    def _draw(self) -> None:
        largest = max(table.num_rows for table in self._tables)
        wanted = max(FEWEST_ROWS, math.isqrt(ON_A_LINE * largest), self._arrived // (2 * SHARE))
        if (most := self._fitting()) is not None:
            wanted = min(wanted, most)
        places, batches = zip(*(self._take(side, min(wanted, MOST_ROWS)) for side in Side), strict=True)
        listed = list(build_matcher(self._condition, *batches).pairs(ROOM))
        lefts, rights = (np.concatenate([np.empty(0, np.int64), *(pairs[side] for pairs in listed)]) for side in Side)
        rows = self._tables[0].num_rows, self._tables[1].num_rows
        sample = DrawnSample(PlacedMatches((places[0], places[1]), rows, lefts, rights))
        self._estimator.draw(sample, self._in_blocks(batches, lefts, rights))

    def _fitting(self) -> int | None:
        """How many rows of each side have as many matches as there is time for; None: any number."""
        _, batches = zip(*(self._take(side, FIRST_ROWS) for side in Side), strict=True)
        matches = build_matcher(self._condition, *batches).count()
        pairs = batches[0].num_rows * batches[1].num_rows
        return None if not matches else math.isqrt(MOST_MATCHES * pairs // matches)

    def _take(self, side: Side, count: int) -> tuple[Words, pa.RecordBatch]:
        """Rows in random order, and their places; at most half of them, so that there are others."""
        table = self._tables[side]
        places = self._rng.choice(table.num_rows, max(1, min(count, table.num_rows // 2)), replace=False)
        return places, self._decode(one_batch(table.take(places), table.schema))

    def _in_blocks(self, batches: tuple[pa.RecordBatch, ...], lefts: Words, rights: Words) -> Estimator:
        """As blocks of rows that came in random order, for sums; without any, there is nothing to add up."""
        drawn = Estimator()
        if not self._measures:
            return drawn
        sizes = [batch.num_rows for batch in batches]
        count = min(BLOCKS, *sizes)
        starts = [[size * block // count for block in range(count + 1)] for size in sizes]
        mine, theirs = (
            np.searchsorted(starts[side], rows, side="right") for side, rows in ((0, lefts), (1, rights))
        )
        for block in range(count):
            here = np.flatnonzero((mine == block + 1) & (theirs == block + 1))
            sums = self._measures.sum_pairs(Matches.pairs(batches[0], lefts[here], batches[1], rights[here]))
            left_rows, right_rows = (ends[block + 1] - ends[block] for ends in starts)
            drawn.add(left_rows, right_rows, len(here), sums=sums)
        return drawn
