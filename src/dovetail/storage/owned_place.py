"""Places in a store that are removed when the process that made them ends.

A directory has its own lock (core/owned_directories.py). An object store cannot tell which processes are alive. So a
process keeps a lease on its own machine: a file that it holds locked. A process that can lock the lease of another
knows that this one has ended, and removes what it left in the same store.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dovetail.core.directories import private_directory
from dovetail.core.owned_directories import owned_directory, remove_owned
from dovetail.errors import DovetailError
from dovetail.storage.store import Store

Check = Callable[[Store], bool]
"""Whether a place should be kept after all."""


class _Lease(NamedTuple):
    path: Path
    handle: int
    unless: Check | None


_leases: dict[Store, _Lease] = {}
"""The places that this process owns."""


def owned_place(parent: Store, stem: str, *, private: bool = False) -> Store:
    """A new place that is removed when this process ends. Places of killed processes of this machine are removed now.

    If it is a directory and not private, users with write access to its parent have write access to it.
    """
    if parent.path is not None:
        return parent / owned_directory(parent.path, stem, private=private).name
    remove_forgotten(parent, f"{stem}-")
    return own(parent / f"{stem}-{uuid.uuid4().hex}")


def own(place: Store, *, unless: Check | None = None) -> Store:
    """Make this process the owner of a place, so that it is removed when the process ends."""
    leases = _lease_directory()
    unfinished = leases / f"{uuid.uuid4().hex}.tmp"
    handle = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)  # stays open
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, json.dumps({"parent": place.parent.key, "name": place.name}).encode())
    lease = unfinished.with_suffix(".lease")
    unfinished.rename(lease)
    _leases[place] = _Lease(lease, handle, unless)
    atexit.register(give_up, place)
    return place


def remove_forgotten(parent: Store, stem: str, *, unless: Check | None = None) -> None:
    """Remove the places that killed processes of this machine have left there, named by this stem and a number."""
    ours = re.compile(re.escape(stem) + r"[0-9a-f]{32}")
    for lease in _lease_directory().glob("*.lease"):
        with contextlib.suppress(OSError, ValueError, DovetailError), open(lease) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # succeeds only if its process has ended
            known = json.load(file)
            if known["parent"] == parent.key and ours.fullmatch(known["name"]):
                place = parent / known["name"]
                if unless is None or not unless(place):
                    place.delete_all()
                    lease.unlink(missing_ok=True)


def give_up(place: Store) -> bool:
    """Remove a place now, if this process owns it. Returns whether it does."""
    if place.path is not None and remove_owned(place.path):
        return True
    if place not in _leases:
        return False
    lease = _leases.pop(place)
    with contextlib.suppress(DovetailError):  # otherwise the next process tries again, from the lease
        if lease.unless is None or not lease.unless(place):
            place.delete_all()
        lease.path.unlink(missing_ok=True)
    os.close(lease.handle)
    return True


def _lease_directory() -> Path:
    return private_directory(Path(tempfile.gettempdir()) / f"dovetail-leases-{os.geteuid()}")


def _disown() -> None:
    """In a forked child: places that the parent owns stay the parent's."""
    for lease in _leases.values():
        os.close(lease.handle)
    _leases.clear()


os.register_at_fork(after_in_child=_disown)
