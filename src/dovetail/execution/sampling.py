"""Samples arriving rows to give the estimator blocks, for joins whose operator reports none.

    left   --4096 rows--> \\
                            a block: all its pairs are counted by the kernel of the condition --> Estimator
    right  --4096 rows--> /

Rows that arrive consecutively form a block; blocks share no rows. The more blocks there are, the fewer are added, so
that they never take more than a small part of the time. As long as rows are joined on arrival and none has been
spilled, all of them have been compared, and the number of their results is also known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import concatenate, row_bytes
from dovetail.condition import Condition, columns_of, types
from dovetail.condition.casts import decode
from dovetail.condition.sort_keys import sort_keys
from dovetail.core.codes import is_fixed, rough_codes
from dovetail.core.rows import Arrival, Event, Matches, Side
from dovetail.estimation.measures import Measures
from dovetail.estimation.order import PlacedMatches
from dovetail.matching import build_matcher
from dovetail.matching.equal_keys import hash_column
from dovetail.matching.sweep_order import SweepOrder, Words
from dovetail.operators.protocol import Workspace
from dovetail.planning.statistics import read_columns

BLOCK_ROWS = 4096  # rows of each side that wait, at most
FEWEST_ROWS = 64
BLOCKS = 8  # consecutive blocks; after that come gaps, as many blocks long as there have been blocks
PARTS = 16  # if an input's size is known, a block has at most 1/16 of its rows
CHUNK = 1 << 18  # pairs listed at a time
SHARE = 64  # 1 / this of the budget's bytes is for waiting rows


class Sampling:
    """`owned`: waiting rows are in memory only for this, not as part of a table.

    `all_meet`: whether all arrived rows have been joined when the next event comes, as long as nothing is spilled.
    """

    def __init__(
        self,
        workspace: Workspace,
        measures: Measures,
        rows: tuple[int | None, int | None],
        *,
        owned: bool,
        all_meet: Callable[[], bool],
    ) -> None:
        self._condition = workspace.condition
        self._estimator = workspace.estimator
        self._counters = workspace.counters
        self._measures = measures
        self._codes = _Codes(workspace.condition)
        known = max((count for count in rows if count is not None), default=PARTS * BLOCK_ROWS)
        self._rows = min(BLOCK_ROWS, max(FEWEST_ROWS, known // PARTS))
        self._columns = [None if measures else read_columns(self._condition, side) for side in Side]
        limit = workspace.budget.limit if owned else None
        self._bytes = None if limit is None else limit // SHARE  # for both sides
        if self._bytes is not None:
            workspace.budget.hold("sample", 0, self._bytes)
        self._waiting: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        self._gap = 0  # rows to skip before the next block
        self._arrived = [0, 0]
        self._met = False  # whether rows of both sides arrived before anything was spilled
        self._all_meet = all_meet
        self._places = owned  # from tables, rows are drawn at random, which is more reliable
        self._spilled = False

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass on the events; when the next one is requested, the last has been processed."""
        for event in events:
            yield event
            self.note(event)

    def note(self, event: Event) -> None:
        if isinstance(event, Arrival):
            self._arrived[event.input] += event.batch.num_rows
            self._look()
            self._take(Side(event.input), event.batch)

    def _look(self) -> None:
        if not self._spilled and not self._counters.pages_written and self._all_meet():
            self._estimator.know(self._arrived[0], self._arrived[1], self._counters.results)
            self._met = min(self._arrived) > 0
        elif not self._spilled:
            self._spilled = True
            if self._met:  # some pairs of the waiting rows are already known
                for waiting in self._waiting:
                    waiting.clear()

    def _take(self, side: Side, batch: pa.RecordBatch) -> None:
        if self._gap > 0:
            self._gap -= batch.num_rows
            return
        mine, columns = self._waiting[side], self._columns[side]
        batch = batch if columns is None else batch.select(columns)
        most = BLOCK_ROWS if self._bytes is None else self._fitting(batch)
        mine.append(batch.slice(0, max(0, most - _size(mine))))  # rows beyond are skipped
        sizes = [_size(waiting) for waiting in self._waiting]
        if min(sizes) and max(sizes) >= min(self._rows, most):
            sides = [concatenate(waiting) for waiting in self._waiting]
            count = max(1, max(sizes) // self._rows)
            for part in range(count):
                left, right = (_part(rows, part, count) for rows in sides)
                if left.num_rows and right.num_rows:
                    self._meet(left, right)
            done = len(self._estimator.blocks)
            self._gap = 2 * self._rows * done if done >= BLOCKS else 0
            for waiting in self._waiting:
                waiting.clear()

    def _fitting(self, batch: pa.RecordBatch) -> int:
        """The number of rows of a side that can wait."""
        assert self._bytes is not None
        return max(1, min(BLOCK_ROWS, self._bytes // 2 // row_bytes(batch)))

    def _meet(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        """Make a block of all waiting rows of both sides."""
        matcher = build_matcher(self._condition, left, right)
        sums: dict[str, float] = {}
        if self._measures:
            matches = 0
            for lefts, rights in matcher.pairs(CHUNK):
                matches += len(lefts)
                for name, value in self._measures.sum_pairs(Matches.pairs(left, lefts, right, rights)).items():
                    sums[name] = sums.get(name, 0.0) + value
        else:
            matches = matcher.count()
        if self._places:
            self._estimator.compare(PlacedMatches.of_first_rows(self._condition, left, right))
        keys = self._codes.codes_of(left, right)
        self._estimator.add(left.num_rows, right.num_rows, matches, sums=sums, keys=keys, looked_at=self._spilled)


class _Codes:
    """Codes of rows that show whether they arrive in random order: of the key, or else of a column that is read."""

    def __init__(self, condition: Condition) -> None:
        self._order = SweepOrder(condition) if SweepOrder.exists(condition) else None
        self._columns = [_read(condition, side) for side in Side]

    def codes_of(self, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[Words, Words]:
        if self._order is not None:
            self._order.learn(left, right)
            return self._order.lines(Side.LEFT, left).codes, self._order.lines(Side.RIGHT, right).codes
        return self._column(Side.LEFT, left), self._column(Side.RIGHT, right)

    def _column(self, side: Side, batch: pa.RecordBatch) -> Words:
        name = self._columns[side]
        if name is None:
            return np.empty(0, np.int64)
        column = decode(batch.column(name).drop_null())
        if pa.types.is_nested(column.type):
            column = sort_keys(column)
        return rough_codes(column) if is_fixed(column.type) else hash_column(column)


def _read(condition: Condition, side: Side) -> str | None:
    """A column of a side that the condition reads, preferably one with an order."""
    read = [c for conjunct in condition.conjuncts for c in columns_of(conjunct) if c.side is side]
    known = {c.name: types.plain(condition.schema(side).field(c.name).type) for c in read}
    names = [name for name, type_ in known.items() if types.common(type_, type_) is not None]
    return min(names, key=lambda name: (not is_fixed(known[name]), name), default=None)


def _part(rows: pa.RecordBatch, part: int, count: int) -> pa.RecordBatch:
    """One of `count` parts of about equal size."""
    start, end = (rows.num_rows * at // count for at in (part, part + 1))
    return rows.slice(start, end - start)


def _size(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
