"""How a hash join that spills divides its memory.

residents    three quarters, less the input buffer
tasks        a quarter: pages that a task loads while rows are resident
everything   all of it, once nothing is resident any more
"""

from __future__ import annotations

from dovetail.state.budget import Budget
from dovetail.state.hashing.partitions import HashPartitions

BUFFERS = 16  # the input buffer takes one part in so many of a budget in bytes
TASKS = 4  # and tasks take one in so many
PAGES = 512  # of which there are so many
SMALLEST_PAGE = 4 * 1024  # bytes
LARGEST_PAGE = 256 * 1024
NO_LIMIT = 2**62
PARTITIONS = 20
PAGES_OF_A_PARTITION = 4  # of which memory should hold some; otherwise there are fewer partitions
ROW_BYTES = 64  # of a row that nobody has seen yet


class Room:
    """Sizes in the unit of the budget."""

    def __init__(self, budget: Budget, block_rows: int) -> None:
        self._unit = budget.unit
        self._page_rows: int | None = None
        self._page_bytes = LARGEST_PAGE
        self.flush_share = 0.1 if budget.unit == "rows" else 0.2  # a flush of rows in bytes copies those that stay
        self.copies = 1 if budget.unit == "rows" else 2  # rows of several runs are copied into one batch
        if budget.limit is None:
            self.residents = self.tasks = self.everything = NO_LIMIT
        elif budget.unit == "rows":
            self._page_rows = max(1, min(block_rows, budget.limit // BUFFERS))
            self.everything = budget.limit
            self.tasks = budget.limit // TASKS
            self.residents = budget.limit - block_rows - self.tasks
        else:
            self._page_bytes = max(SMALLEST_PAGE, min(LARGEST_PAGE, budget.limit // PAGES))
            self.everything = budget.limit // 2
            self.tasks = budget.limit // TASKS
            self.residents = (budget.limit - budget.limit // BUFFERS) * 3 // 5

    @property
    def partitions(self) -> int:
        """How many of each side are worth their while."""
        page = self._page_bytes if self._page_rows is None else self._page_rows
        return max(1, min(PARTITIONS, self.residents // (2 * PAGES_OF_A_PARTITION * page)))

    def weigh(self, rows: float, nbytes: float) -> float:
        """What it takes to load so many rows."""
        return rows if self._unit == "rows" else self.copies * nbytes

    def page_rows(self, side: HashPartitions) -> int:
        """How many rows of a side make a page."""
        if self._page_rows is not None:
            return self._page_rows
        return max(1, int(self._page_bytes // (side.nbytes / len(side) if len(side) else ROW_BYTES)))
