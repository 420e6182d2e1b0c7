"""Immutable blocks of rows in a directory or store: Arrow IPC files, read through a memory map.

A block is written once, under a name that no other attempt uses, and appears complete or not at all. A block may be
sorted on a key. It then carries its smallest and largest key (a zone map), so that readers can skip it without opening
it. A block may have several pages, each its own record batch, which are written one after the other and can be read
separately.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dovetail.core.directories import is_plain_name
from dovetail.core.metrics import Counters
from dovetail.core.owned_directories import remove_owned, temporary_directory
from dovetail.errors import InputError, StateError
from dovetail.storage.local_store import LocalStore
from dovetail.storage.mapped_block import MappedBlock
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.store import DamagedError, Store, Upload

SUFFIX = ".arrow"
NEEDED, ZONE = frozenset({"name", "rows", "nbytes", "checksum"}), frozenset({"low", "high"})
"""The fields of a block in a manifest, and the further ones of sorted blocks."""
MOST_COUNT = 1 << 63
MOST_OPEN = 64  # blocks with pages being read
GATHERED_BYTES = 1 << 16  # Arrow writes a block in dozens of pieces, most of a few bytes


@dataclass(frozen=True, slots=True)
class Block:
    """The metadata of a block, known without reading it."""

    name: str
    rows: int
    nbytes: int
    checksum: int
    low: int | None = None  # zone map: smallest and largest key, if the block is sorted
    high: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Block:
        """Parse a block from a manifest. Names outside the store's directory are refused."""
        try:
            check_block(fields)
        except DamagedError as error:
            raise StateError(f"state is damaged: {error}. {RECOVERY}") from error
        return cls(**fields)


def check_block(fields: Any) -> None:
    """Check that the fields are as written by `to_json`. Raises DamagedError."""
    if not isinstance(fields, Mapping) or not NEEDED <= fields.keys() <= NEEDED | ZONE:
        raise DamagedError(f"{fields!r} does not describe a block")
    if not is_plain_name(fields["name"]):
        raise DamagedError(f"{fields['name']!r} is not the name of a block")
    for name in ("rows", "nbytes", "checksum"):
        value = fields[name]
        if type(value) is not int or not 0 <= value < MOST_COUNT:  # is_count inlined: runs for every block
            raise DamagedError(f"{name} of {fields['name']} is {fields[name]!r}")
    for name in ZONE & fields.keys():
        if fields[name] is not None and type(fields[name]) is not int:
            raise DamagedError(f"{name} of {fields['name']} is {fields[name]!r}")


def is_count(value: object) -> bool:
    """Whether it is a valid number of rows, bytes or the like."""
    return type(value) is int and 0 <= value < MOST_COUNT


