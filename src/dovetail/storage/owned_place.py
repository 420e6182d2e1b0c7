"""Places in a store that are removed with the process that made them.

A directory has a lock of its own (core/owned_directories.py). An object store cannot tell who is alive. So a process
leaves a lease on its own machine, a file that it keeps locked: a process that finds one it can lock knows that the
process has ended, and removes what it has left in the same store.
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
"""Whether a place has become something to keep."""


class _Lease(NamedTuple):
    path: Path
    handle: int
    unless: Check | None


_leases: dict[Store, _Lease] = {}
"""What this process owns."""


def owned_place(parent: Store, stem: str, *, private: bool = False) -> Store:
    """A new place, which is removed when this process ends; those of killed processes of this machine are removed.

    If it is a directory and not private, users who may write to its parent may write to it.
    """
    if parent.path is not None:
        return parent / owned_directory(parent.path, stem, private=private).name
    remove_forgotten(parent, f"{stem}-")
    return own(parent / f"{stem}-{uuid.uuid4().hex}")


def own(place: Store, *, unless: Check | None = None) -> Store:
    """The same place, which is removed when this process ends."""
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
    """Remove what killed processes of this machine have left there, under this stem and a number of their own."""
    ours = re.compile(re.escape(stem) + r"[0-9a-f]{32}")
    for lease in _lease_directory().glob("*.lease"):
        with contextlib.suppress(OSError, ValueError, DovetailError), open(lease) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its process has ended
            known = json.load(file)
            if known["parent"] == parent.key and ours.fullmatch(known["name"]):
                place = parent / known["name"]
                if unless is None or not unless(place):
                    place.delete_all()
                    lease.unlink(missing_ok=True)


def give_up(place: Store) -> bool:
    """Remove a place now, if this process owns it; says whether it does."""
    if place.path is not None and remove_owned(place.path):
        return True
    if place not in _leases:
        return False
    lease = _leases.pop(place)
    with contextlib.suppress(DovetailError):  # else the next process tries, by the lease
        if lease.unless is None or not lease.unless(place):
            place.delete_all()
        lease.path.unlink(missing_ok=True)
    os.close(lease.handle)
    return True


def _lease_directory() -> Path:
    return private_directory(Path(tempfile.gettempdir()) / f"dovetail-leases-{os.geteuid()}")


def _disown() -> None:
    """In the child of a fork: what its parent owns ends with the parent."""
    for lease in _leases.values():
        os.close(lease.handle)
    _leases.clear()


os.register_at_fork(after_in_child=_disown)
