"""The rows of one side: residents, and spilled rows in sorted blocks.

Residents are evicted from time to time, by key:

    position     0   1   2   3   4   5   6  …        in the order of arrival, without gaps
    rows         [ part ][ part ][ part …            (storage/packed_rows.py)
    others       a link and a tag in a hash table, a bit for rows that gave a result; ticks of arrival per batch

Partners are found by hash if keys must be equal, else by the order of the codes. Values that can be computed from a row
are not stored: codes and hashes are computed again, for candidates and whenever rows are evicted.

Blocks of spilled rows are sorted by their codes, and searched by the other side:

    a block      columns of the rows | __code | __hash, if codes are not exact | __arrived
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.row_store import MOST_BYTES
from dovetail.core.metrics import Counters
from dovetail.core.parts import chunk_ranges
from dovetail.core.rows import Matches, Rows, Side
from dovetail.kernels.searching import expand, find_sorted
from dovetail.kernels.sorting import sort_codes
from dovetail.matching import build_matcher
from dovetail.operators.blockwise.block_join import BlockWork
from dovetail.operators.blockwise.range_join import RangeJoin
from dovetail.operators.diner.keys import Keyed, OrderKeys
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import Block
from dovetail.storage.budget import Budget
from dovetail.storage.hash_table import CompactTable
from dovetail.storage.ordered_index import OrderedIndex, SortedKeys
from dovetail.storage.packed_rows import PackedRows
from dovetail.storage.residence import ArrivalTicks, Clock
from dovetail.storage.resident_snapshot import Held, Marks, Survivors
from dovetail.storage.row_marks import RowMarks

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]
FreeMemory = Callable[[int, int], Iterator[None]]
"""Evicts residents until the given rows and bytes fit, one block per yield."""

ARRIVED, CODE, HASH = "__arrived", "__code", "__hash"  # columns in addition to those of the rows
PER_ENTRY = 12  # bytes per row of an ordered index
EXTRA_ROW_BYTES = 24  # per spilled row, for the extra columns
MOST_PAIRS = 1 << 18  # candidates per piece
HEADROOM = 1.2  # a block may exceed its planned size by this factor, since rows differ in width
OUTER_SHARE = 8  # 1/8 of the budget's blocks is loaded as outer ones, unless set otherwise


class Candidates(NamedTuple):
    """Rows that may match: the probing row, the resident's position, and where the resident is stored."""

    probing: Rows
    positions: Rows
    batch: pa.RecordBatch
    rows: Rows
    codes: Words  # codes of the residents

    def only(self, chosen: Flags) -> Candidates:
        probing, positions, _, rows, codes = self
        return Candidates(probing[chosen], positions[chosen], self.batch, rows[chosen], codes[chosen])


