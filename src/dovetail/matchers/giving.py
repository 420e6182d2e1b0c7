"""What batches that meet give, by join type: pairs, rows that have found their first partner, rows without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from dovetail.batch import Alone, Pairs, Results, Rows, Side
from dovetail.condition import Condition
from dovetail.matchers.build import build_matcher
from dovetail.metrics import Counters
from dovetail.state.merging.partnered import Partnered, Words
from dovetail.state.merging.runs import Items

ROOM = 1 << 18  # pairs in one yield

Check = Callable[[Rows, Rows], tuple[Rows, Rows]]
"""Those of the pairs that count."""


class Giving:
    def __init__(self, condition: Condition, how: str, counters: Counters) -> None:
        self.partnered = Partnered(how)
        self._condition = condition
        self._counters = counters

    @property
    def pairs_only(self) -> bool:
        """Whether nothing but pairs is given."""
        return self.partnered.how == "inner"

    def meet(
        self, left: pa.RecordBatch, right: pa.RecordBatch, numbers: tuple[Words, Words], check: Check | None = None
    ) -> Iterator[Results]:
        """Two batches meet. Rows have numbers where it matters who has a partner."""
        self._counters.probes += left.num_rows + right.num_rows
        matcher = build_matcher(self._condition, left, right)
        if self.partnered.one_sided:
            rows = np.flatnonzero(matcher.partnered(Side.LEFT))
            first = rows[self.partnered.first(Side.LEFT, numbers[0][rows])]
            if self.partnered.how == "left_semi":
                yield Alone(Side.LEFT, left, first)
            return
        for lefts, rights in matcher.pairs(ROOM):
            self._counters.pairs_tested += len(lefts)
            if check is not None:
                lefts, rights = check(lefts, rights)
            for side, rows in ((Side.LEFT, lefts), (Side.RIGHT, rights)):
                if self.partnered.watches(side):
                    self.partnered.mark(side, numbers[side][rows])
            if len(lefts):
                yield Pairs(left, lefts, right, rights)

    def alone(self, side: Side, batch: pa.RecordBatch, numbers: Words) -> Iterator[Results]:
        """Rows that are results by themselves, because no partner has come and none can."""
        if self.partnered.watches(side) and self.partnered.gives_alone:
            rows = self.partnered.first(side, numbers)
            if len(rows):
                yield Alone(side, batch, rows)

    def needed_rows(self, side: Side, numbers: Words) -> Rows | None:
        """Places of rows that are still needed (None: all): not those of a semi or anti join that have a partner."""
        if not self.partnered.one_sided or side is Side.RIGHT:
            return None
        return np.flatnonzero(~self.partnered.has(side, numbers))

    def needed(self, number: int, items: Items) -> Items:
        rows = self.needed_rows(Side(number), items.numbers)
        return items if rows is None or len(rows) == items.size else items.take(rows)
