"""Sorted runs on disk: rows in sweep order, in pages that a merge reads in sequence, and the division of memory for it.

    run     [page][page] [page]     each page has the start of its first row and the end of its furthest interval
    group   a run of each input     from rows that were in memory together, or merged from such groups

Inputs are numbered: 0 and 1 are the sides of a two-way join. A run is in one block, or in several if its writing was
interrupted. Besides their columns, pages store each row's sweep interval, and its number if the join type needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.columns.taking import take_rows
from dovetail.core.rows import Rows, Side
from dovetail.errors import BudgetError
from dovetail.kernels.sorting import ascends, sort_codes
from dovetail.matching.sweep_order import NO_SOURCES, NO_WORDS, Column, Items, SweepOrder, Words, concat_items
from dovetail.storage.blocks import Block, BlockStore, PagedBlock
from dovetail.storage.budget import SMALLEST_BLOCK, Budget

START, END, NUMBER, SOURCE = "__start", "__end", "__number", "__source"
PLENTY = 2**62
ASIDE = 20  # 1/20 of the budget: 1/32 for arriving rows, the rest for the page being written
INTERVAL_BYTES = 16  # per row of a run
MOST_PAGE = 1 << 18  # bytes: larger pages hardly save time, and memory could not shrink much


class Zone(NamedTuple):
    """The zone map of a page."""

    rows: int
    nbytes: int
    start: int  # start of its first row
    reach: int  # the largest end of its rows


@dataclass(frozen=True, slots=True)
class SweepRun:
    """Pages of one input in sweep order; a run without rows has no blocks."""

    blocks: tuple[Block, ...] = ()
    pages: tuple[int, ...] = ()  # page count of each block
    zones: tuple[Zone, ...] = ()  # for all pages

    @classmethod
    def concat(cls, parts: Sequence[SweepRun]) -> SweepRun:
        """Consecutive runs combined into one."""
        blocks, pages, zones = zip(*((part.blocks, part.pages, part.zones) for part in parts), strict=True)
        return cls(sum(blocks, ()), sum(pages, ()), sum(zones, ()))

    def place(self, page: int) -> tuple[Block, int]:
        """The block of a page, and its number there."""
        for block, count, end in zip(self.blocks, self.pages, accumulate(self.pages), strict=True):
            if page < end:
                return block, page - end + count
        raise IndexError(page)

    def to_json(self) -> dict[str, Any]:
        return {"blocks": [block.to_json() for block in self.blocks], "pages": self.pages, "zones": self.zones}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SweepRun:
        blocks = tuple(Block.from_json(block) for block in fields["blocks"])
        return cls(blocks, tuple(fields["pages"]), tuple(Zone(*zone) for zone in fields["zones"]))


class RunGroup(NamedTuple):
    """A run of each input. Results whose rows are all from this group have been found."""

    runs: tuple[SweepRun, ...]
    arrived: tuple[int, ...]  # rows of each input, including those that match nothing and were not kept

    def to_json(self) -> dict[str, Any]:
        return {"runs": [run.to_json() for run in self.runs], "arrived": self.arrived}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RunGroup:
        return cls(tuple(SweepRun.from_json(run) for run in fields["runs"]), tuple(fields["arrived"]))

    @property
    def blocks(self) -> list[Block]:
        return [block for run in self.runs for block in run.blocks]

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)


class Pages:
    """Writes items as pages of bounded size, and reads them back."""

    def __init__(self, store: BlockStore, budget: Budget, schemas: Mapping[str, pa.Schema]) -> None:
        self.store = store
        self._budget = budget
        self.names = tuple(schemas)  # of the inputs
        self.schemas = tuple(schemas.values())

    def measure(self, rows: int, nbytes: int) -> int:
        """The size in the unit of the budget."""
        return self._budget.measure(rows, nbytes)

    def size(self, items: Items) -> int:
        return self.measure(items.size, items.nbytes)

    def read(self, number: int, run: SweepRun, page: int, source: int) -> Items:
        """The rows of a page; `source` is the number of the run among those being merged."""
        block, place = run.place(page)
        [whole] = self.store.read_pages(block, place, place + 1)
        return self.items(number, whole, np.full(whole.num_rows, source, np.int16))

    def items(self, number: int, whole: pa.RecordBatch, sources: Column) -> Items:
        """Stored rows of an input as items, with the run that each comes from."""
        items = self._items(number, whole)
        items.sources = sources
        return items

    def spill(self, number: int, items: Items) -> Block:
        """Write rows of a sweep area, with the runs that they come from."""
        return self.store.write(with_columns(items), f"{self.names[number]}-area", _zone(items)[2:])

    def unspill(self, number: int, block: Block) -> Items:
        return self._items(number, self.store.read(block))

    def _items(self, number: int, whole: pa.RecordBatch) -> Items:
        schema = self.schemas[number]
        own = range(len(schema), whole.num_columns)
        extra = {whole.schema.names[i]: np.asarray(whole.column(i)) for i in own}
        batch = pa.RecordBatch.from_arrays(whole.columns[: len(schema)], schema=schema)
        return Items(batch, extra[START], extra[END], extra.get(NUMBER, NO_WORDS), extra.get(SOURCE, NO_SOURCES))

    def cut(self, items: Items, most: int) -> Iterator[Items]:
        """Consecutive chunks of at most this size; a row that is larger is a separate chunk."""
        size = self.size(items)
        if items.size <= 1 or size <= most:
            if items.size:
                yield items
            return
        rows = max(1, items.size * most // size)
        for start in range(0, items.size, rows):
            piece = items.slice(start, min(start + rows, items.size))
            if rows > 1 and self.size(piece) > most:  # its rows are wider than the average
                half = piece.size // 2
                yield from self.cut(piece.slice(0, half), most)
                yield from self.cut(piece.slice(half, piece.size), most)
            else:
                yield piece


def with_columns(items: Items) -> pa.RecordBatch:
    """The rows with their sweep intervals as extra columns."""
    named = [(n, c) for n, c in zip((START, END, NUMBER, SOURCE), items.columns, strict=True) if len(c)]
    columns = [*items.batch.columns, *(pa.array(column) for _, column in named)]
    return pa.RecordBatch.from_arrays(columns, names=[*items.batch.schema.names, *(name for name, _ in named)])


def _zone(items: Items) -> Zone:
    return Zone(items.size, items.nbytes, int(items.starts.min()), int(items.ends.max()))


class RunWriter:
    """Writes a run, from items in sweep order."""

    def __init__(self, pages: Pages, number: int, most: int) -> None:
        self._pages = pages
        self._number = number  # of the input
        self._most = most  # size of a page
        self._block: PagedBlock | None = None
        self._zones: list[Zone] = []
        self.waiting: Items | None = None  # too few rows for a page

    def add(self, items: Items) -> None:
        if not items.size:
            return
        # The source run of a row is no longer needed.
        items = replace(items, sources=NO_SOURCES)
        pieces = list(
            self._pages.cut(concat_items([self.waiting, items]) if self.waiting is not None else items, self._most)
        )
        for piece in pieces[:-1]:
            self._write(piece)
        last = pieces[-1]
        self.waiting = None
        if self._pages.size(last) >= self._most:
            self._write(last)
        else:
            self.waiting = last.take(np.arange(last.size))  # a copy: a view would keep all of the items in memory

    def add_page(self, items: Items) -> None:
        """Write rows of about the size of a page, without combining them with others."""
        for piece in self._pages.cut(items, self._most):
            self._write(piece)

    def finish(self) -> SweepRun:
        """The run of all pages written since the last call."""
        if self.waiting is not None:
            self._write(self.waiting)
            self.waiting = None
        if self._block is None:
            return SweepRun()
        run = SweepRun((self._block.close(),), (len(self._zones),), tuple(self._zones))
        self._block, self._zones = None, []
        return run

    def _write(self, page: Items) -> None:
        batch = with_columns(page)
        if self._block is None:
            self._block = self._pages.store.open_paged(batch.schema, self._pages.names[self._number])
        self._block.write(batch)
        self._zones.append(_zone(page))


class MergeMemory(NamedTuple):
    """How a merge of runs divides a budget, in its unit: pending pages, sweep areas, output, parts from disk.

    A block for arriving rows is always reserved, since a merge may be open when they arrive.
    """

    groups: int  # merged at a time
    page: int
    waiting: int  # pages that have not been joined completely
    area: int  # rows in the area of each input
    spilled: int  # a part of an area that is read from disk, for all inputs but one
    total: int
    largest: int = 0  # size of the largest page on disk, if that is larger than current pages


def divide_memory(budget: Budget, block_rows: int, fan_in: int, inputs: int = 2, largest: int = 0) -> MergeMemory:
    """Merge up to the requested number of runs, or fewer if their pages would be too small. Areas get a quarter.

    `largest`: the largest page on disk, which may have been written with more memory.
    """
    limit = budget.limit
    if limit is None:
        return MergeMemory(max(2, fan_in // inputs), PLENTY, PLENTY, PLENTY, PLENTY, 0)
    total = limit - arriving_memory(budget, block_rows)
    if budget.unit == "rows":
        groups = max(2, min(fan_in // inputs, (limit // block_rows - 4) // inputs))
        # Each run has less than a page left over from the last step, and each writer less than a page pending.
        runs = (groups + 1) * inputs
        page = max(1, min(block_rows, (total - total // 4 - total // 8 + runs) // (runs + inputs)))
        return _with_large_pages(_memory(total, inputs, groups, page), inputs, largest)
    groups = max(2, min(fan_in // inputs, limit // SMALLEST_BLOCK // 4 // inputs))
    memory = _memory(total, inputs, groups, min(MOST_PAGE, 4 * limit // (8 * inputs * (groups + 2))))
    return _with_large_pages(memory, inputs, largest)


def halve_memory(budget: Budget, whole: MergeMemory, inputs: int = 2) -> MergeMemory | None:
    """The same pages, merged in half of the memory, so that a run can be built at the same time; None if that is not
    enough."""
    if budget.limit is None:
        return None
    half = budget.limit // 2
    memory = _memory(half, inputs, whole.groups, whole.page, whole.largest)
    groups = _fitting(memory, inputs)
    return memory._replace(groups=min(whole.groups, groups)) if groups >= 2 else None


def arriving_memory(budget: Budget, block_rows: int) -> int:
    """The memory reserved for arriving rows."""
    limit = budget.limit
    if limit is None:
        return 0
    return block_rows if budget.unit == "rows" else limit // ASIDE


def _memory(total: int, inputs: int, groups: int, page: int, largest: int = 0) -> MergeMemory:
    """A quarter is for the areas, an eighth for parts of them that are read from disk, the rest for pages."""
    area = total // 4 // inputs
    spilled = max(page, total // 8 // (inputs - 1))
    waiting = max(page, total - inputs * (area + page - 1) - (inputs - 1) * spilled)
    return MergeMemory(groups, page, waiting, area, spilled, total, largest)


def _fitting(memory: MergeMemory, inputs: int) -> int:
    """How many groups can be merged at a time: a page is loaded while each run has less than a page left over."""
    page = max(memory.page, memory.largest)
    return (memory.waiting - page) // (inputs * max(1, page - 1))


def _with_large_pages(memory: MergeMemory, inputs: int, largest: int) -> MergeMemory:
    if largest <= memory.page:
        return memory
    memory = memory._replace(largest=largest)
    return memory._replace(groups=max(2, min(memory.groups, _fitting(memory, inputs))))


def refuse_large_pages(memory: MergeMemory, inputs: int, budget: Budget) -> None:
    """Raise an error if not even two groups can be merged."""
    if memory.largest and _fitting(memory, inputs) < 2:
        raise BudgetError(
            f"a memory budget of {budget.limit:,} {budget.unit} is too small for the runs on disk, "
            f"which have pages of {memory.largest:,} {budget.unit}. "
            f"Give {6 * inputs * memory.largest:,} {budget.unit} or more."
        )


class WrittenRuns(NamedTuple):
    run: SweepRun
    codes: Words  # of its rows, in the order of arrival
    dead: Words  # rows that match nothing, and are not in the run


def write_run(
    order: SweepOrder,
    pages: Pages,
    side: Side,
    batch: pa.RecordBatch,
    numbers: Words,
    page: int,
    needed: Callable[[Side, Words], Rows | None],
) -> WrittenRuns:
    """Sort the rows and write them in pages of this size. If they are not sorted yet, only one page is copied at a
    time."""
    lines = order.lines(side, batch)
    in_place = lines.rows is None and not len(numbers) and ascends(lines.starts)
    places = np.arange(len(lines.starts)) if in_place else sort_codes(lines.starts).order
    rows = places if lines.rows is None else lines.rows[places]
    kept = needed(side, numbers[rows]) if len(numbers) else None
    if kept is not None:
        rows, places = rows[kept], places[kept]
    writer = RunWriter(pages, side, page)
    width = -(-int(batch.nbytes) // max(1, batch.num_rows)) + INTERVAL_BYTES + (8 if len(numbers) else 0)
    step = max(1, page // pages.measure(1, width))
    for start in range(0, len(rows), step):
        if in_place:
            some = slice(start, start + step)
            writer.add_page(Items(batch.slice(start, step), lines.starts[some], lines.ends[some]))
            continue
        chosen, here = rows[start : start + step], places[start : start + step]
        mine = numbers.take(chosen) if len(numbers) else NO_WORDS
        writer.add_page(Items(take_rows(batch, chosen), lines.starts.take(here), lines.ends.take(here), mine))
    dead = np.ones(batch.num_rows, np.bool_)
    dead[slice(None) if lines.rows is None else lines.rows] = False
    return WrittenRuns(writer.finish(), lines.codes, np.flatnonzero(dead))
