"""The interface of a store. A put publishes an object atomically, under a name that no other writer uses. Objects
can be read, listed and deleted. There is no rename, no append, and listings have no order. Objects that are
replaced, such as the copy of a manifest, are for inspection only.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.core.addresses import redacted

CHECKED_BYTES = 1 << 20  # read at a time

FileSystem = Any
"""A file system of pyarrow.fs, which is untyped."""
Opener = Callable[[str], tuple[FileSystem, str]]
"""Turns a URI into a pyarrow file system and the path in it."""


class DamagedError(Exception):
    """An object differs from what was written."""


class Entry(NamedTuple):
    """An object in a listing."""

    name: str  # relative to the store; with slashes, if the listing is recursive
    nbytes: int
    written: float  # seconds since the epoch


class OpenedParts(NamedTuple):
    """An object that is read in parts, and its entry in a listing."""

    entry: Entry
    file: pa.NativeFile


class Store(ABC):
    """Objects by name, under one prefix."""

    def __str__(self) -> str:
        """For messages: without secrets."""
        return redacted(self.uri)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    @property
    @abstractmethod
    def uri(self) -> str:
        """The URI as it was given, including secrets: not to be printed."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Identifies the store."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of its path."""

    @property
    @abstractmethod
    def parent(self) -> Store: ...

    @abstractmethod
    def __truediv__(self, name: str) -> Store: ...

    @property
    def path(self) -> Path | None:
        """Its directory, if it is a directory."""
        return None

    @abstractmethod
    def prepare(self) -> None:
        """Make sure that objects can be put there: create what the first put would not create."""

    @abstractmethod
    def create(self, name: str, *, durable: bool = False, keep: bool = True) -> Upload:
        """An object to be written piece by piece. `keep`: this machine will read it again."""

    @abstractmethod
    def in_background(self) -> Store:
        """The same store, but objects may be published in the background until `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Wait for all uploads in the background."""

    @abstractmethod
    def open(self, name: str, nbytes: int, checksum: int | None, *, mapped: bool) -> pa.NativeFile:
        """Open an object as a local file. Raises DamagedError if length or checksum differ.

        If `checksum` is None, it is compared only where that is free. A missing object raises FileNotFoundError.
        """

    @abstractmethod
    def open_parts(self, name: str) -> OpenedParts:
        """Open an object of another writer, to be read in parts in place. A missing one raises FileNotFoundError."""

    @abstractmethod
    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Publish a small object atomically. It replaces one of the same name."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """Read a small object. None if there is none."""

    @abstractmethod
    def find(self, name: str) -> Entry | None:
        """An object's entry in a listing. None if there is none."""

    def stamps(self, names: Iterable[str]) -> list[object]:
        """A stamp for each published object, which changes when it is written to. A missing one raises
        FileNotFoundError.

        None if unknown: objects of a store are read from local copies.
        """
        return [None for _ in names]

    def exists(self, name: str) -> bool:
        return self.find(name) is not None

    @abstractmethod
    def entries(self, *, recursive: bool = False) -> Iterator[Entry]:
        """The objects, in no particular order. Empty if there are none."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names of prefixes that contain objects."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete those that still exist."""

    @abstractmethod
    def delete_all(self) -> None:
        """Delete everything under the prefix."""

    @abstractmethod
    def publish(self, name: str, to: Store) -> None:
        """Move or copy an object to a store of the same file system, under the same name."""


class CheckedFile(io.FileIO):
    """A file that tracks the size and checksum of what was written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb")  # exclusive: an existing file or link belongs to another user
        self.size = self.checksum = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.checksum = zlib.crc32(view, self.checksum)
        self.size += view.nbytes
        done = 0
        while done < view.nbytes:  # the system may write fewer bytes than requested
            done += super().write(view[done:])
        return view.nbytes


class Upload(CheckedFile):
    """An object being written, as a local file. As a context manager, it publishes on success."""

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.publish()
        else:
            self.close()
            self.discard()

    def publish(self) -> None:
        """Give it its final name."""
        raise NotImplementedError

    def discard(self) -> None:
        """Remove it without publishing."""
        raise NotImplementedError


def open_file(path: Path, nbytes: int, checksum: int | None, *, mapped: bool) -> pa.NativeFile:
    """Open a file of this length and, if given, this checksum.

    The checksum is compared before the file is mapped: mapped pages that were read count as memory of the process.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError("it is no regular file")
    if status.st_size != nbytes or (checksum is not None and _checksum(path) != checksum):
        raise DamagedError("its checksum does not match")
    return pa.memory_map(str(path)) if mapped else pa.OSFile(str(path))


def _checksum(path: Path) -> int:
    """The checksum of a file, read in pieces since it may be larger than memory."""
    checksum = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(CHECKED_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum
