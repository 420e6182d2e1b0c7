"""Where state, results and copies are kept: a directory, or a prefix of an object store or another file system.

    open_store("/shared/state")       LocalStore     files: written under another name, flushed, renamed, memory-mapped
    open_store("s3://bucket/state")   ObjectStore    objects, by pyarrow.fs; memory-mapped from a cache on the worker

All that a store must do: a put publishes an object whole, under a name that no other writer uses, and what
was put can be read, listed and deleted. There is no rename, no append, no order of a listing. Documents that are
replaced (a copy of a manifest) are for inspection only.

Credentials are the business of the cloud's own configuration, or of the URI. So a URI may have secrets in it: what is
printed is `redacted`, which a store does by itself.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from dovetail.core.addresses import UNQUOTED, parse_address, redacted, scheme_of
from dovetail.errors import InputError, StateError

CHECKED_BYTES = 1 << 20  # at a time

FileSystem = Any
"""A file system of pyarrow.fs, which has no types."""
Opener = Callable[[str], tuple[FileSystem, str]]
"""From a URI to a file system of pyarrow, and the path in it."""

_openers: dict[str, Opener] = {}


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

    def stamp(self, name: str) -> object:
        """Another one when a published object has been written to; a missing one is a FileNotFoundError.

        None where that cannot be told: objects of a store are read from copies on this machine.
        """
        return None

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


class LocalStore(Store):
    """A directory: of this machine, or one that several mount.

    The one that was given may be a link. Those below it are ours: a link in the place of one of them is refused, since
    what is written and removed there would be files of others.
    """

    __slots__ = ("_below", "_path")

    def __init__(self, path: Path, below: int = 0) -> None:
        self._path = path
        self._below = below  # how many of the path's last parts are below the directory that was given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    @property
    def uri(self) -> str:
        return str(self._path)

    def __str__(self) -> str:
        return str(self._path)

    @property
    def key(self) -> str:
        return str(self._path)

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def parent(self) -> LocalStore:
        return LocalStore(self._path.parent, max(0, self._below - 1))

    def __truediv__(self, name: str) -> LocalStore:
        return LocalStore(self._path / name, self._below + len(Path(name).parts))

    @property
    def path(self) -> Path:
        return self._path

    def prepare(self) -> None:
        if not self._path.is_dir():
            try:
                self._path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"cannot create the directory {self._path} for join state: {error.strerror}. "
                    "Give a directory that can be written to."
                ) from error
        if self._below:
            with self._opened():
                pass

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A handle of the directory, which stays the same if another is put in its place."""
        parts = self._path.parts
        above = len(parts) - self._below
        handle = os.open(Path(*parts[:above]), os.O_RDONLY | os.O_DIRECTORY)
        try:
            for number in range(above, len(parts)):
                try:
                    inner = os.open(parts[number], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise
                    raise StateError(
                        f"{Path(*parts[: number + 1])} is a link, or no directory: no join has made it. Nothing was "
                        "done there: look at it, and remove it."
                    ) from error
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def create(self, name: str, *, durable: bool = False, keep: bool = True) -> Upload:
        return _LocalUpload(self._path / name, durable)

    def in_background(self) -> LocalStore:
        return self

    def flush(self) -> None:
        """There is nothing to wait for."""

    def open(self, name: str, nbytes: int, checksum: int | None, *, mapped: bool) -> pa.NativeFile:
        file = open_file(self._path / name, mapped=mapped)
        check_file(file, nbytes, checksum)
        return file

    def open_parts(self, name: str) -> OpenedParts:
        found = self.find(name)
        if found is None:
            raise FileNotFoundError(f"{self._path / name} is missing")
        return OpenedParts(found, pa.OSFile(str(self._path / name)))

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        # Nothing is whole at once; and a reader that lists names, as for reports, must see no other.
        mine = f"{name}-{uuid.uuid4().hex}" if data else name
        try:
            with self._opened() as here:
                try:
                    _write_new(mine, data, here, durable)
                    if data:
                        os.rename(mine, name, src_dir_fd=here, dst_dir_fd=here)
                    if durable:
                        os.fsync(here)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.unlink(mine, dir_fd=here)
                    raise
        except OSError as error:
            raise StateError(f"cannot write join state to {self._path / name}: {error.strerror}.") from error

    def get(self, name: str) -> bytes | None:
        try:
            with open(self._path / name, "rb", opener=_open_regular) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {self._path / name}: {error.strerror}.") from error

    def find(self, name: str) -> Entry | None:
        try:
            status = (self._path / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(name, status.st_size, status.st_mtime)

    def stamp(self, name: str) -> object:
        status = (self._path / name).stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def entries(self, *, recursive: bool = False) -> Iterator[Entry]:
        """Links to directories are listed, and not followed."""
        found: list[Entry] = []
        folders: list[str] = []
        try:
            with self._opened() as here, os.scandir(here) as there:
                for entry in there:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                        continue
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        status = entry.stat(follow_symlinks=False)
                        found.append(Entry(entry.name, status.st_size, status.st_mtime))
        except FileNotFoundError:
            return
        yield from found
        for folder in folders if recursive else ():
            yield from (one._replace(name=f"{folder}/{one.name}") for one in (self / folder).entries(recursive=True))

    def folders(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._path) if entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, names: Iterable[str]) -> None:
        with contextlib.suppress(FileNotFoundError), self._opened() as here:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=here)

    def delete_all(self) -> None:
        if not self._below:
            shutil.rmtree(self._path, ignore_errors=True)
            return
        with contextlib.suppress(FileNotFoundError), self.parent._opened() as above:
            shutil.rmtree(self._path.name, ignore_errors=True, dir_fd=above)

    def publish(self, name: str, to: Store) -> None:
        assert isinstance(to, LocalStore)
        with self._opened() as here, to._opened() as there:
            os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)


