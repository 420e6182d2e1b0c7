"""Joins of tables at rest that exceed the budget: rows are routed to cells, and one cell after the other is joined.

    left   \\                 / rows of cell 0 \\
             -- router --->   | rows of cell 1 |  --> each by kernel, within the budget --> results
    right  /                 \\ …              /

The routers are those of joins on Spark: any two matching rows share exactly one cell. Row numbers are on disk, by cell;
the rows of a cell are gathered when it is joined. Which rows have found a partner is remembered for whole tables,
so a row may visit many cells whatever the join type. A cell that is too large is joined in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, Side, take_rows
from dovetail.core.threads import allow_threads, in_threads
from dovetail.execution.chunked import AT_REST, MOST_BYTES, Chunked, chunk_size
from dovetail.execution.tasks import Batches, Flags, Joining
from dovetail.planning.statistics import Sample, measure, sample_table
from dovetail.routing import Routing, Task, choose_router
from dovetail.routing.routers import Router
from dovetail.storage.blocks import BlockStore
from dovetail.storage.row_numbers import RowNumbers

Tables = tuple[pa.Table, pa.Table]

SLACK = 1.25  # times as many cells as would do if all were of one size
ROUTED_BYTES = 256  # for each row that is routed at once: keys, codes, cells, sort orders
ROUTED_ROWS = 1 << 18, 1 << 12  # at most and at least
IN_FLIGHT = 16  # 1 / this of the budget for the pairs that a thread finds at once, and for each batch of results
PAIR_BYTES = 16
FEWEST_PAIRS = 1 << 12


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
                rows = np.concatenate([page.first + rows for page, rows in visitors[side]])
                partnered[side][rows[np.concatenate(cell.partnered[side])]] = True
        for side in work.how.tracked:
            for page in routed[side].pages:
                flags = partnered[side][page.first : page.first + page.batch.num_rows]
                yield from work.leave(side, page.batch, flags)
    finally:
        numbers.close()
        store.close()


def _gather(work: Joining, visitors: list[tuple[_Page, Rows]]) -> list[pa.RecordBatch]:
    with allow_threads(work.threads):
        return in_threads([partial(take_rows, page.batch, rows) for page, rows in visitors])


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
        return [(page, rows.astype(np.int64)) for page, rows in found if len(rows)]


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
