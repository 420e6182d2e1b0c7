"""Segments: blocks that are the durable state of a streaming join. Attempts share them, and they are removed when no
manifest can need them.

    <state_dir>/<query>/<join>/<cell>/00000017-l-3f2a….arrow      written while the manifest was at version 16

The manifest is committed with the micro-batch, the segments are not: a failed attempt leaves segments that no manifest
names, and two attempts at one micro-batch leave two sets of them. Work on version v + 1 begins when v is committed, and
starts from one of its manifests. Another attempt at v may have left another manifest on another machine, from which
Spark may still retry v + 1. Its segments are of version v, or named by v - 1. So segments older than v that neither v
nor v - 1 names can be removed, even if v + 1 fails. (If two attempts succeed twice in a row, a retry may still miss a
segment. It then raises an error; results are never wrong, since all attempts emit the same rows.)
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property

import pyarrow as pa

from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.store import Store

MOST_MAPPED = 4096  # far below Linux's limit, and enough for hundreds of cells

SEGMENT = re.compile(r"([0-9]{8,})-.+-[0-9a-f]{12}\.(?:arrow|tmp)", re.DOTALL)
"""Names of segments, finished or not."""

SWEEPS = 8  # versions between listings of a store, which cost one request per cell; a directory is listed every time

_mapped: OrderedDict[tuple[str, str], pa.RecordBatch] = OrderedDict()
"""Segments that this process has mapped, most recently used last. Only a cache: cells move between processes."""

_made: OrderedDict[tuple[str, ...], object] = OrderedDict()
"""Objects derived from mapped segments, by place and names."""

_verified: dict[str, dict[str, object]] = {}
"""Segments whose checksum this process has verified, with their stamps at that time, by place."""


class SegmentStore(BlockStore):
    """`version` is that of the manifest that will name the new segments.

    Segments stay mapped if all of them are needed all the time. If there are more than memory should hold, they are not
    kept mapped: pages that were read count as memory in use.

    A segment's checksum is compared when a process opens it for the first time, and again if the file has been written
    to, since a mapped file shows its current content. Comparing it in every micro-batch would read the whole state each
    time.
    """

    def __init__(self, directory: Place, version: int, *, stay_mapped: bool = True) -> None:
        super().__init__(open_store(directory).in_background(), durable=True)
        self._version = version
        self._stay_mapped = stay_mapped

    @cached_property
    def place(self) -> Store:
        """Cached: a store of segments lives for one micro-batch and uses its place often."""
        return super().place

    @cached_property
    def _key(self) -> str:
        return self.place.key

    def _name(self, stem: str) -> str:
        return super()._name(f"{self._version:08d}-{stem}")

    def flush(self) -> None:
        """Wait until all segments are stored. Called before a manifest that names them is committed."""
        self.place.flush()

    def remove(self, blocks: Iterable[Block]) -> None:
        """Keep them for now: another attempt may start from a manifest that names them."""

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        key = (self._key, block.name)
        if key in _mapped and self._is_verified(block):
            _mapped.move_to_end(key)
            return _mapped[key]
        batch = super().read(block)
        if self._stay_mapped:
            _mapped[key] = batch
            while len(_mapped) > MOST_MAPPED:
                _mapped.popitem(last=False)
        return batch

    def _open_file(self, block: Block, verify: bool, *, mapped: bool) -> pa.NativeFile:
        """All reads of a segment go through here, and are always verified."""
        is_verified = self._is_verified(block)
        stamp = self._stamp(block)  # taken before reading: a write in the meantime changes it
        file = super()._open_file(block, not is_verified, mapped=mapped)
        self._verified[block.name] = stamp
        return file

    def _is_verified(self, block: Block) -> bool:
        """Whether it is unchanged since its checksum was compared."""
        return block.name in self._verified and self._verified[block.name] == self._stamp(block)

    def _stamp(self, block: Block) -> object:
        try:
            return self.place.stamps([block.name])[0]
        except FileNotFoundError as error:
            raise self._missing(block) from error

    def keep_made(self, names: Sequence[str], made: object) -> None:
        if self._stay_mapped:
            _made[self._key, *names] = made
            while len(_made) > MOST_MAPPED:
                _made.popitem(last=False)

    def find_made(self, names: Sequence[str]) -> object | None:
        key = (self._key, *names)
        if key not in _made or not all(name in self._verified for name in names):
            return None
        try:
            stamps = self.place.stamps(names)
        except FileNotFoundError:
            return None
        if stamps != [self._verified[name] for name in names]:
            return None
        _made.move_to_end(key)
        return _made[key]

    @cached_property
    def _verified(self) -> dict[str, object]:
        """The verified segments of this place."""
        return _verified.setdefault(self._key, {})

    def sweep(self, committed: int, named: Iterable[str]) -> int:
        """Remove segments older than the committed version that are not named. Returns their number."""
        place, keep = self.place, set(named)
        unneeded: list[str] = []
        if place.path is not None or committed % SWEEPS == 0:
            for entry in place.entries():
                found = SEGMENT.fullmatch(entry.name)
                if found is not None and entry.name not in keep and int(found[1]) < committed:
                    unneeded.append(entry.name)
            place.delete(unneeded)
        verified = self._verified
        for name in verified.keys() - keep:
            del verified[name]
            _mapped.pop((self._key, name), None)  # a deleted file takes up space while it is mapped
        for key in [key for key in _made if key[0] == self._key and not keep.issuperset(key[1:])]:
            del _made[key]
        return len(unneeded)
