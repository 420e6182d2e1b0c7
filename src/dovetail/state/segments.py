"""Blocks as the durable state of a streaming join: shared by attempts, swept when nobody can need them.

    <state_dir>/<query>/<cell>/00000017-l-3f2a….arrow      written while the manifest was at version 16

The manifest is committed with the micro-batch, the segments are not: an attempt that fails leaves segments that no
manifest names. Whoever works on version v + 1 knows that v is committed, so everything of version v or older that
neither manifest v nor its predecessor names can go. (The predecessor's are kept for readers that are still about.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from dovetail.state.blocks import Block, BlockStore

MOST_MAPPED = 512

_mapped: OrderedDict[Path, pa.RecordBatch] = OrderedDict()
"""Segments that this process has mapped, latest used last. Only an accelerator: cells move between processes."""


class SegmentStore(BlockStore):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durable=True)

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        path = self.directory / block.name
        if path not in _mapped:
            _mapped[path] = super().read(block, verify=True)
            while len(_mapped) > MOST_MAPPED:
                _mapped.popitem(last=False)
        _mapped.move_to_end(path)
        return _mapped[path]

    def sweep(self, committed: int, named: Iterable[str]) -> int:
        """Remove files of committed versions that no manifest names; return how many."""
        keep = set(named)
        swept = 0
        for path in self.directory.iterdir():
            version, _, _ = path.name.partition("-")
            if path.name not in keep and version.isdigit() and int(version) <= committed:
                path.unlink(missing_ok=True)
                _mapped.pop(path, None)
                swept += 1
        return swept
