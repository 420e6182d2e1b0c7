"""A directory as a store: files are written under a temporary name, flushed and renamed, and read by mmap."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from dovetail.errors import InputError, StateError
from dovetail.storage.store import Entry, OpenedParts, Store, Upload, open_file


class LocalStore(Store):
    """A directory on this machine, or one that several machines mount.

    The given directory may be a link. Directories below it are ours, so a link in place of one is refused: files of
    others would be overwritten and removed.
    """

    __slots__ = ("_below", "_path")

    def __init__(self, path: Path, below: int = 0) -> None:
        self._path = path
        self._below = below  # how many of the path's last parts are below the given directory

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
        """A handle of the directory, which stays the same if another directory replaces it."""
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
                        f"{Path(*parts[: number + 1])} is a link or not a directory, so no join made it. Nothing was "
                        "changed there. Look at it, then remove it."
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
        """Nothing to wait for."""

    def open(self, name: str, nbytes: int, checksum: int | None, *, mapped: bool) -> pa.NativeFile:
        return open_file(self._path / name, nbytes, checksum, mapped=mapped)

    def open_parts(self, name: str) -> OpenedParts:
        found = self.find(name)
        if found is None:
            raise FileNotFoundError(f"{self._path / name} is missing")
        return OpenedParts(found, pa.OSFile(str(self._path / name)))

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        # A write is not atomic, and readers that list names, as for reports, must not see an unfinished file.
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

    def stamps(self, names: Iterable[str]) -> list[object]:
        found = [os.stat(f"{self._path}/{name}") for name in names]
        return [(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) for status in found]

    def entries(self, *, recursive: bool = False) -> Iterator[Entry]:
        """Links to directories are listed, but not followed."""
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
            return iter(())
        for folder in folders if recursive else ():
            found += (one._replace(name=f"{folder}/{one.name}") for one in (self / folder).entries(recursive=True))
        return iter(found)

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
    """Write a new file of that name. An empty file of that name is left as it is; anything else is replaced."""
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
    """Opening a FIFO would block, and another user may have put one there."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return handle


def sync_directory(directory: Path) -> None:
    """Make new names in a directory survive a power loss."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
