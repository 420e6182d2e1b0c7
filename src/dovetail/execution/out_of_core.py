"""Joins of tables at rest within a memory budget: in chunks, and in cells.

In chunks, one side is kept (on disk if it has several chunks) and the other side is streamed past it:

    kept      [chunk 0] [chunk 1] [chunk 2]           every passing chunk is joined with every kept one, by kernel;
    passing      ^ chunk 0, then chunk 1, …           flags record which rows have found a partner

Rows without a partner are emitted when no partner can follow: those of the passing side after their chunk, those of the
kept side at the end. Two chunks that are joined fit in the budget, including their codes and orders.

In cells, tables that exceed the budget are routed, and cells are joined one after the other:

    left   \\                 / rows of cell 0 \\
             -- router --->   | rows of cell 1 |  --> each by kernel, within the budget --> results
    right  /                 \\ …              /

The routers are those of joins on Spark: any two matching rows share exactly one cell. The rows of each cell are
recorded on disk (routed_rows.py), and gathered when the cell is joined. Flags for rows with a partner cover whole
tables, so a row may visit many cells in every join type. A cell that is too large is joined in chunks.

Tables are in memory, and belong to the caller. Files are read in pieces, however large their row groups are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import one_batch
from dovetail.core.rows import Side
from dovetail.core.threads import allow_threads, in_threads
from dovetail.execution.at_rest import Batches, Flags, Joining, Meeting
from dovetail.execution.output import SMALLEST_BATCH
from dovetail.execution.routed_rows import RoutedRows, route_files, route_table
from dovetail.planning.statistics import Sample, measure, sample_batches, sample_table, sampled_columns
from dovetail.routing import Routing, Task, choose_router
from dovetail.routing.routers import Router
from dovetail.sources.protocol import Scan, TableScan
from dovetail.storage.allocator import GrowthWatch, trim_heap
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.row_numbers import RowNumbers

AT_REST = 3  # memory of a join at rest, as a multiple of the size of its rows: rows, codes, orders
MOST_BYTES = 1 << 30  # per chunk, with or without a budget: strings have 32-bit offsets
SLACK = 1.25  # times the number of cells needed if all were equally large
ROUTED_BYTES = 256  # per row that is routed at a time: keys, codes, cells, sort orders
ROUTED_ROWS = 1 << 18, 1 << 12  # at most and at least
READ_SHARE = 8  # 1 / this of the budget for the rows of files that are routed at a time
PIECES, LOADED_ROWS = 8, 1 << 16  # pieces per chunk when reading files, and the most rows of a piece
IN_FLIGHT = 16  # 1 / this of the budget for the pairs a thread finds at once, and for each batch of results
PAIR_BYTES = 16
FEWEST_PAIRS = 1 << 12


@dataclass(slots=True)
class _KeptChunk:
    """Rows in memory or on disk, and flags for those that have found a partner."""

    held: list[pa.RecordBatch] | Block
    partnered: Flags


@dataclass(frozen=True, slots=True)
class Chunked:
    """Joins two sides that arrive one after the other: all of side `first`, then all of the other."""

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
                del batches, held  # before the next chunk is collected
                continue
            (chunk,) = batches
            for mine in kept:
                yield from self._meet((self._rows(mine), mine.partnered), (chunk, flags))
            yield from self.work.leave(side, chunk, flags)
            del batches, chunk
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
        """Chunks of a side, and whether each is the last of its side."""
        waiting: list[pa.RecordBatch] = []
        size, side = 0, self.first
        for of, batch in arrivals:
            if waiting and (of is not side or size + batch.nbytes > self.chunk_bytes):
                chunk, waiting, size = self._together(side, waiting), [], 0  # the pieces of a copy are freed
                yield side, chunk, of is not side
                del chunk
            side = of
            waiting.append(batch)
            size += batch.nbytes
            del batch
        if waiting:
            chunk, waiting = self._together(side, waiting), []
            yield side, chunk, True

    def _together(self, side: Side, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """A single batch, except for rows that the caller holds in memory anyway: combining these would make a copy."""
        return batches if self.store is None and side is self.first else [one_batch(batches, batches[0].schema)]


def chunk_size(memory_bytes: int | None) -> int:
    """Bytes of a chunk, such that two of them can be joined within the budget."""
    return MOST_BYTES if memory_bytes is None else max(1, min(MOST_BYTES, memory_bytes // (2 * AT_REST)))


@dataclass(frozen=True, slots=True)
class InputAtRest:
    """A table, or files, with an estimate of the memory that their rows take."""

    scan: Scan
    nbytes: int  # of all rows in memory

    @property
    def in_memory(self) -> bool:
        return isinstance(self.scan, TableScan)

    def fitting_rows(self, nbytes: int) -> int:
        """The number of rows that take about `nbytes` bytes."""
        return max(1, nbytes * self.scan.rows // max(1, self.nbytes))

    def batches(self, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of about `most_bytes` bytes."""
        for place in self.scan.places(self.fitting_rows(most_bytes)):
            yield place.batch
            del place  # before the next is read


Inputs = tuple[InputAtRest, InputAtRest]


