"""Reads the stored state of streaming joins: queries, joins and cells, and the rows that they keep.

    <state_dir>/<query>/<join>/layout.json                      the definition of the join
                               manifest-4.json                  a copy of cell 4's latest manifests
                               cell-4/00000017-l-3f2a….arrow    its segments
                               reports/4.17.1200.-.0            what cells report to each other, with a limit or an end

The authoritative manifest is in Spark's state store, and is committed with the micro-batch. The copy is for inspection
without Spark. It has two manifests: that of the latest attempt at a micro-batch, which may not be committed, and the
one before, which is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.taking import take_rows
from dovetail.core.directories import is_plain_name
from dovetail.core.rows import Side
from dovetail.errors import InputError, StateError
from dovetail.storage.blocks import RECOVERY, Block, BlockStore, check_block, is_count
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.segments import SEGMENT
from dovetail.storage.store import DamagedError, Store

LAYOUT = "layout.json"
CELL, COPY = "cell-{}", "manifest-{}.json"
CELL_BITS = 40  # of a row number: the low bits are its position in its cell, the high bits the cell
OWN = "__own"  # for windows: the row's number within its stream
ATTEMPTS = 5  # to read a cell while its query runs and merges or sweeps segments
CHECKPOINT = "Give its checkpointLocation."
REPORT = r"[0-9]+\.[0-9]+\.[0-9]+\.(?:-|[0-9]+)\.[0-9]+"  # reports of cells: spark/streaming/reports.py
OURS = re.compile(rf"(?:layout|manifest-[0-9]+)\.json(?:-[0-9a-f]{{32}})?|{SEGMENT.pattern}|{REPORT}", SEGMENT.flags)

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

Document = Mapping[str, Any]
"""A manifest in Spark's state store: version, batch, state, segments, previous, notes."""


class RowSegment(NamedTuple):
    """A segment with rows of one input."""

    input: str  # alias of the input
    block: Block
    alive: Block | None = None  # serial numbers of the remaining rows of all blocks; None: all
    flags: Block | None = None  # which of its rows have had a partner or were reported, if tracked
    run: Run | None = None  # the pages to read; None: all


class Run(NamedTuple):
    """Pages of a segment with several sorted runs, some of which may have been merged into others."""

    first_page: int
    pages: int
    rows: int


