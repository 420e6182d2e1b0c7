"""Sorted runs on disk: rows in sweep order, in pages that a merge reads one after the other.

    run    [page][page][page]      each page a block; its zone: where its first row starts, how far its rows reach
    pair   a run of each side      made of rows that were in memory together, or merged from such pairs

Beside their columns, pages keep each row's interval of the sweep, and its number where somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Rows, Side, take_rows
from dovetail.state.blocks import Block, BlockStore
from dovetail.state.budget import Budget

Words = NDArray[np.int64]
Column = NDArray[Any]

NO_WORDS, NO_SOURCES = np.empty(0, np.int64), np.empty(0, np.int16)
START, END, NUMBER, SOURCE = "__start", "__end", "__number", "__source"


class Items(NamedTuple):
    """Rows of one side and what a sweep knows of each."""

    batch: pa.RecordBatch
    starts: Words
    ends: Words
    numbers: Words  # of the rows among all of their side; empty where nobody asks
    sources: Column  # which of the runs that are merged they come from

    @property
    def size(self) -> int:
        return len(self.starts)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self[1:]

    @property
    def nbytes(self) -> int:
        return int(self.batch.nbytes) + sum(column.nbytes for column in self.columns)

    def slice(self, start: int, stop: int) -> Items:
        columns = [column[start:stop] for column in self.columns]
        return Items(self.batch.slice(start, stop - start), *columns)

    def take(self, rows: Rows) -> Items:
        columns = [column[rows] if len(column) else column for column in self.columns]
        return Items(take_rows(self.batch, rows), *columns)


def joined(parts: list[Items]) -> Items:
    """All rows of the parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts), strict=True)]
    return Items(pa.concat_batches([part.batch for part in parts]), *columns)


def nothing(schema: pa.Schema) -> Items:
    return Items(pa.RecordBatch.from_pylist([], schema=schema), NO_WORDS, NO_WORDS, NO_WORDS, NO_SOURCES)


@dataclass(slots=True)
class RunPair:
    """A run of each side, by pages. Pairs of rows from one run pair have been found."""

    pages: tuple[list[Block], list[Block]] = field(default_factory=lambda: ([], []))

    def rows(self, side: Side) -> int:
        return sum(page.rows for page in self.pages[side])

    def to_json(self) -> list[list[dict[str, Any]]]:
        return [[page.to_json() for page in side] for side in self.pages]

    @classmethod
    def from_json(cls, sides: list[list[dict[str, Any]]]) -> RunPair:
        left, right = ([Block.from_json(page) for page in side] for side in sides)
        return cls((left, right))


class Pages:
    """Writes items as pages of a bounded size and reads them back."""

    def __init__(self, store: BlockStore, budget: Budget, schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self._store = store
        self._budget = budget
        self._schemas = schemas

    def size(self, items: Items) -> int:
        """In the unit of the budget."""
        return self._budget.measure(items.size, items.nbytes)

    def write(self, side: Side, items: Items) -> Block:
        batch = items.batch
        for name, column in zip((START, END, NUMBER, SOURCE), items.columns, strict=True):
            if len(column):
                batch = batch.append_column(name, pa.array(column))
        zone = (int(items.starts.min()), int(items.ends.max()))
        return self._store.write(batch, side.alias, zone)

    def read(self, side: Side, page: Block, source: int | None = None) -> Items:
        """The rows of a page; `source` says which run they come from, unless that was written with them."""
        whole = self._store.read(page)
        schema = self._schemas[side]
        own = range(len(schema), whole.num_columns)
        extra = {whole.schema.names[i]: np.asarray(whole.column(i)) for i in own}
        batch = pa.RecordBatch.from_arrays(whole.columns[: len(schema)], schema=schema)
        sources = extra[SOURCE] if source is None else np.full(page.rows, source, np.int16)
        return Items(batch, extra[START], extra[END], extra.get(NUMBER, NO_WORDS), sources)

    def remove(self, pages: Iterable[Block]) -> None:
        self._store.remove(pages)

    def cut(self, items: Items, most: int) -> Iterator[Items]:
        """Consecutive pieces of at most this size; a row that is larger by itself makes a piece of its own."""
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


class RunWriter:
    """A run that is being written, from items that come in sweep order."""

    def __init__(self, pages: Pages, side: Side, most: int) -> None:
        self._pages = pages
        self._side = side
        self._most = most
        self._written: list[Block] = []
        self.waiting: Items | None = None  # too few for a page

    def add(self, items: Items) -> None:
        if not items.size:
            return
        # Which of the merged runs a row came from does not matter any more.
        items = items._replace(sources=NO_SOURCES)
        pieces = list(self._pages.cut(joined([self.waiting, items]) if self.waiting is not None else items, self._most))
        for piece in pieces[:-1]:
            self._written.append(self._pages.write(self._side, piece))
        last = pieces[-1]
        # A copy: a view would keep all of the items in memory.
        self.waiting = last.take(np.arange(last.size))
        if self._pages.size(last) >= self._most:
            self._flush()

    def finish(self) -> list[Block]:
        self._flush()
        return self._written

    def _flush(self) -> None:
        if self.waiting is not None:
            self._written.append(self._pages.write(self._side, self.waiting))
            self.waiting = None