class OrderedSide:
    def __init__(
        self, side: Side, schema: pa.Schema, keys: OrderKeys, part_bytes: int = MOST_BYTES, counted: bool = False
    ) -> None:
        self.side = side
        self.arrived = ArrivalTicks()
        self.marks = RowMarks(counted)
        self._survivors = Survivors()
        self._schema = schema
        self._keys = keys
        self._rows = PackedRows(schema, part_bytes)
        self._table = CompactTable()
        self._index = OrderedIndex()

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        index = self._table.nbytes if self._keys.by_hash else self._index.nbytes
        return self._rows.nbytes + index + self.arrived.nbytes + self.marks.nbytes + self._survivors.nbytes

    @property
    def row_bytes(self) -> float:
        """The average size of a row alone."""
        return self._rows.nbytes / self.rows if self.rows else 0.0

    def nbytes_for(self, batch: pa.RecordBatch) -> int:
        """The additional bytes needed to keep the batch."""
        rows: int = batch.num_rows
        index = self._table.nbytes_with(rows) - self._table.nbytes if self._keys.by_hash else PER_ENTRY * rows
        return int(batch.nbytes) + index + self.marks.nbytes_with(rows) - self.marks.nbytes

    def insert(self, batch: pa.RecordBatch, keyed: Keyed, arrived: int | Words, marks: Marks | Flags) -> None:
        """Keep all rows of the batch; `keyed` has their codes and hashes."""
        first, rows = self.rows, batch.num_rows
        if not rows:
            return
        self._rows.append(batch)
        self.arrived.append(arrived, rows)
        self.marks.append(marks)
        if keyed.hashes is not None:
            self._table.insert(keyed.hashes, self._hashes)
        else:
            self._index.insert(keyed.codes, np.arange(first, first + rows))

    def find(self, keyed: Keyed, most: int) -> Iterator[Candidates]:
        """Candidates for rows of the other side, in pieces of about `most`: equal hashes, or codes within reach."""
        if keyed.hashes is None:
            found = self._index.find(*self._keys.reach(self.side.other, keyed.codes), most=most)
        else:
            found = self._table.find(keyed.hashes, most)
        for probing, positions in found:
            for chosen, batch, rows in self._rows.gathered(positions):
                mine = probing[chosen]
                if keyed.hashes is not None and not self._keys.exact_codes:
                    # The condition is checked as written, independently of the codes.
                    yield Candidates(mine, positions[chosen], batch, rows, keyed.codes[mine])
                    continue
                candidates = Candidates(mine, positions[chosen], batch, rows, self._keys.codes(self.side, batch, rows))
                if keyed.hashes is not None:
                    candidates = candidates.only(candidates.codes == keyed.codes[mine])
                yield candidates

    def codes(self) -> Words:
        """The codes of all rows."""
        return self._rows.column(lambda part: self._keys.codes(self.side, part))

    def block(self, positions: Rows) -> tuple[pa.RecordBatch, Keyed]:
        """The rows at these positions, in this order, with their codes and hashes."""
        batch = self._rows.take(positions)
        hashes = self._keys.hashes(self.side, batch) if self._keys.by_hash else None
        return batch, Keyed(None, self._keys.codes(self.side, batch), hashes)

    def take(self, positions: Rows) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        return self._rows.take(positions)

    def held(self) -> Held:
        """All rows, with their ticks of arrival as an extra column."""
        schema = with_arrival(self._schema)

        def take(page: slice) -> pa.RecordBatch:
            rows = np.arange(page.start, page.stop)
            return pa.RecordBatch.from_arrays([*self.take(rows).columns, pa.array(self.arrived[rows])], schema=schema)

        return Held(self._survivors.all(), self.marks.all().astype(np.int32), take)

    def saved(self) -> None:
        """Called when a snapshot contains all rows."""
        self._survivors.restart(self.rows)

    def remove(self, positions: Rows) -> None:
        """Remove these rows; later rows move up."""
        gone = np.zeros(self.rows, np.bool_)
        gone[positions] = True
        self._rows.remove(gone)
        self.arrived.remove(gone)
        self.marks.remove(gone)
        self._survivors.remove(gone)
        if self._keys.by_hash:
            self._table.remove(gone, self._hashes)
        else:
            self._index.renumber(np.where(gone, -1, np.cumsum(~gone) - 1))

    def code_again(self) -> None:
        """Recompute the codes after the coding of keys has changed."""
        if not self._keys.by_hash:
            self._index = OrderedIndex()
            self._index.insert(self.codes(), np.arange(self.rows))

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """All rows."""
        return self._rows.parts

    def _hashes(self) -> Iterator[Words]:
        return (self._keys.hashes(self.side, part) for part in self._rows.parts)


def with_arrival(schema: pa.Schema) -> pa.Schema:
    """The schema of rows with their ticks of arrival."""
    return schema.append(pa.field(ARRIVED, pa.int64()))


