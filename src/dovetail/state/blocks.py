"""Immutable blocks of rows on disk: Arrow IPC files, read back through a memory map.

A block is written once, under a name that no other attempt can have, and appears complete or not at all (write to a
temporary name, flush to disk, rename). Blocks may be sorted on a key; the smallest and largest key then travel with
the block (a zone map), so that a reader can skip what cannot match without opening it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dovetail.errors import InputError, StateError
from dovetail.metrics import Counters

SUFFIX = ".arrow"


@dataclass(frozen=True, slots=True)
class Block:
    """What is known of a block without reading it."""

    name: str
    rows: int
    nbytes: int
    checksum: int
    low: int | None = None  # zone map: smallest and largest key, where the block is sorted
    high: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Block:
        return cls(**fields)


class BlockStore:
    """Blocks in one directory. A store without a directory makes a temporary one and removes it on close."""

    def __init__(
        self, directory: str | Path | None = None, *, durable: bool = False, counters: Counters | None = None
    ) -> None:
        self._temporary = directory is None
        self._directory = None if directory is None else Path(directory)
        self._durable = durable
        self._counters = counters or Counters()
        self._last_read: tuple[str, int] | None = None
        self._numbers: dict[str, int] = {}

    @property
    def directory(self) -> Path:
        """Where the blocks are; made on first use."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="dovetail-"))
        elif not self._directory.is_dir():
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"cannot make the directory {self._directory} for join state: {error.strerror}. "
                    "Give a directory that can be written to."
                ) from error
        return self._directory

    def write(self, batch: pa.RecordBatch, stem: str, zone: tuple[int, int] | None = None) -> Block:
        """Store rows as a new block whose name starts with `stem`."""
        name = f"{stem}-{uuid.uuid4().hex[:12]}{SUFFIX}"
        path = self.directory / name
        unfinished = path.with_suffix(".tmp")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        try:
            with open(unfinished, "wb") as file:
                file.write(data)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(unfinished, path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise StateError(f"cannot write {data.size:,} bytes of join state to {path}: {error.strerror}.") from error
        self._counters.pages_written += 1
        self._numbers[name] = self._counters.pages_written
        low, high = zone or (None, None)
        return Block(name, batch.num_rows, data.size, zlib.crc32(data), low, high)

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        """Map the rows of a block. `verify` also compares the checksum, which reads every byte."""
        batch = self._map(block, verify)
        self._count_read(block)
        return batch

    def _map(self, block: Block, verify: bool) -> pa.RecordBatch:
        path = self.directory / block.name
        try:
            with pa.memory_map(str(path)) as file:
                if file.size() != block.nbytes or (verify and zlib.crc32(file.read_buffer()) != block.checksum):
                    raise StateError(f"{path} is damaged: its content is not what was written. {RECOVERY}")
                file.seek(0)
                reader = pa.ipc.open_file(file)
                batch = reader.get_batch(0)
        except FileNotFoundError as error:
            raise StateError(f"{path} is missing. {RECOVERY}") from error
        except pa.ArrowInvalid as error:
            raise StateError(f"{path} is damaged: {error}. {RECOVERY}") from error
        return batch

    def remove(self, blocks: Iterable[Block]) -> None:
        """Delete blocks. Batches already mapped from them stay readable."""
        for block in blocks:
            (self.directory / block.name).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove a temporary directory with everything in it; leave a given one alone."""
        if self._temporary and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _count_read(self, block: Block) -> None:
        """A read is sequential if it follows the block written just before it under the same stem."""
        stem, number = block.name.rsplit("-", 1)[0], self._numbers.get(block.name, -1)
        if self._last_read is not None and self._last_read[0] == stem and number > self._last_read[1]:
            self._counters.pages_read_sequential += 1
        else:
            self._counters.pages_read_random += 1
        self._last_read = (stem, number)


RECOVERY = "Restore the state directory, or start again with a new checkpoint and a new state directory."
