"""Joins of two complete sides in memory, of every join type.

    inner                  the pairs
    left, right, full      the pairs, then the rows of that side (or both) that none of them contains
    left_semi, left_anti   left rows with and without a partner; no pair is enumerated where no check needs it

Work is done on whole sides or on chunks of them: join, count or aggregate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.aggregates import partial_aggregates
from dovetail.condition import Condition
from dovetail.condition.select import Aggregate, GroupColumn
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer, Progress
from dovetail.core.rows import Matches, Rows, Side
from dovetail.core.threads import allow_threads, in_order
from dovetail.execution.output import MOST_BYTES, drop_last_columns, result_batches, row_batches
from dovetail.execution.steps import limit_rows
from dovetail.kernels.taking import mark
from dovetail.matching import Matcher, build_matcher

Flags = NDArray[np.bool_]
Batches = tuple[pa.RecordBatch, pa.RecordBatch]

PATIENCE_S = 1.0  # of listing pairs before they are counted
PATIENCE = 3.0  # and three times as long as was prepared; counting took an eighth of that where it took longest
FEWEST_PAIRS = 1 << 14  # found at a time, however few rows are wanted: many of them may fail their checks
AHEAD = 4  # batches of a part of the work that wait until the parts before it are done
CHUNK = 1 << 20  # pairs found at a time
FIRST_BLOCK = 1 << 10  # rows
GROWTH = 4  # each block prepares the other side anew: few blocks, the last of which are large


class Watch:
    """Tells an observer, if there is one, how far a join is."""

    def __init__(self, observer: Observer | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._began = clock()
        self._count_at = float("inf")
        self._matcher: Matcher | None = None
        self._parts: Sequence[Matcher] = ()
        self._candidates: int | None = None
        self._exact = True
        self._results = 0
        self._tell("preparing")

    def start_pairs(self, matcher: Matcher, parts: Sequence[Matcher], *, pairs_only: bool) -> None:
        """Pairs come next, part by part; then, unless it is pairs only, any number of rows without a partner."""
        now = self._clock()
        self._count_at = now + max(PATIENCE_S, PATIENCE * (now - self._began))
        self._matcher, self._parts = matcher, parts
        self._exact = matcher.exact and pairs_only
        self._tell("joining")

    def count_batches(self, batches: Iterator[pa.RecordBatch], total: int | None = None) -> Iterator[pa.RecordBatch]:
        """The batches of results, reported as they pass; `total`: how many rows they have in all, where it is known."""
        for batch in batches:
            self._results += batch.num_rows
            self._tell("joining", total)
            yield batch

    def _tell(self, phase: str, total: int | None = None) -> None:
        if self._observer is not None:
            known = self._estimate_total() if total is None else total
            self._observer(Progress(phase, self._results, known, total is not None or self._exact))

    def _estimate_total(self) -> int | None:
        matcher = self._matcher
        if matcher is None:
            return None
        if self._candidates is None and self._clock() >= self._count_at:
            self._candidates = matcher.candidates()
        if self._candidates is None or matcher.exact:
            return self._candidates
        return self._results * self._candidates // max(1, sum(part.seen for part in self._parts))


def count_at_rest(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """How many pairs there are."""
    return build_matcher(condition, left, right).count()


def join_at_rest(
    work: Joining, batches: Batches, observer: Observer | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The results, in batches of bounded size; with a limit, no more than that. The same for any number of threads."""
    watch = Watch(observer)
    how = work.how
    partnered = (np.zeros(batches[0].num_rows, np.bool_), np.zeros(batches[1].num_rows, np.bool_))
    work = limit_work(work, limit)
    if limit is not None and how.tracked:
        yield from limit_rows(watch.count_batches(_join_in_blocks(work, batches, partnered)), limit)
        return
    matcher = work.build(batches)
    parts = work.split(matcher) if limit is None else [matcher]
    if how.emits_pairs:
        watch.start_pairs(matcher, parts, pairs_only=not how.padded)
    yield from limit_rows(watch.count_batches(work.emit_parts(parts, batches, partnered)), limit)
    for side in Side:
        total = len(work.rows_alone(side, partnered[side])) if not how.emits_pairs else None
        yield from watch.count_batches(work.leave(side, batches[side], partnered[side]), total)


def _join_in_blocks(work: Joining, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
    """A join that tracks partners, a block of one side after the other: the results of a block are complete.

    So a caller who wants few rows does not wait for the partners of all.
    """
    side = work.how.tracked[0]
    rows = batches[side]
    for block in growing_blocks(rows.num_rows):
        sides, flags = list(batches), list(partnered)
        sides[side], flags[side] = rows.slice(block.start, len(block)), partnered[side][block.start : block.stop]
        yield from work.meet((sides[0], sides[1]), (flags[0], flags[1]))
        yield from work.leave(side, sides[side], flags[side])
    yield from work.leave(side.other, batches[side.other], partnered[side.other])


def growing_blocks(rows: int, first: int = FIRST_BLOCK) -> Iterator[range]:
    """All rows in blocks, each some times as long as the one before."""
    start = 0
    while start < rows:
        stop = min(rows, start + first)
        yield range(start, stop)
        start, first = stop, GROWTH * first


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
    capacity: int = field(default_factory=lambda: CHUNK)  # pairs found at a time
    threads: int = 1
    bounded: bool = False  # whether results that wait to be taken are few

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
        if not self.how.emits_pairs:
            return [matcher]
        with allow_threads(self.threads):
            return matcher.split(self.threads)

    def emit_parts(
        self, parts: Sequence[Matcher], batches: Batches, partnered: tuple[Flags, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """What each part emits, one after the other: the same for any number of threads."""
        tasks = [partial(self.emit_pairs, part, batches, partnered) for part in parts]
        if self.bounded:  # of an iterator, only few tasks are begun before they are needed
            return in_order(iter(tasks), min(self.threads, len(tasks)), 1)
        return in_order(tasks, self.threads, AHEAD)

    def emit_pairs(
        self, matcher: Matcher, batches: Batches, partnered: tuple[Flags, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """The pairs of a matcher, or, where only they matter, the rows that have a partner."""
        only = self.how.only
        if only is not None:
            partnered[only][matcher.partnered(only)] = True
            return
        for found in matcher.pairs(self.capacity):
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


def limit_work(work: Joining, limit: int | None) -> Joining:
    """Work that looks for few pairs at a time and gathers no more rows than are wanted."""
    if limit is None:
        return work
    rows = limit if 0 < limit < FEWEST_PAIRS else work.rows
    return replace(work, capacity=min(work.capacity, max(FEWEST_PAIRS, limit)), rows=rows)
