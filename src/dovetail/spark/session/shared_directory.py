"""Directories and stores that all tasks share. They are tested before any work is done.

    a task                writes a marker
    a task for each core  looks for it, and writes its own
    this process          looks for all of them; a task does so if this process is on another machine

If tasks run on the machine of this process, no test is needed. If only the workers can access the files, as with a
Connect client, functions on them run in a task.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from dovetail.core.directories import private_directory
from dovetail.errors import DovetailError, InputError, StateError
from dovetail.spark.session.task_calls import call_in_each_task, call_in_task
from dovetail.spark.worker_python import is_connect
from dovetail.storage.local_store import LocalStore
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.open_store import register_file_system as register_file_system  # for dovetail.spark
from dovetail.storage.store import Store

ADVICE = (
    "{} a place that all workers reach: a directory that each of them mounts under the same path, or an object store "
    "(s3://…, gs://…, abfss://…, hdfs://…)."
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    place: Store
    spark: SparkSession | None = None  # the session whose tasks can access it; None: this process can as well

    @property
    def is_seen(self) -> bool:
        """Whether this process can access it."""
        return self.spark is None

    def run(self, function: Callable[[], T]) -> T:
        """Call a function where the directory is accessible."""
        return function() if self.spark is None else call_in_task(self.spark, function)


def working_directory(spark: SparkSession, given: Place | None, advice: str) -> SharedDirectory:
    """The given shared place, as a path or URI; without one, a temporary directory of the workers."""
    place = None if given is None else open_store(given)
    return shared_directory(spark, partial(_make, place, advice), advice)


def shared_directory(
    spark: SparkSession, make: Callable[[], Store], advice: str, *, is_scratch: bool = False
) -> SharedDirectory:
    """A place that every task of the session can write to and read from. One task creates it with `make`.

    If other tasks do not find it, an error with `advice` is raised, and a scratch directory is removed.
    """
    if runs_here(spark):
        return SharedDirectory(make())
    token = uuid.uuid4().hex
    place = call_in_task(spark, partial(_begin, make, token))
    shared = SharedDirectory(place, None if _is_seen(place, token) else spark)
    if _is_one_machine(spark):
        shared.run(partial(_count_markers, place, token, 0))
        return shared
    seen = call_in_each_task(spark, partial(_answer, place, token))
    found = sum(seen)
    if found == len(seen):
        found = shared.run(partial(_count_markers, place, token, len(seen)))
    if found < len(seen):
        call_in_each_task(spark, partial(_remove_markers, place, token, is_scratch))
        raise InputError(
            f"{place} is not shared by all workers: {len(seen) - found} of {len(seen)} tasks could not read a "
            f"file that another task had written there. {advice}"
        )
    return shared


def runs_here(spark: SparkSession) -> bool:
    """Whether tasks certainly run on the machine of this process."""
    return _is_one_machine(spark) and not is_connect(spark)


def _is_one_machine(spark: SparkSession) -> bool:
    """Whether all tasks run in one process, which may be a Connect server."""
    master = spark.conf.get("spark.master", None) or ""
    return master == "local" or master.startswith("local[")


def _make(place: Store | None, advice: str) -> Store:
    if place is None:
        return _temporary_directory(advice)
    try:
        if place.path is not None:
            place.path.mkdir(parents=True, exist_ok=True)
        _write_and_remove(place)
    except OSError as error:
        raise InputError(f"{place} cannot be written to: {error.strerror}. {advice}") from error
    except StateError as error:
        raise InputError(f"{place} cannot be written to: {error} {advice}") from error
    return place


def _write_and_remove(place: Store) -> None:
    if place.path is not None:
        with tempfile.TemporaryFile(dir=place.path):
            return
    name = _marker(uuid.uuid4().hex)
    place.put(name, b"")
    place.delete([name])


def _temporary_directory(advice: str) -> Store:
    try:
        return LocalStore(private_directory(Path(tempfile.gettempdir()) / f"dovetail-state-{os.geteuid()}"))
    except InputError as error:
        raise InputError(f"{error} {advice}") from error


def _begin(make: Callable[[], Store], token: str) -> Store:
    place = make()
    place.put(_marker(token), b"")
    return place


def _marker(token: str, number: int | None = None) -> str:
    return f".dovetail-{token}" if number is None else f".dovetail-{token}-{number}"


def _is_seen(place: Store, token: str) -> bool:
    """Whether this process finds the files of a task, and has write access as well."""
    try:
        if place.exists(_marker(token)):
            _write_and_remove(place)
            return True
    except (OSError, DovetailError):
        pass
    return False


def _answer(place: Store, token: str, number: int) -> bool:
    try:
        if place.exists(_marker(token)):
            place.put(_marker(token, number), b"")
            return True
    except (OSError, DovetailError):
        pass
    return False


def _count_markers(place: Store, token: str, tasks: int) -> int:
    """The number of tasks' markers that exist. Names are looked up: listings of network file systems may be stale."""
    found = sum(place.exists(_marker(token, number)) for number in range(tasks))
    place.delete([_marker(token), *(_marker(token, number) for number in range(tasks))])
    return found


def _remove_markers(place: Store, token: str, with_directory: bool, number: int) -> None:
    """Remove the markers of all tasks that wrote to the directory as seen by this task."""
    with contextlib.suppress(OSError, DovetailError):
        place.delete([entry.name for entry in place.entries() if entry.name.startswith(_marker(token))])
        if with_directory and place.path is not None:
            place.path.rmdir()