def row_segments(state: Any) -> Iterator[RowSegment]:
    """The segments with rows of the inputs. Operators also store orders, flags and statistics."""
    if isinstance(state, dict):
        if is_block(state):
            block = Block.from_json(state)
            stem = [part for part in block.name.split("-")[:-1] if not part.isdigit()]
            if len(stem) == 1 or stem[1:] == ["kept"]:
                yield RowSegment(stem[0], block)
        elif state.keys() >= {"block", "first_page", "starts"}:  # a run of a hash join
            run = Run(state["first_page"], len(state["starts"]) - 1, state["starts"][-1])
            yield from (segment._replace(run=run) for segment in row_segments(state["block"]))
        elif state.keys() >= {"blocks", "flags", "next"}:  # residents
            alive = Block.from_json(state["flags"])
            yield from (segment._replace(alive=alive) for segment in row_segments(state["blocks"]))
        elif state.keys() >= {"blocks", "way"}:  # a run of a window
            blocks = state["blocks"]
            flags = Block.from_json(blocks["flags"]) if "flags" in blocks else None
            yield from (segment._replace(flags=flags) for segment in row_segments(blocks["rows"]))
        else:
            for part in state.values():
                yield from row_segments(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from row_segments(part)


class StoredRows(NamedTuple):
    """Rows of one input, kept by a cell."""

    batch: pa.RecordBatch
    numbers: Integers  # unique per row; copies of a row in other cells of a window have the same number
    settled: Flags  # rows that had a partner or were emitted without one; none, if not tracked


def count_rows(state: Any) -> dict[str, int]:
    """The number of rows kept, by input. Other data of the operator is counted under other names."""
    parts = {(segment.input, segment.alive or segment.block, segment.run) for segment in row_segments(state)}
    rows: dict[str, int] = {}
    for alias, block, run in parts:
        rows[alias] = rows.get(alias, 0) + (block.rows if run is None else run.rows)
    return rows


def count_bytes(state: Any) -> int:
    """The bytes of the segments in an operator's manifest. Called for each cell and micro-batch."""
    return sum({part["name"]: int(part["nbytes"]) for part in _dictionaries(state) if is_block(part)}.values())


def _dictionaries(state: Any) -> Iterator[dict[str, Any]]:
    """All dictionaries in a state, outer ones first. Those inside blocks are skipped."""
    left = [state]
    while left:
        part = left.pop()
        if isinstance(part, list | tuple):
            left += part
        elif isinstance(part, dict):
            yield part
            if not is_block(part):
                left += part.values()


def is_block(fields: dict[str, Any]) -> bool:
    """Either field is enough: if one is missing, it is a damaged block."""
    return "checksum" in fields or "nbytes" in fields


def parse_manifest(text: str) -> dict[str, Any]:
    """Parse a manifest of Spark's state store."""
    try:
        return check_manifest(parse_json(text))
    except DamagedError as error:
        raise StateError(f"state is damaged: the manifest of a cell: {error}. {RECOVERY}") from error


def parse_json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(str(error)) from error


def check_manifest(document: Any) -> dict[str, Any]:
    """Check that a document has all fields that are read, in the right form. Raises DamagedError."""
    if not isinstance(document, dict):
        raise DamagedError(f"{document!r} is not a manifest")
    for name in ("version", "batch", "emitted"):  # earlier releases lack some of them
        if name in document and not is_count(document[name]):
            raise DamagedError(f"{name} is {document[name]!r}")
    for name in ("segments", "previous"):
        if name in document and not (isinstance(document[name], list) and all(map(is_plain_name, document[name]))):
            raise DamagedError(f"{name} is {document[name]!r}")
    missing = {"version", "state", "segments"} - document.keys()
    if missing:
        raise DamagedError(f"it has no {', '.join(sorted(missing))}")
    if not isinstance(document["state"], dict | None):
        raise DamagedError(f"state is {document['state']!r}")
    _check_blocks(document["state"])
    return document


def _check_blocks(state: Any) -> None:
    """Check the blocks in an operator's manifest, and the forms that `row_segments` expects."""
    for part in _dictionaries(state):
        if is_block(part):
            check_block(part)
        elif part.keys() >= {"blocks", "flags", "next"}:
            check_block(part["flags"])
        elif part.keys() >= {"block", "first_page", "starts"}:
            starts = part["starts"]
            if (
                not is_count(part["first_page"])
                or not starts
                or not (isinstance(starts, list) and all(map(is_count, starts)))
            ):
                raise DamagedError(f"the pages of a run are {starts!r} from {part['first_page']!r} on")
        elif part.keys() >= {"blocks", "way"}:
            if not isinstance(part["blocks"], dict) or "rows" not in part["blocks"]:
                raise DamagedError(f"blocks of a run are {part['blocks']!r}")
            for block in part["blocks"].values():
                check_block(block)


def write_copy(directory: Place, cell: int, made: str, before: str | None) -> None:
    """Write the manifests of a cell as JSON beside its segments. Not flushed, since nothing is restored from it."""
    open_store(directory).put(COPY.format(cell), (f"[{made}]" if before is None else f"[{made}, {before}]").encode())


@dataclass(frozen=True, slots=True)
class StoredCell:
    """One cell of a join, as described by its latest manifest."""

    number: int
    inputs: tuple[str, ...]  # aliases
    directory: Store  # of its segments
    manifest: Document
    written: float  # seconds since the epoch

    @property
    def rows(self) -> int:
        kept = count_rows(self.manifest["state"])
        return sum(kept.get(alias, 0) for alias in self.inputs)

    @property
    def nbytes(self) -> int:
        return count_bytes(self.manifest["state"])

    @property
    def segments(self) -> int:
        return len(self.manifest["segments"])

    @property
    def batch(self) -> int:
        """The micro-batch in which the manifest was written."""
        return int(self.manifest.get("batch", -1))


@dataclass(frozen=True, slots=True)
class StoredJoin:
    """One join of a query."""

    directory: Store
    layout: Mapping[str, Any]

    @property
    def query(self) -> str:
        return self.directory.parent.name

    @property
    def name(self) -> str:
        return unquote(self.directory.name)

    @property
    def algorithm(self) -> str:
        return str(self.layout.get("algorithm", "spo"))  # of windows

    @property
    def how(self) -> str:
        return str(self.layout.get("how", "inner"))

    @property
    def condition(self) -> str:
        return str(self.layout["condition"])

    @property
    def columns(self) -> dict[str, list[str]]:
        """The names of each input's columns."""
        given = self.layout["columns"]
        inputs = given if len(given) > len(Side) else zip([side.alias for side in Side], given, strict=True)
        return {alias: [name for name, _ in columns] for alias, columns in inputs}

    def numbers(self) -> list[int]:
        """The cells that have a manifest."""
        found = (re.fullmatch(r"manifest-([0-9]+)\.json", entry.name) for entry in self.directory.entries())
        return sorted(int(match[1]) for match in found if match)

    def cell(self, number: int, committed: int | None = None) -> StoredCell | None:
        """A cell by its latest manifest, or by the latest one committed up to a micro-batch."""
        name = COPY.format(number)
        found, text = self.directory.find(name), self.directory.get(name)
        if found is None or text is None:
            return None
        try:
            manifests = parse_json(text)
            if not isinstance(manifests, list) or not manifests:
                raise DamagedError("it has no manifest")
            manifests = [check_manifest(manifest) for manifest in manifests]
        except DamagedError as error:
            raise StateError(
                f"{self.directory / name} is damaged: {error}. The next micro-batch of the query replaces it."
            ) from error
        inputs, directory = tuple(self.columns), self.directory / CELL.format(number)
        for manifest in manifests:
            cell = StoredCell(number, inputs, directory, manifest, found.written)
            if committed is None or cell.batch <= committed:
                return cell
        return None

    def cells(self, committed: int | None = None) -> list[StoredCell]:
        found = (self.cell(number, committed) for number in self.numbers())
        return [cell for cell in found if cell is not None]

    def read(self, number: int, alias: str, committed: int | None = None) -> list[StoredRows]:
        """The rows of one input that a cell keeps, mapped: they stay readable when the query continues."""
        if alias not in self.columns:
            raise InputError(f"{self.directory} has no input {alias!r}: there are {', '.join(self.columns)}.")
        for _ in range(ATTEMPTS - 1):
            with suppress(StateError):
                return self._read_once(number, alias, committed)
        return self._read_once(number, alias, committed)

    def _read_once(self, number: int, alias: str, committed: int | None) -> list[StoredRows]:
        cell = self.cell(number, committed)
        return [] if cell is None else list(_map_rows(cell, alias, len(self.columns[alias])))

    def check_copies(self) -> None:
        """Raise an error if cells have no copy of their manifest, instead of treating them as empty."""
        copies = set(self.numbers())
        found = (re.fullmatch(r"cell-([0-9]+)", name) for name in self.directory.folders())
        missing = [
            match[0]
            for match in sorted(filter(None, found), key=lambda match: match[0])
            if int(match[1]) not in copies and any(True for _ in (self.directory / match[0]).entries())
        ]
        if missing:
            raise StateError(
                f"{self.directory} has no manifest of {', '.join(missing)}: written by an earlier release, or by "
                "a first micro-batch that is not done. Let the query run a micro-batch with this release."
            )


def _map_rows(cell: StoredCell, alias: str, width: int) -> Iterator[StoredRows]:
    store = BlockStore(cell.directory)
    alive: dict[str, Any] = {}
    first = cell.number << CELL_BITS
    for segment in row_segments(cell.manifest["state"]):
        if segment.input != alias:
            continue
        settled = None if segment.flags is None else _has_been_result(store.read(segment.flags, verify=True))
        pages: Iterable[pa.RecordBatch] = store.map_pages(segment.block, verify=True)
        if segment.run is not None:
            pages = islice(pages, segment.run.first_page, segment.run.first_page + segment.run.pages)
        for page in pages:
            batch, here = page.select(range(width)), np.arange(page.num_rows)
            numbers = np.asarray(page.column(OWN)) if OWN in page.schema.names else first + here
            first += page.num_rows
            rows = StoredRows(batch, numbers, np.zeros(len(here), np.bool_) if settled is None else settled)
            if segment.alive is not None:
                if segment.alive.name not in alive:
                    alive[segment.alive.name] = np.asarray(store.read(segment.alive, verify=True).column(0))
                serials = np.asarray(page.column(page.num_columns - 1))
                kept = np.flatnonzero(np.isin(serials, alive[segment.alive.name]))
                rows = StoredRows(take_rows(batch, kept), numbers[kept], rows.settled[kept])
            if rows.batch.num_rows:
                yield rows


def _has_been_result(flags: pa.RecordBatch) -> Flags:
    partnered, reported = (np.array(flags.column(name), np.bool_) for name in ("partnered", "reported"))
    return partnered | reported


def stored_joins(state_dir: Place, query: str | None = None) -> list[StoredJoin]:
    """The joins with state in a place, of all queries or of one."""
    store = open_store(state_dir)
    if store.path is not None and not store.path.is_dir():
        raise InputError(f"{store} is not a directory. Give the state_dir= of a join of streams.")
    found: dict[str, list[tuple[Store, bytes]]] = {}
    for name in sorted(store.folders()):
        for join in sorted((store / name).folders()):
            directory = store / name / join
            layout = directory.get(LAYOUT)
            if layout is not None:
                found.setdefault(name, []).append((directory, layout))
    if query is not None and query not in found:
        there = ", ".join(found) or "none"
        raise InputError(f"{store} has no state of a query {query!r}. There are: {there}.")
    wanted = [join for name, joins in found.items() if query in (None, name) for join in joins]
    return [StoredJoin(directory, _read_layout(directory, layout)) for directory, layout in wanted]


def _read_layout(directory: Store, text: bytes) -> Mapping[str, Any]:
    try:
        layout: Mapping[str, Any] = parse_json(text)
        _check_layout(layout)
    except DamagedError as error:
        raise StateError(f"{directory / LAYOUT} is not the layout of a join, or is damaged: {error}.") from error
    return layout


def _check_layout(layout: Any) -> None:
    """Check the fields that are read here. The join itself compares the whole layout with its own."""
    if not isinstance(layout, dict):
        raise DamagedError(f"{layout!r} is not a layout")
    missing = {"format", "condition", "columns"} - layout.keys()
    if missing:
        raise DamagedError(f"it has no {', '.join(sorted(missing))}")
    for name in {"condition", "algorithm", "how"} & layout.keys():
        if not isinstance(layout[name], str):
            raise DamagedError(f"{name} is {layout[name]!r}")
    inputs = layout["columns"]
    named = isinstance(inputs, list) and len(inputs) > len(Side)
    if named:
        pairs = all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in inputs)
        inputs = [one[1] for one in inputs] if pairs and len({one[0] for one in inputs}) == len(inputs) else None
    if not isinstance(inputs, list) or len(inputs) < len(Side) or not all(map(_are_columns, inputs)):
        raise DamagedError(f"columns are {layout['columns']!r}")


