"""The parameters of the spilling hash joins, including values that the papers on RPJ and HMJ do not print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from dovetail.columns.row_store import MOST_BYTES
from dovetail.errors import InputError
from dovetail.operators.hashing.partitions import HashPartitions
from dovetail.storage.budget import Budget
from dovetail.storage.packed_rows import packed_part_bytes

BUFFERS = 16  # 1/16 of a budget in bytes is for the input buffer and for copies of rows
TASKS = 4  # and 1/4 for tasks
PARTS = 40  # residents are packed in parts of 1/40
PAGES = 512  # pages in a budget
SMALLEST_PAGE = 16 * 1024  # bytes, unless memory is so small that
MERGED_PAGES = 64  # 1/64 is less: a merge of two matches takes twelve pages of a task's memory
PARTITION_PAGE = 4 * 1024  # at most, in bytes: the page size by which partitions are counted
LARGEST_PAGE = 256 * 1024
NO_LIMIT = 2**62
PARTITIONS = 20
MORE_PARTITIONS = 40  # with a budget in bytes, if a flush empties a large partition: little memory should be left empty
WHOLE = ("largest", "adaptive")  # policies that flush whole partitions
PAGES_OF_A_PARTITION = 4  # pages of a partition that should fit in memory; otherwise there are fewer partitions
ROW_BYTES = 64  # of a row of unknown size


class HashMemory:
    """Sizes in the unit of the budget.

    residents   rows and indexes that arrivals are joined with
    beside      the same while a task runs
    tasks       pages of spilled rows that a task loads
    """

    def __init__(self, budget: Budget, block_rows: int) -> None:
        self._unit = budget.unit
        self._page_rows: int | None = None
        self._page_bytes = LARGEST_PAGE
        self.flush_share = 0.1 if budget.unit == "rows" else 0.04
        self.least_flush = 0.0 if budget.unit == "rows" else 0.03  # a flush of bytes copies the remaining rows
        self.copies = 1 if budget.unit == "rows" else 2  # rows of several runs are copied into one batch
        self.part_bytes = MOST_BYTES
        if budget.limit is None:
            self.residents = self.beside = self.tasks = NO_LIMIT
        elif budget.unit == "rows":
            self._page_rows = max(1, min(block_rows, budget.limit // BUFFERS))
            self.tasks = budget.limit // TASKS
            self.residents = budget.limit - block_rows
            self.beside = self.residents - self.tasks
        else:
            smallest = min(SMALLEST_PAGE, budget.limit // MERGED_PAGES)
            self._page_bytes = max(smallest, min(LARGEST_PAGE, budget.limit // PAGES))
            self.tasks = budget.limit // TASKS
            self.residents = budget.limit - budget.limit // BUFFERS
            self.beside = self.residents - self.tasks
            self.part_bytes = packed_part_bytes(budget.limit // PARTS)

    def partitions(self, flush: str) -> int:
        """How many partitions per side are worthwhile, given a flushing policy."""
        page = min(self._page_bytes, PARTITION_PAGE) if self._page_rows is None else self._page_rows
        most = MORE_PARTITIONS if self._page_rows is None and flush in WHOLE else PARTITIONS
        return max(1, min(most, self.residents // (2 * PAGES_OF_A_PARTITION * page)))

    def weigh(self, rows: float, nbytes: float) -> float:
        """The memory needed to load a number of rows."""
        return rows if self._unit == "rows" else self.copies * nbytes

    def chunk_rows(self, page_rows: int) -> int:
        """The number of rows copied at a time when some are evicted: whole pages, about a part."""
        pages = 1 if self._page_rows is not None else max(1, self.part_bytes // self._page_bytes)
        return pages * page_rows

    def page_rows(self, side: HashPartitions) -> int:
        """The number of rows of a side in a page."""
        if self._page_rows is not None:
            return self._page_rows
        return max(1, int(self._page_bytes // (side.nbytes / len(side) if len(side) else ROW_BYTES)))


HANDOVERS = ("merge", "bucket", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashParameters:
    flush: str  # a policy of operators/hashing/flushing.py
    partitions: int | None = None  # None: 20, or fewer if memory is small
    n_flush: float | None = 0.0  # the minimal share of resident rows that a flush evicts; None: RPJ's own choice
    handover: str = "merge"  # what reactive work completes before new arrivals: a merge, a partition, everything
    fan_in: int = 10  # the maximal number of matches per reactive merge
    acceptable: int | None = None  # a and b of HMJ's adaptive flush
    tolerance: float = 0.25
    tasks: str = "md dd"  # what RPJ does during stalls: memory with disk, disk with disk
    decay: float = 0.5  # lambda of RPJ's arrival rates
    unit_rows: int = 1000  # arrivals per unit of time
    random_cost: float = 10.0  # cost of a page, for RPJ's choice of a task
    sequential_cost: float = 1.0
    domain: int | None = None  # the number of distinct keys; None: estimated
    shed: bool = False  # drop rows instead of spilling them, and count lost results
    passes: str = "runs"  # how RPJ estimates the cost of a merge: by its runs, or by pages as printed

    @property
    def sketched(self) -> bool:
        return self.domain is None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> HashParameters:
        """The given parameters, validated."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InputError(f"{', '.join(unknown)}: no such parameter. The parameters are {', '.join(known)}.")
        parameters = cls(**given)
        if parameters.handover not in HANDOVERS:
            raise InputError(f"handover must be one of {', '.join(HANDOVERS)}; got {parameters.handover!r}.")
        if parameters.passes not in ("runs", "pages"):
            raise InputError(f"passes must be runs or pages; got {parameters.passes!r}.")
        if not parameters.tasks.split() or not set(parameters.tasks.split()) <= {"md", "dd"}:
            raise InputError(f"tasks must name md, dd or both, such as 'md dd'; got {parameters.tasks!r}.")
        least = {"partitions": 1, "fan_in": 2, "unit_rows": 1}
        for name, fewest in least.items():
            value = getattr(parameters, name)
            if value is not None and value < fewest:
                raise InputError(f"{name} must be at least {fewest}; got {value}.")
        if not (0 <= (parameters.n_flush or 0) <= 1 and 0 <= parameters.decay <= 1):
            raise InputError("n_flush and decay are shares: they must be between 0 and 1.")
        return parameters


HASH_PARAMETERS: Mapping[str, Any] = get_type_hints(HashParameters)
"""Names and types of the parameters."""
