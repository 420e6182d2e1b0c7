"""Makes the files that tasks have written visible: all of them, or none.

    stage      _dovetail-<id>/part-….parquet      written by tasks; readers skip names that begin with "_"
    commit     _dovetail-<id>/commit.json         a single put: from here on, the files are part of the table
    publish    part-….parquet                     renamed, or copied if a store has no rename; then the stage is removed

If a writer dies before the commit, it leaves a stage that is never read and that a later write removes. If it dies
after the commit, the next write publishes the remaining files first, and until then `written_files` includes them. A
new directory, or one that replaces another, is renamed as a whole if the store has a rename.

These functions may run in a task, and again if that task fails.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from dovetail.core.directories import is_plain_name
from dovetail.errors import InputError, StateError
from dovetail.storage.local_store import LocalStore
from dovetail.storage.object_store import AT_ONCE
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.owned_place import remove_forgotten
from dovetail.storage.store import Store

STAGE, COMMIT = "_dovetail-", "commit.json"
NEW, OLD, SUCCESS = "new", "old", "_SUCCESS"
FORGOTTEN_S = 7 * 24 * 3600.0  # a stage without a commit that was not written to for this long is abandoned


class Commit(NamedTuple):
    """The decisions of a write."""

    target: str  # the target's name: stages of several targets may be in one directory
    files: list[str]
    replaces: list[str] | None  # names to remove; None: append. A directory that is renamed replaces everything
    as_directory: bool  # whether the directory is renamed as a whole

    def write(self, stage: Store) -> None:
        stage.put(COMMIT, json.dumps(self._asdict()).encode(), durable=True)

    @classmethod
    def read(cls, stage: Store) -> Commit | None:
        found = stage.get(COMMIT)
        try:
            decided = None if found is None else cls(**json.loads(found))
            if decided is not None and not all(map(_stays_inside, [*decided.files, *(decided.replaces or ())])):
                raise ValueError("a name leads out of the table")
            return decided
        except (ValueError, TypeError) as error:
            raise StateError(f"{stage / COMMIT} is damaged: {error}. Remove {stage}, and write anew.") from error


def stage_for(target: Store, mode: str, name: str) -> Store:
    """Create the stage of a new write. Cleans up or completes earlier writes first."""
    finish_others(target)
    there = exists(target)
    if mode == "error" and there:
        raise InputError(f"{target} exists: give another path, or mode='overwrite' or 'append'.")
    if target.path is None:
        return target / name
    if target.path.exists() and not target.path.is_dir():
        raise InputError(f"{target} is a file; results are written to a directory of files.")
    stage = (target if mode == "append" and there else target.parent) / name
    assert stage.path is not None
    try:
        stage.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target} cannot be written to: {error.strerror}.") from error
    return stage


def exists(target: Store) -> bool:
    """Whether there is a table, or any other visible file."""
    if target.path is not None:
        return target.path.exists()
    names = [*(entry.name for entry in target.entries()), *target.folders()]
    return any(not name.startswith(STAGE) for name in names)


def commit(target: Store, stage: Store, files: list[str], mode: str) -> None:
    """Commit these files, and no others in the stage."""
    if not files or (left := _unpublished(target, files)) == []:
        return  # nothing to do, or done by an earlier attempt
    if target.path is None or (mode == "append" and target.path.exists()):
        replaced = None if mode == "append" else _visible(target)
        decided = Commit(target.name, files, replaced, as_directory=False)
        decided.write(stage)
    else:
        _gather(stage, left)
        decided = Commit(target.name, files, [], as_directory=True)
        if mode == "overwrite" and target.path.exists():  # two renames
            decided.write(stage)
    publish(target, stage, decided)


def is_committed(stage: Store) -> bool:
    """Whether the files of a stage are committed, but not all published."""
    return stage.exists(COMMIT)


def remove_stage(stage: Store) -> None:
    """Remove a stage, after a failure or at the end."""
    if not is_committed(stage):
        stage.delete_all()


def publish(target: Store, stage: Store, decided: Commit) -> None:
    """Carry out a commit, or the rest of it. The commit file is removed last, so this can be repeated."""
    if decided.as_directory:
        _exchange(target, stage)
    else:
        _each(partial(_publish_file, target, stage), _unpublished(target, decided.files))
        if decided.replaces is not None:
            target.delete(name for name in decided.replaces if name not in decided.files)
            target.put(SUCCESS, b"")
    stage.delete([COMMIT])
    stage.delete_all()


def finish_others(target: Store) -> None:
    """Publish committed files, and remove stages that will never be committed."""
    for stage in _stages(target):
        decided = Commit.read(stage)
        if decided is not None:
            if decided.target == target.name:
                publish(target, stage, decided)
        elif _is_forgotten(stage):
            stage.delete_all()
    for parent in (target, target.parent) if target.path is not None else (target,):
        remove_forgotten(parent, STAGE, unless=is_committed)


def written_files(path: Place) -> list[str]:
    """List the files that `dovetail.write` has written. Every write is included completely or not at all.

    Returns paths, or URIs without credentials and options. Files of a write that is being published may move meanwhile.
    """
    target = open_store(path)
    found = {name: target for name in _visible(target) if _is_data(name)}
    for stage in _stages(target):
        decided = Commit.read(stage)
        if decided is None or decided.target != target.name:
            continue
        if decided.replaces is not None:
            kept = set() if decided.as_directory else found.keys() - set(decided.replaces)
            found = {name: place for name, place in found.items() if name in kept or name in decided.files}
        waiting = stage / NEW if decided.as_directory else stage
        for name in _unpublished(target, decided.files):
            found[name] = waiting
    return sorted(_address(place / name) for name, place in found.items())


def _address(place: Store) -> str:
    if place.path is not None:
        return str(place.path)
    address = place.uri.partition("?")[0]
    scheme, _, rest = address.partition("://")
    server, slash, path = rest.partition("/")
    is_container = scheme.lower().startswith("abfs") and ":" not in server
    return f"{scheme}://{server if is_container else server.rpartition('@')[2]}{slash}{path}"


def _is_data(name: str) -> bool:
    return not any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/"))


def _visible(target: Store) -> list[str]:
    """Everything in the target except for stages."""
    return [entry.name for entry in target.entries(recursive=True) if not entry.name.startswith(STAGE)]


def _stages(target: Store) -> Iterator[Store]:
    """The stages that may contain a commit for the target."""
    for place in (target, target.parent) if target.path is not None else (target,):
        for name in place.folders():
            if name.startswith(STAGE) and _is_of_a_writer(place / name, target):
                yield place / name


def _is_of_a_writer(stage: Store, target: Store) -> bool:
    """Where all users may create directories, as in /tmp, only those of this user and of the table's owner count."""
    if stage.path is None or target.path is None:
        return True
    with suppress(OSError):  # removed meanwhile
        found = os.lstat(stage.path)
        writers = {os.geteuid()} | ({os.stat(target.path).st_uid} if target.path.exists() else set())
        is_open = os.stat(stage.path.parent).st_mode & stat.S_ISVTX
        return stat.S_ISDIR(found.st_mode) and (not is_open or found.st_uid in writers)
    return False