def load(scan: Scan, most_bytes: int | None) -> InputAtRest:
    """Load files as a table, unless they take more memory than allowed."""
    if isinstance(scan, TableScan) or most_bytes is None:
        table = scan.to_table()
        return InputAtRest(TableScan(table), int(table.nbytes))
    width = max(1, scan.total_bytes() // max(1, scan.rows))  # by the files' statistics: strings may be longer
    found: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for _, batch in scan.places(max(1, min(LOADED_ROWS, most_bytes // PIECES // width))):
        found.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if nbytes > most_bytes:
            del found, batch
            trim_heap()  # frees what was read in vain, before the join needs memory
            return InputAtRest(scan, nbytes * scan.rows // rows)
    return InputAtRest(TableScan(pa.Table.from_batches(found, scan.schema)), nbytes)


def route_inputs(work: Joining, inputs: Inputs, memory_bytes: int | None) -> Routing | None:
    """A router to cells that fit in the budget; None if every row would have to be compared with every other."""
    fits = 2 * MOST_BYTES if memory_bytes is None else max(1, memory_bytes // AT_REST)
    wanted = int(SLACK * sum(rows.nbytes for rows in inputs) / fits) + 1
    samples = [_sample(work, side, inputs[side], memory_bytes) for side in Side]
    routing = choose_router(Task(work.condition, (samples[0], samples[1]), wanted, listed=work.how.emits_pairs))
    return None if routing.choice.name == "one_bucket" else routing


def _sample(work: Joining, side: Side, rows: InputAtRest, memory_bytes: int | None) -> Sample:
    """A sample of the rows of an input, with the range of the keys of all rows."""
    pieces = (
        place.batch
        for place in rows.scan.places(_routed_at_once(rows, work, memory_bytes), sampled_columns(work.condition, side))
    )
    if not isinstance(rows.scan, TableScan):
        return sample_batches(work.condition, side, rows.scan.rows, pieces)
    sample = sample_table(work.condition, side, rows.scan.to_table())
    with allow_threads(work.threads):
        reaches = in_threads([partial(measure, work.condition, side, batch) for batch in pieces])
    known = [reach for reach in reaches if reach is not None]
    return replace(sample, reach=sum(known[1:], known[0])) if known else sample


def _routed_at_once(rows: InputAtRest, work: Joining, memory_bytes: int | None) -> int:
    """The number of rows routed at a time. Rows of files are read, and written in another order."""
    most, least = ROUTED_ROWS
    if memory_bytes is None:
        return most
    if rows.in_memory:
        return max(least, min(most, memory_bytes // ROUTED_BYTES // work.threads))
    width = 2 * rows.nbytes // max(1, rows.scan.rows) + ROUTED_BYTES
    return max(1, min(most, memory_bytes // READ_SHARE // width))


def join_in_cells(
    work: Joining, inputs: Inputs, router: Router, first: Side, memory_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    """The whole join, cell by cell. If a cell has to be joined in chunks, its rows of side `first` are kept."""
    store, numbers = BlockStore(), RowNumbers()
    growth = None if memory_bytes is None else GrowthWatch(memory_bytes)
    try:
        routed = [_route(work, router, side, inputs[side], memory_bytes, numbers, store) for side in Side]
        partnered = [np.zeros(inputs[side].scan.rows if side in work.how.tracked else 0, np.bool_) for side in Side]
        chunk_bytes = chunk_size(memory_bytes)
        for number in range(router.cells):
            if not all(side.count(number) for side in routed):
                continue
            cell = _Cell(work)
            arrivals = (
                (side, batch)
                for side in (first, first.other)
                for batch in routed[side].gather(number, work.threads, inputs[side].fitting_rows(chunk_bytes))
            )
            yield from Chunked(cell, first, store, chunk_bytes).run(arrivals)
            if growth is not None:
                growth.look()
            for side in work.how.tracked:
                partnered[side][routed[side].rows_of(number)[np.concatenate(cell.partnered[side])]] = True
        for side in work.how.tracked:
            for start, batch in routed[side].in_order():
                yield from work.leave(side, batch, partnered[side][start : start + batch.num_rows])
    finally:
        numbers.close()
        store.close()


def _route(
    work: Joining,
    router: Router,
    side: Side,
    rows: InputAtRest,
    memory_bytes: int | None,
    numbers: RowNumbers,
    store: BlockStore,
) -> RoutedRows:
    places = rows.scan.places(_routed_at_once(rows, work, memory_bytes))
    if rows.in_memory:
        return route_table(router, side, list(places), numbers, work.threads)
    keep_all = side in work.how.tracked
    return route_files(router, side, places, rows.scan.schema, numbers, store, keep_all=keep_all)


def join_in_chunks(work: Joining, inputs: Inputs, first: Side, memory_bytes: int | None) -> Iterator[pa.RecordBatch]:
    """The whole join: every chunk of one side with every chunk of the other. Rows of files are kept on disk."""
    chunk_bytes = chunk_size(memory_bytes)
    store = None if inputs[first].in_memory else BlockStore()
    try:
        arrivals = (
            (side, batch)
            for side in (first, first.other)
            for batch in inputs[side].batches(chunk_bytes if inputs[side].in_memory else chunk_bytes // PIECES)
        )
        yield from Chunked(work, first, store, chunk_bytes).run(arrivals)
    finally:
        if store is not None:
            store.close()


def keep_within(work: Joining, memory_bytes: int | None) -> Joining:
    """The same work with pairs and results in flight limited by the budget."""
    if memory_bytes is None:
        return work
    share = memory_bytes // IN_FLIGHT // work.threads
    return replace(
        work,
        capacity=min(work.capacity, max(FEWEST_PAIRS, share // PAIR_BYTES)),
        batch_bytes=min(work.batch_bytes, max(SMALLEST_BATCH, share)),
        bounded=True,
    )


class _Cell:
    """The work on a cell. Partners are only recorded: a row without one may find one in another cell."""

    def __init__(self, work: Joining) -> None:
        self._work = work
        self.partnered: tuple[list[Flags], list[Flags]] = ([], [])

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        return self._work.meet(batches, partnered)

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        self.partnered[side].append(partnered)
        return iter(())
