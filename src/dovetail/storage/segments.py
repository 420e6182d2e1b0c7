"""Blocks as the durable state of a streaming join: shared by attempts, removed when no manifest can need them.

    <state_dir>/<query>/<join>/<cell>/00000017-l-3f2a….arrow      written while the manifest was at version 16

The manifest is committed with the micro-batch, the segments are not: an attempt that fails leaves segments that no
manifest names, and two attempts at one micro-batch leave two sets of them. Whoever works on version v + 1 knows that
v is committed, and goes by one of its manifests. Another attempt at v may have left another manifest on another
machine, from which Spark may yet try v + 1 again; what that one names is of version v, or named by v - 1. So
everything older than v that neither v nor v - 1 names can go, whatever becomes of v + 1. (Where two attempts succeed
twice in a row, a retry may still miss a segment. It then says so; results are never wrong.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import pyarrow as pa

from dovetail.storage.blocks import Block, BlockStore, PagedBlock
from dovetail.storage.file_system import Place, of
from dovetail.storage.mapped_block import MappedBlock

MOST_MAPPED = 4096  # far below what Linux allows, and enough for hundreds of cells

SWEEPS = 8  # versions after which a store is listed, which costs a request for each cell; a directory always is

_mapped: OrderedDict[tuple[str, str], pa.RecordBatch] = OrderedDict()
"""Segments that this process has mapped, most recently used last. A cache only: cells move between processes."""

_verified: dict[str, set[str]] = {}
"""Segments whose checksum this process has verified, by the place where they are."""


class SegmentStore(BlockStore):
    """`version` is that of the manifest which will name what is written.

    Segments stay mapped where all of them are needed all the time. Where there are more than memory should hold, they
    must not: what is mapped and was read counts as memory in use.
    """

    def __init__(self, directory: Place, version: int, *, stay_mapped: bool = True) -> None:
        super().__init__(of(directory).in_background(), durable=True)
        self._version = version
        self._stay_mapped = stay_mapped

    def open_paged(self, schema: pa.Schema, stem: str) -> PagedBlock:
        return super().open_paged(schema, f"{self._version:08d}-{stem}")

    def settle(self) -> None:
        """Wait until all segments are stored: before a manifest that names them is committed."""
        self.place.settle()

    def remove(self, blocks: Iterable[Block]) -> None:
        """Nothing yet: another attempt may start from a manifest that names them."""

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        place = self.place.key
        if (place, block.name) in _mapped:
            _mapped.move_to_end((place, block.name))
            return _mapped[place, block.name]
        batch = super().read(block, verify=block.name not in self._verified)
        self._verified.add(block.name)
        if self._stay_mapped:
            _mapped[place, block.name] = batch
            while len(_mapped) > MOST_MAPPED:
                _mapped.popitem(last=False)
        return batch

    def map(self, block: Block, *, verify: bool = False) -> MappedBlock:
        mapped = super().map(block, verify=block.name not in self._verified)
        self._verified.add(block.name)
        return mapped

    @property
    def _verified(self) -> set[str]:
        """Segments of this place."""
        return _verified.setdefault(self.place.key, set())

    def sweep(self, committed: int, named: Iterable[str]) -> int:
        """Remove segments older than the committed version that are not named; return how many."""
        place, keep = self.place, set(named)
        unneeded: list[str] = []
        if place.path is not None or committed % SWEEPS == 0:
            for entry in place.entries():
                version, _, _ = entry.name.partition("-")
                if entry.name not in keep and version.isdigit() and int(version) < committed:
                    unneeded.append(entry.name)
            place.delete(unneeded)
        verified = self._verified
        for name in verified - keep:
            verified.remove(name)
            _mapped.pop((place.key, name), None)  # a deleted file takes up space for as long as it is mapped
        return len(unneeded)
