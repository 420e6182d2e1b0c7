"""The rows of an input by the cells that they visit, for joining cell by cell.

    a table   stays in memory; the row numbers of each page, by cell, are on disk, and rows are gathered per cell
    files     are read once more: the rows of a page are written in the order of their cells, and memory-mapped

A page is a number of consecutive rows of the input. A row of a file that visits several cells is written several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import put_together
from dovetail.columns.taking import Gatherer, gather
from dovetail.core.rows import Rows, Side
from dovetail.core.threads import allow_threads, in_threads
from dovetail.routing.routers import Router
from dovetail.sources.protocol import Place
from dovetail.storage.blocks import BlockStore
from dovetail.storage.row_numbers import RowNumbers


class _Page(NamedTuple):
    """Some rows of an input, and where the row numbers of each cell are stored."""

    batch: pa.RecordBatch  # in the order of the input; for files, in the order in which row numbers are stored
    first: int  # the number of its first row in the input
    places: NDArray[np.int64]  # where the numbers of each cell's rows begin, and the end of the last cell


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """An input whose rows have been routed."""

    pages: list[_Page]
    numbers: RowNumbers  # row numbers within their page, page by page, and cell by cell within a page
    by_cell: bool  # whether rows are also stored in this order

    def count(self, cell: int) -> int:
        """The number of rows that visit a cell."""
        return sum(_size(page, cell) for page in self.pages)

    def gather(self, cell: int, threads: int, most_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a cell, in pieces of bounded size; a piece may exceed the bound by up to a page."""
        waiting: list[_Page] = []
        rows = 0
        for page in self.pages:
            size = _size(page, cell)
            if waiting and rows + size > most_rows:
                yield from self._take(waiting, cell, threads)
                waiting, rows = [], 0
            if size:
                waiting.append(page)
                rows += size
        yield from self._take(waiting, cell, threads)

    def _take(self, pages: list[_Page], cell: int, threads: int) -> Iterable[pa.RecordBatch]:
        if self.by_cell:
            return [page.batch.slice(int(page.places[cell] - page.places[0]), _size(page, cell)) for page in pages]

        def take(page: _Page) -> pa.RecordBatch:
            rows = self.numbers.read(*page.places[cell : cell + 2].tolist())
            return _take_rows(page.batch, rows)

        with allow_threads(threads):
            return in_threads([partial(take, page) for page in pages])

    def rows_of(self, cell: int) -> NDArray[np.int64]:
        """The row numbers of a cell in the input, in the order of `gather`."""
        pages = [page for page in self.pages if _size(page, cell)]
        return np.concatenate(
            [page.first + self.numbers.read(*page.places[cell : cell + 2].tolist()).astype(np.int64) for page in pages]
        )

    def in_order(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows without duplicates, page by page in input order, with the number of each page's first row."""
        for page in self.pages:
            if self.by_cell:
                start = int(page.places[0])
                numbers = self.numbers.read(start, start + page.batch.num_rows)
                yield page.first, _take_rows(page.batch, np.unique(numbers, return_index=True)[1])
            else:
                yield page.first, page.batch


def _size(page: _Page, cell: int) -> int:
    return int(page.places[cell + 1] - page.places[cell])


def _take_rows(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    return put_together(gather([(Gatherer(batch), rows)]), batch.schema, len(rows))


def route_table(router: Router, side: Side, places: list[Place], numbers: RowNumbers, threads: int) -> RoutedRows:
    """Route rows that stay in memory. Several threads route pages."""

    def route(place: Place) -> _Page:
        rows, ends = _visits(router, side, place)
        return _Page(place.batch, place.position, numbers.append(rows) + ends)

    with allow_threads(threads):
        return RoutedRows(in_threads([partial(route, place) for place in places]), numbers, by_cell=False)


def route_files(
    router: Router,
    side: Side,
    places: Iterable[Place],
    schema: pa.Schema,
    numbers: RowNumbers,
    store: BlockStore,
    *,
    keep_all: bool,
) -> RoutedRows:
    """Route rows that are read once. `keep_all`: also keep rows that visit no cell, after the others of a page."""
    paged = store.open_paged(schema, "routed")
    written: list[tuple[int, NDArray[np.int64]]] = []
    for place in places:
        rows, ends = _visits(router, side, place)
        if keep_all:
            alone = np.ones(place.batch.num_rows, np.bool_)
            alone[rows] = False
            rows = np.concatenate([rows, np.flatnonzero(alone).astype(np.int32)])
        if len(rows):
            paged.write(_take_rows(place.batch, rows))
            written.append((place.position, numbers.append(rows) + ends))
        del place  # before the next is read
    block = paged.close()
    batches = store.map_pages(block)
    return RoutedRows(
        [_Page(batch, first, places) for batch, (first, places) in zip(batches, written, strict=True)],
        numbers,
        by_cell=True,
    )


def _visits(router: Router, side: Side, place: Place) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The rows of a page cell by cell, and where each cell starts among them, and the end."""
    spread = np.arange(place.position, place.position + place.batch.num_rows)
    visits = router.route(side, place.batch, spread)
    rows = visits.rows[visits.by_cell()].astype(np.int32)
    return rows, np.append(0, np.cumsum(np.bincount(visits.cells, minlength=router.cells)))
