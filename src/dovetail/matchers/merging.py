"""The merges of a progressive merge join of two sides: which run groups are merged, and what their rows give.

    while sources stall    the smallest groups become one, in half of the memory where that is enough
    in the end             the oldest groups, so many that all merges but the first are full; the last is not written

A merge that was begun while sources stalled is kept open: it can be left after any result, put to sleep, stored and
restored, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.batch import Pairs, Results, Rows, Side
from dovetail.condition import Condition
from dovetail.estimate import Estimator
from dovetail.kernels.apart import apart
from dovetail.matchers.giving import Check, Giving
from dovetail.matchers.sweep_order import SweepOrder
from dovetail.metrics import Counters
from dovetail.state.blocks import Block
from dovetail.state.budget import Budget
from dovetail.state.in_order import InOrder
from dovetail.state.merge_room import Room, arriving, beside, divide
from dovetail.state.run_merge import Merge, meetings
from dovetail.state.runs import Items, Pages, RunGroup

STRICTNESS = ("progressive", "semi_strict", "strict")
"""When results may come: always; in the last merge; after it (the sort-merge joins that PMJ is compared with)."""


@dataclass(slots=True)
class _Open:
    """A merge that is not over, and how far its results are out."""

    merge: Merge
    found: int = 0
    yielded: int = 0  # pieces of the step that it is in
    results: Iterator[Results] = field(default_factory=lambda: iter(()))


class Merging:
    def __init__(
        self,
        condition: Condition,
        order: SweepOrder,
        giving: Giving,
        pages: Pages,
        budget: Budget,
        counters: Counters,
        estimator: Estimator,
        *,
        block_rows: int,
        fan_in: int,
        strictness: str = STRICTNESS[0],
        sorts: bool = False,
    ) -> None:
        self._condition = condition
        self._order = order
        self._giving = giving
        self._pages = pages
        self._budget = budget
        self._counters = counters
        self._estimator = estimator
        self._block_rows = block_rows
        self._fan_in = fan_in
        self._early = strictness == "progressive"
        self._strictness = strictness
        self._sorts = sorts
        self.limit = budget.limit  # of memory, from the next merge on
        self.groups: list[RunGroup] = []
        self._open: _Open | None = None

    @property
    def room(self) -> Room:
        """Of a merge with all of the memory; it also says how large pages are."""
        return self._divide(self._budget)

    def resize(self, limit: int | None) -> None:
        """Memory grows or shrinks, from the next merge on. What is too small for the runs on disk is refused."""
        self._divide(Budget(limit, self._budget.unit))
        self.limit = limit

    def _divide(self, budget: Budget) -> Room:
        zones = [zone for group in self.groups for run in group.runs for zone in run.zones]
        largest = max((self._budget.measure(zone.rows, zone.nbytes) for zone in zones), default=0)
        return divide(budget, self._block_rows, self._fan_in, largest=largest)

    @property
    def is_done(self) -> bool:
        """Whether nothing has left memory."""
        return not self.groups and self._open is None

    @property
    def blocks(self) -> list[Block]:
        """All that is on disk."""
        merging = [] if self._open is None else self._open.merge.blocks
        return [*merging, *(block for group in self.groups for block in group.blocks)]

    @property
    def spilled(self) -> tuple[int, int]:
        """Rows and bytes that are on disk, without what is being written."""
        groups = [*self.groups, *([] if self._open is None else self._open.merge.groups)]
        blocks = [block for group in groups for block in group.blocks]
        return sum(block.rows for block in blocks), sum(block.nbytes for block in blocks)

    # While sources stall.

    @property
    def share(self) -> int | None:
        """The memory that the next reactive work takes, in the unit of the budget; None: there is none to do."""
        if self._open is not None:
            return self._open.merge.room.total
        if not self._early or len(self.groups) < 2:
            return None
        return (beside(self._budget, self.room) or self.room).total

    @property
    def held(self) -> int:
        """What an open merge may take at any moment."""
        return 0 if self._open is None or self._open.merge.is_asleep else self._open.merge.room.total

    def react(self) -> Iterator[Results]:
        """One merge of the smallest groups; may be dropped at any yield and called again."""
        if self._open is None:
            self._settle()
            room = beside(self._budget, self.room) or self.room
            self.groups.sort(key=lambda group: group.rows)
            group, self.groups = self.groups[: room.groups], self.groups[room.groups :]
            self._begin(_Open(self._merge(group, room, writes=True)))
        assert self._open is not None
        # Not `yield from`: when this generator is dropped, the merge must stay open for the next call.
        for results in self._open.results:  # noqa: UP028
            yield results

    def sleep(self) -> None:
        """An open merge lets go of its memory, and will take its step from the beginning, without what is out."""
        if self._open is not None:
            self._open.merge.sleep()
            self._begin(self._open)

    def rest_of_step(self) -> Iterator[Results]:
        """What an open merge is in the middle of."""
        merging = self._open
        if merging is not None and not merging.merge.is_asleep:
            while merging.merge.in_step:
                yield next(merging.results)

    def _begin(self, merging: _Open) -> None:
        self._open = merging
        merging.results = self._reactive(merging, merging.yielded)

    def _settle(self, needed: int = 0) -> None:
        """The limit of memory counts from now on; a merge that was begun with more goes on with more."""
        spare = arriving(self._budget, self._block_rows)
        self._budget.limit = None if self.limit is None else max(self.limit, needed + spare)

    def _reactive(self, merging: _Open, done: int) -> Iterator[Results]:
        merge = merging.merge
        if self._giving.partnered.one_sided:
            done = 0  # who has a partner is not given again, and may be gone from the step
        self._settle(merge.room.total)
        while (new := merge.begin_step()) is not None:
            for count, results in enumerate(self._step(merge, new), start=1):
                if count > done:
                    merging.yielded = count
                    merging.found += results.size
                    yield results
            merge.end_step()
            done = merging.yielded = 0
            yield Pairs.none(self._condition.schemas)  # every step gives control back
        assert merge.merged is not None
        self.groups.append(merge.merged)
        self._close(merge, merging.found)
        self._open = None

    # In the end.

    def finish(self) -> Iterator[Results]:
        """All that is still to come."""
        if self._open is not None:
            yield from self._open.results
        while len(self.groups) > 1:
            self._settle()
            room = self.room
            count = _group_size(len(self.groups), room.groups)
            group, self.groups = self.groups[:count], self.groups[count:]
            last = not self.groups
            merge = self._merge(group, room, writes=not last or self._strictness == "strict")
            joins = self._early or (last and self._strictness == "semi_strict")
            yield from self._joined(merge, joins=joins, last=last and joins)
            if merge.merged is not None:
                self.groups.append(merge.merged)
        if self.groups:
            yield from self._joined(self._merge(self.groups, self.room, writes=False), joins=True, last=True)
            self.groups = []

    def _merge(self, group: list[RunGroup], room: Room, *, writes: bool) -> Merge:
        return Merge(self._pages, self._budget, group, room, writes=writes, needed=self._giving.needed)

    def _joined(self, merge: Merge, *, joins: bool, last: bool) -> Iterator[Results]:
        """The results of a merge; the last one knows who has no partner."""
        found = 0
        for new in merge.steps():
            for results in self._step(merge, new) if joins else ():
                found += results.size
                yield results
        if last:
            yield from self._left_over(merge.groups)
        self._close(merge, found)

    def _close(self, merge: Merge, found: int) -> None:
        self._counters.merges += 1
        if self._early and self._giving.pairs_only:
            self._estimator.learn(_new_pairs(merge), found)
        for group in merge.groups:
            self._pages.store.remove(group.blocks)

    # What rows give.

    def _step(self, merge: Merge, new: tuple[Items, ...]) -> Iterator[Results]:
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

    def _left_over(self, groups: Sequence[RunGroup]) -> Iterator[Results]:
        """Everybody has met: rows of the last runs without a partner, read once more."""
        for side in Side:
            if self._giving.partnered.watches(side) and self._giving.partnered.gives_alone:
                for run in (group.runs[side] for group in groups):
                    for page in range(len(run.zones)):
                        items = self._pages.read(side, run, page, 0)
                        self._budget.hold("left over", items.size, items.nbytes)
                        yield from self._giving.alone(side, items.batch, items.numbers)
                self._budget.release("left over")

    # Restarts.

    def to_json(self) -> dict[str, Any]:
        """An open merge is put to sleep for it."""
        self.sleep()
        groups = [group.to_json() for group in self.groups]
        if self._open is None:
            return {"groups": groups, "open": None}
        merging = {"merge": self._open.merge.to_json(), "found": self._open.found, "yielded": self._open.yielded}
        return {"groups": groups, "open": merging}

    def restore(self, fields: Mapping[str, Any]) -> None:
        self.groups = [RunGroup.from_json(group) for group in fields["groups"]]
        if (merging := fields["open"]) is not None:
            merge = Merge.from_json(self._pages, self._budget, merging["merge"], self._giving.needed)
            self._begin(_Open(merge, merging["found"], merging["yielded"]))


def _new_pairs(merge: Merge) -> int:
    """How many pairs of rows are together for the first time."""
    left, right = merge.arrived
    return left * right - sum(group.arrived[0] * group.arrived[1] for group in merge.groups)


def _group_size(groups: int, most: int) -> int:
    """How many of the oldest groups to merge, so that all merges but the first are full."""
    return groups if groups <= most else 2 + (groups - 2) % (most - 1)
