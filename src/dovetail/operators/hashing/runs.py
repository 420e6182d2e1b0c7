"""Runs of a hash join on disk, sorted by hash. A flush or a merge writes them page by page.

All runs of a side that one flush writes are in one block. Each row has its hash and its ticks of arrival and eviction.
The first hash of each page is kept in memory, so that a merge knows which pages to read next. Runs that were joined
with each other form a match: pairs within a match are not compared again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.operators.hashing.partitions import Counts, Hashes, HashPartitions, Stayed, concat_rows
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.residence import NEVER, Ticks, met_in_memory
from dovetail.storage.resident_snapshot import MOST_BLOCKS

HASH = "__hash"
EXTRA = (HASH, "__arrived", "__left")  # columns after those of the rows


@dataclass(frozen=True, slots=True, eq=False)
class HashRun:
    block: Block  # may also hold other runs
    first_page: int  # page number in the block
    starts: Counts  # the first row of each page, and the end of the last
    firsts: Hashes  # first hash of each page
    row_bytes: float  # in memory, averaged over the block; in the file, small pages take more

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @property
    def pages(self) -> int:
        return len(self.firsts)

    @property
    def page_rows(self) -> int:
        """The rows of its first page; no page has more."""
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
    """At most one run per side, joined with each other: flushed together, or written by one merge."""

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
    """Writes runs into one block, one after the other. An incomplete page is held back until more rows come."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str, page_rows: int) -> None:
        self._store = store
        self._schema = stayed_schema(schema)
        self._page_rows = page_rows
        self._paged = store.open_paged(self._schema, stem)
        self._sizes: list[list[int]] = [[]]  # rows per page, for each run
        self._firsts: list[list[int]] = [[]]
        self._held: list[Stayed] = []
        self._bytes = 0
        self.held_rows = 0

    def write(self, rows: Stayed) -> None:
        """Add rows to the run, in ascending order of their hashes."""
        self._held.append(rows)
        self.held_rows += len(rows.hashes)
        full = self.held_rows // self._page_rows * self._page_rows
        if full:
            whole = concat_rows(self._held)
            for start in range(0, full, self._page_rows):
                self._write_page(whole.slice(start, start + self._page_rows))
            rest = whole.slice(full, self.held_rows)
            # A copy, so that an incomplete page does not keep the whole batch alive.
            self._held, self.held_rows = [rest.take(np.arange(len(rest.hashes)))], len(rest.hashes)

    def end_run(self) -> None:
        if self.held_rows:
            self._write_page(concat_rows(self._held))
            self._held, self.held_rows = [], 0
        self._sizes.append([])
        self._firsts.append([])

    def close(self) -> list[HashRun | None]:
        """Finish, and return the runs; None for one without rows."""
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
    """The schema of rows with their hashes and ticks."""
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in EXTRA)])


