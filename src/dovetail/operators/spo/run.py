"""Rows of one side that came one after the other, sorted: in memory, or mapped from the blocks that they are kept in.

rows      the columns of the rows, and their positions in the window
orders    how they are sorted: codes and permutations, which probes read without touching the rows themselves
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.operators.spo.positions import COLUMNS, Extent, Flags, WindowPositions
from dovetail.operators.spo.sorted_part import PartBuilder, SortedPart
from dovetail.storage.blocks import Block, BlockStore

ROW_BYTES = 8 * len(COLUMNS) + 2 + 8  # beside its columns: positions, flags, number
ORDER_BYTES = 2 * 8 + 4 * 4  # two codes, and its place in two orders and from each to the other


@dataclass(slots=True, eq=False)
class Run:
    kept: SortedPart
    places: WindowPositions
    extent: Extent
    partnered: Flags  # where it is tracked
    reported: Flags  # rows of which all has been said
    blocks: dict[str, Block] = field(default_factory=dict)  # where they are kept: rows, orders
    flags_block: Block | None = None  # where its flags are kept, as they were then
    _flags_then: bytes = b""
    nbytes: int = field(init=False)  # in memory

    def __post_init__(self) -> None:
        self.nbytes = footprint(self.kept.batch, sorted_rows=self.kept.part is not None)

    @property
    def rows(self) -> int:
        return int(self.kept.batch.num_rows)

    def write(self, store: BlockStore, stem: str) -> dict[str, Block]:
        """Rows and orders as blocks, written once."""
        if not self.blocks:
            batch = self.kept.batch
            for name, column in zip(COLUMNS, self.places, strict=True):
                batch = batch.append_column(name, pa.array(column))
            self.blocks = {"rows": store.write(batch, stem)}
            if (orders := self.kept.orders) is not None:
                self.blocks["orders"] = store.write(orders, stem)
        return self.blocks

    def write_flags(self, store: BlockStore, stem: str) -> Block:
        """Its flags as a block, written when they have changed."""
        now = self._flags()
        if self.flags_block is None or now != self._flags_then:
            self.flags_block, self._flags_then = write_flags(store, stem, self.partnered, self.reported), now
        return self.flags_block

    def take_flags(self, partnered: Flags, reported: Flags, block: Block | None) -> None:
        """What `write_flags` wrote."""
        self.partnered, self.reported, self.flags_block = partnered, reported, block
        self._flags_then = self._flags()

    def _flags(self) -> bytes:
        return np.packbits(self.partnered).tobytes() + np.packbits(self.reported).tobytes()

    @classmethod
    def of_blocks(
        cls,
        stored: Mapping[str, pa.RecordBatch],
        blocks: dict[str, Block],
        schema: pa.Schema,
        builder: PartBuilder,
        way: int,
        extent: Extent | None = None,
    ) -> Run:
        """What was written, without flags."""
        columns = stored["rows"].columns
        width = len(columns) - len(COLUMNS)
        places = WindowPositions(*(np.asarray(column) for column in columns[width:]))
        batch = pa.RecordBatch.from_arrays(columns[:width], schema=schema)
        kept = builder.again(batch, stored.get("orders"), way)
        nothing = np.zeros(batch.num_rows, np.bool_)
        return cls(kept, places, extent or places.extent(), nothing, nothing.copy(), blocks)


def write_flags(store: BlockStore, stem: str, partnered: Flags, reported: Flags) -> Block:
    return store.write(pa.RecordBatch.from_pydict({"partnered": partnered, "reported": reported}), stem)


def footprint(batch: pa.RecordBatch, *, sorted_rows: bool) -> int:
    """What rows take in memory, as a run of their own."""
    rows: int = batch.num_rows
    return int(batch.nbytes) + rows * (ROW_BYTES + (ORDER_BYTES if sorted_rows else 0))
