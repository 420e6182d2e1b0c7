"""Symmetric nested loop with spilling: any condition, any budget of at least four blocks.

    arriving   batch --> compare with all residents of the other side --> results
                     \\-> keep; when full, the oldest residents of the larger side leave as one block
    reactive   blocks x blocks, one inner block per step, re-entrant (state/rectangle.py)
    cleanup    flush all residents, then blocks x blocks to the end

Guarantee: every matching pair exactly once. Pairs whose rows met in memory are recognised by the residence rule
(state/residence.py) and left out of the block work. Memory: residents take what the input buffer (one block), the
outer blocks and one inner block leave.

The arriving side is the symmetric form of the nested loop; the block work is DINER's ReactiveNL (TKDE 2010, section
3.4) with oldest-first flushing.

Deviations: batches instead of tuples. Once a side has ended and none of it was spilled, rows of the other side are
not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.batch import Pairs, Rows, Side
from dovetail.condition import Condition
from dovetail.operators.protocol import Manifest, Usage, Workspace
from dovetail.state.blocks import Block
from dovetail.state.budget import BUFFER
from dovetail.state.cross import Comparable, Cross
from dovetail.state.rectangle import Rectangle, Step
from dovetail.state.residence import Clock, met_in_memory

ARRIVED = "__arrived"  # the extra column of a spilled block: the tick of each row's arrival


class _Chunk(NamedTuple):
    """A batch that arrived at one tick and is resident."""

    rows: Comparable
    arrived: int

    @property
    def nbytes(self) -> int:
        return int(self.rows.batch.nbytes) + self.rows.codes.nbytes + self.rows.rows.nbytes


class _Spilled(NamedTuple):
    """A block on disk and the tick at which its rows left memory."""

    block: Block
    left: int


class _Loaded(NamedTuple):
    """Spilled rows read back, with their stays."""

    rows: Comparable
    arrived: np.ndarray[tuple[int], np.dtype[np.int64]]
    left: np.ndarray[tuple[int], np.dtype[np.int64]]


class NestedLoop:
    name: ClassVar[str] = "nested_loop"
    spills: ClassVar[bool] = True

    def __init__(self, workspace: Workspace) -> None:
        self._condition = workspace.condition
        self._cross = Cross(workspace.condition)
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._store = workspace.blocks
        self._shares = workspace.shares
        self._residents: tuple[deque[_Chunk], deque[_Chunk]] = (deque(), deque())
        self._spilled: tuple[list[_Spilled], list[_Spilled]] = ([], [])
        self._ended = [False, False]
        self._clock = Clock()
        self._rectangle = Rectangle()
        self._step: Step | None = None  # the unfinished step of the block work, how many of its pieces are out,
        self._yielded = 0
        self._pieces: Iterator[Pairs] = iter(())  # and those still to come
        self._outer: tuple[tuple[Side, range], _Loaded] | None = None
        self._version = 0

    @staticmethod
    def refuses(condition: Condition) -> str | None:
        return None

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Pairs]:
        chunk = _Chunk(self._cross.prepare(side, batch), self._clock.tick())
        for resident in self._residents[side.other]:
            for mine, theirs in self._compare(side, chunk.rows, resident.rows):
                yield Pairs.oriented(side, batch, mine, resident.rows.batch, theirs)
        if self._ended[side.other] and not self._spilled[side.other]:
            return  # it has met everything it ever could
        rows = self._budget.measure(batch.num_rows, chunk.nbytes)
        while self._resident_size() + rows > self._shares.residents and self._flush():
            pass
        self._residents[side].append(chunk)
        self._budget.release(BUFFER)
        self._hold()

    def end(self, side: Side) -> None:
        self._ended[side] = True
        if not self._spilled[side]:
            # No row of this side ever left, so the residents of the other have met them all.
            self._residents[side.other].clear()
            self._hold()

    def react(self) -> Iterator[Pairs]:
        return self._join_blocks(self._shares.outer_blocks)

    def clean_up(self) -> Iterator[Pairs]:
        while self._flush():
            pass
        return self._join_blocks(self._shares.outer_blocks_at_end)

    def expire(self, watermark: int) -> Iterator[Pairs]:
        return iter(())

    def snapshot(self) -> Manifest:
        while self._flush():
            pass
        self._version += 1
        state = {
            "ended": list(self._ended),
            "clock": self._clock.now,
            "rectangle": self._rectangle.to_json(),
            "step": None if self._step is None else self._step.to_json(),
            "yielded": self._yielded,
            "spilled": [[{"left": s.left, "block": s.block.to_json()} for s in side] for side in self._spilled],
        }
        return Manifest(self._version, state, tuple(s.block.name for side in self._spilled for s in side))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        self._ended = list(manifest.state["ended"])
        self._clock = Clock(manifest.state["clock"])
        self._rectangle = Rectangle.from_json(manifest.state["rectangle"])
        for mine, stored in zip(self._spilled, manifest.state["spilled"], strict=True):
            for fields in stored:
                mine.append(_Spilled(Block.from_json(fields["block"]), fields["left"]))
        if manifest.state["step"] is not None:
            self._step = Step.from_json(manifest.state["step"])
            self._yielded = manifest.state["yielded"]
            self._pieces = islice(self._run(self._step), self._yielded, None)

    @property
    def usage(self) -> Usage:
        chunks = [chunk for side in self._residents for chunk in side]
        blocks = [spilled.block for side in self._spilled for spilled in side]
        return Usage(
            sum(chunk.rows.batch.num_rows for chunk in chunks),
            sum(chunk.nbytes for chunk in chunks),
            sum(block.rows for block in blocks),
            sum(block.nbytes for block in blocks),
        )

    # The block work: what did not meet in memory.

    def _join_blocks(self, most_outer: int) -> Iterator[Pairs]:
        while True:
            # Not `yield from`: when this generator is dropped, the step must stay open for the next call.
            for pairs in self._pieces:
                self._yielded += 1
                yield pairs
            self._step = self._rectangle.advance(lambda side: len(self._spilled[side]), most_outer)
            if self._step is None:
                self._outer = None
                self._budget.release("loaded blocks")
                return
            self._yielded = 0
            self._pieces = self._run(self._step)

    def _run(self, step: Step) -> Iterator[Pairs]:
        outer = self._outer_batch(step)
        inner = self._load(step.outer.other, range(step.inner_block, step.inner_block + 1))
        blocks = [self._spilled[step.outer][i].block for i in step.outer_blocks]
        blocks.append(self._spilled[step.outer.other][step.inner_block].block)
        self._budget.hold("loaded blocks", sum(b.rows for b in blocks), sum(b.nbytes for b in blocks))
        for mine, theirs in self._compare(step.outer, outer.rows, inner.rows):
            met = met_in_memory(outer.arrived[mine], outer.left[mine], inner.arrived[theirs], inner.left[theirs])
            if not met.all():
                new = ~met
                yield Pairs.oriented(step.outer, outer.rows.batch, mine[new], inner.rows.batch, theirs[new])
        yield Pairs.none(self._condition.schemas)  # every step gives control back once at least

    def _outer_batch(self, step: Step) -> _Loaded:
        """The outer blocks of a step; they stay loaded while inner blocks pass by."""
        wanted = (step.outer, step.outer_blocks)
        if self._outer is None or self._outer[0] != wanted:
            self._outer = None  # first let go of the old ones
            self._outer = (wanted, self._load(*wanted))
        return self._outer[1]

    def _load(self, side: Side, numbers: range) -> _Loaded:
        spilled = [self._spilled[side][i] for i in numbers]
        batches = [self._store.read(s.block) for s in spilled]
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        last = whole.num_columns - 1
        rows = pa.RecordBatch.from_arrays(whole.columns[:last], schema=self._condition.schema(side))
        left = np.repeat(np.array([s.left for s in spilled]), [s.block.rows for s in spilled])
        return _Loaded(self._cross.prepare(side, rows), np.asarray(whole.column(last)), left)

    def _flush(self) -> bool:
        """Write the oldest residents of the larger side as one block; False where there are none."""
        sizes = [sum(chunk.rows.batch.num_rows for chunk in side) for side in self._residents]
        side = Side.LEFT if sizes[0] >= sizes[1] else Side.RIGHT
        chunks = self._residents[side]
        out: list[_Chunk] = []
        size = 0
        while chunks and (not out or size + self._size(chunks[0]) <= self._shares.block):
            size += self._size(chunks[0])
            out.append(chunks.popleft())
        if not out:
            return False
        batch = pa.concat_batches([chunk.rows.batch for chunk in out])
        arrived = np.repeat([chunk.arrived for chunk in out], [chunk.rows.batch.num_rows for chunk in out])
        block = self._store.write(batch.append_column(ARRIVED, pa.array(arrived, pa.int64())), side.alias)
        self._spilled[side].append(_Spilled(block, self._clock.tick()))
        self._hold()
        return True

    def _compare(self, side: Side, mine: Comparable, theirs: Comparable) -> Iterator[tuple[Rows, Rows]]:
        self._counters.pairs_tested += len(mine.rows) * len(theirs.rows)
        if side is Side.LEFT:
            yield from self._cross.pairs(mine, theirs)
        else:
            for their_rows, my_rows in self._cross.pairs(theirs, mine):
                yield my_rows, their_rows

    def _size(self, chunk: _Chunk) -> int:
        return self._budget.measure(chunk.rows.batch.num_rows, chunk.nbytes)

    def _resident_size(self) -> int:
        return sum(self._size(chunk) for side in self._residents for chunk in side)

    def _hold(self) -> None:
        usage = self.usage
        self._budget.hold("residents", usage.resident_rows, usage.resident_bytes)
