"""Runs of a hash join on disk, sorted by hash: what a flush or a merge writes, page by page.

Each row carries its hash and the ticks at which it came and left; the first hash of each page is kept in memory, so
that a merge knows which pages to read next. Runs that have met each other stand together as a match: no pair within
one has to be looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.batch import Side
from dovetail.kernels.sorting import sort_codes
from dovetail.state.blocks import Block, BlockStore
from dovetail.state.hash_partitions import Counts, Hashes, Stayed, joined

EXTRA = ("__hash", "__arrived", "__left")  # columns after those of the rows


@dataclass(frozen=True, slots=True, eq=False)
class HashRun:
    block: Block
    starts: Counts  # the first row of each page, and the end of the last
    firsts: Hashes  # the first hash of each page
    page_rows: int  # of its largest page

    @property
    def rows(self) -> int:
        return self.block.rows

    @property
    def pages(self) -> int:
        return len(self.firsts)

    @property
    def row_bytes(self) -> float:
        return self.block.nbytes / self.rows

    def to_json(self) -> dict[str, Any]:
        return {"block": self.block.to_json(), "starts": self.starts.tolist(), "firsts": self.firsts.tolist()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> HashRun:
        starts, firsts = (np.array(fields[name], np.int64) for name in ("starts", "firsts"))
        return cls(Block.from_json(fields["block"]), starts, firsts, int(np.diff(starts).max()))


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """At most one run of each side that have met: flushed together, or written by one merge."""

    left: HashRun | None
    right: HashRun | None

    def of(self, side: Side) -> HashRun | None:
        return self.left if side is Side.LEFT else self.right

    @property
    def runs(self) -> list[HashRun]:
        return [run for run in (self.left, self.right) if run is not None]

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def to_json(self) -> list[dict[str, Any] | None]:
        return [None if run is None else run.to_json() for run in (self.left, self.right)]

    @classmethod
    def from_json(cls, fields: list[Mapping[str, Any] | None]) -> Match:
        return cls(*(None if run is None else HashRun.from_json(run) for run in fields))


class HashRunWriter:
    """Writes rows that come in ascending order of their hashes. Less than a page is held back until there is more."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str, page_rows: int) -> None:
        self._store = store
        self._schema = schema
        for name in EXTRA:
            self._schema = self._schema.append(pa.field(name, pa.int64()))
        self._page_rows = page_rows
        self._paged = store.paged(self._schema, stem)
        self._starts = [0]
        self._firsts: list[int] = []
        self._held: list[Stayed] = []
        self.held_rows = 0

    def write(self, rows: Stayed) -> None:
        self._held.append(rows)
        self.held_rows += len(rows.hashes)
        full = self.held_rows // self._page_rows * self._page_rows
        if full:
            whole = joined(self._held)
            for start in range(0, full, self._page_rows):
                self._write_page(whole.slice(start, start + self._page_rows))
            rest = whole.slice(full, self.held_rows)
            # A copy, so that less than a page does not hold on to all of it.
            self._held, self.held_rows = [rest.take(np.arange(len(rest.hashes)))], len(rest.hashes)

    def close(self) -> HashRun | None:
        """The run; None if it has no rows."""
        if self.held_rows:
            self._write_page(joined(self._held))
        block = self._paged.close()
        if not self._firsts:
            self._store.remove([block])
            return None
        starts = np.array(self._starts)
        return HashRun(block, starts, np.array(self._firsts), int(np.diff(starts).max()))

    def _write_page(self, rows: Stayed) -> None:
        columns = [*rows.batch.columns, *(pa.array(column) for column in rows[1:])]
        self._paged.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._starts.append(self._starts[-1] + len(rows.hashes))
        self._firsts.append(int(rows.hashes[0]))


def write_run(store: BlockStore, schema: pa.Schema, stem: str, page_rows: int, rows: Stayed) -> HashRun | None:
    """Sort rows and write them as a run."""
    writer = HashRunWriter(store, schema, stem, page_rows)
    writer.write(rows.take(sort_codes(np.ascontiguousarray(rows.hashes)).order))
    return writer.close()


def read_run(store: BlockStore, run: HashRun, schema: pa.Schema, first: int, stop: int) -> list[Stayed]:
    """Some pages of a run."""
    pages = []
    for page in store.read_pages(run.block, first, stop):
        columns = page.columns
        batch = pa.RecordBatch.from_arrays(columns[: -len(EXTRA)], schema=schema)
        pages.append(Stayed(batch, *(np.asarray(column) for column in columns[-len(EXTRA) :])))
    return pages
