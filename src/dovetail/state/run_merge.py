"""Several run pairs become one, and on the way every row meets the rows of the other side that it can match.

    left  runs  [page][page]…  \\                      / areas    rows passed, still in reach
                                 pages, lowest first  --- meet    new x new, new x area, area x new
    right runs  [page][page]…  /                      \\ output   the merged pair, in sweep order

A step loads the pages that start lowest, as many as fit. All rows up to where the next page starts are new: nothing
before them is still to come. They meet each other and the areas, enter the output and the areas, and what ends before
that place leaves. Of each run at most one page is loaded in part, so a page for each bounds what waits (PMJ, Fig. 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.batch import Side
from dovetail.kernels.sorting import sort_codes
from dovetail.state.budget import SMALLEST_BLOCK, Budget
from dovetail.state.runs import Items, Pages, RunPair, RunWriter, Zone, joined, nothing
from dovetail.state.sweep_area import SweepArea

MOST = 2**63 - 1
HELD = "merge"


class Room(NamedTuple):
    """How a merge divides the budget, in its unit."""

    pairs: int  # that are merged at once
    page: int
    waiting: int  # pages that have not met all they can
    area: int  # rows in the area of each side
    spilled: int  # a part of an area that is read from disk


def divide(budget: Budget, block_rows: int, fan_in: int) -> Room:
    """As many runs as asked for, fewer where their pages would be too small. A quarter is for the areas."""
    limit = budget.limit
    if limit is None:
        return Room(fan_in // 2, 2**62, 2**62, 2**62, 2**62)
    if budget.unit == "rows":
        pairs = max(2, min(fan_in // 2, (limit // block_rows - 4) // 2))
        area = max(2, limit // 4)
        page = max(1, min(block_rows, (limit - area - limit // 8 + 2 * pairs) // (2 * pairs + 4)))
        spilled = max(page, limit // 8)
        # What is left when each of two writers holds back less than a page.
        return Room(pairs, page, max(page, limit - area - spilled - 2 * page + 2), area // 2, spilled)
    pairs = max(2, min(fan_in // 2, limit // SMALLEST_BLOCK // 8))
    page = 5 * limit // (8 * (2 * pairs + 4))
    return Room(pairs, page, 2 * pairs * page, limit // 8, limit // 8)


class Merge:
    """One merge. Run `steps` to its end; then `merged` is the result, if one was asked for."""

    def __init__(
        self,
        pages: Pages,
        budget: Budget,
        schemas: tuple[pa.Schema, pa.Schema],
        pairs: Sequence[RunPair],
        room: Room,
        *,
        writes: bool,
        needed: Callable[[Side, Items], Items] = lambda _, items: items,
    ) -> None:
        """`needed` says which rows of a side are worth keeping; it is asked again and again."""
        self._pages = pages
        self._budget = budget
        self._schemas = schemas
        self._room = room
        self._needed = needed
        self._allowed = 2 * len(pairs) * room.page  # for what waits: little at first, so that results come early
        self.pairs = pairs
        self._queue = _by_start(pairs)
        self._unread = [sum(len(pair.runs[side].zones) for pair in pairs) for side in Side]
        self._waiting: tuple[list[Items], list[Items]] = ([], [])
        self._areas = tuple(SweepArea(pages, side, room.area, room.spilled) for side in Side)
        self._writers = tuple(RunWriter(pages, side, room.page) for side in Side) if writes else ()
        self.steps_done = 0
        self.merged: RunPair | None = None

    @property
    def arrived(self) -> tuple[int, int]:
        """Rows of each side, all pairs together."""
        left, right = (sum(pair.arrived[side] for pair in self.pairs) for side in Side)
        return left, right

    @property
    def new_pairs(self) -> int:
        """How many pairs of rows are together for the first time."""
        left, right = self.arrived
        return left * right - sum(pair.arrived[0] * pair.arrived[1] for pair in self.pairs)

    def steps(self) -> Iterator[tuple[Items, Items]]:
        """Left and right rows that meet: every two that can match, once."""
        self._queue.reverse()  # the lowest is popped first
        while self._queue or any(self._waiting):
            self._load()
            place = self._queue[-1].zone.start if self._queue else MOST
            new = tuple(self._passed(side, place) for side in Side)
            yield from self._meet(new[0], new[1])
            for side in Side:
                self._pass(side, new[side], place)
            del new
            for area in self._areas:
                area.spill()
            self._hold()
            self.steps_done += 1
        if self._writers:
            left, right = (writer.finish() for writer in self._writers)
            self.merged = RunPair((left, right), self.arrived)
        self._budget.release(HELD)

    def _load(self) -> None:
        """Pages, lowest first, as many as fit but one at least."""
        size = sum(self._pages.size(items) for side in self._waiting for items in side)
        loaded = False
        most = min(self._allowed, self._room.waiting)
        self._allowed *= 2
        while self._queue and (not loaded or size < most):
            zone, side, source, page = self._queue[-1]
            size += self._budget.measure(zone.rows, zone.nbytes)
            if loaded and size > most:
                break
            self._queue.pop()
            self._unread[side] -= 1
            self._waiting[side].append(self._pages.read(side, self.pairs[source].runs[side], page, source))
            loaded = True
        self._hold()

    def _passed(self, side: Side, place: int) -> Items:
        """Rows that start no later than all that is still on disk; they wait no more."""
        new, rest = [], []
        for items in self._waiting[side]:
            cut = int(np.searchsorted(items.starts, place, side="right"))
            if cut:
                new.append(items.slice(0, cut))
            if cut < items.size:
                rest.append(items.rest(cut))
        self._waiting[side][:] = rest
        if not new:
            return nothing(self._schemas[side])
        together = self._needed(side, joined(new))
        if self._writers and len(new) > 1:
            return together.take(sort_codes(together.starts).order)
        return together

    def _meet(self, left: Items, right: Items) -> Iterator[tuple[Items, Items]]:
        if left.size and right.size:
            yield left, right
        for new, side in ((left, Side.RIGHT), (right, Side.LEFT)):
            if not new.size:
                continue
            for part in self._areas[side].query(int(new.starts.min())):
                self._hold(part, left, right)
                reached = new.upto(int(part.ends.max()))
                yield (reached, part) if side is Side.RIGHT else (part, reached)

    def _pass(self, side: Side, new: Items, place: int) -> None:
        new = self._needed(side, new)
        if self._writers:
            self._writers[side].add(new)
        area = self._areas[side]
        area.expire(place)
        if self._unread[side.other] or self._waiting[side.other]:
            area.insert(new.take(np.flatnonzero(new.ends >= place)))
        else:
            area.clear()

    def _hold(self, *extra: Items) -> None:
        held = [items for side in self._waiting for items in side] + list(extra)
        held += [writer.waiting for writer in self._writers if writer.waiting is not None]
        held += [part for area in self._areas for part in area.parts if not any(part is e for e in extra)]
        self._budget.hold(HELD, sum(items.size for items in held), sum(items.nbytes for items in held))


class _Entry(NamedTuple):
    zone: Zone
    side: Side
    source: int
    page: int


def _by_start(pairs: Sequence[RunPair]) -> list[_Entry]:
    """All pages by where they start; those of one run stay in their order."""
    entries = [
        _Entry(zone, side, source, page)
        for source, pair in enumerate(pairs)
        for side in Side
        for page, zone in enumerate(pair.runs[side].zones)
    ]
    return sorted(entries, key=lambda entry: entry.zone.start)
