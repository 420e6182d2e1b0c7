"""Joins sorted blocks on disk range by range of their codes, so that every row is read once.

    blocks of the left     [··|·····|···]   [·|···|·····]  …      all of them are cut at the same codes
    blocks of the right    [···|···|····]   [··|·····|··]  …
                               \\_________________\\________ one range: joined as two batches

Matching rows have equal codes, so they are in the same range. A range has as many rows as fit in memory. If it has
more, for example with a frequent value, parts of its left rows are joined with parts of its right rows. Blocks are
memory-mapped, and what was read of them is released after each range, and every few megabytes while cuts are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate
from dovetail.columns.row_store import MOST_BYTES
from dovetail.core.rows import Matches
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import Block
from dovetail.storage.mapped_block import MappedBlock

Words = NDArray[np.int64]

LOADED = "loaded ranges"
EXTRA_ROW_BYTES = 40  # per loaded row: its origin, its ticks, and memory for the join
SAMPLES = 64  # codes sampled per page
PASSED_BYTES = 1 << 22  # of pages read in turn before they are released
FILLED = 0.9  # share of the memory that a range is expected to fill: cuts are chosen from samples


class Origin(NamedTuple):
    """A sorted block, or some pages of one, and the number that identifies its rows."""

    block: Block
    number: int
    pages: range | None = None


class RangeRows(NamedTuple):
    """Rows of one side, and the block number of each."""

    batch: pa.RecordBatch
    numbers: Words


class _Page(NamedTuple):
    mapped: MappedBlock
    batch: pa.RecordBatch
    codes: Words
    number: int
    follows: bool  # whether it follows another page of its run
    row_size: float  # in the unit of the budget


class _Slice(NamedTuple):
    page: _Page
    start: int
    stop: int

    @property
    def size(self) -> float:
        return (self.stop - self.start) * self.page.row_size


Join = Callable[[RangeRows, RangeRows], Iterator[Matches]]


class RangeJoin:
    """`code`: the column by which blocks are sorted."""

    def __init__(self, workspace: Workspace, code: str) -> None:
        shares = workspace.shares
        self._store = workspace.blocks
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._code = code
        self._memory = float(min(shares.block * shares.outer_blocks_at_end, MOST_BYTES))

    def run(self, left: Sequence[Origin], right: Sequence[Origin], join: Join) -> Iterator[Matches]:
        """What `join` yields for each range, in order. Blocks beyond the range of the other side are not read."""
        left, right = _within_reach(left, right), _within_reach(right, left)
        if not left or not right:
            return
        mapped: dict[str, MappedBlock] = {}
        sides = [
            list(_in_turn(page for origin in origins for page in self._open(origin, mapped)))
            for origins in (left, right)
        ]
        cuts = self._choose_cuts([page for pages in sides for page in pages])
        places = [[_places(page, cuts) for page in _in_turn(pages)] for pages in sides]
        for number in range(len(cuts) + 1):
            here = [
                [_Slice(page, int(at[number]), int(at[number + 1])) for page, at in zip(pages, of_side, strict=True)]
                for pages, of_side in zip(sides, places, strict=True)
            ]
            mine, theirs = ([part for part in slices if part.stop > part.start] for slices in here)
            if mine and theirs:
                yield from self._join_range(mine, theirs, join)
        self._budget.release(LOADED)

    def _open(self, origin: Origin, opened: dict[str, MappedBlock]) -> Iterator[_Page]:
        block, number, pages = origin
        mapped = opened.get(block.name) or self._store.map(block)
        opened[block.name] = mapped
        row_size = self._budget.measure(block.rows, block.nbytes + EXTRA_ROW_BYTES * block.rows) / max(1, block.rows)
        for count, page in enumerate(range(mapped.pages) if pages is None else pages):
            batch = mapped.read(page)
            yield _Page(mapped, batch, np.asarray(batch.column(self._code)), number, count > 0, row_size)

    def _choose_cuts(self, pages: Sequence[_Page]) -> Words:
        """The largest code of each range except the last."""
        steps = [max(1, page.batch.num_rows // SAMPLES) for page in pages]
        samples = [page.codes[step // 2 :: step].copy() for page, step in zip(_in_turn(pages), steps, strict=True)]
        each = [page.batch.num_rows * page.row_size / len(taken) for page, taken in zip(pages, samples, strict=True)]
        codes = np.concatenate(samples)
        sizes = np.repeat(each, [len(taken) for taken in samples])
        order = np.argsort(codes, kind="stable")
        ranges = (np.cumsum(sizes[order]) // (FILLED * self._memory)).astype(np.int64)
        return np.unique(codes[order][np.flatnonzero(np.diff(ranges))])

    def _join_range(self, left: list[_Slice], right: list[_Slice], join: Join) -> Iterator[Matches]:
        fits = sum(part.size for part in (*left, *right)) <= self._memory
        most = self._memory if fits else self._memory / 2
        for mine in _parts(left, most):
            self._budget.look()  # as much is held as before, but in new memory
            my_rows = self._load(mine)
            for theirs in _parts(right, most):
                self._hold((*mine, *theirs))
                yield from join(my_rows, self._load(theirs))

    def _load(self, slices: Sequence[_Slice]) -> RangeRows:
        batch = concatenate([part.page.batch.slice(part.start, part.stop - part.start) for part in slices])
        pages = [part.page for part in slices]
        _release(pages)
        begun = [part.page.follows for part in slices if part.start == 0]  # a page counts once, where it starts
        self._counters.pages_read_sequential += sum(begun)
        self._counters.pages_read_random += len(begun) - sum(begun)
        numbers = np.repeat([page.number for page in pages], [part.stop - part.start for part in slices])
        return RangeRows(batch, numbers)

    def _hold(self, slices: Sequence[_Slice]) -> None:
        rows = sum(part.stop - part.start for part in slices)
        self._budget.hold(LOADED, rows, int(sum(part.size for part in slices)))


def _within_reach(mine: Sequence[Origin], theirs: Sequence[Origin]) -> list[Origin]:
    """The blocks, without those whose zone maps exclude any match."""
    zones = [(origin.block.low, origin.block.high) for origin in theirs]
    lows, highs = [low for low, _ in zones if low is not None], [high for _, high in zones if high is not None]
    if len(lows) < len(zones) or len(highs) < len(zones) or not zones:
        return list(mine)
    low, high = min(lows), max(highs)
    return [origin for origin in mine if _meets(origin.block, low, high)]


def _meets(block: Block, low: int, high: int) -> bool:
    return block.low is None or block.high is None or (block.low <= high and low <= block.high)


def _places(page: _Page, cuts: Words) -> Words:
    """Where each range of a page starts, and the end of the last one."""
    return np.concatenate([[0], np.searchsorted(page.codes, cuts, side="right"), [len(page.codes)]])


def _parts(slices: list[_Slice], most: float) -> Iterator[list[_Slice]]:
    """Groups of slices that fit in memory, with at least one slice each."""
    part: list[_Slice] = []
    size = 0.0
    for each in slices:
        if part and size + each.size > most:
            yield part
            part, size = [], 0.0
        part.append(each)
        size += each.size
    yield part


def _in_turn(pages: Iterable[_Page]) -> Iterator[_Page]:
    """The pages, which are released every few megabytes while they are read."""
    passed: list[_Page] = []
    nbytes = 0
    for page in pages:
        yield page
        passed.append(page)
        nbytes += page.batch.nbytes
        if nbytes > PASSED_BYTES:
            _release(passed)
            passed, nbytes = [], 0
    _release(passed)


def _release(pages: Sequence[_Page]) -> None:
    for mapped in {id(page.mapped): page.mapped for page in pages}.values():
        mapped.release()
