"""Joins at rest within a budget: one side is kept in chunks, on disk if there are several, the other passes by.

    kept      [chunk 0] [chunk 1] [chunk 2]           every passing chunk meets every kept one, by kernel;
    passing      ^ chunk 0, then chunk 1, …           which rows have found a partner is remembered

Rows without a partner are emitted when no partner can follow: those of the passing side after their chunk, those of the
kept side at the end. Two chunks that are joined fit in the budget together with their codes and orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.core.rows import Side, one_batch
from dovetail.execution.tasks import Flags, Meeting
from dovetail.storage.blocks import Block, BlockStore

AT_REST = 3  # times the size of its rows is what a join at rest takes: rows, codes, orders
MOST_BYTES = 1 << 30  # of a chunk, budget or not: offsets of strings have 32 bits


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
