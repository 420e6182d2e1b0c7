"""What merges of two sides emit, by join type: pairs, rows with their first partner, or rows without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate, no_matches
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Rows, Side
from dovetail.estimation.estimate import Estimator
from dovetail.kernels.windows import apart
from dovetail.matching.matcher import build_matcher
from dovetail.matching.sweep_order import NO_WORDS, Items, SweepOrder, Words
from dovetail.operators.pmj.merge import Merge, meetings
from dovetail.operators.pmj.runs import Pages, RunGroup
from dovetail.storage.budget import Budget

Flags = NDArray[np.bool_]
Check = Callable[[Rows, Rows], tuple[Rows, Rows]]
"""Selects the pairs that count."""

MOST_PAIRS = 1 << 18  # pairs per yield
CHUNK = 512  # rows of each side in a chunk of early pairs


class Partnered:
    """Bitmaps of rows with a partner. Rows are numbered from 0 on each side."""

    def __init__(self, how: JoinType) -> None:
        self.how = how
        self._bits = {side: np.zeros(0, np.uint8) for side in how.tracked}

    def watches(self, side: Side) -> bool:
        return side in self._bits

    @property
    def one_sided(self) -> bool:
        """Whether results are only left rows, so that pairs need not be enumerated."""
        return not self.how.emits_pairs

    @property
    def gives_alone(self) -> bool:
        """Whether rows without a partner are results."""
        return bool(self.how.preserved)

    @property
    def nbytes(self) -> int:
        return sum(bits.nbytes for bits in self._bits.values())

    def grow(self, side: Side, rows: int) -> None:
        """Extend the bitmap to this number of rows."""
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
        """Positions of rows that were not marked, without duplicates; they are marked now."""
        places = np.flatnonzero(~self.has(side, numbers))
        _, first = np.unique(numbers[places], return_index=True)
        self.mark(side, numbers[places])
        return places[np.sort(first)]

    def to_batch(self, side: Side) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"bits": self._bits[side]})

    def restore(self, side: Side, batch: pa.RecordBatch) -> None:
        self._bits[side] = np.array(batch.column(0))


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
        """Join two batches. Rows have numbers if the join type tracks which have a partner."""
        self._counters.probes += left.num_rows + right.num_rows
        matcher = build_matcher(self._condition, left, right)
        if self.partnered.one_sided:
            rows = np.flatnonzero(matcher.partnered(Side.LEFT))
            first = rows[self.partnered.first(Side.LEFT, numbers[0][rows])]
            if self.partnered.how is JoinType.LEFT_SEMI:
                yield Matches.single(Side.LEFT, left, first)
            return
        for lefts, rights in matcher.pairs(MOST_PAIRS):
            self._counters.pairs_tested += len(lefts)
            if check is not None:
                lefts, rights = check(lefts, rights)
            for side, rows in ((Side.LEFT, lefts), (Side.RIGHT, rights)):
                if self.partnered.watches(side):
                    self.partnered.mark(side, numbers[side][rows])
            if len(lefts):
                yield Matches.pairs(left, lefts, right, rights)

    def alone(self, side: Side, batch: pa.RecordBatch, numbers: Words) -> Iterator[Matches]:
        """Rows that are results alone: they have no partner and can no longer get one."""
        if self.partnered.watches(side) and self.partnered.gives_alone:
            rows = self.partnered.first(side, numbers)
            if len(rows):
                yield Matches.single(side, batch, rows)

    def needed_rows(self, side: Side, numbers: Words) -> Rows | None:
        """Positions of rows that are still needed (None: all); semi and anti joins do not need rows with a partner."""
        if not self.partnered.one_sided or side is Side.RIGHT:
            return None
        return np.flatnonzero(~self.partnered.has(side, numbers))

    def select_needed(self, number: int, items: Items) -> Items:
        rows = self.needed_rows(Side(number), items.numbers)
        return items if rows is None or len(rows) == items.size else items.take(rows)


class InOrder:
    def __init__(self) -> None:
        self._pairs: list[Matches] = []
        self._places: list[Words] = []

    def add(self, pairs: Matches, left_starts: Words, right_starts: Words) -> None:
        self._pairs.append(pairs)
        self._places.append(np.maximum(left_starts[pairs.left_rows], right_starts[pairs.right_rows]))

    def emit_sorted(self) -> Iterator[Matches]:
        if self._pairs:
            left = concatenate([take_rows(pairs.left, pairs.left_rows) for pairs in self._pairs])
            right = concatenate([take_rows(pairs.right, pairs.right_rows) for pairs in self._pairs])
            order = np.argsort(np.concatenate(self._places), kind="stable")
            yield Matches.pairs(left, order, right, order)


class EarlyPairCounts(NamedTuple):
    """The number of pairs, and of those within the first CHUNK rows of both sides, the next ones, and so on."""

    matches: int
    diagonal: Words
    sums: Mapping[str, float] = {}  # sums over the pairs

    @classmethod
    def none(cls) -> EarlyPairCounts:
        return cls(0, NO_WORDS)

    @classmethod
    def from_pairs(cls, lefts: Rows, rights: Rows, sums: Mapping[str, float]) -> EarlyPairCounts:
        """The counts of pairs, by the arrival of their rows."""
        chunks = lefts // CHUNK
        return cls(len(lefts), np.bincount(chunks[chunks == rights // CHUNK]), sums)

    def with_(self, other: EarlyPairCounts) -> EarlyPairCounts:
        total = np.zeros(max(len(self.diagonal), len(other.diagonal)), np.int64)
        for part in (self, other):
            total[: len(part.diagonal)] += part.diagonal
        sums = {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in {**self.sums, **other.sums}}
        return EarlyPairCounts(self.matches + other.matches, total, sums)

    def complete(self, rows: int) -> list[int]:
        """The diagonal, extended to the number of rows of both sides."""
        counts = np.zeros(rows // CHUNK, np.int64)
        counts[: len(self.diagonal)] = self.diagonal[: len(counts)]
        return counts.tolist()


class MergedPairs:
    """`early`: rows of one group have already been joined. `sorts`: emit in the order of the sweep."""

    def __init__(
        self,
        condition: Condition,
        order: SweepOrder,
        giving: JoinTypeEmitter,
        pages: Pages,
        budget: Budget,
        estimator: Estimator,
        *,
        early: bool,
        sorts: bool,
    ) -> None:
        self._order = order
        self._giving = giving
        self._pages = pages
        self._budget = budget
        self._estimator = estimator
        self._early = early
        self._sorts = sorts
        self.nothing: Matches = no_matches(condition.schemas)

    @property
    def repeats(self) -> bool:
        """Whether rows with a partner are not emitted again, and may be missing from a repeated step."""
        return self._giving.partnered.one_sided

    def select_needed(self, number: int, items: Items) -> Items:
        return self._giving.select_needed(number, items)

    def step(self, merge: Merge, new: tuple[Items, ...]) -> Iterator[Matches]:
        in_order = InOrder()
        for left, right in meetings(merge, new):
            check = self._check(left, right)
            for results in self._giving.meet(left.batch, right.batch, (left.numbers, right.numbers), check):
                if self._sorts and results.is_complete:
                    in_order.add(results, left.starts, right.starts)
                else:
                    yield results
                del results
        yield from in_order.emit_sorted()

    def _check(self, left: Items, right: Items) -> Check:
        """Drops pairs from one group, if these were emitted early."""

        def check(lefts: Rows, rights: Rows) -> tuple[Rows, Rows]:
            if self._early:
                lefts, rights = apart(lefts, rights, left.sources, right.sources)
            here = self._order.belongs(left, right, lefts, rights)
            return (lefts, rights) if here is None else (lefts[here], rights[here])

        return check

    def left_over(self, groups: Sequence[RunGroup]) -> Iterator[Matches]:
        """Once all rows have been joined, reads the last runs again, and emits their rows without a partner."""
        for side in Side:
            if self._giving.partnered.watches(side) and self._giving.partnered.gives_alone:
                for run in (group.runs[side] for group in groups):
                    for page in range(len(run.zones)):
                        items = self._pages.read(side, run, page, 0)
                        self._budget.hold("left over", items.size, items.nbytes)
                        yield from self._giving.alone(side, items.batch, items.numbers)
                self._budget.release("left over")

    def on_merged(self, merge: Merge, found: int) -> None:
        if self._early and self._giving.pairs_only:
            self._estimator.merge([(group.arrived[0], group.arrived[1]) for group in merge.groups], found)
