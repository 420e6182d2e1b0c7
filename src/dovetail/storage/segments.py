"""Blocks as the durable state of a streaming join: shared by attempts, removed when no manifest can need them.

    <state_dir>/<query>/<join>/<cell>/00000017-l-3f2a….arrow      written while the manifest was at version 16

The manifest is committed with the micro-batch, the segments are not: an attempt that fails leaves segments that no
manifest names, and two attempts at one micro-batch leave two sets of them. Work on version v + 1 begins when
v is committed, and goes by one of its manifests. Another attempt at v may have left another manifest on another
machine, from which Spark may yet try v + 1 again; what that one names is of version v, or named by v - 1. So
everything older than v that neither v nor v - 1 names can go, also if v + 1 fails. (Where two attempts succeed
twice in a row, a retry may still miss a segment. It then says so; results are never wrong.)
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

MOST_MAPPED = 4096  # far below what Linux allows, and enough for hundreds of cells

SEGMENT = re.compile(r"([0-9]{8,})-.+-[0-9a-f]{12}\.(?:arrow|tmp)", re.DOTALL)
"""Names of segments, and of those that an attempt has not finished."""

SWEEPS = 8  # versions after which a store is listed, which costs a request for each cell; a directory always is

_mapped: OrderedDict[tuple[str, str], pa.RecordBatch] = OrderedDict()
"""Segments that this process has mapped, most recently used last. A cache only: cells move between processes."""

_made: OrderedDict[tuple[str, ...], object] = OrderedDict()
"""What is made of segments that are mapped, by their place and names."""

_verified: dict[str, dict[str, object]] = {}
"""Segments whose checksum this process has verified, by the place where they are, and their stamps then."""


class SegmentStore(BlockStore):
    """`version` is that of the manifest which will name what is written.

    Segments stay mapped where all of them are needed all the time. Where there are more than memory should hold, they
    must not: what is mapped and was read counts as memory in use.

    The checksum of a segment is compared when a process opens it for the first time, and again when the file has
    been written to: a mapped file shows what is in it now. To compare it in every micro-batch would read all there
    is, again and again.
    """

    def __init__(self, directory: Place, version: int, *, stay_mapped: bool = True) -> None:
        super().__init__(open_store(directory).in_background(), durable=True)
        self._version = version
        self._stay_mapped = stay_mapped

    @cached_property
    def place(self) -> Store:
        """Prepared once: a store of segments lives for a micro-batch, and asks for its place all the time."""
        return super().place

    @cached_property
    def _key(self) -> str:
        return self.place.key

    def _name(self, stem: str) -> str:
        return super()._name(f"{self._version:08d}-{stem}")

    def flush(self) -> None:
        """Wait until all segments are stored: before a manifest that names them is committed."""
        self.place.flush()

    def remove(self, blocks: Iterable[Block]) -> None:
        """Nothing yet: another attempt may start from a manifest that names them."""

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
        """All that is read of a segment goes through here, and is verified whether it was asked for or not."""
        is_verified = self._is_verified(block)
        stamp = self._stamp(block)  # before it is read: what is written meanwhile makes another
        file = super()._open_file(block, not is_verified, mapped=mapped)
        self._verified[block.name] = stamp
        return file

    def _is_verified(self, block: Block) -> bool:
        """Whether it is as it was when its checksum was compared."""
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
        """Segments of this place."""
        return _verified.setdefault(self._key, {})

    def sweep(self, committed: int, named: Iterable[str]) -> int:
        """Remove segments older than the committed version that are not named; return how many."""
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
            _mapped.pop((self._key, name), None)  # a deleted file takes up space for as long as it is mapped
        for key in [key for key in _made if key[0] == self._key and not keep.issuperset(key[1:])]:
            del _made[key]
        return len(unneeded)
