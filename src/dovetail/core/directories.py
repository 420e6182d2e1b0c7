"""Directories that no other user can write to.

Files that are executed when they are read again must be private: the kernels' cache holds pickles, and the Java wrapper
is a program. Any user who can write there can run code as the user of this process. So can a user who owns a directory
above it, or may rename its entries.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from dovetail.errors import InputError

MOST_LINKS = 40  # the same limit as Linux
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def user_cache() -> Path | None:
    """The user's cache directory; None for a user without a home."""
    for place in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(place):
            return Path(place)
    return None


def private_directory(path: Path) -> Path:
    """The directory, created if missing, which only this user can enter and no other user can replace.

    Its parts are checked from the root down. Only root and this user can replace a part that has passed, so nothing
    changes between the check and the use. Symbolic links on the way (a home on another disk) are followed if they
    belong to root or to this user; the directory itself must not be one. The path returned has none.
    """
    if not path.is_absolute():
        raise InputError(f"{path} is a relative path. Give an absolute one.")
    real, ahead, links = Path("/"), list(reversed(path.parts[1:])), 0
    try:
        while ahead:
            name = ahead.pop()
            part = real.parent if name == ".." else real / name
            found = _status(part)
            if stat.S_ISLNK(found.st_mode) and ahead and found.st_uid in (0, os.geteuid()) and links < MOST_LINKS:
                links += 1
                target = Path(os.readlink(part))
                real = Path("/") if target.is_absolute() else real
                ahead += [name for name in reversed(target.parts) if name != "/"]
                continue
            reason = _weakness(found, last=not ahead)
            if reason is not None:
                raise InputError(
                    f"{path} is not safe from other users: {part} {reason}. "
                    "Give a directory of your own, below directories that only you and root can change."
                )
            real = part
        os.chmod(real, stat.S_IRWXU)  # so far others could at most read it
    except OSError as error:
        raise InputError(
            f"{path} cannot be used: {error.strerror}. Give a directory that can be written to."
        ) from error
    return real


def check_contents(directory: Path) -> None:
    """Check that everything in a private directory was put there by this user: it may not always have been private."""
    waiting = [str(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process replaces files concurrently
                    found = entry.stat(follow_symlinks=False)
                    foreign = found.st_uid != os.geteuid()
                    if foreign or entry.is_symlink():
                        reason = _owner(found) if foreign else "is a link"
                        raise InputError(f"{entry.path} {reason}. Remove {directory}; it will be created again.")
                    if entry.is_dir():
                        waiting.append(entry.path)


def check_link(path: Path) -> None:
    """Refuse a link that another user has put in place of a file: it would redirect our writes."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
            raise InputError(f"{path} is a link that {_owner(found)}. Give another path.")


def is_plain_name(name: object) -> bool:
    """Whether the name is a plain entry name: appended to a directory, it does not lead out of it."""
    return isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\0"} & set(name)


def _status(path: Path) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process was faster
            path.mkdir(stat.S_IRWXU)
        return os.lstat(path)


def _weakness(found: os.stat_result, *, last: bool) -> str | None:
    """How other users could write to a directory or replace its contents, or None."""
    if not stat.S_ISDIR(found.st_mode):
        return "is a link" if stat.S_ISLNK(found.st_mode) else "is not a directory"
    if found.st_uid != os.geteuid() and (last or found.st_uid != 0):
        return _owner(found)
    # In a directory with the sticky bit, such as /tmp, entries can only be replaced by their owners.
    if found.st_mode & WRITABLE_BY_OTHERS and (last or not found.st_mode & stat.S_ISVTX):
        return "can be written to by others"
    return None


def _owner(found: os.stat_result) -> str:
    return f"belongs to user {found.st_uid}"
