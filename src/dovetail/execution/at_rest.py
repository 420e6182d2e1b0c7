"""Joins two complete sides in memory, with every join type.

    inner                  the pairs
    left, right, full      the pairs, then the rows of that side (or both) without a partner
    left_semi, left_anti   left rows with and without a partner; pairs are only enumerated if a check needs it

Work (a join, a count or an aggregation) is done on whole sides or on chunks of them.
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

PATIENCE_S = 1.0  # time spent listing pairs before they are counted
PATIENCE = 3.0  # at least this many times the preparation time; counting took an eighth of that at worst
FEWEST_PAIRS = 1 << 14  # per call, even if few rows are wanted: many pairs may fail their checks
AHEAD = 4  # batches of a part that wait until earlier parts are done
CHUNK = 1 << 20  # pairs found at a time
FIRST_BLOCK = 1 << 10  # rows
GROWTH = 4  # each block prepares the other side again: few blocks, the last ones large


class Watch:
    """Reports the progress of a join to an observer, if there is one."""

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
        """Start of the pairs, part by part; then, unless `pairs_only`, rows without a partner may follow."""
        now = self._clock()
        self._count_at = now + max(PATIENCE_S, PATIENCE * (now - self._began))
        self._matcher, self._parts = matcher, parts
        self._exact = matcher.exact and pairs_only
        self._tell("joining")

    def count_batches(self, batches: Iterator[pa.RecordBatch], total: int | None = None) -> Iterator[pa.RecordBatch]:
        """Pass on batches of results and report them; `total`: their number of rows, if known."""
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
    """The number of pairs."""
    return build_matcher(condition, left, right).count()


def join_at_rest(
    work: Joining, batches: Batches, observer: Observer | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The results in batches of bounded size, at most `limit` rows. Threads do not change the result."""
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
    """A join that tracks partners, by blocks of one side: after each block, its results are complete.

    So a caller who wants few rows does not wait for the partners of all rows.
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
    """All rows in blocks, each several times as long as the one before."""
    start = 0
    while start < rows:
        stop = min(rows, start + first)
        yield range(start, stop)
        start, first = stop, GROWTH * first


class Meeting(Protocol):
    """Work on a pair of chunks, and on a chunk that has been joined with the whole other side."""

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]: ...
    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]: ...


class Work(Meeting, Protocol):
    """Work that can also be done for a part of the condition."""

    def with_condition(self, condition: Condition) -> Work:
        """The same work with another condition."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A join of some type. Results omit the last `drop` columns of each side; a batch has at most `rows` rows.

    `share`: columns of results may be slices of the inputs, which keep these alive.
    """

    condition: Condition
    how: JoinType
    schema: pa.Schema
    drop: tuple[int, int] = (0, 0)
    rows: int | None = None  # None: a good batch size
    batch_bytes: int = MOST_BYTES
    share: bool = False
    capacity: int = field(default_factory=lambda: CHUNK)  # pairs found at a time
    threads: int = 1
    bounded: bool = False  # whether few results may wait to be taken

    def with_condition(self, condition: Condition) -> Joining:
        return replace(self, condition=condition)

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        matcher = self.build(batches)
        return self.emit_parts(self.split(matcher), batches, partnered)

    def build(self, batches: Batches) -> Matcher:
        with allow_threads(self.threads):
            return build_matcher(self.condition, *batches)

    def split(self, matcher: Matcher) -> Sequence[Matcher]:
        """The parts of the work that threads run in parallel."""
        if not self.how.emits_pairs:
            return [matcher]
        with allow_threads(self.threads):
            return matcher.split(self.threads)

    def emit_parts(
        self, parts: Sequence[Matcher], batches: Batches, partnered: tuple[Flags, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """The results of all parts in order: the same for any number of threads."""
        tasks = [partial(self.emit_pairs, part, batches, partnered) for part in parts]
        if self.bounded:  # with an iterator, in_order starts only few tasks early
            return in_order(iter(tasks), min(self.threads, len(tasks)), 1)
        return in_order(tasks, self.threads, AHEAD)

    def emit_pairs(
        self, matcher: Matcher, batches: Batches, partnered: tuple[Flags, Flags]
    ) -> Iterator[pa.RecordBatch]:
        """The pairs of a matcher, or, if only these matter, the rows that have a partner."""
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
        return rows_alone(self.how, side, partnered)


def rows_alone(how: JoinType, side: Side, partnered: Flags) -> Rows:
    """Rows that the join type emits alone, once no partner can follow."""
    if side not in how.tracked:
        return np.empty(0, np.int64)
    return np.flatnonzero(partnered if how is JoinType.LEFT_SEMI else ~partnered)


@dataclass(frozen=True, slots=True)
class Counting:
    """Counts results: one row per call, with their number."""

    condition: Condition
    how: JoinType = JoinType.INNER

    def with_condition(self, condition: Condition) -> Counting:
        return replace(self, condition=condition)

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        yield _number(count_results(build_matcher(self.condition, *batches), self.how, partnered))

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        if side in self.how.tracked:
            yield _number(len(rows_alone(self.how, side, partnered)))


def count_results(matcher: Matcher, how: JoinType, partnered: tuple[Flags, Flags]) -> int:
    """The number of pairs, if these are results. Rows with a partner are flagged if the join type tracks them."""
    if how.padded and not matcher.exact:  # pairs are enumerated anyway, so only once
        count = 0
        for found in matcher.pairs(CHUNK):
            count += len(found[0])
            for side in how.padded:
                mark(partnered[side], found[side])
        return count
    for side in how.tracked:
        partnered[side][matcher.partnered(side)] = True
    return matcher.count() if how.emits_pairs else 0


def _number(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": [rows]})


@dataclass(frozen=True, slots=True)
class Aggregating:
    """Partial aggregates: one row per group and call of `meet`."""

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
    """Work with a smaller number of pairs at a time and smaller batches, if few rows are wanted."""
    if limit is None:
        return work
    rows = limit if 0 < limit < FEWEST_PAIRS else work.rows
    return replace(work, capacity=min(work.capacity, max(FEWEST_PAIRS, limit)), rows=rows)
