"""Merges several groups of runs into one, and joins each row with its matching rows of the other inputs.

    runs of input 0  [page][page]…  \\                      / areas    earlier rows, still in reach
                                      pages, lowest first  --- step   new rows are joined with each other and the areas
    runs of input 1  [page][page]…  /                      \\ output   the merged group, in sweep order

A step loads the pages that start lowest, as many as fit. All rows up to the start of the next page are new: no earlier
row follows. They are joined with each other and the areas, and added to the output and the areas; rows whose interval
ends before that point are evicted. At most one page per run is partly consumed, so the pending rows are bounded by one
page per run (PMJ, Fig. 5).

A merge can be suspended at any time: it then holds no memory, and resumes at the start of its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.core.rows import Side
from dovetail.kernels.sorting import sort_codes
from dovetail.matching.sweep_order import Items, concat_items, nothing
from dovetail.operators.pmj.runs import MergeMemory, Pages, RunGroup, RunWriter, SweepRun, Zone
from dovetail.storage.blocks import Block
from dovetail.storage.budget import Budget


class SweepArea:
    def __init__(self, pages: Pages, number: int, memory: int, piece: int) -> None:
        self._pages = pages
        self._number = number  # of the input
        self._memory = memory  # for rows in memory, in the budget's unit
        self._piece = piece  # of the rows on disk that are read at a time
        self._parts: list[Items] = []  # larger ones first
        self._spilled: list[Block] = []
        self._asleep: list[Block] = []  # the parts, while they are on disk

    @property
    def parts(self) -> list[Items]:
        return self._parts

    def insert(self, items: Items) -> None:
        if not items.size:
            return
        self._parts.append(items)
        while len(self._parts) > 1 and self._parts[-2].size <= 2 * self._parts[-1].size:
            newer, older = self._parts.pop(), self._parts.pop()
            self._parts.append(concat_items([older, newer]))

    def gather(self) -> None:
        """Combine all parts in memory into one."""
        if len(self._parts) > 1:
            self._parts = [concat_items(self._parts)]

    def spill(self) -> None:
        """Write the largest parts to disk until the others fit in their share of memory."""
        while self._parts and sum(map(self._pages.size, self._parts)) > self._memory:
            for piece in self._pages.cut(self._parts.pop(0), self._piece):
                self._spilled.append(self._pages.spill(self._number, piece))

    def query(self, start: int) -> Iterator[Items]:
        """Rows that reach this place of the sweep, part by part. A part from disk is freed before the next is read."""
        for part in self._parts:
            if part.ends.max() >= start:
                yield part
        for block in self._spilled:
            if block.high is not None and block.high >= start:
                yield self._pages.unspill(self._number, block)

    def expire(self, start: int) -> None:
        """Advance the sweep to `start`: rows that end before it have been joined completely."""
        kept = []
        for part in self._parts:
            alive = np.flatnonzero(part.ends >= start)
            if 2 * len(alive) <= part.size:  # keeping a few expired rows costs less than a copy
                part = part.take(alive)
            if part.size:
                kept.append(part)
        self._parts = kept
        over = [block for block in self._spilled if block.high is not None and block.high < start]
        if over:
            self._pages.store.remove(over)
            self._spilled = [block for block in self._spilled if block not in over]

    def clear(self) -> None:
        self._parts = []
        self._pages.store.remove(self._spilled)
        self._spilled = []

    def sleep(self) -> None:
        """Release all memory."""
        self._asleep += [self._pages.spill(self._number, part) for part in self._parts]
        self._parts = []

    def wake(self) -> None:
        """Reload the same parts with the same rows."""
        self._parts += [self._pages.unspill(self._number, block) for block in self._asleep]
        self._pages.store.remove(self._asleep)
        self._asleep = []

    @property
    def blocks(self) -> list[Block]:
        return [*self._spilled, *self._asleep]

    def to_json(self) -> dict[str, Any]:
        """The state of a suspended area."""
        return {
            "spilled": [block.to_json() for block in self._spilled],
            "asleep": [block.to_json() for block in self._asleep],
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        self._spilled = [Block.from_json(block) for block in fields["spilled"]]
        self._asleep = [Block.from_json(block) for block in fields["asleep"]]


MOST = 2**63 - 1
HELD = "merge"

Needed = Callable[[int, Items], Items]


def _all(_: int, items: Items) -> Items:
    return items


class _Entry(NamedTuple):
    """A page of a run."""

    zone: Zone
    number: int  # of the input
    source: int
    page: int


class _Waiting(NamedTuple):
    """Rows of a page, from a given row on, that have not been joined completely."""

    entry: _Entry
    first: int
    items: Items


class Merge:
    """One merge. After all its steps, `merged` is the result, if it writes one."""

    def __init__(
        self,
        pages: Pages,
        budget: Budget,
        groups: Sequence[RunGroup],
        memory: MergeMemory,
        *,
        writes: bool,
        needed: Needed = _all,
    ) -> None:
        """`needed` selects the rows of an input that are still needed; it is called repeatedly."""
        self._pages = pages
        self._budget = budget
        self._inputs = range(len(pages.names))
        self.memory = memory
        self._writes = writes
        self._needed = needed
        self.groups = groups
        self._entries = _by_start(groups)
        self._loaded = 0  # entries up to here have been loaded
        self._allowed = (
            len(self._inputs) * len(groups) * memory.page
        )  # for pending rows: little at first, for early results
        self.in_step = False  # pending rows are then those at the start of the step
        self._place = -MOST  # rows that start up to here are new,
        self._cuts: list[int] = []  # for each pending page
        self._new: tuple[Items, ...] = ()
        self._let_go_of = 0, 0  # rows and bytes of pages that were pending, and are now only in the new rows
        self._waiting: list[_Waiting] = []
        self.is_asleep = True
        self._asleep: list[tuple[int, int]] = []  # pending entries and the row each starts from, while they are on disk
        self._unread = [sum(len(group.runs[number].zones) for group in groups) for number in self._inputs]
        self.areas = tuple(SweepArea(pages, number, memory.area, memory.spilled) for number in self._inputs)
        self._writers = tuple(RunWriter(pages, number, memory.page) for number in self._inputs)
        self._written: list[list[SweepRun]] = [[] for _ in self._inputs]
        self.merged: RunGroup | None = None

    @property
    def arrived(self) -> tuple[int, ...]:
        """Rows of each input, over all groups."""
        return tuple(sum(group.arrived[number] for group in self.groups) for number in self._inputs)

    def steps(self) -> Iterator[tuple[Items, ...]]:
        """All steps in sequence. Drop the rows of one before the next: they are half of the rows in memory."""
        while self.begin_step() is not None:
            yield self._new
            self.end_step()

    def begin_step(self) -> tuple[Items, ...] | None:
        """The new rows of each input; `areas` has the earlier rows that they can match. None: the merge is done.

        A step that was interrupted because the merge was suspended starts again.
        """
        if self.is_asleep:
            self._wake()
        if not self.in_step and self._loaded == len(self._entries) and not self._waiting:
            if self._writes:
                self._finish_writing()
                self.merged = RunGroup(tuple(SweepRun.concat(parts) for parts in self._written), self.arrived)
            self._budget.release(HELD)
            return None
        if not self.in_step:
            self._load()
            self.in_step = True
        self._place = self._entries[self._loaded].zone.start if self._loaded < len(self._entries) else MOST
        self._cuts = [int(np.searchsorted(w.items.starts, self._place, side="right")) for w in self._waiting]
        self._new = tuple(self._new_rows(number) for number in self._inputs)
        self._budget.look()
        return self._new

    def end_step(self) -> None:
        """Complete the step: add the new rows to the areas and the output."""
        self._waiting = [
            _Waiting(w.entry, w.first + cut, w.items.rest(cut))
            for w, cut in zip(self._waiting, self._cuts, strict=True)
            if cut < w.items.size
        ]
        for number in self._inputs:
            self._pass(number, self._new[number])
        self._new, self._let_go_of = (), (0, 0)
        for area in self.areas:
            area.spill()
        self.in_step = False
        self.hold()

    def hold(self, *extra: Items) -> None:
        """Account for all rows in memory, including parts of areas that were read from disk."""
        held = [waiting.items for waiting in self._waiting] + list(extra)
        held += [writer.waiting for writer in self._writers if writer.waiting is not None]
        held += [part for area in self.areas for part in area.parts if not any(part is e for e in extra)]
        rows, nbytes = self._let_go_of
        self._budget.hold(HELD, rows + sum(items.size for items in held), nbytes + sum(items.nbytes for items in held))

    def _load(self) -> None:
        """Load pages, lowest first, as many as fit but at least one."""
        size = sum(self._pages.size(waiting.items) for waiting in self._waiting)
        most = min(self._allowed, self.memory.waiting)
        self._allowed *= 2
        first = self._loaded
        while self._loaded < len(self._entries) and (self._loaded == first or size < most):
            entry = self._entries[self._loaded]
            size += self._budget.measure(entry.zone.rows, entry.zone.nbytes)
            if self._loaded > first and size > most:
                break
            self._waiting.append(_Waiting(entry, 0, self._read(entry)))
            self._unread[entry.number] -= 1
            self._loaded += 1
        self.hold()

    def _read(self, entry: _Entry) -> Items:
        return self._pages.read(entry.number, self.groups[entry.source].runs[entry.number], entry.page, entry.source)

    def _new_rows(self, number: int) -> Items:
        """Rows that start no later than any row still on disk."""
        new = [
            waiting.items.slice(0, cut)
            for waiting, cut in zip(self._waiting, self._cuts, strict=True)
            if cut and waiting.entry.number == number
        ]
        pages = len(new)
        if not pages:
            return nothing(self._pages.schemas[number])
        together = concat_items(new)
        del new
        self._let_go(number)
        together = self._needed(number, together)
        if self._writes and pages > 1:
            return together.take(sort_codes(together.starts).order)
        return together

    def _let_go(self, number: int) -> None:
        """Release pages all of whose rows are new; if the merge is suspended, they are read again."""
        empty = nothing(self._pages.schemas[number])
        for place, (waiting, cut) in enumerate(zip(self._waiting, self._cuts, strict=True)):
            if waiting.entry.number == number and cut == waiting.items.size:
                rows, nbytes = self._let_go_of
                self._let_go_of = rows + cut, nbytes + waiting.items.nbytes
                self._waiting[place] = waiting._replace(items=empty)
                self._cuts[place] = 0

    def _pass(self, number: int, new: Items) -> None:
        new = self._needed(number, new)
        if self._writes:
            self._writers[number].add(new)
        area = self.areas[number]
        area.expire(self._place)
        coming = {waiting.entry.number for waiting in self._waiting} | {n for n in self._inputs if self._unread[n]}
        if coming - {number}:
            area.insert(new.take(np.flatnonzero(new.ends >= self._place)))
        else:
            area.clear()

    # Suspending.

    def sleep(self) -> None:
        """Suspend the merge and release all memory."""
        if self.is_asleep:
            return
        self.is_asleep = True
        places = {entry[1:]: place for place, entry in enumerate(self._entries)}
        self._asleep = [(places[waiting.entry[1:]], waiting.first) for waiting in self._waiting]
        self._waiting, self._new, self._let_go_of = [], (), (0, 0)
        for area in self.areas:
            area.sleep()
        self._finish_writing()
        self._budget.release(HELD)

    def _wake(self) -> None:
        self.is_asleep = False
        for place, first in self._asleep:
            items = self._read(self._entries[place])
            self._waiting.append(_Waiting(self._entries[place], first, items.rest(first) if first else items))
        self._asleep = []
        for area in self.areas:
            area.wake()
        self.hold()

    def _finish_writing(self) -> None:
        for written, writer in zip(self._written, self._writers, strict=True):
            written.append(writer.finish())

    @property
    def blocks(self) -> list[Block]:
        written = [block for parts in self._written for part in parts for block in part.blocks]
        areas = [block for area in self.areas for block in area.blocks]
        return [*(block for group in self.groups for block in group.blocks), *written, *areas]

    def to_json(self) -> dict[str, Any]:
        """The state of a suspended merge."""
        return {
            "groups": [group.to_json() for group in self.groups],
            "room": self.memory,
            "writes": self._writes,
            "loaded": self._loaded,
            "allowed": self._allowed,
            "in_step": self.in_step,
            "asleep": self._asleep,
            "areas": [area.to_json() for area in self.areas],
            "written": [[part.to_json() for part in parts] for parts in self._written],
        }

    @classmethod
    def from_json(cls, pages: Pages, budget: Budget, fields: Mapping[str, Any], needed: Needed = _all) -> Merge:
        groups = [RunGroup.from_json(group) for group in fields["groups"]]
        merge = cls(pages, budget, groups, MergeMemory(*fields["room"]), writes=fields["writes"], needed=needed)
        merge._loaded, merge._allowed, merge.in_step = fields["loaded"], fields["allowed"], fields["in_step"]
        for entry in merge._entries[: merge._loaded]:
            merge._unread[entry.number] -= 1
        merge._asleep = [(place, first) for place, first in fields["asleep"]]
        for area, state in zip(merge.areas, fields["areas"], strict=True):
            area.restore(state)
        merge._written = [[SweepRun.from_json(part) for part in parts] for parts in fields["written"]]
        return merge


def meetings(merge: Merge, new: tuple[Items, ...]) -> Iterator[tuple[Items, Items]]:
    """Left and right rows to be joined in a step: every two sets that can match, once."""
    left, right = new
    if left.size and right.size:
        yield left, right
    for mine, side in ((left, Side.RIGHT), (right, Side.LEFT)):
        if not mine.size:
            continue
        for part in merge.areas[side].query(int(mine.starts.min())):
            merge.hold(part)
            reached = mine.take_until(int(part.ends.max()))
            yield (reached, part) if side is Side.RIGHT else (part, reached)


def _by_start(groups: Sequence[RunGroup]) -> list[_Entry]:
    """All pages by their start; pages of one run keep their order."""
    entries = [
        _Entry(zone, number, source, page)
        for source, group in enumerate(groups)
        for number, run in enumerate(group.runs)
        for page, zone in enumerate(run.zones)
    ]
    return sorted(entries, key=lambda entry: entry.zone.start)
