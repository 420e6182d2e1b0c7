"""The contract between a source and its reader."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

NOISE = re.compile(r"\.? (Detail: Python exception|gRPC client debug context|Client context):.*")
"""Suffixes that gRPC appends to a server's message."""


def cause_of(error: BaseException) -> str:
    """The first line of an error's message, without a full stop; its kind where it says nothing."""
    first, *_ = [*str(error).strip().splitlines(), ""]
    return NOISE.sub("", first).rstrip(". ") or type(error).__name__


Position = Any
"""Where a source resumes after a failure: a row number, a key, any value that the source understands. None is the
start."""


class Piece(NamedTuple):
    """Some rows, and the position after them."""

    batch: pa.RecordBatch
    position: Position


class Reading(Protocol):
    """One connection to a source: pieces in order. A generator is one."""

    def __next__(self) -> Piece: ...

    def close(self) -> None:
        """Called from any thread when the reader is closed: a pending `next` should end or fail soon."""


@runtime_checkable
class Source(Protocol):
    """Rows from a remote system that may stall, fail and recover.

    An exception of `open` or `next` counts as a failure, and the source is reopened at the position of the last piece;
    a DovetailError is not retried.
    """

    name: str
    """A name for error messages."""
    resumable: bool
    """Whether `open` can resume at a position: the same rows as before, in the same order, from there on."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    def open(self, position: Position = None) -> Reading:
        """Read from the start, or from a position that an earlier reading has told."""


class Ranged(Source, Protocol):
    """A source that can also be read up to a position, so that earlier rows can be replayed."""

    def open(self, position: Position = None, until: Position = None) -> Reading:
        """Read from a position up to another; without them from the start, or to the end."""
