"""A run: consecutive rows of one side, sorted; in memory, or on disk.

A run in memory may be mapped from the blocks that store it:

rows      the columns of the rows, and their positions in the window
orders    the sort orders: codes and permutations, which probes read without touching the rows themselves
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import put_together
from dovetail.matching.sorted_part import PartBuilder, SortedPart, Zone
from dovetail.matching.window_positions import COLUMNS, Extent, Flags, WindowPositions
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.mapped_block import MappedBlock

Bits = NDArray[np.uint8]

ROW_BYTES = 8 * len(COLUMNS) + 2 + 8  # in addition to its columns: positions, flags, number
ORDER_BYTES = 2 * 8 + 4 * 4  # two codes, its position in both orders, and a permutation from each order to the other
NUMBER_BYTES = 8
EXTENT_NUMBERS = 6
NO_FLAGS = np.empty(0, np.bool_)


@dataclass(slots=True, eq=False)
class Run:
    kept: SortedPart
    places: WindowPositions
    extent: Extent
    partnered: Flags  # if partners are tracked
    reported: Flags  # rows whose outcome is final
    blocks: dict[str, Block] = field(default_factory=dict)  # stored copies: rows, orders
    flags_block: Block | None = None  # stored flags, as of the last write
    _flags_then: bytes = b""
    rows: int = field(init=False)
    nbytes: int = field(init=False)  # in memory

    def __post_init__(self) -> None:
        self.rows = self.kept.batch.num_rows
        self.nbytes = footprint(self.kept.batch, sorted_rows=self.kept.part is not None)

    def write(self, store: BlockStore, stem: str) -> dict[str, Block]:
        """Write rows and orders as blocks, once."""
        if not self.blocks:
            batch = self.kept.batch
            for name, column in zip(COLUMNS, self.places, strict=True):
                batch = batch.append_column(name, pa.array(column))
            self.blocks = {"rows": store.write(batch, stem)}
            if (orders := self.kept.orders) is not None:
                self.blocks["orders"] = store.write(orders, stem)
        return self.blocks

    def write_flags(self, store: BlockStore, stem: str) -> Block:
        """Write the flags as a block, if they have changed."""
        now = self._flags()
        if self.flags_block is None or now != self._flags_then:
            self.flags_block, self._flags_then = write_flags(store, stem, self.partnered, self.reported), now
        return self.flags_block

    def take_flags(self, partnered: Flags, reported: Flags, block: Block | None) -> None:
        """Restore what `write_flags` wrote."""
        self.partnered, self.reported, self.flags_block = partnered, reported, block
        self._flags_then = self._flags()

    def clear_flags(self) -> None:
        """Reset the flags, and forget their stored copy."""
        self.partnered, self.reported = np.zeros(self.rows, np.bool_), np.zeros(self.rows, np.bool_)
        self.flags_block, self._flags_then = None, b""

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
        """Restore a written run, without flags."""
        columns = stored["rows"].columns
        width = len(columns) - len(COLUMNS)
        places = WindowPositions(*map(np.asarray, columns[width:]))
        batch = put_together(columns[:width], schema, stored["rows"].num_rows)
        kept = builder.again(batch, stored.get("orders"), way)
        nothing = np.zeros(batch.num_rows, np.bool_)
        return cls(kept, places, extent or places.extent(), nothing, nothing.copy(), blocks)


def write_flags(store: BlockStore, stem: str, partnered: Flags, reported: Flags) -> Block:
    return store.write(pa.RecordBatch.from_pydict({"partnered": partnered, "reported": reported}), stem)


def footprint(batch: pa.RecordBatch, *, sorted_rows: bool) -> int:
    """The memory that these rows take as a run."""
    rows: int = batch.num_rows
    return int(batch.nbytes) + rows * (ROW_BYTES + (ORDER_BYTES if sorted_rows else 0))


class SpilledPart:
    """A run on disk: its zone map and extent in memory, and how it is loaded for a batch of probes.

        in memory    extent of its positions, zone of its keys, two bits per row if partners are tracked
        on disk      rows, orders            immutable, named once, also by snapshots

    A part that no probe can match is not read. One that has expired is removed without being read, unless its left rows
    without a partner have to be emitted.
    """

    def __init__(
        self, blocks: dict[str, Block], way: int, extent: Extent, zone: Zone | None, run_bytes: int, *, verify: bool
    ) -> None:
        self.blocks = blocks
        self.extent = extent
        self.zone = zone
        self.way = way
        self._run_bytes = run_bytes
        self._verify = verify  # at the first read
        self._partnered: Bits | None = None  # None: nothing to record
        self._reported: Bits | None = None
        self.flags_block: Block | None = None  # written by a snapshot, and still valid
        self.has_open_rows = True  # rows without a partner whose outcome is not final
        self._mapped: dict[str, MappedBlock] = {}
        self._run: Run | None = None  # built on the mapped blocks

    @classmethod
    def spill(cls, run: Run, store: BlockStore, stem: str, zone: Zone | None, *, tracked: bool) -> SpilledPart:
        """Write a run, unless a snapshot has already written it."""
        part = cls(run.write(store, stem), run.kept.way, run.extent, zone, run.nbytes, verify=False)
        if tracked:
            part.take_flags(run.partnered, run.reported)
        return part

    @property
    def rows(self) -> int:
        return self.blocks["rows"].rows

    @property
    def all_blocks(self) -> list[Block]:
        """All its files."""
        return [*self.blocks.values(), *([] if self.flags_block is None else [self.flags_block])]

    @property
    def nbytes(self) -> int:
        """Bytes in memory while it is not loaded."""
        numbers = EXTENT_NUMBERS + 2 * len(self.zone or ())
        flags = sum(bits.nbytes for bits in (self._partnered, self._reported) if bits is not None)
        return numbers * NUMBER_BYTES + flags

    @property
    def run_bytes(self) -> int:
        """Bytes as a run."""
        return self._run_bytes

    @property
    def loaded_bytes(self) -> int:
        """Bytes while probes are joined with it: at the edge of the window, some orders are copied."""
        return self._run_bytes + (ORDER_BYTES * self.rows if "orders" in self.blocks else 0)

    @property
    def spilled_bytes(self) -> int:
        return sum(block.nbytes for block in self.blocks.values())

    def load(self, store: BlockStore, schema: pa.Schema, builder: PartBuilder) -> Run:
        """Map the run. Nothing is read until it is used."""
        if not self._mapped:
            self._mapped = {kind: store.map(block, verify=self._verify) for kind, block in self.blocks.items()}
            self._verify = False
        if self._run is None:
            stored = {kind: mapped.read() for kind, mapped in self._mapped.items()}
            self._run = Run.of_blocks(stored, self.blocks, schema, builder, self.way, self.extent)
        self._run.partnered, self._run.reported = self.flags
        return self._run

    def unload(self, *, stay_mapped: bool) -> None:
        """Release the memory of the loaded run, except its flags."""
        run = self._run
        assert run is not None
        if self._partnered is not None:
            self.take_flags(run.partnered, run.reported)
        run.partnered = run.reported = NO_FLAGS
        for mapped in self._mapped.values():
            mapped.release()
        if not stay_mapped:
            self._mapped = {}
        if not stay_mapped or run.kept.part is None:  # rows that are not sorted have row numbers in memory
            self._run = None

    def _unpack(self, bits: Bits | None) -> Flags:
        if bits is None:
            return np.zeros(self.rows, np.bool_)
        return np.unpackbits(bits, count=self.rows).view(np.bool_)

    def take_flags(self, partnered: Flags, reported: Flags) -> None:
        bits = np.packbits(partnered), np.packbits(reported)
        known = self._partnered is not None and self._reported is not None
        if not known or (bits[0] != self._partnered).any() or (bits[1] != self._reported).any():
            self.flags_block = None
        self._partnered, self._reported = bits
        self.has_open_rows = not (partnered | reported).all()

    @property
    def flags(self) -> tuple[Flags, Flags]:
        """The flags (partnered, reported)."""
        return self._unpack(self._partnered), self._unpack(self._reported)

    def to_json(self) -> dict[str, Any]:
        """Everything but the blocks and the flags."""
        return {"extent": self.extent, "zone": self.zone, "run_bytes": self._run_bytes}

    @classmethod
    def of_json(cls, fields: dict[str, Any], blocks: dict[str, Block], way: int) -> SpilledPart:
        extent = Extent(*((low, high) for low, high in fields["extent"]))
        zone = None if fields["zone"] is None else tuple((low, high) for low, high in fields["zone"])
        return cls(blocks, way, extent, zone, fields["run_bytes"], verify=True)
