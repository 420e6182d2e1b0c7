"""Symmetric nested loop with spilling: any condition, any budget of at least four blocks.

    arriving   batch --> compare with all residents of the other side --> results
                     \\-> keep; when full, spill the oldest residents of the larger side as one block
    reactive   blocks x blocks, one inner block per step, re-entrant (operators/blockwise/block_join.py)
    cleanup    flush all residents, then blocks x blocks to the end

Guarantee: every matching pair exactly once. Pairs that were compared in memory are recognised by the residence rule
(storage/residence.py) and skipped by the block join. Residents get the memory that the input buffer (one block), the
outer blocks and one inner block do not need.

The arriving phase is the symmetric form of the nested loop; the block work is DINER's ReactiveNL (TKDE 2010, section
3.4) with oldest-first flushing.

Deviations: batches instead of tuples. Once a side has ended and none of it was spilled, rows of the other side are not
kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate, put_together
from dovetail.condition import Condition, Equal, Expression, Less, NotEqual, evaluate, matching, passing
from dovetail.condition.graph import Graph
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Rows, Side
from dovetail.kernels import cross as kernels
from dovetail.operators.blockwise.block_join import BlockWork
from dovetail.operators.protocol import Approach, JoinOperator, Manifest, OperatorSpec, Usage, Workspace
from dovetail.storage.blocks import Block
from dovetail.storage.budget import BUFFER
from dovetail.storage.residence import Clock

OPERATORS = {
    "=": kernels.EQUAL,
    "!=": kernels.NOT_EQUAL,
    "<": kernels.LESS,
    "<=": kernels.LESS_EQUAL,
    ">": kernels.GREATER,
    ">=": kernels.GREATER_EQUAL,
}
MOST_PAIRS = 1 << 18  # pairs compared before matches are yielded


class Comparable(NamedTuple):
    """A prepared batch: its rows that can match, and their codes, one row per compared key."""

    batch: pa.RecordBatch
    rows: Rows
    codes: NDArray[np.int64]


class Cross:
    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        compared: list[tuple[Expression, str, Expression]] = []
        covered: set[Expression] = set()
        for p in condition.predicates:
            match p:
                case Equal(left, right):
                    operator = "="
                case NotEqual(left, right):
                    operator = "!="
                case Less(left, operator, right):
                    pass
                case _:
                    continue
            if left.type is not None and is_fixed(left.type):
                compared.append((left, operator, right))
                covered.update(p.source)
        self._keys = [(left, right) for left, _, right in compared]
        self._operators = np.array([OPERATORS[o] for _, o, _ in compared], np.int64)
        self._checks = tuple(c for c in condition.conjuncts if c not in covered)

    def prepare(self, side: Side, batch: pa.RecordBatch) -> Comparable:
        sides = (batch, None) if side is Side.LEFT else (None, batch)
        alive = passing(self._condition.filters[side], side, batch)
        lines = []
        for pair in self._keys:
            codes = order_codes(evaluate(pair[side], *sides))
            if codes.valid is not None:
                alive = codes.valid if alive is None else alive & codes.valid
            lines.append(codes.values)
        rows = np.arange(batch.num_rows) if alive is None else np.flatnonzero(alive)
        matrix = np.array(lines, np.int64).reshape(len(lines), batch.num_rows)
        return Comparable(batch, rows, np.ascontiguousarray(matrix[:, rows]))

    def pairs(self, left: Comparable, right: Comparable) -> Iterator[tuple[Rows, Rows]]:
        """Matching (left row, right row), in pieces of bounded size."""
        most = max(MOST_PAIRS, len(right.rows))
        start = 0
        while start < len(left.rows) and len(right.rows):
            lefts, rights, start = kernels.cross_join(left.codes, right.codes, self._operators, start, most)
            left_rows, right_rows = left.rows[lefts], right.rows[rights]
            if self._checks and len(left_rows):
                good = matching(self._checks, left.batch, left_rows, right.batch, right_rows)
                left_rows, right_rows = left_rows[good], right_rows[good]
            if len(left_rows):
                yield left_rows, right_rows


class _Chunk(NamedTuple):
    """A batch that arrived at one tick and is resident."""

    rows: Comparable
    arrived: int

    @property
    def nbytes(self) -> int:
        return int(self.rows.batch.nbytes) + self.rows.codes.nbytes + self.rows.rows.nbytes


class _Comparing:
    """Compares all pairs of two batches, resident or loaded."""

    extra_row_bytes = 0  # blocks are smaller than their share by more than that

    def __init__(self, condition: Condition, counters: Counters) -> None:
        self._condition = condition
        self._cross = Cross(condition)
        self._counters = counters

    def comparable(self, side: Side, batch: pa.RecordBatch) -> Comparable:
        return self._cross.prepare(side, batch)

    def pairs(self, side: Side, mine: Comparable, theirs: Comparable) -> Iterator[tuple[Rows, Rows]]:
        self._counters.pairs_tested += len(mine.rows) * len(theirs.rows)
        if side is Side.LEFT:
            yield from self._cross.pairs(mine, theirs)
        else:
            for their_rows, my_rows in self._cross.pairs(theirs, mine):
                yield my_rows, their_rows

    # For the block work, see `BlockJoiner`.

    def prepare(self, side: Side, whole: pa.RecordBatch) -> Comparable:
        columns = whole.columns[: whole.num_columns - 1]
        return self.comparable(side, put_together(columns, self._condition.schema(side), whole.num_rows))

    def batch_of(self, rows: Comparable) -> pa.RecordBatch:
        return rows.batch

    def candidates(self, outer: Side, mine: Comparable, theirs: Comparable, first: int) -> Iterator[tuple[Rows, Rows]]:
        return islice(self.pairs(outer, mine, theirs), first, None)

    def check(self, outer: Side, mine: Comparable, my_rows: Rows, theirs: Comparable, their_rows: Rows) -> None:
        return None

    def can_match(self, outer: Side, mine: Block, theirs: Block) -> bool:
        return True


class NestedLoop(JoinOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(name="nested_loop")

    def __init__(self, workspace: Workspace) -> None:
        self._comparing = _Comparing(workspace.condition, workspace.counters)
        self._budget = workspace.budget
        self._shares = workspace.shares
        self._residents: tuple[deque[_Chunk], deque[_Chunk]] = (deque(), deque())
        self._work = BlockWork(self._comparing, workspace.blocks, workspace.budget, workspace.condition.schemas)
        self._ended = [False, False]
        self._clock = Clock()
        self._version = 0

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        return None

    @staticmethod
    def approach(graph: Graph) -> Approach:
        return Approach("every pair is a candidate", ())

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        chunk = _Chunk(self._comparing.comparable(side, batch), self._clock.tick())
        for resident in self._residents[side.other]:
            for mine, theirs in self._comparing.pairs(side, chunk.rows, resident.rows):
                yield Matches.oriented(side, batch, mine, resident.rows.batch, theirs)
        if self._ended[side.other] and not self._work.spilled[side.other]:
            return  # it has been compared with all possible partners
        rows = self._budget.measure(batch.num_rows, chunk.nbytes)
        while self._resident_size() + rows > self._shares.residents and self._flush():
            pass
        self._residents[side].append(chunk)
        self._budget.release(BUFFER)
        self._hold()

    def end(self, side: Side) -> None:
        self._ended[side] = True
        if not self._work.spilled[side]:
            # No row of this side was ever evicted, so the residents of the other side have been compared with all of
            # its rows.
            self._residents[side.other].clear()
            self._hold()

    def react(self) -> Iterator[Matches]:
        return self._work.run(self._shares.outer_blocks)

    def clean_up(self) -> Iterator[Matches]:
        while self._flush():
            pass
        return self._work.run(self._shares.outer_blocks_at_end)

    def snapshot(self) -> Manifest:
        while self._flush():
            pass
        self._version += 1
        state = {"ended": list(self._ended), "clock": self._clock.now, "work": self._work.to_json()}
        return Manifest(self._version, state, tuple(self._work.names()))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        self._ended = list(manifest.state["ended"])
        self._clock = Clock(manifest.state["clock"])
        self._work.from_json(manifest.state["work"])

    @property
    def usage(self) -> Usage:
        chunks = [chunk for side in self._residents for chunk in side]
        rows, nbytes = sum(chunk.rows.batch.num_rows for chunk in chunks), sum(chunk.nbytes for chunk in chunks)
        return Usage(rows, nbytes, *self._work.size())

    def _flush(self) -> bool:
        """Write the oldest residents of the larger side as one block; False if there are none."""
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
        batch = concatenate([chunk.rows.batch for chunk in out])
        arrived = np.repeat([chunk.arrived for chunk in out], [chunk.rows.batch.num_rows for chunk in out])
        self._work.spill(side, batch, arrived, self._clock.tick())
        self._hold()
        return True

    def _size(self, chunk: _Chunk) -> int:
        return self._budget.measure(chunk.rows.batch.num_rows, chunk.nbytes)

    def _resident_size(self) -> int:
        return sum(self._size(chunk) for side in self._residents for chunk in side)

    def _hold(self) -> None:
        usage = self.usage
        self._budget.hold("residents", usage.resident_rows, usage.resident_bytes)