def _are_columns(given: Any) -> bool:
    """Whether it has names and types of columns."""
    return isinstance(given, list) and all(
        isinstance(column, list) and len(column) == 2 and all(isinstance(part, str) for part in column)
        for column in given
    )


def last_commit(checkpoint: Place) -> tuple[str, int]:
    """The id of the query that owns a checkpoint, and its last committed micro-batch; -1 before the first."""
    store = open_store(checkpoint)
    try:
        metadata = store.get("metadata")
        if metadata is None:
            raise InputError(f"{store} is not the checkpoint of a query: it has no metadata. {CHECKPOINT}")
        query = str(json.loads(metadata)["id"])
    except (StateError, ValueError, KeyError) as error:
        raise InputError(f"{store} is not the checkpoint of a query: {error}. {CHECKPOINT}") from error
    numbers = [int(entry.name) for entry in (store / "commits").entries() if entry.name.isdigit()]
    return query, max(numbers, default=-1)


@dataclass(frozen=True, slots=True)
class QueryState:
    """Everything that a query keeps: all files in its directory are ours."""

    directory: Store
    nbytes: int
    written: float  # last write, in seconds since the epoch

    def remove(self) -> None:
        self.directory.delete_all()
        if any(True for _ in self.directory.entries(recursive=True)):
            raise StateError(f"{self.directory} could not be removed, or not all of it: is the query running?")


def removable_query(state_dir: Place, query: str) -> QueryState:
    """What `remove` would remove. Anything that was not written by a streaming join is an error."""
    known = {join.directory.name for join in stored_joins(state_dir, query)}
    directory = open_store(state_dir) / query
    if directory.path is not None and directory.path.is_symlink():
        raise InputError(f"{directory} is a link. Nothing was removed: remove what it points to.")
    nbytes, written = 0, 0.0
    strange = [name for name in directory.folders() if name not in known]
    for entry in directory.entries(recursive=True):
        folder, _, name = entry.name.rpartition("/")
        if not folder or not OURS.fullmatch(name):
            strange.append(entry.name)
        nbytes, written = nbytes + entry.nbytes, max(written, entry.written)
    if strange:
        folder, _, name = strange[0].rpartition("/")
        raise InputError(
            f"{directory / folder if folder else directory} has {name}, which no join of streams has written. Nothing "
            "was removed: look at it, and remove it by other means."
        )
    return QueryState(directory, nbytes, written)
