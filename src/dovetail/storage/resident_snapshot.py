"""Incremental snapshots of resident rows: rows that an earlier snapshot has written are not written again.

    blocks    rows by serial number, each written once; rewritten together when most of their rows have left,
              or when there are many of them
    flags     which rows are still resident, and their marks: a few bytes each, written with every snapshot

So the cost of a snapshot depends on the rows that have arrived since the last one, and hardly on those held. Pages are
bounded, so little is copied at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import put_together
from dovetail.storage.blocks import Block, BlockStore

SERIAL, MARKS = "__serial", "__marks"
FLAGS = pa.schema([(SERIAL, pa.int64()), (MARKS, pa.int32())])
PAGE_ROWS = 1 << 14
MOST_BLOCKS = 32

Marks = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Held(NamedTuple):
    """Rows in memory, in the order of arrival."""

    survivors: Flags  # which rows of the last snapshot are still here; they come first
    marks: Marks
    take: Callable[[slice], pa.RecordBatch]


class Saved(NamedTuple):
    """Restored rows."""

    batch: pa.RecordBatch
    marks: Marks


class Survivors:
    """Which rows of the last snapshot are still in memory: one bit each, empty before the first snapshot."""

    def __init__(self) -> None:
        self._bits = np.empty(0, np.uint8)
        self._rows = 0

    @property
    def nbytes(self) -> int:
        return self._bits.nbytes

    def all(self) -> Flags:
        return np.unpackbits(self._bits, count=self._rows, bitorder="little").view(np.bool_)

    def restart(self, rows: int) -> None:
        """A snapshot of all `rows` rows in memory was taken."""
        self._rows, self._bits = rows, np.full(-(-rows // 8), 0xFF, np.uint8)

    def remove(self, gone: Flags) -> None:
        """Remove rows in memory, by position."""
        if self._rows:
            flags = self.all()
            here = np.flatnonzero(flags)
            flags[here[gone[: len(here)]]] = False
            self._bits = np.packbits(flags, bitorder="little")


class ResidentSnapshot:
    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str) -> None:
        self._store = store
        self._schema = schema
        self._stem = f"{stem}-kept"
        self._blocks: list[Block] = []
        self._flags: Block | None = None
        self.next_serial = 0  # of the next row; rows before it are in blocks

    @property
    def names(self) -> list[str]:
        return [block.name for block in (*self._blocks, self._flags) if block is not None]

    def save(self, held: Held) -> dict[str, Any] | None:
        """Write new rows. Returns the locations of all rows, ready for JSON. None: there are no rows."""
        first, rows = self.next_serial, len(held.marks)
        old = self._serials()[held.survivors]
        self.next_serial += rows - len(old)
        if not rows:
            self._blocks, self._flags = [], None
            return None
        serials = np.concatenate([old, np.arange(first, self.next_serial)])
        stored, still = sum(block.rows for block in self._blocks), len(old)
        if 2 * still < stored or len(self._blocks) >= MOST_BLOCKS:
            self._blocks, still = [], 0
        if still < rows:
            self._blocks.append(self._write_rows(held, serials, still))
        flags = [pa.array(serials), pa.array(held.marks)]
        self._flags = self._store.write(pa.RecordBatch.from_arrays(flags, schema=FLAGS), f"{self._stem}-flags")
        blocks = [block.to_json() for block in self._blocks]
        return {"blocks": blocks, "flags": self._flags.to_json(), "next": self.next_serial}

    def _serials(self) -> NDArray[np.int64]:
        """The serial numbers of the rows of the last snapshot."""
        return np.empty(0, np.int64) if self._flags is None else np.asarray(self._store.read(self._flags).column(0))

    def load(self, fields: Mapping[str, Any] | None) -> Iterator[Saved]:
        """The rows of the snapshot, a page at a time."""
        if fields is None:
            return
        self._blocks = [Block.from_json(block) for block in fields["blocks"]]
        self._flags, self.next_serial = Block.from_json(fields["flags"]), fields["next"]
        flags = self._store.read(self._flags, verify=True)
        serials, marks = (np.asarray(column) for column in flags.columns)
        for block in self._blocks:
            for number in range(self._store.pages(block)):
                (page,) = self._store.read_pages(block, number, number + 1)
                rows = put_together(page.columns[:-1], self._schema, page.num_rows)
                mine = np.asarray(page.columns[-1])
                places = np.searchsorted(serials, mine).clip(max=len(serials) - 1)
                alive = np.flatnonzero(serials[places] == mine)
                if len(alive):
                    yield Saved(rows.take(pa.array(alive)), marks[places[alive]])

    def _write_rows(self, held: Held, serials: NDArray[np.int64], first: int) -> Block:
        """Write the rows from the given one on."""
        schema = self._schema.append(pa.field(SERIAL, pa.int64()))
        paged = self._store.open_paged(schema, self._stem)
        for start in range(first, len(serials), PAGE_ROWS):
            page = slice(start, min(start + PAGE_ROWS, len(serials)))
            columns = [*held.take(page).columns, pa.array(serials[page])]
            paged.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        return paged.close()
