"""What a pair of batches emits, by join type: pairs, rows with their first partner, rows without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Condition
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Rows, Side
from dovetail.matching.matcher import build_matcher
from dovetail.operators.pmj.runs import Items

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Partnered:
    """Rows are numbered from 0 on each side."""

    def __init__(self, how: JoinType) -> None:
        self.how = how
        self._bits = {side: np.zeros(0, np.uint8) for side in how.tracked}

    def watches(self, side: Side) -> bool:
        return side in self._bits

    @property
    def one_sided(self) -> bool:
        """Whether results are left rows only, so that pairs need not be enumerated."""
        return not self.how.emits_pairs

    @property
    def gives_alone(self) -> bool:
        """Whether rows without a partner are results."""
        return bool(self.how.preserved)

    @property
    def nbytes(self) -> int:
        return sum(bits.nbytes for bits in self._bits.values())

    def grow(self, side: Side, rows: int) -> None:
        """Extend the bit map to the number of rows of the side."""
        if side in self._bits and rows > 8 * len(self._bits[side]):
            longer = np.zeros(max(64, rows // 4), np.uint8)  # twice as many as needed
            longer[: len(self._bits[side])] = self._bits[side]
            self._bits[side] = longer

    def mark(self, side: Side, numbers: Words) -> None:
        if side in self._bits and len(numbers):
            np.bitwise_or.at(self._bits[side], numbers >> 3, np.left_shift(1, numbers & 7).astype(np.uint8))

    def has(self, side: Side, numbers: Words) -> Flags:
        """Which of the rows have a partner."""
        flags: Flags = (self._bits[side][numbers >> 3] >> (numbers & 7).astype(np.uint8)) & 1 == 1
        return flags

    def first(self, side: Side, numbers: Words) -> Words:
        """Places of rows that had no mark; they are marked now. A row may stand there several times."""
        places = np.flatnonzero(~self.has(side, numbers))
        _, first = np.unique(numbers[places], return_index=True)
        self.mark(side, numbers[places])
        return places[np.sort(first)]

    def to_batch(self, side: Side) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"bits": self._bits[side]})

    def restore(self, side: Side, batch: pa.RecordBatch) -> None:
        self._bits[side] = np.array(batch.column(0))


ROOM = 1 << 18  # pairs in one yield

Check = Callable[[Rows, Rows], tuple[Rows, Rows]]
"""Those of the pairs that count."""


class JoinTypeEmitter:
    def __init__(self, condition: Condition, how: JoinType, counters: Counters) -> None:
        self.partnered = Partnered(how)
        self._condition = condition
        self._counters = counters

    @property
    def pairs_only(self) -> bool:
        """Whether only pairs are emitted."""
        return self.partnered.how is JoinType.INNER

    def meet(
        self, left: pa.RecordBatch, right: pa.RecordBatch, numbers: tuple[Words, Words], check: Check | None = None
    ) -> Iterator[Matches]:
        """Join two batches. Rows have numbers where the join type needs to know which have a partner."""
        self._counters.probes += left.num_rows + right.num_rows
        matcher = build_matcher(self._condition, left, right)
        if self.partnered.one_sided:
            rows = np.flatnonzero(matcher.partnered(Side.LEFT))
            first = rows[self.partnered.first(Side.LEFT, numbers[0][rows])]
            if self.partnered.how is JoinType.LEFT_SEMI:
                yield Matches.single(Side.LEFT, left, first)
            return
        for lefts, rights in matcher.pairs(ROOM):
            self._counters.pairs_tested += len(lefts)
            if check is not None:
                lefts, rights = check(lefts, rights)
            for side, rows in ((Side.LEFT, lefts), (Side.RIGHT, rights)):
                if self.partnered.watches(side):
                    self.partnered.mark(side, numbers[side][rows])
            if len(lefts):
                yield Matches.pairs(left, lefts, right, rights)

    def alone(self, side: Side, batch: pa.RecordBatch, numbers: Words) -> Iterator[Matches]:
        """Rows that are results by themselves: they have no partner and cannot get one."""
        if self.partnered.watches(side) and self.partnered.gives_alone:
            rows = self.partnered.first(side, numbers)
            if len(rows):
                yield Matches.single(side, batch, rows)

    def needed_rows(self, side: Side, numbers: Words) -> Rows | None:
        """Places of rows that are still needed (None: all): not those of a semi or anti join that have a partner."""
        if not self.partnered.one_sided or side is Side.RIGHT:
            return None
        return np.flatnonzero(~self.partnered.has(side, numbers))

    def select_needed(self, number: int, items: Items) -> Items:
        rows = self.needed_rows(Side(number), items.numbers)
        return items if rows is None or len(rows) == items.size else items.take(rows)