def _stays_inside(name: object) -> bool:
    return isinstance(name, str) and all(map(is_plain_name, name.split("/")))


def _is_forgotten(stage: Store) -> bool:
    last = max((entry.written for entry in stage.entries(recursive=True)), default=None)
    return last is not None and time.time() - last > FORGOTTEN_S


def _unpublished(target: Store, files: list[str]) -> list[str]:
    there = {entry.name for entry in target.entries()}
    return [file for file in files if file not in there]  # names are unique


def _publish_file(target: Store, stage: Store, name: str) -> None:
    try:
        stage.publish(name, target)
    except FileNotFoundError:
        if not target.exists(name):  # else another process has done it
            raise StateError(f"{stage / name} is missing: it was committed and cannot be published.") from None


def _each(function: Any, names: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(function, names):
            pass


def _gather(stage: Store, files: Iterable[str]) -> None:
    """Move the files of a new directory into one."""
    new = stage / NEW
    assert stage.path is not None
    assert new.path is not None
    new.path.mkdir(exist_ok=True)
    for file in files:
        if not (new.path / file).exists():
            os.rename(stage.path / file, new.path / file)
    (new.path / SUCCESS).touch()


def _exchange(target: Store, stage: Store) -> None:
    """Rename a directory. It may replace another."""
    assert isinstance(target, LocalStore)
    assert isinstance(stage, LocalStore)
    new, old = stage.path / NEW, stage.path / OLD
    if not new.exists():
        return  # done
    if not is_committed(stage) or not target.path.exists():
        os.rename(new, target.path)
        return
    os.rename(target.path, old)
    try:
        os.rename(new, target.path)
    except OSError:
        with suppress(OSError):
            os.rename(old, target.path)
        raise
