"""Merges the sorted runs of both sides of a partition in one pass, and joins them (PSMJ, RPJ section 2.2).

    left runs   ▁▂▃ ▁▃▅ …  --\\                        /--> meetings: left rows and right rows of one range of hashes
                              >-- ranges of hashes --<
    right runs  ▁▂▄ ▂▃▆ …  --/                        \\--> one merged run per side

Pages are read in the order of their first hashes, as many as fit. All rows below the first hash of the next page that
does not fit are complete: they form a range. If the rows of a single hash do not fit, they are joined in chunks. Memory
must hold at least one page of each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.kernels.sorting import sort_codes
from dovetail.operators.hashing.partitions import Stayed, concat_rows
from dovetail.operators.hashing.runs import HashRun, HashRunWriter, Match, read_run
from dovetail.storage.blocks import BlockStore

LAST = 2**63 - 1  # the largest hash


class LoadedRows(NamedTuple):
    """Rows of one side, and the match that each belongs to."""

    rows: Stayed
    matches: NDArray[np.int64]


Meeting = tuple[LoadedRows, LoadedRows]
Weigh = Callable[[int, float], float]
"""The share of the budget that a number of rows and bytes takes."""


class PartitionMerge:
    """A merge of several matches. Run `meetings` to its end; `close` then returns the merged match."""

    def __init__(
        self,
        store: BlockStore,
        schemas: tuple[pa.Schema, pa.Schema],
        matches: Sequence[Match],
        memory: float,
        weigh: Weigh,
        page_rows: int,
    ) -> None:
        self._cursors = [
            _Cursor(store, schemas[side], side, run, number)
            for number, match in enumerate(matches)
            for side in Side
            if (run := match.run_of(side)) is not None
        ]
        self._schemas = schemas
        self._memory = memory
        self._weigh = weigh
        self._writers = {side: HashRunWriter(store, schemas[side], side.alias, page_rows) for side in Side}

    @property
    def held(self) -> tuple[int, int]:
        """Rows and bytes that are loaded or waiting to be written."""
        rows = sum(cursor.loaded for cursor in self._cursors)
        nbytes = sum(cursor.loaded * cursor.run.row_bytes for cursor in self._cursors)
        row_bytes = max((cursor.run.row_bytes for cursor in self._cursors), default=0.0)
        waiting = sum(writer.held_rows for writer in self._writers.values())
        return rows + waiting, int(nbytes + waiting * row_bytes)

    def meetings(self) -> Iterator[Meeting]:
        while any(not cursor.done for cursor in self._cursors):
            up_to = self._load()
            parts = {side: self._take(side, up_to) for side in Side}
            if not any(parts.values()):
                yield from self._meet_in_chunks(up_to + 1)
                continue
            for side, rows in parts.items():
                self._write(side, rows)
            if parts[Side.LEFT] and parts[Side.RIGHT]:
                meeting = _concat_loaded(parts[Side.LEFT]), _concat_loaded(parts[Side.RIGHT])
                del parts, rows  # the pages; joined rows are copies
                yield meeting
                del meeting

    def close(self) -> Match:
        runs = []
        for side in Side:
            self._writers[side].end_run()
            runs += self._writers[side].close()
        return Match(*runs)

    def _load(self) -> int:
        """Read the pages with the smallest first hashes, as many as fit; returns the last complete hash."""
        firsts = np.concatenate([cursor.firsts for cursor in self._cursors])
        owners = np.repeat(np.arange(len(self._cursors)), [len(cursor.firsts) for cursor in self._cursors])
        sizes = np.concatenate([cursor.sizes(self._weigh) for cursor in self._cursors])
        order = np.argsort(firsts, kind="stable")
        used = self._weigh(*self.held)
        fitting = int(np.searchsorted(np.cumsum(sizes[order]) + used, self._memory, side="right"))
        for cursor, pages in zip(
            self._cursors, np.bincount(owners[order[:fitting]], minlength=len(self._cursors)), strict=True
        ):
            cursor.load(int(pages))
        return int(firsts[order[fitting]]) - 1 if fitting < len(order) else LAST

    def _take(self, side: Side, up_to: int) -> list[LoadedRows]:
        return [part for cursor in self._cursors if cursor.side is side for part in cursor.take(up_to)]

    def _write(self, side: Side, parts: list[LoadedRows]) -> None:
        if parts:
            rows = concat_rows([part.rows for part in parts])
            order = sort_codes(np.ascontiguousarray(rows.hashes)).order
            self._writers[side].write(rows.take(order))

    def _meet_in_chunks(self, hash_: int) -> Iterator[Meeting]:
        """All rows of one hash that has too many rows to be loaded at once."""
        for cursor in self._cursors:
            cursor.unload()
        memory = self._memory - self._weigh(*self.held)
        outer, inner = ([c for c in self._cursors if c.side is side] for side in Side)
        for number, left in enumerate(self._chunks(outer, hash_, memory / 2)):
            self._write(Side.LEFT, [left])
            for right in self._chunks(inner, hash_, memory / 2):
                if number == 0:
                    self._write(Side.RIGHT, [right])
                yield left, right
        if all(cursor.rows_of(hash_) == 0 for cursor in outer):
            for right in self._chunks(inner, hash_, memory):
                self._write(Side.RIGHT, [right])
        for cursor in self._cursors:
            cursor.skip(hash_)

    def _chunks(self, cursors: Sequence[_Cursor], hash_: int, memory: float) -> Iterator[LoadedRows]:
        for cursor in cursors:
            yield from cursor.chunks(hash_, memory, self._weigh)


class _Cursor:
    """The read position in a run."""

    def __init__(self, store: BlockStore, schema: pa.Schema, side: Side, run: HashRun, match: int) -> None:
        self.side = side
        self.run = run
        self._store = store
        self._schema = schema
        self._match = match
        self._taken = 0  # rows
        self._next = 0  # the next page to load
        self._parts: list[Stayed] = []

    @property
    def loaded(self) -> int:
        return sum(len(part.hashes) for part in self._parts)

    @property
    def done(self) -> bool:
        return self._taken == self.run.rows

    @property
    def firsts(self) -> NDArray[np.int64]:
        """The first hashes of the pages not loaded yet."""
        return self.run.firsts[self._next :]

    def sizes(self, weigh: Weigh) -> NDArray[np.float64]:
        """The size of each of these pages."""
        return np.diff(self.run.starts[self._next :]) * weigh(1, self.run.row_bytes)

    def load(self, pages: int) -> None:
        if pages:
            parts = self._read(self._next, self._next + pages)
            skipped = max(0, self._taken - int(self.run.starts[self._next]))
            self._parts += [parts[0].slice(skipped, len(parts[0].hashes)), *parts[1:]]
            self._next += pages

    def take(self, up_to: int) -> list[LoadedRows]:
        """The loaded rows with hashes up to `up_to`."""
        taken, rest = [], []
        for part in self._parts:
            cut = int(np.searchsorted(part.hashes, up_to, side="right"))
            if cut:
                taken.append(self._tag_match(part.slice(0, cut)))
            if cut < len(part.hashes):
                rest.append(part.slice(cut, len(part.hashes)))
            self._taken += cut
        self._parts = rest
        return taken

    def unload(self) -> None:
        """Drop the loaded rows that were not consumed."""
        self._parts = []
        self._next = int(np.searchsorted(self.run.starts, self._taken, side="right")) - 1

    def chunks(self, hash_: int, memory: float, weigh: Weigh) -> Iterator[LoadedRows]:
        """The rows of this hash, the smallest one left, in chunks. Nothing stays loaded."""
        stop = self._page_after(hash_)
        page = self._next
        while page < stop:
            sizes = np.cumsum(np.diff(self.run.starts[page : stop + 1])) * weigh(1, self.run.row_bytes)
            pages = max(1, int(np.searchsorted(sizes, memory, side="right")))
            rows = concat_rows(self._read(page, page + pages))
            start = max(0, self._taken - int(self.run.starts[page]))
            end = int(np.searchsorted(rows.hashes, hash_, side="right"))
            if end > start:
                yield self._tag_match(rows.slice(start, end))
            page += pages

    def rows_of(self, hash_: int) -> int:
        """The number of remaining rows with this hash."""
        last = self._page_after(hash_) - 1
        if last < self._next:
            return 0
        [page] = self._read(last, last + 1)
        return int(self.run.starts[last]) + int(np.searchsorted(page.hashes, hash_, side="right")) - self._taken

    def skip(self, hash_: int) -> None:
        """Resume after this hash. The page that contains it is already loaded, so its first hash no longer matters."""
        self._taken += self.rows_of(hash_)
        self.unload()
        if self._taken > self.run.starts[self._next]:
            self.load(1)

    def _page_after(self, hash_: int) -> int:
        """The first page that starts after this hash."""
        return int(np.searchsorted(self.run.firsts, hash_, side="right"))

    def _read(self, first: int, stop: int) -> list[Stayed]:
        return read_run(self._store, self.run, self._schema, first, stop)

    def _tag_match(self, rows: Stayed) -> LoadedRows:
        return LoadedRows(rows, np.full(len(rows.hashes), self._match))


def _concat_loaded(parts: list[LoadedRows]) -> LoadedRows:
    if len(parts) == 1:
        return parts[0]
    return LoadedRows(concat_rows([part.rows for part in parts]), np.concatenate([part.matches for part in parts]))
