"""Immutable blocks of rows on disk: Arrow IPC files, read back through a memory map.

A block is written once, under a name that no other attempt can have, and appears complete or not at all (write to a
temporary name, flush to disk, rename). Blocks may be sorted on a key; the smallest and largest key then travel with
the block (a zone map), so that a reader can skip what cannot match without opening it. A block may consist of several
pages, each a record batch of its own: written one after the other, read back some at a time.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dovetail.core.metrics import Counters
from dovetail.errors import InputError, StateError
from dovetail.storage.mapped_block import MappedBlock

SUFFIX = ".arrow"
MOST_OPEN = 64  # blocks whose pages are being read


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
        self._readers: dict[str, pa.ipc.RecordBatchFileReader] = {}  # of blocks of several pages

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
                    f"cannot create the directory {self._directory} for join state: {error.strerror}. "
                    "Give a directory that can be written to."
                ) from error
        return self._directory

    def write(self, batch: pa.RecordBatch, stem: str, zone: tuple[int, int] | None = None) -> Block:
        """Store rows as a new block whose name starts with `stem`."""
        paged = self.open_paged(batch.schema, stem)
        paged.write(batch)
        return paged.close(zone)

    def open_paged(self, schema: pa.Schema, stem: str) -> PagedBlock:
        """A new block whose name starts with `stem`, to be written page by page."""
        path = self.directory / f"{stem}-{uuid.uuid4().hex[:12]}{SUFFIX}"
        return PagedBlock(path, schema, self._durable, self._record_block)

    def _record_block(self, name: str, pages: int) -> None:
        self._counters.pages_written += pages
        self._numbers[name] = self._counters.pages_written

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        """Map the rows of a block. `verify` also compares the checksum, which reads every byte."""
        batch = self._open_reader(block, verify).get_batch(0)
        self._count_read(block)
        return batch

    def map(self, block: Block, *, verify: bool = False) -> MappedBlock:
        """Map a block of one page, to be read many times. `verify` as in `read`."""
        with self._open_file(block, verify, mapped=True) as file:
            return MappedBlock(file.read_buffer())

    def map_pages(self, block: Block) -> Iterator[pa.RecordBatch]:
        """All pages of a block, mapped: they stay readable when it is removed."""
        reader = self._open_reader(block)
        for page in range(reader.num_record_batches):
            yield reader.get_batch(page)

    def read_pages(self, block: Block, first: int, stop: int) -> list[pa.RecordBatch]:
        """Some pages of a block. They are read in sequence; the first is, too, if the one before was read last."""
        reader = self._reader(block)
        pages = [reader.get_batch(page) for page in range(first, stop)]
        follows = first > 0 and self._last_read == (block.name, first - 1)
        self._counters.pages_read_random += not follows
        self._counters.pages_read_sequential += stop - first - (not follows)
        self._last_read = (block.name, stop - 1)
        return pages

    def pages(self, block: Block, *, verify: bool = False) -> int:
        """How many pages a block has. `verify` also compares the checksum, if the block is not open yet."""
        return int(self._reader(block, verify).num_record_batches)

    def _reader(self, block: Block, verify: bool = False) -> pa.ipc.RecordBatchFileReader:
        """A reader that stays open: pages are mostly read one at a time.

        It does not map the file: what was read once would be counted as memory in use for as long as it is open.
        """
        reader = self._readers.pop(block.name, None) or self._open_reader(block, verify, mapped=False)
        self._readers[block.name] = reader  # the latest at the end
        while len(self._readers) > MOST_OPEN:
            del self._readers[next(iter(self._readers))]
        return reader

    def _open_reader(self, block: Block, verify: bool = False, *, mapped: bool = True) -> pa.ipc.RecordBatchFileReader:
        file = self._open_file(block, verify, mapped=mapped)
        try:
            return pa.ipc.open_file(file)
        except pa.ArrowInvalid as error:
            raise StateError(f"{self.directory / block.name} is damaged: {error}. {RECOVERY}") from error

    def _open_file(self, block: Block, verify: bool, *, mapped: bool) -> pa.NativeFile:
        path = self.directory / block.name
        try:
            file = pa.memory_map(str(path)) if mapped else pa.OSFile(str(path))
        except FileNotFoundError as error:
            raise StateError(f"{path} is missing. {RECOVERY}") from error
        except pa.ArrowInvalid as error:  # an empty file
            raise StateError(f"{path} is damaged: {error}. {RECOVERY}") from error
        if file.size() != block.nbytes or (verify and zlib.crc32(file.read_buffer()) != block.checksum):
            raise StateError(f"{path} is damaged: its checksum does not match. {RECOVERY}")
        file.seek(0)
        return file

    def remove(self, blocks: Iterable[Block]) -> None:
        """Delete blocks. Batches already mapped from them stay readable."""
        for block in blocks:
            self._readers.pop(block.name, None)
            (self.directory / block.name).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove a temporary directory with everything in it; leave a given one alone."""
        self._readers.clear()
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


class PagedBlock:
    """A block that is being written. Only `close` gives it its name."""

    def __init__(self, path: Path, schema: pa.Schema, durable: bool, written: Callable[[str, int], None]) -> None:
        self._path = path
        self._unfinished = path.with_suffix(".tmp")
        self._durable = durable
        self._written = written
        self._pages = self._rows = 0
        self._attempt(self._open, schema)

    def write(self, page: pa.RecordBatch) -> None:
        self._attempt(self._writer.write_batch, page)
        self._pages += 1
        self._rows += page.num_rows

    def close(self, zone: tuple[int, int] | None = None) -> Block:
        self._attempt(self._finish)
        self._written(self._path.name, self._pages)
        low, high = zone or (None, None)
        return Block(self._path.name, self._rows, self._file.size, self._file.checksum, low, high)

    def _open(self, schema: pa.Schema) -> None:
        self._file = _CheckedFile(self._unfinished)
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), schema)

    def _finish(self) -> None:
        self._writer.close()
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._unfinished, self._path)

    def _attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except OSError as error:
            self._unfinished.unlink(missing_ok=True)
            raise StateError(f"cannot write join state to {self._path}: {error.strerror}.") from error


class _CheckedFile(io.FileIO):
    """A file that knows the size and the checksum of what was written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self.size = self.checksum = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.checksum = zlib.crc32(view, self.checksum)
        self.size += view.nbytes
        done = 0
        while done < view.nbytes:  # the system may take less than it is given
            done += super().write(view[done:])
        return view.nbytes


RECOVERY = "Restore the state directory, or start again with a new checkpoint and a new state directory."