class _LocalUpload(Upload):
    def __init__(self, path: Path, durable: bool) -> None:
        self._path, self._unfinished, self._durable = path, path.with_suffix(".tmp"), durable
        super().__init__(self._unfinished)

    def publish(self) -> None:
        self.flush()
        if self._durable:
            os.fsync(self.fileno())
        self.close()
        os.rename(self._unfinished, self._path)
        if self._durable:
            sync_directory(self._path.parent)

    def discard(self) -> None:
        self._unfinished.unlink(missing_ok=True)


def _write_new(name: str, data: bytes, here: int, durable: bool) -> None:
    """Write a file of that name, which is new. An empty one may be there; anything else there is replaced by one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        handle = os.open(name, flags, 0o666, dir_fd=here)
    except FileExistsError:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and found.st_size == 0:
            return
        os.unlink(name, dir_fd=here)
        handle = os.open(name, flags, 0o666, dir_fd=here)
    with open(handle, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _open_regular(path: str, flags: int) -> int:
    """A FIFO would block, and another user may have put one there."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return handle


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


def sync_directory(directory: Path) -> None:
    """Make names that were added to a directory survive a loss of power."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


Place = str | os.PathLike[str] | Store
"""A path, a URI, or a store."""


def open_store(place: Place) -> Store:
    """The store at a path or URI."""
    if isinstance(place, Store):
        return place
    location = os.fspath(place)
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        return LocalStore(Path(urlsplit(location).path if scheme else location).absolute())
    if scheme not in _openers and parse_address(location) is None:
        raise InputError(f"{redacted(location)}: this address cannot be read. {UNQUOTED}")
    from dovetail.storage.object_store import ObjectStore, opener  # pyarrow.fs takes a while to load

    return ObjectStore(location, _openers.get(scheme) or opener(scheme, location))


of = open_store  # as dovetail.spark calls it


def is_local(place: Place) -> bool:
    """Whether it is a path in the file system of a machine."""
    return isinstance(place, LocalStore) or (not isinstance(place, Store) and scheme_of(place) in ("", "file"))


def register_file_system(scheme: str, open_uri: Opener) -> None:
    """Let URIs of a scheme be opened by a function. It travels to the workers with the join."""
    _openers[scheme.lower()] = open_uri


def opener_of(location: str) -> Opener | None:
    """What was registered for the scheme of a URI."""
    return _openers.get(scheme_of(location))
