"""Sorted runs on disk: rows in sweep order, in pages that a merge reads one after the other.

    run     [page][page] [page]     each page has the start of its first row and the end of its furthest interval
    group   a run of each input     made of rows that were in memory together, or merged from such groups

Inputs are numbered: 0 and 1 are the sides of a join of two. A run is in one block, or in several where its writing was
interrupted. In addition to their columns, pages keep each row's interval of the sweep, and its number if the join type
needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, empty_batch, take_rows
from dovetail.storage.blocks import Block, BlockStore, PagedBlock
from dovetail.storage.budget import Budget

Words = NDArray[np.int64]
Column = NDArray[Any]

NO_WORDS, NO_SOURCES = np.empty(0, np.int64), np.empty(0, np.int16)
START, END, NUMBER, SOURCE = "__start", "__end", "__number", "__source"


@dataclass(slots=True, eq=False)
class Items:
    """Rows of one side with their sweep intervals."""

    batch: pa.RecordBatch
    starts: Words
    ends: Words
    numbers: Words = field(default_factory=lambda: NO_WORDS)  # among all rows of their side, if the join type needs it
    sources: Column = field(default_factory=lambda: NO_SOURCES)  # which of the runs that are merged they come from
    _nbytes: int = field(default=-1, init=False)

    @property
    def size(self) -> int:
        return len(self.starts)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.starts, self.ends, self.numbers, self.sources

    @property
    def nbytes(self) -> int:
        if self._nbytes < 0:  # asking Arrow takes time
            self._nbytes = int(self.batch.nbytes) + sum(column.nbytes for column in self.columns)
        return self._nbytes

    def slice(self, start: int, stop: int) -> Items:
        columns = [column[start:stop] for column in self.columns]
        return Items(self.batch.slice(start, stop - start), *columns)

    def rest(self, start: int) -> Items:
        """All rows from some place on, taken to be as wide as the others."""
        rest = self.slice(start, self.size)
        rest._nbytes = self.nbytes * rest.size // self.size
        return rest

    def take_until(self, place: int) -> Items:
        """The rows that start no later."""
        rows = np.flatnonzero(self.starts <= place)
        return self if len(rows) == self.size else self.take(rows)

    def take(self, rows: Rows) -> Items:
        columns = [column.take(rows) if len(column) else column for column in self.columns]
        return Items(take_rows(self.batch, rows), *columns)


def concat_items(parts: list[Items]) -> Items:
    """All rows of the parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    return Items(pa.concat_batches([part.batch for part in parts]), *columns)


def nothing(schema: pa.Schema) -> Items:
    return Items(empty_batch(schema), NO_WORDS, NO_WORDS)


class Zone(NamedTuple):
    """What is known of a page without reading it."""

    rows: int
    nbytes: int
    start: int  # of its first row
    reach: int  # the largest end


@dataclass(frozen=True, slots=True)
class SweepRun:
    """Pages of one input in sweep order; a run without rows has no blocks."""

    blocks: tuple[Block, ...] = ()
    pages: tuple[int, ...] = ()  # of each block
    zones: tuple[Zone, ...] = ()  # of all pages

    @classmethod
    def concat(cls, parts: Sequence[SweepRun]) -> SweepRun:
        """Runs that follow each other, as one."""
        blocks, pages, zones = zip(*((part.blocks, part.pages, part.zones) for part in parts), strict=True)
        return cls(sum(blocks, ()), sum(pages, ()), sum(zones, ()))

    def place(self, page: int) -> tuple[Block, int]:
        """In which block a page is, and where."""
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
    """A run of each input. Results all of whose rows are from one group have been found."""

    runs: tuple[SweepRun, ...]
    arrived: tuple[int, ...]  # rows of each input, with those that match nothing and were not kept

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
    """Items as pages on disk, of a bounded size, and back."""

    def __init__(self, store: BlockStore, budget: Budget, schemas: Mapping[str, pa.Schema]) -> None:
        self.store = store
        self._budget = budget
        self.names = tuple(schemas)  # of the inputs
        self.schemas = tuple(schemas.values())

    def measure(self, rows: int, nbytes: int) -> int:
        """In the unit of the budget."""
        return self._budget.measure(rows, nbytes)

    def size(self, items: Items) -> int:
        return self.measure(items.size, items.nbytes)

    def read(self, number: int, run: SweepRun, page: int, source: int) -> Items:
        """The rows of a page of a run of that input; `source` says which of the merged runs it is."""
        block, place = run.place(page)
        [whole] = self.store.read_pages(block, place, place + 1)
        items = self._items(number, whole)
        items.sources = np.full(whole.num_rows, source, np.int16)
        return items

    def spill(self, number: int, items: Items) -> Block:
        """Rows of a sweep area, with the runs that they come from."""
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
        """Consecutive chunks of at most this size; a row that is larger is a chunk of its own."""
        size = self.size(items)
        if items.size <= 1 or size <= most:
            if items.size:
                yield items
            return
        rows = max(1, items.size * most // size)
        for start in range(0, items.size, rows):
            piece = items.slice(start, min(start + rows, items.size))
            if rows > 1 and self.size(piece) > most:  # wider rows than elsewhere
                half = piece.size // 2
                yield from self.cut(piece.slice(0, half), most)
                yield from self.cut(piece.slice(half, piece.size), most)
            else:
                yield piece


def with_columns(items: Items) -> pa.RecordBatch:
    """The rows with their sweep intervals as further columns."""
    named = [(n, c) for n, c in zip((START, END, NUMBER, SOURCE), items.columns, strict=True) if len(c)]
    columns = [*items.batch.columns, *(pa.array(column) for _, column in named)]
    return pa.RecordBatch.from_arrays(columns, names=[*items.batch.schema.names, *(name for name, _ in named)])


def _zone(items: Items) -> Zone:
    return Zone(items.size, items.nbytes, int(items.starts.min()), int(items.ends.max()))


class RunWriter:
    """A run that is being written, from items in sweep order."""

    def __init__(self, pages: Pages, number: int, most: int) -> None:
        self._pages = pages
        self._number = number  # of the input
        self._most = most  # size of a page
        self._block: PagedBlock | None = None
        self._zones: list[Zone] = []
        self.waiting: Items | None = None  # too few for a page

    def add(self, items: Items) -> None:
        if not items.size:
            return
        # The origin of a row among the merged runs is no longer needed.
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
        """Write rows of about the size of a page without combining them with others."""
        for piece in self._pages.cut(items, self._most):
            self._write(piece)

    def finish(self) -> SweepRun:
        """What was written since the last time."""
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