def stayed_batch(rows: Stayed, schema: pa.Schema) -> pa.RecordBatch:
    columns = [*rows.batch.columns, *(pa.array(column) for column in rows[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stayed_rows(batch: pa.RecordBatch, schema: pa.Schema) -> Stayed:
    columns = batch.columns
    rows = pa.RecordBatch.from_arrays(columns[: -len(EXTRA)], schema=schema)
    return Stayed(rows, *(np.asarray(column) for column in columns[-len(EXTRA) :]))


class PartitionSnapshot:
    """The residents of one side on disk, for snapshots."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str) -> None:
        self._store = store
        self._schema = schema
        self._stem = f"{stem}-kept"
        self._evictions = -1  # number of evictions when all rows were written
        self._merged: Block | None = None  # the rows at that time
        self._young: list[Block] = []  # the rows that arrived since then

    @property
    def names(self) -> set[str]:
        return {block.name for block in (self._merged, *self._young) if block is not None}

    def save(self, side: HashPartitions) -> dict[str, Any]:
        """Write new rows; returns a description of all blocks, ready for JSON."""
        if side.evictions != self._evictions or len(self._young) >= MOST_BLOCKS:
            self._evictions = side.evictions
            self._merged, self._young = self._written(side, 0), []
        else:
            block = self._written(side, sum(block.rows for block in (self._merged, *self._young) if block is not None))
            if block is not None:
                self._young.append(block)
        merged = None if self._merged is None else self._merged.to_json()
        return {"settled": merged, "young": [block.to_json() for block in self._young]}

    def load(self, side: HashPartitions, fields: Mapping[str, Any]) -> None:
        """Restore the rows."""
        self._merged = None if fields["settled"] is None else Block.from_json(fields["settled"])
        self._young = [Block.from_json(young) for young in fields["young"]]
        side.restore(page for block in (self._merged, *self._young) if block is not None for page in self._read(block))
        self._evictions = side.evictions

    def _written(self, side: HashPartitions, first: int) -> Block | None:
        """Write the rows from the given position on."""
        if first == len(side):
            return None
        schema = stayed_schema(self._schema)
        paged = self._store.open_paged(schema, self._stem)
        for page in side.pages(first):
            paged.write(stayed_batch(page, schema))
        return paged.close()

    def _read(self, block: Block) -> Iterator[Stayed]:
        """Read page by page; each page is copied."""
        for number in range(self._store.pages(block, verify=True)):
            for page in self._store.read_pages(block, number, number + 1):
                yield stayed_rows(page, self._schema)


class ReportedPairs:
    """Which pairs of a partition have been emitted, and how many may be missing.

    Rows of both sides that are (or were) on disk have been reported together if
        they were in memory together                                                 (storage/residence.py)
        or one was in memory, the other on disk, when memory and disk were joined    (an md-task, at one tick)
    Pairs of runs that were merged with each other are recorded with the runs (`Match`).

    Missing pairs are counted by rows, regardless of keys: an arriving row may match all rows on disk at that time; a
    memory-disk task finds its partners; a row that is spilled before that keeps its count on disk (RPJ section 5.3,
    where the count is divided by the number of distinct keys of the partition).

    Deviation: a spilled row counts the rows that were on disk when it arrived, not, as printed, those that are on disk
    when it is spilled: these were never added, so the sum would become negative.
    """

    def __init__(self, partitions: int) -> None:
        self.spilled: Counts = np.zeros((2, partitions), np.int64)  # rows ever flushed
        self.memory_pairs: Counts = np.zeros((2, partitions), np.int64)  # residents x rows of the other side on disk
        self.disk_pairs: Counts = np.zeros(partitions, np.int64)  # disk x disk
        self._tasks = _lists(partitions)  # ticks of the memory-disk tasks
        self._flush_ticks = _lists(partitions)
        self._flushed_rows = _lists(partitions)  # up to and including each flush

    def record_arrivals(self, side: Side, counts: Counts) -> None:
        """Record the number of rows that arrived in each partition and are kept."""
        self.memory_pairs[side] += counts * self.spilled[side.other]

    def record_flush(self, side: Side, partition: int, arrived: Ticks, tick: int) -> None:
        """Record the eviction of rows of a partition; `arrived` has their ticks of arrival."""
        unsettled = arrived[arrived > self._last_task(side, partition)]
        pairs = int(self._spilled_before(side.other, partition, unsettled).sum())
        self.memory_pairs[side, partition] -= pairs
        self.disk_pairs[partition] += pairs
        self.spilled[side, partition] += len(arrived)
        self._flush_ticks[side][partition].append(tick)
        self._flushed_rows[side][partition].append(int(self.spilled[side, partition]))

    def met_disk(self, side: Side, partition: int, tick: int) -> None:
        """Record that all residents of the partition were joined with the other side's rows on disk."""
        self._tasks[side][partition].append(tick)
        self.memory_pairs[side, partition] = 0

    def met_on_disk(self, partition: int) -> None:
        """Record that all rows on disk were joined with each other."""
        self.disk_pairs[partition] = 0

    def find_reported(
        self, partition: int, arrived_l: Ticks, left_l: Ticks, arrived_r: Ticks, left_r: Ticks
    ) -> NDArray[np.bool_]:
        """Which of the aligned pairs have been emitted. Rows in memory have the eviction tick NEVER."""
        out = met_in_memory(arrived_l, left_l, arrived_r, left_r)
        out |= self._met_by_task(Side.LEFT, partition, arrived_l, left_l, left_r)
        out |= self._met_by_task(Side.RIGHT, partition, arrived_r, left_r, left_l)
        return out

    def _met_by_task(
        self, side: Side, partition: int, arrived: Ticks, left: Ticks, other_left: Ticks
    ) -> NDArray[np.bool_]:
        """Whether a task found the row in memory and the other one on disk (RPJ Fig. 7, l. 7-8).

        Deviation: one task must satisfy both; as printed, the last task is compared with the other row, which would
        suppress pairs that were never reported.
        """
        ticks = self._tasks[side][partition]
        if not ticks:
            return np.zeros(len(arrived), np.bool_)
        padded = np.array([*ticks, NEVER])
        met: NDArray[np.bool_] = padded[np.searchsorted(padded, np.maximum(arrived, other_left))] < left
        return met

    def _last_task(self, side: Side, partition: int) -> int:
        ticks = self._tasks[side][partition]
        return ticks[-1] if ticks else 0

    def _spilled_before(self, side: Side, partition: int, ticks: Ticks) -> Counts:
        """The number of rows of the side that were on disk at each tick."""
        rows = np.array([0, *self._flushed_rows[side][partition]])
        before: Counts = rows[np.searchsorted(self._flush_ticks[side][partition], ticks)]
        return before

    def to_json(self) -> dict[str, Any]:
        return {
            "spilled": self.spilled.tolist(),
            "memory_pairs": self.memory_pairs.tolist(),
            "disk_pairs": self.disk_pairs.tolist(),
            "tasks": self._tasks,
            "flush_ticks": self._flush_ticks,
            "flushed_rows": self._flushed_rows,
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        self.spilled = np.array(fields["spilled"], np.int64)
        self.memory_pairs = np.array(fields["memory_pairs"], np.int64)
        self.disk_pairs = np.array(fields["disk_pairs"], np.int64)
        self._tasks = fields["tasks"]
        self._flush_ticks = fields["flush_ticks"]
        self._flushed_rows = fields["flushed_rows"]


def _lists(partitions: int) -> list[list[list[int]]]:
    """An empty list for each side and partition."""
    return [[[] for _ in range(partitions)] for _ in Side]
