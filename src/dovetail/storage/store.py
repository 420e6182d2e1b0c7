"""What a store must do. A put publishes an object whole, under a name that no other writer uses. What was put can be
read, listed and deleted. There is no rename, no append, and no order of a listing. Documents that are replaced, such as
a copy of a manifest, are for inspection only.
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

CHECKED_BYTES = 1 << 20  # at a time

FileSystem = Any
"""A file system of pyarrow.fs, which has no types."""
Opener = Callable[[str], tuple[FileSystem, str]]
"""From a URI to a file system of pyarrow, and the path in it."""


class DamagedError(Exception):
    """What is stored is not what was written."""


class Entry(NamedTuple):
    """An object in a listing."""

    name: str  # below the store; with slashes, if the listing is recursive
    nbytes: int
    written: float  # seconds since the epoch


class OpenedParts(NamedTuple):
    """An object that is read in parts, and what a listing has of it."""

    entry: Entry
    file: pa.NativeFile


class Store(ABC):
    """Objects by name, below one place."""

    def __str__(self) -> str:
        """For people: without what may be secret."""
        return redacted(self.uri)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    @property
    @abstractmethod
    def uri(self) -> str:
        """As it was given, with whatever is in it: not to be printed."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Tells it from other stores."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of where it is."""

    @property
    @abstractmethod
    def parent(self) -> Store: ...

    @abstractmethod
    def __truediv__(self, name: str) -> Store: ...

    @property
    def path(self) -> Path | None:
        """Its directory, if it is one."""
        return None

    @abstractmethod
    def prepare(self) -> None:
        """Make sure that objects can be put there; what is not made by the first of them, is made now."""

    @abstractmethod
    def create(self, name: str, *, durable: bool = False, keep: bool = True) -> Upload:
        """An object to be written piece by piece; `keep`: this machine will read it again."""

    @abstractmethod
    def in_background(self) -> Store:
        """The same store, which may publish what is created by it while other work goes on, until `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until all is published that was to be published in the background."""

    @abstractmethod
    def open(self, name: str, nbytes: int, checksum: int | None, *, mapped: bool) -> pa.NativeFile:
        """An object as a file on this machine. It has this length and checksum, or that is a DamagedError.

        A checksum of None is not compared where that has a price. A missing object is a FileNotFoundError.
        """

    @abstractmethod
    def open_parts(self, name: str) -> OpenedParts:
        """An object of another writer, to be read in parts where it is. A missing one is a FileNotFoundError."""

    @abstractmethod
    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Publish a small object, whole or not at all; one of the same name is replaced."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """A small object; None if there is none."""

    @abstractmethod
    def find(self, name: str) -> Entry | None:
        """What a listing has of an object; None if there is none."""

    def stamps(self, names: Iterable[str]) -> list[object]:
        """One for each published object, another one when it has been written to; a missing one is a FileNotFoundError.

        None where that cannot be told: objects of a store are read from copies on this machine.
        """
        return [None for _ in names]

    def exists(self, name: str) -> bool:
        return self.find(name) is not None

    @abstractmethod
    def entries(self, *, recursive: bool = False) -> Iterator[Entry]:
        """The objects, in no order; nothing, if there are none."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names below which there are objects."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Those that are still there."""

    @abstractmethod
    def delete_all(self) -> None:
        """Everything below."""

    @abstractmethod
    def publish(self, name: str, to: Store) -> None:
        """Give an object to a store of the same file system, under the same name. It may stay here, too."""


class CheckedFile(io.FileIO):
    """A file that knows the size and the checksum of what was written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb")  # new: what is there already, or a link, is another user's
        self.size = self.checksum = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.checksum = zlib.crc32(view, self.checksum)
        self.size += view.nbytes
        done = 0
        while done < view.nbytes:  # the system may take less than it is given
            done += super().write(view[done:])
        return view.nbytes


class Upload(CheckedFile):
    """An object that is being written, as a file of this machine. A block that is left without an error publishes."""

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.publish()
        else:
            self.close()
            self.discard()

    def publish(self) -> None:
        """Give it its name."""
        raise NotImplementedError

    def discard(self) -> None:
        """Leave nothing."""
        raise NotImplementedError


def open_file(path: Path, *, mapped: bool) -> pa.NativeFile:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise DamagedError("it is no regular file")
    try:
        return pa.memory_map(str(path)) if mapped else pa.OSFile(str(path))
    except pa.ArrowInvalid as error:  # an empty file
        raise DamagedError(str(error)) from error


def check_file(file: pa.NativeFile, nbytes: int, checksum: int | None) -> None:
    """See that a file has the length and, if it is given, the checksum; it is then read from its start."""
    if file.size() != nbytes or (checksum is not None and _checksum(file) != checksum):
        raise DamagedError("its checksum does not match")
    file.seek(0)


def _checksum(file: pa.NativeFile) -> int:
    """The checksum of the whole file, read in pieces: it may be larger than memory."""
    checksum = 0
    while len(piece := file.read_buffer(CHECKED_BYTES)):
        checksum = zlib.crc32(piece, checksum)
    return checksum
