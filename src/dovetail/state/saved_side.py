"""Residents of a side in a snapshot, without writing again what an earlier snapshot has written.

    blocks    rows by their serial numbers, each written once; rewritten together when most of their rows have left,
              or when there are many of them
    flags     which rows are still there, and their marks: a few bytes for each, written with every snapshot

So a snapshot costs what has arrived since the last one, and little for what is held. Pages are bounded: whatever is
written, not much of it is copied at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.state.blocks import Block, BlockStore
from dovetail.state.ordered_side import Marks, OrderedSide, Words

SERIAL, ARRIVED, MARKS = "__serial", "__arrived", "__marks"
FLAGS = pa.schema([(SERIAL, pa.int64()), (MARKS, pa.int32())])
PAGE_ROWS = 1 << 14
MOST_BLOCKS = 32


class Saved(NamedTuple):
    """Rows as they were: with their marks, in the order of arrival."""

    batch: pa.RecordBatch
    arrived: Words
    marks: Marks
    serials: Words


class SavedSide:
    def __init__(self, store: BlockStore, schema: pa.Schema, stem: str) -> None:
        self._store = store
        self._schema = schema
        self._stem = f"{stem}-kept"
        self._blocks: list[Block] = []
        self._flags: Block | None = None
        self.next_serial = 0  # of a row that comes; those before it are in blocks

    @property
    def names(self) -> list[str]:
        return [block.name for block in (*self._blocks, self._flags) if block is not None]

    def save(self, side: OrderedSide) -> dict[str, Any] | None:
        """Write what is new; says where everything is, ready for JSON. None: there are no rows."""
        living = side.living()
        if not len(living):
            self._blocks, self._flags, self.next_serial = [], None, side.next_serial
            return None
        serials = side.serials[living]
        stored = sum(block.rows for block in self._blocks)
        still = int(np.searchsorted(serials, self.next_serial))
        if 2 * still < stored or len(self._blocks) >= MOST_BLOCKS:
            self._blocks, still = [], 0
        if still < len(living):
            self._blocks.append(self._written(side, living[still:]))
        self.next_serial = side.next_serial
        flags = [pa.array(serials), pa.array(side.marks[living])]
        self._flags = self._store.write(pa.RecordBatch.from_arrays(flags, schema=FLAGS), f"{self._stem}-flags")
        blocks = [block.to_json() for block in self._blocks]
        return {"blocks": blocks, "flags": self._flags.to_json(), "next": self.next_serial}

    def load(self, fields: Mapping[str, Any] | None) -> Iterator[Saved]:
        """The rows that were there, a page at a time."""
        if fields is None:
            return
        self._blocks = [Block.from_json(block) for block in fields["blocks"]]
        self._flags, self.next_serial = Block.from_json(fields["flags"]), fields["next"]
        flags = self._store.read(self._flags, verify=True)
        serials, marks = (np.asarray(column) for column in flags.columns)
        width = len(self._schema)
        for block in self._blocks:
            for number in range(self._store.pages(block)):
                (page,) = self._store.read_pages(block, number, number + 1)
                rows = pa.RecordBatch.from_arrays(page.columns[:width], schema=self._schema)
                arrived, mine = (np.asarray(column) for column in page.columns[width:])
                places = np.searchsorted(serials, mine).clip(max=len(serials) - 1)
                alive = np.flatnonzero(serials[places] == mine)
                if len(alive):
                    yield Saved(rows.take(pa.array(alive)), arrived[alive], marks[places[alive]], mine[alive])

    def _written(self, side: OrderedSide, positions: Words) -> Block:
        schema = pa.schema([*self._schema, pa.field(ARRIVED, pa.int64()), pa.field(SERIAL, pa.int64())])
        paged = self._store.paged(schema, self._stem)
        for start in range(0, len(positions), PAGE_ROWS):
            rows = positions[start : start + PAGE_ROWS]
            extra = [pa.array(side.arrived[rows]), pa.array(side.serials[rows])]
            paged.write(pa.RecordBatch.from_arrays([*side.take(rows).columns, *extra], schema=schema))
        return paged.close()
