"""Caches objects of a store as local files: downloaded once, memory-mapped, evicted by least recent use.

All workers of a machine share a directory that only this user can enter. An entry is named by a hash of the object's
name, which is never reused, and appears complete or not at all. Each process compares length and checksum before its
first read; a damaged entry is downloaded again. An entry that is removed while a process has it mapped stays readable.
Objects that a worker writes to a store become entries, so they are not downloaded again.

The size is checked when a process has added a part of the limit, so the limit may be exceeded for a moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from dovetail.core.directories import private_directory
from dovetail.errors import StateError
from dovetail.storage.budget import parse_bytes
from dovetail.storage.store import CheckedFile, DamagedError, open_file

DIRECTORY, LIMIT = "DOVETAIL_CACHE_DIR", "DOVETAIL_CACHE_SIZE"
DEFAULT_LIMIT = "10GB"
SCANS = 16  # scans while as many bytes are added as the limit
MOST_CHECKED = 1 << 16  # names of entries that a process remembers as verified
LOCK = "lock"
UNFINISHED = "unfinished-"
OURS = re.compile(rf"[0-9a-f]{{64}}|{UNFINISHED}[0-9a-f]{{32}}")
FORGOTTEN_S = 24 * 3600.0  # an unfinished file this old belongs to a process that was killed

Fetch = Callable[[BinaryIO], None]
"""Writes the content of an object to a file."""


class LocalCache:
    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = private_directory(directory)
        self.limit_bytes = limit_bytes
        self._added = limit_bytes  # since the last scan of all entries; the first scan comes soon
        self._checked: set[str] = set()

    def open(self, key: str, nbytes: int, checksum: int, fetch: Fetch, *, mapped: bool) -> pa.NativeFile:
        """Open an object, from its entry if there is one."""
        path = self._entry(key)
        with contextlib.suppress(FileNotFoundError, DamagedError):
            file = open_file(path, nbytes, None if key in self._checked else checksum, mapped=mapped)
            os.utime(path)
            self._remember(key)
            return file
        unfinished = self.unfinished()
        try:
            with CheckedFile(unfinished) as file:
                fetch(file)
            if (file.size, file.checksum) != (nbytes, checksum):
                raise DamagedError("its checksum does not match")
            opened = open_file(unfinished, nbytes, None, mapped=mapped)
            self.keep(key, unfinished, nbytes)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and unfinished.exists():
                raise  # an error of the object
            raise self.error(error) from error
        finally:
            unfinished.unlink(missing_ok=True)
        return opened

    def unfinished(self) -> Path:
        """A path for a file that may become an entry."""
        return self.directory / f"{UNFINISHED}{uuid.uuid4().hex}"

    def keep(self, key: str, path: Path, nbytes: int) -> None:
        """Make a file the entry of an object."""
        os.rename(path, self._entry(key))
        self._remember(key)
        self._added += nbytes
        if self._added * SCANS > self.limit_bytes:
            self._evict()

    def forget(self, key: str) -> None:
        """Remove the entry of an object that is no longer needed."""
        self._checked.discard(key)
        self._entry(key).unlink(missing_ok=True)

    def _remember(self, key: str) -> None:
        if len(self._checked) >= MOST_CHECKED:
            self._checked.clear()
        self._checked.add(key)

    def _entry(self, key: str) -> Path:
        return self.directory / hashlib.sha256(key.encode()).hexdigest()

    def error(self, error: OSError) -> StateError:
        """The error for a file that cannot be written."""
        return StateError(
            f"cannot write to the cache {self.directory}: {error.strerror}. Set {DIRECTORY} to another directory of "
            f"the workers, or {LIMIT} to a smaller size."
        )

    def _evict(self) -> None:
        """Remove the least recently used entries until the rest is within the limit. One process at a time."""
        with open(self.directory / LOCK, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return  # another process does it
            self._added = 0
            entries = sorted(self._entries())
            left = sum(nbytes for _, nbytes, _ in entries)
            for _, nbytes, path in entries:
                if left <= self.limit_bytes:
                    break
                path.unlink(missing_ok=True)
                left -= nbytes

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """The last use, size and path of each entry. Of unfinished files, only abandoned ones.

        The user may have chosen the directory, so files that are not ours are ignored.
        """
        now = time.time()
        for entry in os.scandir(self.directory):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                is_written = entry.name.startswith(UNFINISHED) and now - status.st_mtime < FORGOTTEN_S
                if OURS.fullmatch(entry.name) and stat.S_ISREG(status.st_mode) and not is_written:
                    yield status.st_mtime, status.st_size, Path(entry.path)


@cache
def worker_cache() -> LocalCache:
    """The cache of this machine's workers, as configured by the environment."""
    default = Path(tempfile.gettempdir()) / f"dovetail-cache-{os.geteuid()}"
    limit = parse_bytes(os.environ.get(LIMIT, DEFAULT_LIMIT))
    return LocalCache(Path(os.environ.get(DIRECTORY) or default).absolute(), limit)
