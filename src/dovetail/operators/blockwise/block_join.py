"""The block join that two operators share: spilled rows are joined block against block, one step at a time.

    spill(side, …)     adds a block to that side
    run(most_outer)    steps of the schedule: outer blocks x one inner block, results in chunks
    run_by_ranges(…)   the rest of the schedule, range by range of codes (range_join.py)

A step is open until its last chunk is emitted. Dropping the generator keeps it open, and the next `run` resumes with
the following chunk; `let_go` also releases the loaded blocks, so the step loads them again when it resumes. Steps
without results are skipped without loading: zone maps that do not match, or rows that were all joined in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import no_matches, put_together
from dovetail.columns.row_store import RowStore
from dovetail.core.rows import Matches, Rows, Side
from dovetail.operators.blockwise.range_join import Origin, RangeJoin, RangeRows
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.budget import Budget
from dovetail.storage.residence import met_in_memory

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]


class BlockStep(NamedTuple):
    """Join these outer blocks with that inner block. Blocks are numbered from 0."""

    outer: Side
    outer_blocks: range
    inner_block: int

    def to_json(self) -> list[int]:
        return [self.outer, self.outer_blocks.start, self.outer_blocks.stop, self.inner_block]

    @classmethod
    def from_json(cls, fields: list[int]) -> BlockStep:
        outer, start, stop, inner = fields
        return cls(Side(outer), range(start, stop), inner)


@dataclass(slots=True)
class BlockSchedule:
    """Which blocks of both sides have been joined with each other."""

    outer: Side | None = None  # None: not started
    joined_left: int = 0
    joined_right: int = 0
    next_inner: int = 0
    batch_size: int = 0

    def advance(self, blocks: Callable[[Side], int], most_outer: int) -> BlockStep | None:
        """The next step, recorded as done; None if every pair of existing blocks is done."""
        if self.outer is None:
            self.outer = Side.LEFT if blocks(Side.LEFT) < blocks(Side.RIGHT) else Side.RIGHT
            self._set(self.outer.other, blocks(self.outer.other))
        while True:
            outer = self.outer
            if self._joined_blocks(outer) == blocks(outer):
                if self._joined_blocks(outer.other) == blocks(outer.other):
                    return None
                self.outer = outer = outer.other
                self.next_inner = 0
            if self.next_inner == 0:
                self.batch_size = min(most_outer, blocks(outer) - self._joined_blocks(outer))
            if self._joined_blocks(outer.other) > 0:
                break
            self._set(
                outer, self._joined_blocks(outer) + self.batch_size
            )  # no blocks to join yet: only the bounds of the done rectangle move
        first = self._joined_blocks(outer)
        step = BlockStep(outer, range(first, first + self.batch_size), self.next_inner)
        self.next_inner += 1
        if self.next_inner == self._joined_blocks(outer.other):
            self._set(outer, first + self.batch_size)
            self.next_inner = 0
        return step

    def has_joined(self, lefts: Rows, rights: Rows) -> Flags | None:
        """Which of these pairs of blocks, given by number, have been joined; None: no blocks have."""
        if self.outer is None:
            return None
        done: Flags = (lefts < self.joined_left) & (rights < self.joined_right)
        if self.next_inner:
            outer, inner = (lefts, rights) if self.outer is Side.LEFT else (rights, lefts)
            first = self._joined_blocks(self.outer)
            done |= (outer >= first) & (outer < first + self.batch_size) & (inner < self.next_inner)
        return done

    def to_json(self) -> dict[str, Any]:
        return {
            "outer": self.outer,
            "joined": [self.joined_left, self.joined_right],
            "next_inner": self.next_inner,
            "batch_size": self.batch_size,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> BlockSchedule:
        outer = None if fields["outer"] is None else Side(fields["outer"])
        left, right = fields["joined"]
        return cls(outer, left, right, fields["next_inner"], fields["batch_size"])

    def _joined_blocks(self, side: Side) -> int:
        return self.joined_left if side is Side.LEFT else self.joined_right

    def _set(self, side: Side, joined: int) -> None:
        if side is Side.LEFT:
            self.joined_left = joined
        else:
            self.joined_right = joined


ARRIVED = "__arrived"  # the last column of a spilled block: the tick of each row's arrival
LOADED = "loaded blocks"
MOST_SKIPPED = 64  # steps in a row before a yield


@dataclass(slots=True)
class Spilled:
    """A block on disk: the arrival ticks of its first and last row, and the tick at which all were evicted."""

    block: Block
    came: tuple[int, int]
    left: int
    stays: list[tuple[int, int]]  # when the whole block was in memory again

    def to_json(self) -> list[Any]:
        return [self.block.to_json(), self.came, self.left, self.stays]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Spilled:
        block, came, left, stays = fields
        return cls(Block.from_json(block), (came[0], came[1]), left, [(a, b) for a, b in stays])


class Loaded(NamedTuple):
    """Loaded rows of spilled blocks: prepared by the operator, with their arrival and eviction ticks and block
    numbers."""

    rows: Any
    arrived: Words
    left: Words
    numbers: Words
    stays: list[tuple[int, int, int]]  # (block number, tick of reload, tick of the eviction after it)


Pairs = Callable[[pa.RecordBatch, pa.RecordBatch], Iterator[tuple[Rows, Rows]]]
"""The pairs of rows of two batches that satisfy the condition, in pieces."""


class BlockJoiner(Protocol):
    """How an operator joins blocks. The result of `prepare` is opaque to the block join."""

    extra_row_bytes: int
    """Bytes that a prepared row takes in addition to its block."""

    def prepare(self, side: Side, whole: pa.RecordBatch) -> Any:
        """Prepare spilled rows for joining. Their last column is ARRIVED."""

    def batch_of(self, rows: Any) -> pa.RecordBatch: ...

    def candidates(self, outer: Side, mine: Any, theirs: Any, first: int) -> Iterator[tuple[Rows, Rows]]:
        """Candidates (outer row, inner row), starting with piece number `first`. The pieces are always the same."""

    def check(self, outer: Side, mine: Any, my_rows: Rows, theirs: Any, their_rows: Rows) -> Flags | None:
        """Which candidates are pairs; None: all."""

    def can_match(self, outer: Side, mine: Block, theirs: Block) -> bool:
        """Whether rows of an outer block can match rows of an inner one."""


class BlockWork:
    def __init__(
        self, joining: BlockJoiner, store: BlockStore, budget: Budget, schemas: tuple[pa.Schema, pa.Schema]
    ) -> None:
        self.spilled: tuple[list[Spilled], list[Spilled]] = ([], [])
        self.rectangle = BlockSchedule()
        self._joining = joining
        self._store = store
        self._budget = budget
        self._schemas = schemas
        self._step: BlockStep | None = None  # the open step, how many of its pieces have been emitted,
        self._yielded = 0
        self._pieces: Iterator[Matches] | None = None  # and the remaining ones, if it is loaded
        self._outer: tuple[tuple[Side, range], Loaded] | None = None

    def spill(
        self, side: Side, batch: pa.RecordBatch, arrived: Words, left: int, zone: tuple[int, int] | None = None
    ) -> None:
        """Write evicted rows as one block."""
        block = self._store.write(batch.append_column(ARRIVED, pa.array(arrived, pa.int64())), side.alias, zone)
        came = (int(arrived.min()), int(arrived.max()))
        self.spilled[side].append(Spilled(block, came, left, []))

    def run(
        self, most_outer: int, free_memory: Callable[[int, int], Iterator[None]] | None = None
    ) -> Iterator[Matches]:
        """All pending work, in chunks. `free_memory` evicts until the given rows and bytes fit, one unit per yield."""
        skipped = 0
        while (step := self._step or self._advance(most_outer)) is not None:
            if self._gives_nothing(step):
                self._step = None
                skipped += 1
                if skipped % MOST_SKIPPED == 0:
                    yield self._none()
                continue
            if self._pieces is None and free_memory is not None:
                for _ in free_memory(*self._size(step)):
                    yield self._none()
            yield from self._rest_of_step(step)
        self.let_go()

    def run_by_ranges(self, ranges: RangeJoin, pairs: Pairs) -> Iterator[Matches]:
        """All pending work in one pass, for conditions whose matching rows have equal codes."""
        if self._step is not None:
            yield from self._rest_of_step(self._step)
        self.let_go()
        left, right = ([Origin(s.block, i) for i, s in enumerate(of_side)] for of_side in self.spilled)

        def join(mine: RangeRows, theirs: RangeRows) -> Iterator[Matches]:
            rows = [self._loaded(side, *part) for side, part in zip(Side, (mine, theirs), strict=True)]
            batches = [loaded.rows for loaded in rows]
            for lefts, rights in pairs(*batches):
                missing = ~_joined_in_memory(rows[0], lefts, rows[1], rights)
                done = self.rectangle.has_joined(mine.numbers[lefts], theirs.numbers[rights])
                if done is not None:
                    missing &= ~done
                if not missing.all():
                    lefts, rights = lefts[missing], rights[missing]
                if len(lefts):
                    yield Matches.pairs(batches[0], lefts, batches[1], rights)

        yield from ranges.run(left, right, join)

    def _rest_of_step(self, step: BlockStep) -> Iterator[Matches]:
        """The remaining results of the open step; it is then closed."""
        if self._pieces is None:
            self._pieces = self._run(step)
        # Not `yield from`: when this generator is dropped, the pieces must stay open for the next call.
        for pairs in self._pieces:
            self._yielded += 1
            yield pairs
        self._step = None

    def let_go(self) -> None:
        """Release the loaded blocks; an open step remains open."""
        self._pieces = self._outer = None
        self._budget.release(LOADED)

    def to_json(self) -> dict[str, Any]:
        return {
            "rectangle": self.rectangle.to_json(),
            "step": None if self._step is None else self._step.to_json(),
            "yielded": self._yielded,
            "spilled": [[spilled.to_json() for spilled in side] for side in self.spilled],
        }

    def from_json(self, fields: dict[str, Any]) -> None:
        self.rectangle = BlockSchedule.from_json(fields["rectangle"])
        self._step = None if fields["step"] is None else BlockStep.from_json(fields["step"])
        self._yielded = fields["yielded"]
        for mine, stored in zip(self.spilled, fields["spilled"], strict=True):
            mine.extend(Spilled.from_json(each) for each in stored)

    def names(self) -> list[str]:
        return [spilled.block.name for side in self.spilled for spilled in side]

    def size(self) -> tuple[int, int]:
        """Rows and bytes on disk."""
        blocks = [spilled.block for side in self.spilled for spilled in side]
        return sum(block.rows for block in blocks), sum(block.nbytes for block in blocks)

    def load(self, side: Side, numbers: range) -> Loaded:
        spilled = [self.spilled[side][i] for i in numbers]
        whole = self._read([s.block for s in spilled])
        arrived = np.asarray(whole.column(whole.num_columns - 1))
        sizes = [s.block.rows for s in spilled]
        left, number = np.repeat([s.left for s in spilled], sizes), np.repeat(np.array(numbers), sizes)
        stays = [(i, *stay) for i, s in zip(numbers, spilled, strict=True) for stay in s.stays]
        return Loaded(self._joining.prepare(side, whole), arrived, left, number, stays)

    def _loaded(self, side: Side, stored: pa.RecordBatch, numbers: Words) -> Loaded:
        """Rows of all blocks, without their extra columns."""
        left = np.array([spilled.left for spilled in self.spilled[side]])
        stays = [(i, *stay) for i, spilled in enumerate(self.spilled[side]) for stay in spilled.stays]
        schema = self._schemas[side]
        rows = put_together(stored.columns[: len(schema)], schema, stored.num_rows)
        return Loaded(rows, np.asarray(stored.column(ARRIVED)), left[numbers], numbers, stays)

    def _read(self, blocks: list[Block]) -> pa.RecordBatch:
        """Copies the rows of several blocks one block at a time, so that none is in memory twice."""
        first = self._store.read(blocks[0])
        if len(blocks) == 1:
            return first
        rows = RowStore(first.schema)
        rows.append(first)
        del first
        for block in blocks[1:]:
            rows.append(self._store.read(block))
        return rows.view()

    def _advance(self, most_outer: int) -> BlockStep | None:
        """Open the next step, if there is one."""
        self._step = self.rectangle.advance(lambda side: len(self.spilled[side]), most_outer)
        self._yielded = 0
        self._pieces = None
        return self._step

    def _run(self, step: BlockStep) -> Iterator[Matches]:
        """The results of a step, from the first piece not yet emitted."""
        self._budget.hold(LOADED, *self._size(step))
        outer = self._outer_rows(step)
        inner = self.load(step.outer.other, range(step.inner_block, step.inner_block + 1))
        batches = [self._joining.batch_of(loaded.rows) for loaded in (outer, inner)]
        for mine, theirs in self._joining.candidates(step.outer, outer.rows, inner.rows, self._yielded):
            new = ~_joined_in_memory(outer, mine, inner, theirs)
            if not new.all():
                mine, theirs = mine[new], theirs[new]
            good = self._joining.check(step.outer, outer.rows, mine, inner.rows, theirs)
            if good is not None:
                mine, theirs = mine[good], theirs[good]
            yield Matches.oriented(step.outer, batches[0], mine, batches[1], theirs)
        yield self._none()  # every step yields at least once

    def _outer_rows(self, step: BlockStep) -> Loaded:
        """The outer blocks of a step; they stay loaded while inner blocks are read."""
        wanted = (step.outer, step.outer_blocks)
        if self._outer is None or self._outer[0] != wanted:
            self._outer = None  # free the old ones first
            self._outer = (wanted, self.load(*wanted))
        return self._outer[1]

    def _gives_nothing(self, step: BlockStep) -> bool:
        inner = self.spilled[step.outer.other][step.inner_block]
        for number in step.outer_blocks:
            outer = self.spilled[step.outer][number]
            all_met = max(outer.came[1], inner.came[1]) < min(outer.left, inner.left)
            if not all_met and self._joining.can_match(step.outer, outer.block, inner.block):
                return False
        return True

    def _size(self, step: BlockStep) -> tuple[int, int]:
        """The rows and bytes that a step loads."""
        blocks = [self.spilled[step.outer][i].block for i in step.outer_blocks]
        blocks.append(self.spilled[step.outer.other][step.inner_block].block)
        rows = sum(block.rows for block in blocks)
        return rows, sum(block.nbytes for block in blocks) + self._joining.extra_row_bytes * rows

    def _none(self) -> Matches:
        return no_matches(self._schemas)


def _joined_in_memory(mine: Loaded, my_rows: Rows, theirs: Loaded, their_rows: Rows) -> Flags:
    """Which candidates were joined in memory: during the first residence of both, or when one arrived while the other
    was reloaded."""
    my_arrival, their_arrival = mine.arrived[my_rows], theirs.arrived[their_rows]
    met = met_in_memory(my_arrival, mine.left[my_rows], their_arrival, theirs.left[their_rows])
    for number, came, left in mine.stays:
        met |= (mine.numbers[my_rows] == number) & (came < their_arrival) & (their_arrival < left)
    for number, came, left in theirs.stays:
        met |= (theirs.numbers[their_rows] == number) & (came < my_arrival) & (my_arrival < left)
    return met
