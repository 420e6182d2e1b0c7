"""Writes the rows of both sides to files, each row once, so that any cell of a router can be joined.

    rows --route--> by the set of cells that they visit --> a block for each set, with its cells

Rows that visit the same cells share a block. A cell reads the blocks that name it. There is no shuffle: every task
writes its own blocks. Files of failed attempts are never named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame

from dovetail.columns.batches import concatenate
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.routing.routers import Router, Visits
from dovetail.spark.exchange.packing import Rewrite, as_planned, collected
from dovetail.spark.session.workers import freeze_modules
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.open_store import Place

WRITTEN = "side tinyint, rows bigint, block string, cells array<int>"
WAITING_BYTES = 1 << 26  # per task, until their page is large enough


@dataclass(frozen=True, slots=True)
class CellBlock:
    """A block, with the cells that read it."""

    side: Side
    block: Block
    cells: tuple[int, ...]

    def to_json(self) -> list[Any]:
        return [int(self.side), self.block.to_json(), list(self.cells)]

    @classmethod
    def from_json(cls, fields: list[Any]) -> CellBlock:
        return cls(Side(fields[0]), Block.from_json(fields[1]), tuple(fields[2]))


def write_blocks(
    frames: tuple[DataFrame, DataFrame], condition: Condition, router: Router, directory: Place
) -> tuple[list[CellBlock], tuple[int, int]]:
    """Write all rows of both sides that can match to blocks. Also returns the number of rows of each side."""
    left, right = (
        frames[side].mapInArrow(_writer(side, router, condition.schema(side), directory), WRITTEN) for side in Side
    )
    blocks, rows = [], [0, 0]
    for row in left.unionAll(right).collect():
        if row.block is None:
            rows[row.side] += row.rows
        else:
            blocks.append(CellBlock(Side(row.side), Block.from_json(json.loads(row.block)), tuple(row.cells)))
    return blocks, (rows[0], rows[1])


def _writer(side: Side, router: Router, schema: pa.Schema, directory: Place) -> Rewrite:
    names = np.random.default_rng(0).integers(0, 2**64, router.cells, dtype=np.uint64)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        blocks = _Writing(BlockStore(directory), schema, side.alias)
        position = 0
        for batch in (as_planned(rows, schema) for rows in collected(batches)):
            spread = np.arange(position, position + batch.num_rows) + partition * 7919  # as in packing.py
            position += batch.num_rows
            for cells, rows in by_visits(router.route(side, batch, spread), names):
                blocks.add(cells, take_rows(batch, rows))
        yield _block_rows(side, position, blocks.close())
        freeze_modules()

    return write


def by_visits(visits: Visits, names: NDArray[np.uint64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """Sets of cells, with the rows that visit exactly these. The sum of its cells' random names identifies a set."""
    if not len(visits.rows):
        return
    order = np.lexsort((visits.cells, visits.rows))
    rows, cells = np.asarray(visits.rows)[order], visits.cells[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    sums = np.add.reduceat(names[cells], starts)
    ends = np.append(starts[1:], len(rows))
    _, examples, sets = np.unique(sums, return_index=True, return_inverse=True)
    by_set = np.argsort(sets, kind="stable")
    bounds = np.cumsum(np.bincount(sets))[:-1]
    for example, members in zip(examples.tolist(), np.split(by_set, bounds), strict=True):
        yield tuple(cells[starts[example] : ends[example]].tolist()), rows[starts[members]].astype(np.int64)


class _Writing:
    """Blocks written by one task, a page at a time."""

    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str) -> None:
        self._store = store
        self._schema = schema
        self._stem = stem
        self._open: dict[tuple[int, ...], Any] = {}
        self._waiting: dict[tuple[int, ...], list[pa.RecordBatch]] = {}
        self._bytes = 0

    def add(self, cells: tuple[int, ...], rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(cells, []).append(rows)
        self._bytes += rows.nbytes
        if self._bytes > WAITING_BYTES:
            self._write()

    def close(self) -> Iterator[tuple[Block, tuple[int, ...]]]:
        self._write()
        for cells, paged in self._open.items():
            yield paged.close(), cells

    def _write(self) -> None:
        for cells, batches in self._waiting.items():
            if cells not in self._open:
                self._open[cells] = self._store.open_paged(self._schema, self._stem)
            self._open[cells].write(concatenate(batches))
        self._waiting, self._bytes = {}, 0


def _block_rows(side: Side, rows: int, blocks: Iterable[tuple[Block, tuple[int, ...]]]) -> pa.RecordBatch:
    """A row for each block, after one for all rows of the task."""
    found = list(blocks)
    names, cells = [json.dumps(block.to_json()) for block, _ in found], [list(cells) for _, cells in found]
    columns = [
        pa.array([int(side)] * (1 + len(found)), pa.int8()),
        pa.array([rows, *(block.rows for block, _ in found)], pa.int64()),
        pa.array([None, *names], pa.string()),
        pa.array([[], *cells], pa.list_(pa.int32())),
    ]
    return pa.RecordBatch.from_arrays(columns, ["side", "rows", "block", "cells"])
