"""Schedules the merges of a progressive merge join: which groups of runs are merged, and when.

    while sources stall    the smallest groups are merged into one, in half of the memory if that is enough
    in the end             the oldest groups, such that all merges but the first are full; the last is not written

A merge that was started while sources stalled stays open: it can be interrupted after any result, suspended, stored and
restored, and resumes where it stopped. Callbacks of the join produce the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from dovetail.errors import InputError
from dovetail.matching.sweep_order import Items
from dovetail.operators.pmj.merge import Merge
from dovetail.operators.pmj.runs import (
    MergeMemory,
    Pages,
    RunGroup,
    arriving_memory,
    divide_memory,
    halve_memory,
    refuse_large_pages,
)
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import Block
from dovetail.storage.budget import Budget

FAN_IN = 40  # runs of all inputs together that are merged at a time; fewer if memory is small
STRICTNESS = ("progressive", "semi_strict", "strict")
"""When results may be emitted: at any time; in the last merge; after it (the sort-merge joins that PMJ is compared
with)."""


class Sized(Protocol):
    @property
    def size(self) -> int: ...


R = TypeVar("R", bound=Sized)
R_co = TypeVar("R_co", bound=Sized, covariant=True)


class MergeCallbacks(Protocol[R_co]):
    """Callbacks that produce the results of a merge."""

    @property
    def nothing(self) -> R_co:
        """No results."""

    @property
    def repeats(self) -> bool:
        """Whether a repeated step emits no duplicates by itself, and may have fewer rows than before."""

    def select_needed(self, number: int, items: Items) -> Items:
        """The rows of an input that are still needed; called repeatedly."""

    def step(self, merge: Merge, new: tuple[Items, ...]) -> Iterator[R_co]:
        """Join new rows with each other and the areas, except rows of one group, which were joined before. The order is
        deterministic."""

    def left_over(self, groups: Sequence[RunGroup]) -> Iterator[R_co]:
        """Called once all rows have been joined."""

    def on_merged(self, merge: Merge, found: int) -> None:
        """Called when a merge has completed, with its number of results."""


@dataclass(slots=True)
class _Open(Generic[R]):
    """An unfinished merge, and which of its results have been emitted."""

    merge: Merge
    found: int = 0
    yielded: int = 0  # pieces of the current step already emitted
    results: Iterator[R] = field(default_factory=lambda: iter(()))


class MergeScheduler(Generic[R]):
    def __init__(
        self, workspace: Workspace, meets: MergeCallbacks[R], pages: Pages, strictness: str = STRICTNESS[0]
    ) -> None:
        workspace.shares  # noqa: B018  refuses a budget that is too small
        self._meets = meets
        self._pages = pages
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._block_rows = workspace.block_rows
        self._fan_in: int = workspace.parameters.get("fan_in", FAN_IN)
        fewest = 2 * len(pages.names)
        if self._fan_in < fewest:
            raise InputError(f"fan_in must be at least {fewest}, two runs of each input; got {self._fan_in}.")
        self._early = strictness == "progressive"
        self._strictness = strictness
        self.limit = workspace.budget.limit  # of memory, effective from the next merge on
        self.groups: list[RunGroup] = []
        self._open: _Open[R] | None = None

    @property
    def memory(self) -> MergeMemory:
        """The division of memory for a merge that has all of it."""
        return self._divide(self._budget)

    @property
    def page(self) -> int:
        """The size of newly written pages."""
        return divide_memory(self._budget, self._block_rows, self._fan_in, len(self._pages.names)).page

    def resize(self, limit: int | None) -> None:
        """Change the memory limit, from the next merge on. One too small for the runs on disk is refused."""
        budget = Budget(limit, self._budget.unit)
        refuse_large_pages(self._divide(budget), len(self._pages.names), budget)
        self.limit = limit

    def _divide(self, budget: Budget) -> MergeMemory:
        zones = [zone for group in self.groups for run in group.runs for zone in run.zones]
        largest = max((self._budget.measure(zone.rows, zone.nbytes) for zone in zones), default=0)
        return divide_memory(budget, self._block_rows, self._fan_in, len(self._pages.names), largest)

    def _half_memory(self) -> MergeMemory | None:
        return halve_memory(self._budget, self.memory, len(self._pages.names))

    @property
    def is_done(self) -> bool:
        """Whether nothing has been spilled."""
        return not self.groups and self._open is None

    @property
    def blocks(self) -> list[Block]:
        """All blocks on disk."""
        merging = [] if self._open is None else self._open.merge.blocks
        return [*merging, *(block for group in self.groups for block in group.blocks)]

    @property
    def spilled(self) -> tuple[int, int]:
        """Rows and bytes on disk, without the run being written."""
        groups = [*self.groups, *([] if self._open is None else self._open.merge.groups)]
        blocks = [block for group in groups for block in group.blocks]
        return sum(block.rows for block in blocks), sum(block.nbytes for block in blocks)

    # While sources stall.

    @property
    def share(self) -> int | None:
        """The memory that the next reactive work takes, in the unit of the budget; None: there is no work."""
        if self._open is not None:
            return self._open.merge.memory.total
        if not self._early or len(self.groups) < 2:
            return None
        return (self._half_memory() or self.memory).total

    @property
    def held(self) -> int:
        """The most memory that an open merge may take."""
        return 0 if self._open is None or self._open.merge.is_asleep else self._open.merge.memory.total

    def react(self) -> Iterator[R]:
        """One merge of the smallest groups; may be dropped at any yield and called again."""
        if self._open is None:
            self._set_limit()
            memory = self._half_memory() or self.memory
            self.groups.sort(key=lambda group: group.rows)
            group, self.groups = self.groups[: memory.groups], self.groups[memory.groups :]
            self._begin(_Open(self._merge(group, memory, writes=True)))
        assert self._open is not None
        # Not `yield from`: when this generator is dropped, the merge must stay open for the next call.
        for results in self._open.results:  # noqa: UP028
            yield results

    def sleep(self) -> None:
        """Suspend an open merge: it releases its memory, and repeats its step without the results already emitted."""
        if self._open is not None:
            self._open.merge.sleep()
            self._begin(self._open)

    def rest_of_step(self) -> Iterator[R]:
        """The rest of the step that an open merge is in."""
        merging = self._open
        if merging is not None and not merging.merge.is_asleep:
            while merging.merge.in_step:
                yield next(merging.results)

    def _begin(self, merging: _Open[R]) -> None:
        self._open = merging
        merging.results = self._reactive(merging, merging.yielded)

    def _set_limit(self, needed: int = 0) -> None:
        """Apply the memory limit from now on; an open merge keeps the memory that it started with."""
        spare = arriving_memory(self._budget, self._block_rows)
        self._budget.limit = None if self.limit is None else max(self.limit, needed + spare)

    def _reactive(self, merging: _Open[R], done: int) -> Iterator[R]:
        merge = merging.merge
        if self._meets.repeats:
            done = 0
        self._set_limit(merge.memory.total)
        while (new := merge.begin_step()) is not None:
            for count, results in enumerate(self._meets.step(merge, new), start=1):
                if count > done:
                    merging.yielded = count
                    merging.found += results.size
                    yield results
            merge.end_step()
            done = merging.yielded = 0
            yield self._meets.nothing  # every step yields
        assert merge.merged is not None
        self.groups.append(merge.merged)
        self._close(merge, merging.found)
        self._open = None

    # In the end.

    def finish_open(self) -> Iterator[R]:
        """The rest of an open merge."""
        if self._open is not None:
            yield from self._open.results

    def finish(self) -> Iterator[R]:
        """All remaining results."""
        yield from self.finish_open()
        while len(self.groups) > 1:
            self._set_limit()
            memory = self.memory
            count = _group_size(len(self.groups), memory.groups)
            group, self.groups = self.groups[:count], self.groups[count:]
            last = not self.groups
            merge = self._merge(group, memory, writes=not last or self._strictness == "strict")
            joins = self._early or (last and self._strictness == "semi_strict")
            yield from self._run_merge(merge, joins=joins, last=last and joins)
            if merge.merged is not None:
                self.groups.append(merge.merged)
        if self.groups and self._early:  # all its rows have been joined
            yield from self._meets.left_over(self.groups)
        elif self.groups:
            yield from self._run_merge(self._merge(self.groups, self.memory, writes=False), joins=True, last=True)
        self.groups = []

    def _merge(self, group: list[RunGroup], memory: MergeMemory, *, writes: bool) -> Merge:
        return Merge(self._pages, self._budget, group, memory, writes=writes, needed=self._meets.select_needed)

    def _run_merge(self, merge: Merge, *, joins: bool, last: bool) -> Iterator[R]:
        """The results of a merge; the last merge also emits rows without a partner."""
        found = 0
        for new in merge.steps():
            for results in self._meets.step(merge, new) if joins else ():
                found += results.size
                yield results
                del results
            del new
        if last:
            yield from self._meets.left_over(merge.groups)
        self._close(merge, found)

    def _close(self, merge: Merge, found: int) -> None:
        self._counters.merges += 1
        self._meets.on_merged(merge, found)
        for group in merge.groups:
            self._pages.store.remove(group.blocks)

    # Restarts.

    def to_json(self) -> dict[str, Any]:
        """Suspends an open merge, and returns the state."""
        self.sleep()
        groups = [group.to_json() for group in self.groups]
        if self._open is None:
            return {"groups": groups, "open": None}
        merging = {"merge": self._open.merge.to_json(), "found": self._open.found, "yielded": self._open.yielded}
        return {"groups": groups, "open": merging}

    def restore(self, fields: Mapping[str, Any]) -> None:
        self.groups = [RunGroup.from_json(group) for group in fields["groups"]]
        if (merging := fields["open"]) is not None:
            merge = Merge.from_json(self._pages, self._budget, merging["merge"], self._meets.select_needed)
            self._begin(_Open(merge, merging["found"], merging["yielded"]))


def _group_size(groups: int, most: int) -> int:
    """How many of the oldest groups to merge, so that all merges but the first are full."""
    return groups if groups <= most else 2 + (groups - 2) % (most - 1)
