"""Runs of a hash join on disk, sorted by hash: what a flush or a merge writes, page by page.

All runs of a side that one flush writes are in one block. Each row has its hash and its ticks of arrival and eviction;
the first hash of each page is kept in memory, so that a merge knows which pages to read next. Runs that were joined
with each other form a match: pairs within a match are not compared again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.core.rows import Side
from dovetail.operators.hashing.partitions import Counts, Hashes, HashPartitions, Stayed, concat_rows
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.resident_snapshot import MOST_BLOCKS

EXTRA = ("__hash", "__arrived", "__left")  # columns after those of the rows


@dataclass(frozen=True, slots=True, eq=False)
class HashRun:
    block: Block  # which may hold other runs, too
    first_page: int  # of the block
    starts: Counts  # the first row of each page, and the end of the last
    firsts: Hashes  # the first hash of each page
    row_bytes: float  # in memory, on average over the block; in the file, small pages take more

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @property
    def pages(self) -> int:
        return len(self.firsts)

    @property
    def page_rows(self) -> int:
        """Of its first page: none is larger."""
        return int(self.starts[1])

    def to_json(self) -> dict[str, Any]:
        fields = {"block": self.block.to_json(), "first_page": self.first_page, "row_bytes": self.row_bytes}
        return {**fields, "starts": self.starts.tolist(), "firsts": self.firsts.tolist()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> HashRun:
        starts, firsts = (np.array(fields[name], np.int64) for name in ("starts", "firsts"))
        return cls(Block.from_json(fields["block"]), fields["first_page"], starts, firsts, fields["row_bytes"])


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """At most one run of each side, joined with each other: flushed together, or written by one merge."""

    left: HashRun | None
    right: HashRun | None

    def run_of(self, side: Side) -> HashRun | None:
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
    """Writes runs into one block, one after the other. Less than a page is held back until there is more of the run."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str, page_rows: int) -> None:
        self._store = store
        self._schema = stayed_schema(schema)
        self._page_rows = page_rows
        self._paged = store.open_paged(self._schema, stem)
        self._sizes: list[list[int]] = [[]]  # rows of each page of each run
        self._firsts: list[list[int]] = [[]]
        self._held: list[Stayed] = []
        self._bytes = 0
        self.held_rows = 0

    def write(self, rows: Stayed) -> None:
        """More rows of the run, in ascending order of their hashes."""
        self._held.append(rows)
        self.held_rows += len(rows.hashes)
        full = self.held_rows // self._page_rows * self._page_rows
        if full:
            whole = concat_rows(self._held)
            for start in range(0, full, self._page_rows):
                self._write_page(whole.slice(start, start + self._page_rows))
            rest = whole.slice(full, self.held_rows)
            # A copy, so that less than a page does not hold on to all of it.
            self._held, self.held_rows = [rest.take(np.arange(len(rest.hashes)))], len(rest.hashes)

    def end_run(self) -> None:
        if self.held_rows:
            self._write_page(concat_rows(self._held))
            self._held, self.held_rows = [], 0
        self._sizes.append([])
        self._firsts.append([])

    def close(self) -> list[HashRun | None]:
        """The runs that have ended; None for one without rows."""
        block = self._paged.close()
        if not block.rows:
            self._store.remove([block])
        runs: list[HashRun | None] = []
        page = 0
        for sizes, firsts in zip(self._sizes[:-1], self._firsts[:-1], strict=True):
            starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
            row_bytes = self._bytes / max(1, block.rows)
            runs.append(HashRun(block, page, starts, np.array(firsts), row_bytes) if firsts else None)
            page += len(firsts)
        return runs

    def _write_page(self, rows: Stayed) -> None:
        page = stayed_batch(rows, self._schema)
        self._paged.write(page)
        self._bytes += int(page.nbytes)
        self._sizes[-1].append(len(rows.hashes))
        self._firsts[-1].append(int(rows.hashes[0]))


def read_run(store: BlockStore, run: HashRun, schema: pa.Schema, first: int, stop: int) -> list[Stayed]:
    """Some pages of a run."""
    pages = store.read_pages(run.block, run.first_page + first, run.first_page + stop)
    return [stayed_rows(page, schema) for page in pages]


def stayed_schema(schema: pa.Schema) -> pa.Schema:
    """Of rows with their hashes and ticks."""
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in EXTRA)])


def stayed_batch(rows: Stayed, schema: pa.Schema) -> pa.RecordBatch:
    columns = [*rows.batch.columns, *(pa.array(column) for column in rows[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stayed_rows(batch: pa.RecordBatch, schema: pa.Schema) -> Stayed:
    columns = batch.columns
    rows = pa.RecordBatch.from_arrays(columns[: -len(EXTRA)], schema=schema)
    return Stayed(rows, *(np.asarray(column) for column in columns[-len(EXTRA) :]))


class PartitionSnapshot:
    """What is on disk of the residents of one side."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str) -> None:
        self._store = store
        self._schema = schema
        self._stem = f"{stem}-kept"
        self._evictions = -1  # how often rows had left when all were written
        self._settled: Block | None = None  # the rows that there were then
        self._young: list[Block] = []  # those that have come since

    @property
    def names(self) -> set[str]:
        return {block.name for block in (self._settled, *self._young) if block is not None}

    def save(self, side: HashPartitions) -> dict[str, Any]:
        """Write what is new; says where everything is, ready for JSON."""
        if side.evictions != self._evictions or len(self._young) >= MOST_BLOCKS:
            self._evictions = side.evictions
            self._settled, self._young = self._written(side, 0), []
        else:
            block = self._written(side, sum(block.rows for block in (self._settled, *self._young) if block is not None))
            if block is not None:
                self._young.append(block)
        settled = None if self._settled is None else self._settled.to_json()
        return {"settled": settled, "young": [block.to_json() for block in self._young]}

    def load(self, side: HashPartitions, fields: Mapping[str, Any]) -> None:
        """Put the rows where they were."""
        self._settled = None if fields["settled"] is None else Block.from_json(fields["settled"])
        self._young = [Block.from_json(young) for young in fields["young"]]
        side.restore(page for block in (self._settled, *self._young) if block is not None for page in self._read(block))
        self._evictions = side.evictions

    def _written(self, side: HashPartitions, first: int) -> Block | None:
        """The rows from the given one on."""
        if first == len(side):
            return None
        schema = stayed_schema(self._schema)
        paged = self._store.open_paged(schema, self._stem)
        for page in side.pages(first):
            paged.write(stayed_batch(page, schema))
        return paged.close()

    def _read(self, block: Block) -> Iterator[Stayed]:
        """Page by page: each is copied."""
        for number in range(self._store.pages(block, verify=True)):
            for page in self._store.read_pages(block, number, number + 1):
                yield stayed_rows(page, self._schema)
