"""What becomes of pairs of a 1:N join that are found in pieces, by join type.

Pairs are results, or they only say who has a partner. Rows of the side of which each row is looked up (RN) have their
verdict when they have met everything they can meet; those of the other side (R1) at the very end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Pairs, Rows, Side
from dovetail.condition import matching
from dovetail.plan import JoinPlan
from dovetail.runtimes.output import ONE_SIDED, WITHOUT_PARTNER, result_batches, row_batches, without
from dovetail.runtimes.work import Joining
from dovetail.state.diagonal.ring import Positions
from dovetail.state.hash_keys import HashKeys

Flags = NDArray[np.bool_]


class Meeting:
    """Rows of RN and of R1 with equal hashes, the latter with their positions."""

    __slots__ = ("many", "many_rows", "one", "one_positions", "one_rows")

    def __init__(
        self, many: pa.RecordBatch, many_rows: Rows, one: pa.RecordBatch, one_rows: Rows, one_positions: Positions
    ) -> None:
        self.many, self.many_rows = many, many_rows
        self.one, self.one_rows, self.one_positions = one, one_rows, one_positions

    def only(self, chosen: Flags) -> Meeting:
        if chosen.all():
            return self
        return Meeting(self.many, self.many_rows[chosen], self.one, self.one_rows[chosen], self.one_positions[chosen])


class Partners:
    """Turns meetings into results, and remembers which rows of R1 have a partner where the join type asks for it."""

    def __init__(self, plan: JoinPlan, one: Side, one_rows: int, schema: pa.Schema) -> None:
        self._how, self._schema = plan.how, schema
        self._one, self._many = one, one.other
        self._checks = HashKeys(plan.condition).checks
        self._work = Joining(plan.condition, plan.how, schema)
        self._lists = plan.how not in ONE_SIDED
        self.asks_one, self.asks_many = self._asks(one), self._asks(one.other)
        self.partnered: Flags = np.zeros(one_rows if self.asks_one else 0, np.bool_)

    def _asks(self, side: Side) -> bool:
        return side in WITHOUT_PARTNER.get(self._how, ()) or ONE_SIDED.get(self._how) is side

    def checked(self, met: Meeting) -> Meeting:
        """Those that satisfy the whole condition."""
        if not self._checks:
            return met
        pairs = self._pairs(met)
        return met.only(matching(self._checks, *pairs))

    def results(self, met: Meeting, drop: tuple[int, int] = (0, 0)) -> Iterator[pa.RecordBatch]:
        """What pairs that satisfy the condition give at once. `drop`: columns at the end of RN and R1 to leave out."""
        if self.asks_one:
            new = ~self.partnered[met.one_positions]
            self.partnered[met.one_positions] = True
            if self._how == "left_semi":
                rows = np.unique(met.one_rows[new])
                yield from row_batches(self._one, without(met.one, drop[1]), rows, self._schema)
        if self._lists:
            mine = drop if self._many is Side.LEFT else drop[::-1]
            yield from result_batches(self._pairs(met), self._schema, None, mine)

    def at_once(self, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        """Rows of RN that are results because they have a partner."""
        return self.verdict(batch, partnered) if self._how == "left_semi" else iter(())

    def verdict(self, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        """Rows of RN that are results by themselves, of a batch whose rows have met everything."""
        return self._work.leave(self._many, batch, partnered)

    def last(self, batch: pa.RecordBatch, position: int) -> Iterator[pa.RecordBatch]:
        """The same for R1, at the end; left_semi gave its rows as soon as they had a partner."""
        if self._how != "left_semi":
            yield from self._work.leave(self._one, batch, self.partnered[position : position + batch.num_rows])

    def _pairs(self, met: Meeting) -> Pairs:
        return Pairs.oriented(self._many, met.many, met.many_rows, met.one, met.one_rows)