class BlockStore:
    """Blocks in one directory or store. Without a place it makes a temporary directory, and removes it on close."""

    def __init__(
        self, directory: Place | None = None, *, durable: bool = False, counters: Counters | None = None
    ) -> None:
        self._temporary = directory is None
        self._place = None if directory is None else open_store(directory)
        self._durable = durable
        self._counters = counters or Counters()
        self._last_read: tuple[str, int] | None = None
        self._numbers: dict[str, int] = {}
        self._readers: dict[str, pa.ipc.RecordBatchFileReader] = {}  # of blocks with several pages

    @property
    def place(self) -> Store:
        """The store of the blocks, made on first use."""
        if self._place is None:
            self._place = LocalStore(_spill_directory())
        self._place.prepare()
        return self._place

    @property
    def directory(self) -> Path:
        """The directory of the blocks, if they are in one."""
        path = self.place.path
        assert path is not None
        return path

    def write(self, batch: pa.RecordBatch, stem: str, zone: tuple[int, int] | None = None) -> Block:
        """Write rows as a new block whose name starts with `stem`."""
        paged = self.open_paged(batch.schema, stem)
        paged.write(batch)
        return paged.close(zone)

    def open_paged(self, schema: pa.Schema, stem: str) -> PagedBlock:
        """A new block whose name starts with `stem`, to be written page by page."""
        return PagedBlock(self.place, self._name(stem), schema, self._durable, self._record_block)

    def _name(self, stem: str) -> str:
        return f"{stem}-{uuid.uuid4().hex[:12]}{SUFFIX}"

    def _record_block(self, name: str, pages: int) -> None:
        self._counters.pages_written += pages
        self._numbers[name] = self._counters.pages_written

    def read(self, block: Block, *, verify: bool = False) -> pa.RecordBatch:
        """Map the rows of a block. `verify` also compares the checksum, which reads every byte."""
        batch = self._open_reader(block, verify).get_batch(0)
        self._count_read(block)
        return batch

    def keep_made(self, names: Sequence[str], made: object) -> None:
        """Cache an object derived from these blocks, if they stay mapped until the next time."""

    def find_made(self, names: Sequence[str]) -> object | None:
        """The cached object of these blocks. None if there is none, or if the blocks have changed."""
        return None

    def map(self, block: Block, *, verify: bool = False) -> MappedBlock:
        """Map a block that is read many times. `verify` as in `read`."""
        with self._open_file(block, verify, mapped=True) as file:
            return MappedBlock(file.read_buffer())

    def map_pages(self, block: Block, *, verify: bool = False) -> Iterator[pa.RecordBatch]:
        """All pages of a block, mapped: they stay readable after it is removed. `verify` as in `read`."""
        reader = self._open_reader(block, verify)
        for page in range(reader.num_record_batches):
            yield reader.get_batch(page)

    def read_pages(self, block: Block, first: int, stop: int) -> list[pa.RecordBatch]:
        """Read some pages of a block, in sequence. If the page before was read last, the first counts as sequential
        as well.
        """
        reader = self._reader(block)
        pages = [reader.get_batch(page) for page in range(first, stop)]
        follows = first > 0 and self._last_read == (block.name, first - 1)
        self._counters.pages_read_random += not follows
        self._counters.pages_read_sequential += stop - first - (not follows)
        self._last_read = (block.name, stop - 1)
        return pages

    def pages(self, block: Block, *, verify: bool = False) -> int:
        """The number of pages of a block. `verify` also compares the checksum, unless the block is open already."""
        return int(self._reader(block, verify).num_record_batches)

    def _reader(self, block: Block, verify: bool = False) -> pa.ipc.RecordBatchFileReader:
        """A reader that stays open, since pages are mostly read one at a time.

        It does not map the file: pages that were read would count as memory in use while it is open.
        """
        reader = self._readers.pop(block.name, None) or self._open_reader(block, verify, mapped=False)
        self._readers[block.name] = reader  # latest last
        while len(self._readers) > MOST_OPEN:
            del self._readers[next(iter(self._readers))]
        return reader

    def _open_reader(self, block: Block, verify: bool = False, *, mapped: bool = True) -> pa.ipc.RecordBatchFileReader:
        file = self._open_file(block, verify, mapped=mapped)
        try:
            return pa.ipc.open_file(file)
        except pa.ArrowInvalid as error:
            raise StateError(f"{self.place / block.name} is damaged: {error}. {RECOVERY}") from error

    def _open_file(self, block: Block, verify: bool, *, mapped: bool) -> pa.NativeFile:
        place = self.place
        checksum = None if place.path is not None and not verify else block.checksum
        try:
            return place.open(block.name, block.nbytes, checksum, mapped=mapped)
        except FileNotFoundError as error:
            raise self._missing(block) from error
        except DamagedError as error:
            raise StateError(f"{place / block.name} is damaged: {error}. {RECOVERY}") from error

    def _missing(self, block: Block) -> StateError:
        return StateError(f"{self.place / block.name} is missing. {RECOVERY}")

    def remove(self, blocks: Iterable[Block]) -> None:
        """Delete blocks. Batches mapped from them stay readable."""
        unneeded = [block.name for block in blocks]
        for name in unneeded:
            self._readers.pop(name, None)
        self.place.delete(unneeded)

    def close(self) -> None:
        """Remove a temporary directory with its contents. A directory that was passed in is kept."""
        self._readers.clear()
        if self._temporary and self._place is not None and self._place.path is not None:
            remove_owned(self._place.path)
            self._place = None

    def _count_read(self, block: Block) -> None:
        """Count a read. It is sequential if the block was written after the one last read, under the same stem."""
        stem, number = block.name.rsplit("-", 1)[0], self._numbers.get(block.name, -1)
        if self._last_read is not None and self._last_read[0] == stem and number > self._last_read[1]:
            self._counters.pages_read_sequential += 1
        else:
            self._counters.pages_read_random += 1
        self._last_read = (stem, number)


def _spill_directory() -> Path:
    try:
        return temporary_directory()
    except OSError as error:
        raise InputError(
            f"cannot create a directory for spilled rows: {error}. Set TMPDIR to a directory that can be written to."
        ) from error


class PagedBlock:
    """A block that is being written. It gets its name on `close`."""

    def __init__(
        self, place: Store, name: str, schema: pa.Schema, durable: bool, written: Callable[[str, int], None]
    ) -> None:
        self._place, self._name = place, name
        self._written = written
        self._pages = self._rows = 0
        self._file: Upload | None = None
        self._attempt(self._open, schema, durable)

    def write(self, page: pa.RecordBatch) -> None:
        self._attempt(self._writer.write_batch, page)
        self._pages += 1
        self._rows += page.num_rows

    def close(self, zone: tuple[int, int] | None = None) -> Block:
        self._attempt(self._finish)
        assert self._file is not None
        self._written(self._name, self._pages)
        low, high = zone or (None, None)
        return Block(self._name, self._rows, self._file.size, self._file.checksum, low, high)

    def _open(self, schema: pa.Schema, durable: bool) -> None:
        self._file = self._place.create(self._name, durable=durable)
        self._gathered = pa.BufferedOutputStream(pa.PythonFile(self._file, "w"), GATHERED_BYTES)
        self._writer = pa.ipc.new_file(self._gathered, schema)

    def _finish(self) -> None:
        assert self._file is not None
        self._writer.close()
        self._gathered.detach()  # otherwise it closes the file when it is collected
        self._file.publish()

    def _attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except OSError as error:
            self._discard()
            raise StateError(f"cannot write join state to {self._place / self._name}: {error.strerror}.") from error
        except StateError:
            self._discard()
            raise

    def _discard(self) -> None:
        if self._file is not None:
            self._file.discard()


RECOVERY = "Restore the state directory, or start again with a new checkpoint and a new state directory."
