"""What rows of two sides give that meet in merges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.batch import Pairs, Results, Rows, Side
from dovetail.condition import Condition
from dovetail.estimate import Estimator
from dovetail.kernels.apart import apart
from dovetail.matchers.giving import Check, Giving
from dovetail.matchers.sweep_order import SweepOrder
from dovetail.state.budget import Budget
from dovetail.state.merging.in_order import InOrder
from dovetail.state.merging.merge import Merge, meetings
from dovetail.state.merging.runs import Items, Pages, RunGroup


class MergedPairs:
    """`early`: rows of one group have met. `sorts`: in the order of the sweep."""

    def __init__(
        self,
        condition: Condition,
        order: SweepOrder,
        giving: Giving,
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
        self.nothing: Results = Pairs.none(condition.schemas)

    @property
    def repeats(self) -> bool:
        """Who has a partner is not given again, and may be gone from the step."""
        return self._giving.partnered.one_sided

    def needed(self, number: int, items: Items) -> Items:
        return self._giving.needed(number, items)

    def step(self, merge: Merge, new: tuple[Items, ...]) -> Iterator[Results]:
        in_order = InOrder()
        for left, right in meetings(merge, new):
            check = self._check(left, right)
            for results in self._giving.meet(left.batch, right.batch, (left.numbers, right.numbers), check):
                if self._sorts and isinstance(results, Pairs):
                    in_order.add(results, left.starts, right.starts)
                else:
                    yield results
        yield from in_order.given()

    def _check(self, left: Items, right: Items) -> Check:
        """Of the pairs of two parts: if results came early, those from one group have been found."""

        def check(lefts: Rows, rights: Rows) -> tuple[Rows, Rows]:
            if self._early:
                lefts, rights = apart(lefts, rights, left.sources, right.sources)
            here = self._order.belongs(left, right, lefts, rights)
            return (lefts, rights) if here is None else (lefts[here], rights[here])

        return check

    def left_over(self, groups: Sequence[RunGroup]) -> Iterator[Results]:
        """Everybody has met: rows of the last runs without a partner, read once more."""
        for side in Side:
            if self._giving.partnered.watches(side) and self._giving.partnered.gives_alone:
                for run in (group.runs[side] for group in groups):
                    for page in range(len(run.zones)):
                        items = self._pages.read(side, run, page, 0)
                        self._budget.hold("left over", items.size, items.nbytes)
                        yield from self._giving.alone(side, items.batch, items.numbers)
                self._budget.release("left over")

    def over(self, merge: Merge, found: int) -> None:
        if self._early and self._giving.pairs_only:
            self._estimator.merge([(group.arrived[0], group.arrived[1]) for group in merge.groups], found)
