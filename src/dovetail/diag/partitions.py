"""Rows partitioned by hash: in memory at first, on disk once there are too many.

    add      rows, their hashes and positions --> buffer --full--> a page for each partition
    read     the pages of a partition; rows with equal keys are in the same partition on both sides

This is the first half of a GRACE hash join (Kitsuregawa et al., 1983). Hash and position are stored as two more
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import concatenate
from dovetail.columns.taking import take_rows
from dovetail.diag.ring import Positions
from dovetail.kernels.hashing import partitions_of
from dovetail.storage.blocks import Block, BlockStore, PagedBlock
from dovetail.storage.hash_table import Hashes

HASH, POSITION = "__dovetail_hash", "__dovetail_position"
EXTRA = 2  # columns


class Aside(NamedTuple):
    """Rows with their hashes and positions, which are also the last two columns of the batch."""

    batch: pa.RecordBatch

    @property
    def rows(self) -> pa.RecordBatch:
        """The rows without these columns."""
        return self.batch.select(range(self.batch.num_columns - EXTRA))

    @property
    def hashes(self) -> Hashes:
        return np.asarray(self.batch.column(HASH))

    @property
    def positions(self) -> Positions:
        return np.asarray(self.batch.column(POSITION))


def set_aside(batch: pa.RecordBatch, hashes: Hashes, positions: Positions) -> Aside:
    arrays = [*batch.columns, pa.array(hashes), pa.array(positions)]
    return Aside(pa.RecordBatch.from_arrays(arrays, schema=_schema(batch.schema)))


def _schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, pa.field(HASH, pa.int64()), pa.field(POSITION, pa.int64())])


class Partitions:
    """Rows of one side by hash. Up to `most_bytes` are buffered; until then, nothing is written."""

    def __init__(self, schema: pa.Schema, store: BlockStore, stem: str, partitions: int, most_bytes: int) -> None:
        self.count = partitions
        self.rows = 0
        self._schema = _schema(schema)
        self._store = store
        self._stem = stem
        self._most_bytes = most_bytes
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self.buffered_rows = 0
        self._files: dict[int, PagedBlock] = {}
        self._pages: dict[int, int] = {}
        self._blocks: dict[int, Block] = {}

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._buffered

    @property
    def spilled(self) -> bool:
        return bool(self._files or self._blocks)

    def add(self, rows: Aside) -> None:
        if not rows.batch.num_rows:
            return
        self.rows += rows.batch.num_rows
        self._buffer.append(rows.batch)
        self._buffered += rows.batch.nbytes
        self.buffered_rows += rows.batch.num_rows
        if self._buffered > self._most_bytes:
            self._flush()

    def close(self) -> None:
        """All rows have been added: finish the files on disk."""
        if self._files:
            self._flush()
        self._blocks = {number: file.close() for number, file in self._files.items()}
        self._files = {}

    def pages(self, number: int | None = None) -> Iterator[Aside]:
        """The rows of one partition, or of all."""
        if not self.spilled:
            for batch in self._buffer:
                rows = Aside(batch)
                if number is None:
                    yield rows
                else:
                    chosen = np.flatnonzero(partitions_of(rows.hashes, self.count) == number)
                    yield Aside(take_rows(batch, chosen))
            return
        for each in sorted(self._blocks) if number is None else [number] if number in self._blocks else []:
            for page in range(self._pages[each]):
                yield Aside(self._store.read_pages(self._blocks[each], page, page + 1)[0])

    def _flush(self) -> None:
        if not self._buffer:
            return
        batch = concatenate(self._buffer)
        self._buffer, self._buffered, self.buffered_rows = [], 0, 0
        partitions = partitions_of(np.asarray(batch.column(HASH)), self.count)
        batch = take_rows(batch, np.argsort(partitions, kind="stable"))
        stops = np.cumsum(np.bincount(partitions, minlength=self.count)).tolist()
        for number, (start, stop) in enumerate(zip([0, *stops], stops, strict=False)):
            if stop > start:
                if number not in self._files:
                    self._files[number] = self._store.open_paged(self._schema, f"{self._stem}-{number}")
                    self._pages[number] = 0
                self._files[number].write(batch.slice(start, stop - start))
                self._pages[number] += 1
