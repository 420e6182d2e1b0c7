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

import os
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from dovetail.storage.blocks import Block, BlockStore, PagedBlock
from dovetail.storage.mapped_block import MappedBlock

MOST_MAPPED = 4096  # far below what Linux allows, and enough for hundreds of cells

_mapped: OrderedDict[Path, pa.RecordBatch] = OrderedDict()
"""Segments that this process has mapped, most recently used last. A cache only: cells move between processes."""

_verified: set[Path] = set()
"""Segments whose checksum this process has verified."""


class SegmentStore(BlockStore):
    """`version` is that of the manifest which will name what is written.

    Segments stay mapped where all of them are needed all the time. Where there are more than memory should hold, they
    must not: what is mapped and was read counts as memory in use.
    """

    def __init__(self, directory: Path, version: int, *, stay_mapped: bool = True) -> None:
        super().__init__(directory, durable=True)
        self._version = version
        self._stay_mapped = stay_mapped

    def open_paged(self, schema: pa.Schema, stem: str) -> PagedBlock:
        return super().open_paged(schema, f"{self._version:08d}-{stem}")

    def remove(self, blocks: Iterable[Block]) -> None:
        """Nothing yet: another attempt may start from a manifest that names them."""

    def _record_block(self, name: str, pages: int) -> None:
        super()._record_block(name, pages)
        sync_directory(self.directory)  # the name must be as durable as the bytes: the manifest relies on it

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        path = self.directory / block.name
        if path in _mapped:
            _mapped.move_to_end(path)
            return _mapped[path]
        batch = super().read(block, verify=path not in _verified)
        _verified.add(path)
        if self._stay_mapped:
            _mapped[path] = batch
            while len(_mapped) > MOST_MAPPED:
                _mapped.popitem(last=False)
        return batch

    def map(self, block: Block, *, verify: bool = False) -> MappedBlock:
        path = self.directory / block.name
        mapped = super().map(block, verify=path not in _verified)
        _verified.add(path)
        return mapped

    def sweep(self, committed: int, named: Iterable[str]) -> int:
        """Remove files older than the committed version that are not named; return how many."""
        keep = set(named)
        swept = 0
        for path in self.directory.iterdir():
            version, _, _ = path.name.partition("-")
            if path.name not in keep and version.isdigit() and int(version) < committed:
                path.unlink(missing_ok=True)
                swept += 1
        for path in [p for p in _verified if p.parent == self.directory and p.name not in keep]:
            _verified.remove(path)
            _mapped.pop(path, None)  # a deleted file takes up space for as long as it is mapped
        return swept


def sync_directory(directory: Path) -> None:
    """Make names that were added to a directory survive a loss of power."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
