"""Work on chunks of two sides: join, count or aggregate them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.aggregates import partial_aggregates
from dovetail.condition import Condition
from dovetail.condition.aggregates import Aggregate, GroupColumn
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Rows, Side
from dovetail.core.threads import allow_threads, in_order
from dovetail.execution.output import MOST_BYTES, drop_last_columns, result_batches, row_batches
from dovetail.kernels.taking import mark
from dovetail.matching import Matcher, build_matcher

AHEAD = 4  # batches of a part of the work that wait until the parts before it are done

Flags = NDArray[np.bool_]
Batches = tuple[pa.RecordBatch, pa.RecordBatch]


class Meeting(Protocol):
    """The work on two chunks, and on one that has been joined with all of the other side."""

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]: ...
    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]: ...


class Work(Meeting, Protocol):
    """Such work, which can be done for a part of the condition, too."""

    def with_condition(self, condition: Condition) -> Work:
        """The same, on another condition."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A join of some type. Results lack the last `drop` columns of each side; a batch has at most `rows`.

    `share`: columns of results may be slices of the two sides, which keep these alive.
    """

    condition: Condition
    how: JoinType
    schema: pa.Schema
    drop: tuple[int, int] = (0, 0)
    rows: int | None = None  # None: as many as make a batch of a good size
    batch_bytes: int = MOST_BYTES
    share: bool = False
    room: int = 1 << 20  # pairs found at a time
    threads: int = 1

    def with_condition(self, condition: Condition) -> Joining:
        return replace(self, condition=condition)

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        matcher = self.build(batches)
        return self.emit_parts(self.split(matcher), batches, partnered)

    def build(self, batches: Batches) -> Matcher:
        with allow_threads(self.threads):
            return build_matcher(self.condition, *batches)

    def split(self, matcher: Matcher) -> Sequence[Matcher]:
        """The parts of the work that threads do side by side."""
        return matcher.split(self.threads) if self.how.emits_pairs else [matcher]

    def emit_parts(
        self, parts: Sequence[Matcher], batches: Batches, partnered: tuple[Flags, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """What each part emits, one after the other: the same for any number of threads."""
        tasks = [partial(self.emit_pairs, part, batches, partnered) for part in parts]
        return in_order(tasks, self.threads, AHEAD)

    def emit_pairs(
        self, matcher: Matcher, batches: Batches, partnered: tuple[Flags, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """The pairs of a matcher, or, where only they matter, the rows that have a partner."""
        only = self.how.only
        if only is not None:
            partnered[only][matcher.partnered(only)] = True
            return
        for found in matcher.pairs(self.room):
            for side in self.how.padded:
                mark(partnered[side], found[side])
            pairs = Matches.pairs(batches[0], found[0], batches[1], found[1])
            yield from result_batches(pairs, self.schema, self.rows, self.drop, self.batch_bytes, self.share)

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        rows = self.rows_alone(side, partnered)
        mine = drop_last_columns(batch, self.drop[side])
        yield from row_batches(side, mine, rows, self.schema, self.rows, self.batch_bytes, self.share)

    def rows_alone(self, side: Side, partnered: Flags) -> Rows:
        """Rows that the join type emits by themselves, once no partner can follow."""
        if side not in self.how.tracked:
            return np.empty(0, np.int64)
        return np.flatnonzero(partnered if self.how is JoinType.LEFT_SEMI else ~partnered)


@dataclass(frozen=True, slots=True)
class Counting:
    """How many pairs there are: one row for each meeting."""

    condition: Condition

    def with_condition(self, condition: Condition) -> Counting:
        return replace(self, condition=condition)

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"pairs": [build_matcher(self.condition, *batches).count()]})

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        return iter(())


@dataclass(frozen=True, slots=True)
class Aggregating:
    """Partial aggregates: some rows for each meeting, one per group."""

    condition: Condition
    aggregates: tuple[Aggregate, ...]
    by: tuple[GroupColumn, ...]

    def with_condition(self, condition: Condition) -> Aggregating:
        return replace(self, condition=condition)

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        yield partial_aggregates(self.condition, self.aggregates, self.by, *batches)

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        return iter(())
