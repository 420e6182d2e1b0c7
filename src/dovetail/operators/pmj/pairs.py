"""The results of rows of two sides that are joined in merges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition
from dovetail.core.rows import Matches, Rows, Side, take_rows
from dovetail.estimation.estimate import Estimator
from dovetail.kernels.listing import apart
from dovetail.operators.pmj.join_types import Check, JoinTypeEmitter
from dovetail.operators.pmj.merge import Merge, meetings
from dovetail.operators.pmj.runs import NO_WORDS, Items, Pages, RunGroup, Words
from dovetail.operators.pmj.sweep_order import SweepOrder
from dovetail.storage.budget import Budget


class InOrder:
    def __init__(self) -> None:
        self._pairs: list[Matches] = []
        self._places: list[Words] = []

    def add(self, pairs: Matches, left_starts: Words, right_starts: Words) -> None:
        self._pairs.append(pairs)
        self._places.append(np.maximum(left_starts[pairs.left_rows], right_starts[pairs.right_rows]))

    def emit_sorted(self) -> Iterator[Matches]:
        if self._pairs:
            left = pa.concat_batches([take_rows(pairs.left, pairs.left_rows) for pairs in self._pairs])
            right = pa.concat_batches([take_rows(pairs.right, pairs.right_rows) for pairs in self._pairs])
            order = np.argsort(np.concatenate(self._places), kind="stable")
            yield Matches.pairs(left, order, right, order)


CHUNK = 512  # rows of each side


class EarlyPairCounts(NamedTuple):
    """Pairs found, and those among the first CHUNK rows of both sides, among the next ones, and so on."""

    matches: int
    diagonal: Words
    sums: Mapping[str, float] = {}  # over the pairs

    @classmethod
    def none(cls) -> EarlyPairCounts:
        return cls(0, NO_WORDS)

    @classmethod
    def from_pairs(cls, lefts: Rows, rights: Rows, sums: Mapping[str, float]) -> EarlyPairCounts:
        """Of pairs of rows by their arrival."""
        chunks = lefts // CHUNK
        return cls(len(lefts), np.bincount(chunks[chunks == rights // CHUNK]), sums)

    def with_(self, other: EarlyPairCounts) -> EarlyPairCounts:
        total = np.zeros(max(len(self.diagonal), len(other.diagonal)), np.int64)
        for part in (self, other):
            total[: len(part.diagonal)] += part.diagonal
        sums = {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in {**self.sums, **other.sums}}
        return EarlyPairCounts(self.matches + other.matches, total, sums)

    def complete(self, rows: int) -> list[int]:
        """The diagonal, up to the number of rows of both sides."""
        counts = np.zeros(rows // CHUNK, np.int64)
        counts[: len(self.diagonal)] = self.diagonal[: len(counts)]
        return counts.tolist()


class MergedPairs:
    """`early`: rows of one group have been joined. `sorts`: emit in the order of the sweep."""

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
        self.nothing: Matches = Matches.none(condition.schemas)

    @property
    def repeats(self) -> bool:
        """Rows with a partner are not emitted again, and may be missing from a repeated step."""
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
        yield from in_order.emit_sorted()

    def _check(self, left: Items, right: Items) -> Check:
        """Drops the pairs of two parts that are from one group, if these were emitted early."""

        def check(lefts: Rows, rights: Rows) -> tuple[Rows, Rows]:
            if self._early:
                lefts, rights = apart(lefts, rights, left.sources, right.sources)
            here = self._order.belongs(left, right, lefts, rights)
            return (lefts, rights) if here is None else (lefts[here], rights[here])

        return check

    def left_over(self, groups: Sequence[RunGroup]) -> Iterator[Matches]:
        """All rows have been joined: emits the rows of the last runs without a partner, which are read once more."""
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
