"""Joins of tables at rest within a budget: in chunks, and in cells.

In chunks, one side is kept, on disk if there are several, and the other passes by:

    kept      [chunk 0] [chunk 1] [chunk 2]           every passing chunk meets every kept one, by kernel;
    passing      ^ chunk 0, then chunk 1, …           which rows have found a partner is remembered

Rows without a partner are emitted when no partner can follow: those of the passing side after their chunk, those of the
kept side at the end. Two chunks that are joined fit in the budget together with their codes and orders.

In cells, tables that exceed the budget are routed, and one cell after the other is joined:

    left   \\                 / rows of cell 0 \\
             -- router --->   | rows of cell 1 |  --> each by kernel, within the budget --> results
    right  /                 \\ …              /

The routers are those of joins on Spark: any two matching rows share exactly one cell. Row numbers are on disk, by cell;
the rows of a cell are gathered when it is joined. Which rows have found a partner is remembered for whole tables, so a
row may visit many cells whatever the join type. A cell that is too large is joined in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side, one_batch, put_together
from dovetail.core.threads import allow_threads, in_threads
from dovetail.execution.at_rest import Batches, Flags, Joining, Meeting
from dovetail.execution.output import Gatherer, gather
from dovetail.planning.statistics import Sample, measure, sample_table
from dovetail.routing import Routing, Task, choose_router
from dovetail.routing.routers import Router
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.row_numbers import RowNumbers

Tables = tuple[pa.Table, pa.Table]

AT_REST = 3  # times the size of its rows is what a join at rest takes: rows, codes, orders
MOST_BYTES = 1 << 30  # of a chunk, budget or not: offsets of strings have 32 bits
SLACK = 1.25  # times as many cells as would do if all were of one size
ROUTED_BYTES = 256  # for each row that is routed at once: keys, codes, cells, sort orders
ROUTED_ROWS = 1 << 18, 1 << 12  # at most and at least
IN_FLIGHT = 16  # 1 / this of the budget for the pairs that a thread finds at once, and for each batch of results
PAIR_BYTES = 16
FEWEST_PAIRS = 1 << 12


@dataclass(slots=True)
class _KeptChunk:
    """Rows in memory or on disk, and which of them have found a partner."""

    held: list[pa.RecordBatch] | Block
    partnered: Flags


@dataclass(frozen=True, slots=True)
class Chunked:
    """Work on two sides that arrive one after the other: all of side `first`, then all of the other."""

    work: Meeting
    first: Side
    store: BlockStore | None = None  # None: the rows are in memory anyway
    chunk_bytes: int = MOST_BYTES

    def run(self, arrivals: Iterable[tuple[Side, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        kept: list[_KeptChunk] = []
        for side, batches, is_last in self._chunks(arrivals):
            flags = np.zeros(sum(batch.num_rows for batch in batches), np.bool_)
            if side is self.first:
                alone = is_last and not kept
                held = batches if alone or self.store is None else self.store.write(batches[0], "kept")
                kept.append(_KeptChunk(held, flags))
                continue
            (chunk,) = batches
            for mine in kept:
                yield from self._meet((self._rows(mine), mine.partnered), (chunk, flags))
            yield from self.work.leave(side, chunk, flags)
        for mine in kept:
            yield from self.work.leave(self.first, self._rows(mine), mine.partnered)

    def _rows(self, chunk: _KeptChunk) -> pa.RecordBatch:
        if isinstance(chunk.held, Block):
            assert self.store is not None
            return self.store.read(chunk.held)
        return one_batch(chunk.held, chunk.held[0].schema)

    def _meet(
        self, kept: tuple[pa.RecordBatch, Flags], passing: tuple[pa.RecordBatch, Flags]
    ) -> Iterator[pa.RecordBatch]:
        left, right = (kept, passing) if self.first is Side.LEFT else (passing, kept)
        return self.work.meet((left[0], right[0]), (left[1], right[1]))

    def _chunks(
        self, arrivals: Iterable[tuple[Side, pa.RecordBatch]]
    ) -> Iterator[tuple[Side, list[pa.RecordBatch], bool]]:
        """Chunks of a side, and whether they are its last."""
        waiting: list[pa.RecordBatch] = []
        size, side = 0, self.first
        for of, batch in arrivals:
            if waiting and (of is not side or size + batch.nbytes > self.chunk_bytes):
                yield side, self._together(side, waiting), of is not side
                waiting, size = [], 0
            side = of
            waiting.append(batch)
            size += batch.nbytes
        if waiting:
            yield side, self._together(side, waiting), True

    def _together(self, side: Side, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """One batch, except for rows kept in memory that the caller holds anyway: one batch of them would be a copy."""
        return batches if self.store is None and side is self.first else [one_batch(batches, batches[0].schema)]


def chunk_size(memory_bytes: int | None) -> int:
    """Bytes of a chunk, so that two of them can be joined within the budget."""
    return MOST_BYTES if memory_bytes is None else max(1, min(MOST_BYTES, memory_bytes // (2 * AT_REST)))


def route_tables(work: Joining, tables: Tables, memory_bytes: int | None) -> Routing | None:
    """A router to cells that fit in the budget; None if every row would have to meet every other."""
    fits = 2 * MOST_BYTES if memory_bytes is None else max(1, memory_bytes // AT_REST)
    wanted = int(SLACK * sum(table.nbytes for table in tables) / fits) + 1
    samples = [_sample(work, side, tables[side], memory_bytes) for side in Side]
    routing = choose_router(Task(work.condition, (samples[0], samples[1]), wanted, listed=work.how.emits_pairs))
    return None if routing.choice.name == "one_bucket" else routing


def _sample(work: Joining, side: Side, table: pa.Table, memory_bytes: int | None) -> Sample:
    """Some rows of a table, and how far the keys of all of them reach."""
    sample = sample_table(work.condition, side, table)
    with allow_threads(work.threads):
        tasks = [partial(measure, work.condition, side, batch) for batch in _routed_at_once(table, work, memory_bytes)]
        reaches = [reach for reach in in_threads(tasks) if reach is not None]
    return replace(sample, reach=sum(reaches[1:], reaches[0])) if reaches else sample


def _routed_at_once(table: pa.Table, work: Joining, memory_bytes: int | None) -> list[pa.RecordBatch]:
    most, least = ROUTED_ROWS
    fits = most if memory_bytes is None else memory_bytes // ROUTED_BYTES // work.threads
    return list(table.to_batches(max_chunksize=max(least, min(most, fits))))


def join_in_cells(
    work: Joining, tables: Tables, router: Router, first: Side, memory_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    """The whole join. Of each cell the rows of side `first` are kept, if it has to be joined in chunks."""
    if memory_bytes is not None:
        work = _within(work, memory_bytes)
    store, numbers = BlockStore(), RowNumbers()
    try:
        routed = [
            _route(work, router, side, _routed_at_once(tables[side], work, memory_bytes), numbers) for side in Side
        ]
        partnered = [np.zeros(tables[side].num_rows if side in work.how.tracked else 0, np.bool_) for side in Side]
        for number in range(router.cells):
            visitors = [side.visitors(number) for side in routed]
            if not all(visitors):
                continue
            cell = _Cell(work)
            arrivals = ((side, batch) for side in (first, first.other) for batch in _gather(work, visitors[side]))
            yield from Chunked(cell, first, store, chunk_size(memory_bytes)).run(arrivals)
            for side in work.how.tracked:
                rows = np.concatenate([page.first + rows.astype(np.int64) for page, rows in visitors[side]])
                partnered[side][rows[np.concatenate(cell.partnered[side])]] = True
        for side in work.how.tracked:
            for page in routed[side].pages:
                flags = partnered[side][page.first : page.first + page.batch.num_rows]
                yield from work.leave(side, page.batch, flags)
    finally:
        numbers.close()
        store.close()


def _gather(work: Joining, visitors: list[tuple[_Page, Rows]]) -> list[pa.RecordBatch]:
    def take(page: _Page, rows: Rows) -> pa.RecordBatch:
        return put_together(gather([(Gatherer(page.batch), rows)]), page.batch.schema, len(rows))

    with allow_threads(work.threads):
        return in_threads([partial(take, page, rows) for page, rows in visitors])


def _within(work: Joining, memory_bytes: int) -> Joining:
    """The same work with no more pairs and results in flight than the budget allows for."""
    share = memory_bytes // IN_FLIGHT // work.threads
    return replace(
        work,
        room=min(work.room, max(FEWEST_PAIRS, share // PAIR_BYTES)),
        batch_bytes=max(1, min(work.batch_bytes, share)),
    )


class _Cell:
    """The work on a cell: rows that find no partner may find one in another, so which ones do is only noted."""

    def __init__(self, work: Joining) -> None:
        self._work = work
        self.partnered: tuple[list[Flags], list[Flags]] = ([], [])

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        return self._work.meet(batches, partnered)

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        self.partnered[side].append(partnered)
        return iter(())


class _Page(NamedTuple):
    """Some rows of a table, and where it is written which of them visit which cell."""

    batch: pa.RecordBatch
    first: int  # the number of its first row in the table
    places: NDArray[np.int64]  # where the rows of each cell begin, and the end


@dataclass(frozen=True, slots=True)
class _Routed:
    """A table whose rows have been routed."""

    pages: list[_Page]
    visits: RowNumbers  # page by page, and within a page cell by cell

    def visitors(self, cell: int) -> list[tuple[_Page, Rows]]:
        """The rows of a cell: of each page, as numbers within it."""
        found = ((page, self.visits.read(*page.places[cell : cell + 2].tolist())) for page in self.pages)
        return [(page, rows) for page, rows in found if len(rows)]


def _route(work: Joining, router: Router, side: Side, batches: list[pa.RecordBatch], numbers: RowNumbers) -> _Routed:
    def route(batch: pa.RecordBatch, first: int) -> _Page:
        visits = router.route(side, batch, np.arange(first, first + batch.num_rows))
        start = numbers.append(visits.rows[visits.by_cell()].astype(np.int32))
        ends = np.cumsum(np.bincount(visits.cells, minlength=router.cells))
        return _Page(batch, first, start + np.append(0, ends))

    firsts = np.cumsum([0, *(batch.num_rows for batch in batches)]).tolist()
    with allow_threads(work.threads):
        pages = in_threads([partial(route, batch, first) for batch, first in zip(batches, firsts, strict=False)])
    return _Routed(pages, numbers)
