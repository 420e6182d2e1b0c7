"""Directories that are removed with the process that created them.

    <parent>/<stem>-<host>-<32 hexadecimal digits>/lock      locked while the process lives

A process removes its directories when it ends. A killed process cannot, and handling signals is up to the program, not
to a library. So the next process that creates such a directory in the same place removes those whose lock is free. It
only removes entries whose whole name has this form and that belong to its user; it opens no links, and no files that
block.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import platform
import re
import shutil
import stat
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

LOCK = "lock"
TEMPORARY = "dovetail"

_owned: dict[Path, int] = {}
"""Directories of this process, each with its lock's handle."""


def temporary_directory() -> Path:
    """A new directory that only this user can enter, in the system's directory for temporary files."""
    return owned_directory(Path(tempfile.gettempdir()), TEMPORARY, private=True)


def owned_directory(parent: Path, stem: str, *, private: bool = False) -> Path:
    """A new directory. Users who may write to its parent may write to it, unless it is private."""
    name = f"{stem}-{platform.node()}-"  # on some file systems, a lock only counts on its own machine
    _remove_forgotten(parent, re.compile(re.escape(name) + r"[0-9a-f]{32}"))
    path = parent / f"{name}{uuid.uuid4().hex}"
    path.mkdir(stat.S_IRWXU)
    if not private:
        path.chmod(stat.S_IMODE(parent.stat().st_mode))
    _owned[path] = _lock(path)
    return path


def remove_owned(path: Path) -> bool:
    """Remove a directory now, if this process owns it; returns whether it does."""
    handle = _owned.pop(path, None)
    if handle is None:
        return False
    _remove(path)
    os.close(handle)
    return True


def _lock(path: Path) -> int:
    """The lock file appears already locked: another process that finds it free removes the directory."""
    unfinished = path / f"{LOCK}.tmp"
    handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)  # stays open
    with suppress(OSError):  # some file systems cannot lock files
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unfinished.rename(path / LOCK)
    return handle


def _remove_forgotten(parent: Path, name: re.Pattern[str]) -> None:
    with os.scandir(parent) as entries:
        found = [entry.name for entry in entries if name.fullmatch(entry.name)]
    for path in map(parent.joinpath, found):
        if path not in _owned:
            with suppress(OSError):  # it is in use, belongs to another user, or was just removed
                _remove_if_forgotten(path)


def _remove_if_forgotten(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            return
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        try:
            if stat.S_ISREG(os.fstat(lock).st_mode):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
        finally:
            os.close(lock)
    finally:
        os.close(directory)


def _remove(path: Path) -> None:
    """The lock is removed last: if this process is killed meanwhile, the next one finishes the work."""
    with suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != LOCK:
                os.unlink(entry.path)
        (path / LOCK).unlink(missing_ok=True)
        path.rmdir()


@atexit.register
def _remove_all() -> None:
    for path in list(_owned):
        remove_owned(path)


def _disown() -> None:
    """After a fork, in the child: the directories belong to the parent, and their locks end with it."""
    for handle in _owned.values():
        os.close(handle)
    _owned.clear()


os.register_at_fork(after_in_child=_disown)
