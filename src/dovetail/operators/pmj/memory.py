"""How a merge of sorted runs divides a memory budget: pending pages, sweep areas, output, parts from disk.

A block for arriving rows is always reserved, since a merge may be open when they arrive.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.errors import BudgetError
from dovetail.storage.budget import SMALLEST_BLOCK, Budget

PLENTY = 2**62
ASIDE = 20  # one in so many bytes is for rows that arrive, a thirty-second, and for the page that is being written
MOST_PAGE = 1 << 18  # bytes: larger ones hardly save time, and memory could not shrink much


class MergeMemory(NamedTuple):
    """In the unit of the budget."""

    groups: int  # that are merged at once
    page: int
    waiting: int  # pages that have not been fully joined
    area: int  # rows in the area of each input
    spilled: int  # a part of an area that is read from disk, one of each input but one
    total: int
    largest: int = 0  # page on disk, if it is larger than pages are now


def divide(budget: Budget, block_rows: int, fan_in: int, inputs: int = 2, largest: int = 0) -> MergeMemory:
    """Up to the requested number of runs, fewer where their pages would be too small. A quarter is for the areas.

    `largest`: of the pages on disk, which may have been written with more memory.
    """
    limit = budget.limit
    if limit is None:
        return MergeMemory(max(2, fan_in // inputs), PLENTY, PLENTY, PLENTY, PLENTY, 0)
    total = limit - arriving(budget, block_rows)
    if budget.unit == "rows":
        groups = max(2, min(fan_in // inputs, (limit // block_rows - 4) // inputs))
        # Of each run less than a page is left over from the last step, of each writer less than a page waits.
        runs = (groups + 1) * inputs
        page = max(1, min(block_rows, (total - total // 4 - total // 8 + runs) // (runs + inputs)))
        return _with_large_pages(_room(total, inputs, groups, page), inputs, largest)
    groups = max(2, min(fan_in // inputs, limit // SMALLEST_BLOCK // 4 // inputs))
    room = _room(total, inputs, groups, min(MOST_PAGE, 4 * limit // (8 * inputs * (groups + 2))))
    return _with_large_pages(room, inputs, largest)


def halve_room(budget: Budget, whole: MergeMemory, inputs: int = 2) -> MergeMemory | None:
    """The same pages, merged in half of the memory, so that a run can be built at the same time; None if that is too
    little."""
    if budget.limit is None:
        return None
    half = budget.limit // 2
    room = _room(half, inputs, whole.groups, whole.page, whole.largest)
    groups = _fitting(room, inputs)
    return room._replace(groups=min(whole.groups, groups)) if groups >= 2 else None


def arriving(budget: Budget, block_rows: int) -> int:
    """What is set aside for rows that arrive."""
    limit = budget.limit
    if limit is None:
        return 0
    return block_rows if budget.unit == "rows" else limit // ASIDE


def _room(total: int, inputs: int, groups: int, page: int, largest: int = 0) -> MergeMemory:
    """A quarter for the areas, an eighth for parts of them that are read from disk, the rest for pages."""
    area = total // 4 // inputs
    spilled = max(page, total // 8 // (inputs - 1))
    waiting = max(page, total - inputs * (area + page - 1) - (inputs - 1) * spilled)
    return MergeMemory(groups, page, waiting, area, spilled, total, largest)


def _fitting(room: MergeMemory, inputs: int) -> int:
    """How many groups can be merged at once: a page is loaded while less than one of each run is left over."""
    page = max(room.page, room.largest)
    return (room.waiting - page) // (inputs * max(1, page - 1))


def _with_large_pages(room: MergeMemory, inputs: int, largest: int) -> MergeMemory:
    if largest <= room.page:
        return room
    room = room._replace(largest=largest)
    return room._replace(groups=max(2, min(room.groups, _fitting(room, inputs))))


def refuse_large_pages(room: MergeMemory, inputs: int, budget: Budget) -> None:
    """Raise where not even two groups can be merged."""
    if room.largest and _fitting(room, inputs) < 2:
        raise BudgetError(
            f"a memory budget of {budget.limit:,} {budget.unit} is too small for the runs on disk, "
            f"which have pages of {room.largest:,} {budget.unit}. "
            f"Give {6 * inputs * room.largest:,} {budget.unit} or more."
        )