class Reloaded:
    def __init__(self, work: BlockWork, keys: OrderKeys, clock: Clock) -> None:
        self.rows: OrderedSide | None = None
        self._work = work
        self._keys = keys
        self._clock = clock
        self._side = Side.LEFT
        self._numbers: list[int] = []
        self._came = 0

    def load(self, side: Side, rows: OrderedSide, capacity: int, budget: Budget) -> None:
        """Fill `capacity` with blocks, the most recently evicted first: these were useful for longest."""
        self._side, self._numbers, self._came = side, [], self._clock.tick()
        self.rows = rows
        for number in reversed(range(len(self._work.spilled[side]))):
            loaded = self._work.load(side, range(number, number + 1))
            batch: pa.RecordBatch = loaded.rows.batch
            needed = budget.measure(rows.rows + batch.num_rows, rows.nbytes + rows.nbytes_for(batch))
            if needed > capacity:
                break
            rows.insert(batch, self._keys.read(side, batch), self._came, np.zeros(batch.num_rows, np.bool_))
            self._numbers.append(number)

    def drop(self) -> None:
        """Drop the blocks; they are still on disk."""
        if self.rows is not None:
            left = self._clock.tick()
            for number in self._numbers:
                self._work.spilled[self._side][number].stays.append((self._came, left))
            self.rows = None


class SortedRows(NamedTuple):
    """Rows of some blocks, and the positions where their keys are sorted."""

    batch: pa.RecordBatch
    codes: Words
    words: Words  # what partners are searched by: hashes if codes are not exact, else codes
    ordered: SortedKeys


class SpilledRows(Protocol):
    """The evicted rows of both sides, and how they are joined."""

    def has_spilled(self, side: Side) -> bool: ...
    def spill(self, side: Side, batch: pa.RecordBatch, keyed: Keyed, arrived: Words, left: int) -> None:
        """Write evicted rows, which are sorted by code."""

    def react(self, free_memory: FreeMemory, *, at_end: bool) -> Iterator[Matches]:
        """Join what has been spilled so far. It may be dropped at any yield; the next call resumes."""

    def release(self, free: int) -> Iterator[Matches]:
        """Called when rows arrive and only `free` memory is left: release memory if more than that is taken."""

    def finish(self) -> Iterator[Matches]:
        """All remaining results."""

    def to_json(self) -> dict[str, Any]: ...
    def from_json(self, fields: dict[str, Any]) -> None: ...
    def names(self) -> list[str]: ...
    def size(self) -> tuple[int, int]: ...


class SpilledBlocks:
    """Evicted rows in sorted blocks, joined block against block (Algorithm 4)."""

    def __init__(self, keys: OrderKeys, workspace: Workspace, outer_blocks: int | None) -> None:
        shares = workspace.shares
        schemas = workspace.condition.schemas
        self._sorted = SortedBlocks(keys, schemas, workspace.counters)
        self.work = BlockWork(self._sorted, workspace.blocks, workspace.budget, schemas)
        # Rows with equal keys have equal codes. Other partners may be in several ranges.
        self._ranges = RangeJoin(workspace, CODE) if keys.by_hash else None
        self._condition = workspace.condition
        self._counters = workspace.counters
        self._most_outer = shares.outer_blocks_at_end
        wanted = (self._most_outer + 2) // OUTER_SHARE if outer_blocks is None else outer_blocks
        self._outer_blocks = max(1, min(wanted, self._most_outer))
        self._block = shares.block * HEADROOM
        self._extra_row_bytes = EXTRA_ROW_BYTES + self._sorted.extra_row_bytes
        self._budget = workspace.budget
        self.to_json, self.from_json = self.work.to_json, self.work.from_json
        self.names, self.size = self.work.names, self.work.size

    def has_spilled(self, side: Side) -> bool:
        return bool(self.work.spilled[side])

    def spill(self, side: Side, batch: pa.RecordBatch, keyed: Keyed, arrived: Words, left: int) -> None:
        """Write one block; several only if they would not fit in memory once loaded, including their extra columns."""
        rows = batch.num_rows
        size = self._budget.measure(rows, batch.nbytes + self._extra_row_bytes * rows)
        if size > self._block and rows > 1:
            middle = rows // 2
            for half in (slice(0, middle), slice(middle, rows)):
                some = batch.slice(half.start, half.stop - half.start)
                hashes = None if keyed.hashes is None else keyed.hashes[half]
                self.spill(side, some, Keyed(None, keyed.codes[half], hashes), arrived[half], left)
            return
        zone = (int(keyed.codes[0]), int(keyed.codes[-1]))
        self.work.spill(side, self._sorted.block(batch, keyed), arrived, left, zone)

    def react(self, free_memory: FreeMemory, *, at_end: bool) -> Iterator[Matches]:
        return self.work.run(self._most_outer if at_end else self._outer_blocks, free_memory)

    def release(self, free: int) -> Iterator[Matches]:
        """While rows arrive, all memory is for residents."""
        self.work.let_go()
        return iter(())

    def finish(self) -> Iterator[Matches]:
        if self._ranges is None:
            return self.work.run(self._most_outer)
        return self.work.run_by_ranges(self._ranges, self._pairs)

    def _pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[tuple[Rows, Rows]]:
        for lefts, rights in build_matcher(self._condition, left, right).pairs(MOST_PAIRS):
            self._counters.pairs_tested += len(lefts)
            yield lefts, rights


