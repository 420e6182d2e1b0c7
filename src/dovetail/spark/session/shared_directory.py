"""Directories in which tasks find each other's files, tried out before any work is done.

    a task                leaves a marker
    a task for each core  looks for it, and leaves one of its own
    this process          looks for all of them; a task does, if this process is on another machine

Where tasks run in this process there is nothing to try. Files of a directory that only the workers see, as a Connect
client may not, are reached by running a function in a task.
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
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from dovetail.core.directories import private_directory
from dovetail.errors import InputError
from dovetail.spark.exchange.partitions import call_in_each_task, call_in_task

ADVICE = "{} a directory that all workers share: one that each of them mounts under the same path."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    path: Path
    spark: SparkSession | None = None  # whose tasks reach it; None: this process does, too

    @property
    def is_seen(self) -> bool:
        """Whether this process reaches it."""
        return self.spark is None

    def run(self, function: Callable[[], T]) -> T:
        """Call a function where the directory can be reached."""
        return function() if self.spark is None else call_in_task(self.spark, function)


def working_directory(spark: SparkSession, given: str | None, advice: str) -> SharedDirectory:
    """The shared directory that was given, as a path or file: URI; a temporary one of the workers if there is none."""
    path = None if given is None else local_path(given, advice)
    return shared_directory(spark, partial(_make, path, advice), advice)


def shared_directory(
    spark: SparkSession, make: Callable[[], Path], advice: str, *, is_scratch: bool = False
) -> SharedDirectory:
    """A directory that every task of the session can write to and read from, as `make` makes it in one of them.

    If others do not find it, that is an error with `advice`; a scratch directory is then removed again.
    """
    if runs_here(spark):
        return SharedDirectory(make())
    token = uuid.uuid4().hex
    path = call_in_task(spark, partial(_begin, make, token))
    shared = SharedDirectory(path, None if _is_seen(path, token) else spark)
    if _is_one_machine(spark):
        shared.run(partial(_count_markers, path, token, 0))
        return shared
    seen = call_in_each_task(spark, partial(_answer, path, token))
    found = sum(seen)
    if found == len(seen):
        found = shared.run(partial(_count_markers, path, token, len(seen)))
    if found < len(seen):
        call_in_each_task(spark, partial(_remove_markers, path, token, is_scratch))
        raise InputError(
            f"{path} is not shared by all workers: {len(seen) - found} of {len(seen)} tasks could not read a "
            f"file that another task had written there. {advice}"
        )
    return shared


def local_path(location: str, advice: str) -> Path:
    """A path or file: URI as a path. Files are memory-mapped and renamed, so that object stores will not do."""
    parsed = urlparse(location)
    if parsed.scheme not in ("", "file"):
        raise InputError(f"{location} is not a path in a file system. {advice}")
    return Path(parsed.path if parsed.scheme else location).absolute()


def runs_here(spark: SparkSession) -> bool:
    """Whether tasks run on the machine of this process, for sure."""
    return _is_one_machine(spark) and not is_connect(spark)


def is_connect(spark: SparkSession) -> bool:
    """Whether this process is the client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _is_one_machine(spark: SparkSession) -> bool:
    """Whether all tasks run in one process, be it of a Connect server."""
    master = spark.conf.get("spark.master", None) or ""
    return master == "local" or master.startswith("local[")


def _make(path: Path | None, advice: str) -> Path:
    if path is None:
        return _temporary_directory(advice)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error.strerror}. {advice}") from error
    return path


def _temporary_directory(advice: str) -> Path:
    try:
        return private_directory(Path(tempfile.gettempdir()) / f"dovetail-state-{os.geteuid()}")
    except InputError as error:
        raise InputError(f"{error} {advice}") from error


def _begin(make: Callable[[], Path], token: str) -> Path:
    path = make()
    _marker(path, token).touch()
    return path


def _marker(path: Path, token: str, number: int | None = None) -> Path:
    return path / (f".dovetail-{token}" if number is None else f".dovetail-{token}-{number}")


def _is_seen(path: Path, token: str) -> bool:
    """Whether this process finds what a task has written, and may write, too."""
    try:
        if _marker(path, token).exists():
            with tempfile.TemporaryFile(dir=path):
                return True
    except OSError:
        pass
    return False


def _answer(path: Path, token: str, number: int) -> bool:
    try:
        if _marker(path, token).exists():
            _marker(path, token, number).touch()
            return True
    except OSError:
        pass
    return False


def _count_markers(path: Path, token: str, tasks: int) -> int:
    """How many of the tasks' markers are there. Names are looked up: a network file system may list old names."""
    found = sum(_marker(path, token, number).exists() for number in range(tasks))
    for marker in [_marker(path, token), *(_marker(path, token, number) for number in range(tasks))]:
        marker.unlink(missing_ok=True)
    return found


def _remove_markers(path: Path, token: str, with_directory: bool, number: int) -> None:
    """Of any task that wrote to the directory which this task sees."""
    with contextlib.suppress(OSError):
        for marker in path.glob(f".dovetail-{token}*"):
            marker.unlink(missing_ok=True)
        if with_directory:
            path.rmdir()
