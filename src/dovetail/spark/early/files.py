"""Files of a progressive join. The driver reads and writes them; tasks do it if only the workers can access them.

A task costs more than a small file. So tasks fetch pages of many blocks at once, and small changes (records of emitted
results, removal of blocks) wait for the next task or for the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from dovetail.spark.exchange.packing import from_bytes, to_bytes
from dovetail.spark.session.shared_directory import SharedDirectory
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.owned_place import give_up, owned_place
from dovetail.storage.store import Store

FETCHED_BYTES = 1 << 24  # per task

T = TypeVar("T")


class BlockPages(NamedTuple):
    """The pages of a block, from a given page on."""

    owner: int  # who requested them
    block: Block
    first: int


def new_directory(shared: SharedDirectory, stem: str) -> SharedDirectory:
    """A directory inside it that is removed at the end; if this process is killed, only if it could access it."""
    if shared.is_seen:
        return replace(shared, place=owned_place(shared.place, stem, private=True))
    place = shared.place / f"{stem}-{uuid.uuid4().hex}"
    if place.path is not None:
        shared.run(partial(place.path.mkdir, mode=0o700))
    return replace(shared, place=place)


class WaveFiles:
    def __init__(self, shared: SharedDirectory) -> None:
        self.directory = shared.place
        self._shared = shared
        self._store = BlockStore(shared.place)
        self._waiting: dict[str, str] = {}  # documents not written yet
        self._unneeded: list[Block] = []

    def read(self, name: str) -> str | None:
        return self._run(partial(_read, self.directory, name))

    def replace(self, name: str, text: str, *, soon: bool = False) -> None:
        """Replace a document atomically. `soon`: it may wait, if writing it takes a task."""
        self._waiting[name] = text
        if self._shared.is_seen or not soon:
            self.flush()

    def pages(self, wanted: Sequence[BlockPages]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The pages one by one, each with its owner."""
        if self._shared.is_seen:
            for owner, block, first in wanted:
                for page in range(first, self._store.pages(block)):
                    yield owner, self._store.read_pages(block, page, page + 1)[0]
            return
        while wanted:
            found, wanted = self._run(partial(_fetch, self.directory, wanted))
            for owner, payload in found:
                yield owner, from_bytes(payload)

    def remove(self, block: Block) -> None:
        if self._shared.is_seen:
            self._store.remove([block])
        else:
            self._unneeded.append(block)

    def remove_all(self) -> None:
        if not give_up(self.directory):
            self._shared.run(self.directory.delete_all)

    def flush(self) -> None:
        """Do the pending work."""
        if self._waiting or self._unneeded:
            self._run(_nothing)

    def _run(self, function: Callable[[], T]) -> T:
        if not self._waiting and not self._unneeded:
            return self._shared.run(function)
        answer = self._shared.run(partial(_sync_then, self.directory, self._waiting, self._unneeded, function))
        self._waiting, self._unneeded = {}, []
        return answer


def _sync_then(
    directory: Store, documents: Mapping[str, str], unneeded: Sequence[Block], function: Callable[[], T]
) -> T:
    for name, text in documents.items():
        directory.put(name, text.encode())
    BlockStore(directory).remove(unneeded)
    return function()


def _nothing() -> None:
    """Only does the pending work."""


def _read(directory: Store, name: str) -> str | None:
    found = directory.get(name)
    return None if found is None else found.decode()


def _fetch(directory: Store, wanted: Sequence[BlockPages]) -> tuple[list[tuple[int, bytes]], list[BlockPages]]:
    """Some pages, and those that are still to be fetched."""
    store, size = BlockStore(directory), 0
    found: list[tuple[int, bytes]] = []
    for number, (owner, block, first) in enumerate(wanted):
        for page in range(first, store.pages(block)):
            if size >= FETCHED_BYTES:
                return found, [BlockPages(owner, block, page), *wanted[number + 1 :]]
            payload = to_bytes(store.read_pages(block, page, page + 1)[0]).to_pybytes()
            found.append((owner, payload))
            size += len(payload)
    return found, []