class SortedBlocks:
    """Joins blocks, for `BlockWork`."""

    extra_row_bytes = 32

    def __init__(self, keys: OrderKeys, schemas: tuple[pa.Schema, pa.Schema], counters: Counters) -> None:
        self._keys = keys
        self._schemas = schemas
        self._counters = counters
        self._hashed = keys.by_hash and not keys.exact_codes

    def block(self, batch: pa.RecordBatch, keyed: Keyed) -> pa.RecordBatch:
        """Rows sorted by code, with all extra columns but the last."""
        batch = batch.append_column(CODE, pa.array(keyed.codes))
        return batch.append_column(HASH, pa.array(keyed.hashes)) if self._hashed else batch

    def prepare(self, side: Side, whole: pa.RecordBatch) -> SortedRows:
        schema = self._schemas[side]
        rows = pa.RecordBatch.from_arrays(whole.columns[: len(schema)], schema=schema)
        codes = np.asarray(whole.column(len(schema)))
        words = np.asarray(whole.column(len(schema) + 1)) if self._hashed else codes
        order, ascending = sort_codes(words)
        return SortedRows(rows, codes, words, SortedKeys(ascending, order))

    def batch_of(self, rows: SortedRows) -> pa.RecordBatch:
        return rows.batch

    def candidates(self, outer: Side, mine: SortedRows, theirs: SortedRows, first: int) -> Iterator[tuple[Rows, Rows]]:
        if self._keys.by_hash:
            starts, counts = find_sorted(mine.ordered.keys, theirs.words)
        else:
            starts, counts = mine.ordered.ranges(*self._keys.reach(outer.other, theirs.words))
        total = int(counts.sum())
        if first == 0:
            self._counters.pairs_tested += total
        for number, (start, end, pairs) in enumerate(chunk_ranges(counts, total, MOST_PAIRS)):
            if number >= first:
                their_rows, places = expand(starts, counts, start, end, pairs)
                yield mine.ordered.rows[places], their_rows

    def check(self, outer: Side, mine: SortedRows, my_rows: Rows, theirs: SortedRows, their_rows: Rows) -> Flags | None:
        if not self._keys.has_checks:
            return None
        my_codes, their_codes = mine.codes[my_rows], theirs.codes[their_rows]
        return self._keys.matching(outer, (mine.batch, my_rows, my_codes), (theirs.batch, their_rows, their_codes))

    def can_match(self, outer: Side, mine: Block, theirs: Block) -> bool:
        if mine.low is None or mine.high is None or theirs.low is None or theirs.high is None:
            return True
        return self._keys.can_match(outer, (mine.low, mine.high), (theirs.low, theirs.high))
