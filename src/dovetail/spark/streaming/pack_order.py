"""The packed rows of a micro-batch for one cell, in the same order in every attempt.

    frames, as the blocks of a shuffle arrive --> memory, then a temporary file --> by source partition and position

Operators that spill emit different results early if rows arrive in another order.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import pandas as pd

from dovetail.errors import StateError


class Pack(NamedTuple):
    """A packed row. Without a payload it is a message."""

    seq: int
    side: int
    payload: bytes | None


class _Stored(NamedTuple):
    seq: int
    side: int
    start: int
    size: int


def packs_in_order(frames: Iterable[pd.DataFrame], most_bytes: int) -> Iterator[Pack]:
    """All packs of the frames. At most `most_bytes` of them, and a frame, are in memory."""
    waiting: list[Pack] = []
    stored: list[_Stored] = []
    held = written = 0
    file: BinaryIO | None = None
    try:
        for frame in frames:
            for seq, side, payload in zip(frame["seq"], frame["side"], frame["payload"], strict=True):
                waiting.append(Pack(int(seq), int(side), payload))
                held += len(payload or b"")
            del frame
            if held > most_bytes:
                file = file or _temporary_file()
                stored += _store(waiting, file, written)
                written += held
                held = 0
                waiting = [pack for pack in waiting if pack.payload is None]
        everything: list[Pack | _Stored] = [*waiting, *stored]
        for pack in sorted(everything, key=lambda pack: (pack.seq, pack.side)):
            if isinstance(pack, Pack):
                yield pack
            elif file is not None:
                yield Pack(pack.seq, pack.side, os.pread(file.fileno(), pack.size, pack.start))
    finally:
        if file is not None:
            file.close()


def _temporary_file() -> BinaryIO:
    """A file without a name, in the first of Spark's own directories."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    return tempfile.TemporaryFile(dir=directory, prefix="dovetail-", buffering=0)


def _store(packs: list[Pack], file: BinaryIO, start: int) -> Iterator[_Stored]:
    for seq, side, payload in packs:
        if payload is not None:
            yield _Stored(seq, side, start, len(payload))
            start += len(payload)
            view = memoryview(payload)
            try:
                while view:  # the system may write fewer bytes than requested
                    view = view[file.write(view) :]
            except OSError as error:
                raise StateError(f"cannot write arriving rows to a temporary file: {error.strerror}.") from error
