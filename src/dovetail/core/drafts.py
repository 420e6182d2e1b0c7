"""Files that replace others atomically, once they are complete.

    .<name>.<32 hexadecimal digits>.tmp      next to the file, locked while it is written

A draft is a new file: no link is followed, and no other process writes to it. A draft left by a killed process is
removed by the next draft for the same place, which finds it unlocked.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

NAME = re.compile(r"\.(.+)\.[0-9a-f]{32}\.tmp", re.DOTALL)


@contextmanager
def draft(place: Path) -> Iterator[BinaryIO]:
    """A file to write. If the block ends without an error, it replaces `place`; else it is removed."""
    _remove_forgotten(place)
    file, path = _create(place)
    with file:
        try:
            yield file
            file.flush()
            os.rename(path, place)
        finally:
            path.unlink(missing_ok=True)


def is_draft(path: Path) -> bool:
    """Whether the name is that of a draft."""
    return NAME.fullmatch(path.name) is not None


def _create(place: Path) -> tuple[BinaryIO, Path]:
    while True:
        path = place.with_name(f".{place.name}.{uuid.uuid4().hex}.tmp")
        file = open(path, "xb")  # noqa: SIM115  the caller closes it
        with suppress(OSError):  # some file systems cannot lock files
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():  # else another process took it for a forgotten draft and removed it
            return file, path
        file.close()


def _remove_forgotten(place: Path) -> None:
    with os.scandir(place.parent) as entries:
        found = [match for match in (NAME.fullmatch(entry.name) for entry in entries) if match is not None]
    for match in found:
        if match[1] == place.name:
            with suppress(OSError):  # it is still being written, belongs to another user, or was just removed
                _remove_if_forgotten(place.with_name(match[0]))


def _remove_if_forgotten(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(handle)
