"""Joins of two complete sides in memory, of every join type.

inner                  the pairs
left, right, full      the pairs, then the rows of that side (or both) that none of them contains
left_semi, left_anti   left rows with and without a partner; no pair is enumerated where no check needs it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer, Progress
from dovetail.core.rows import Side
from dovetail.execution.limit import limit_rows, limit_work
from dovetail.execution.output import LARGEST_BYTES
from dovetail.execution.tasks import Batches, Flags, Joining
from dovetail.matching import build_matcher
from dovetail.matching.kernel_pairs import Matcher

PATIENCE_S = 1.0  # of listing pairs before they are counted
PATIENCE = 3.0  # and so many times as long as was prepared; counting took an eighth of that where it took longest


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


ROOM = 1 << 20  # pairs found at a time


def count_at_rest(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """How many pairs there are."""
    return build_matcher(condition, left, right).count()


def join_at_rest(
    condition: Condition,
    how: JoinType,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    schema: pa.Schema,
    observer: Observer | None = None,
    limit: int | None = None,
    threads: int = 1,
    batch_bytes: int = LARGEST_BYTES,
    share: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The results, in batches of bounded size; with a limit, so many of them. The same for any number of threads.

    `share`: columns of results may be slices of the inputs.
    """
    watch = Watch(observer)
    batches = (left, right)
    partnered = (np.zeros(left.num_rows, np.bool_), np.zeros(right.num_rows, np.bool_))
    work = Joining(condition, how, schema, room=ROOM, batch_bytes=batch_bytes, share=share, threads=threads)
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

    So whoever wants few rows does not wait for the partners of all.
    """
    side = work.how.tracked[0]
    rows = batches[side]
    for block in growing_blocks(rows.num_rows):
        sides, flags = list(batches), list(partnered)
        sides[side], flags[side] = rows.slice(block.start, len(block)), partnered[side][block.start : block.stop]
        yield from work.meet((sides[0], sides[1]), (flags[0], flags[1]))
        yield from work.leave(side, sides[side], flags[side])
    yield from work.leave(side.other, batches[side.other], partnered[side.other])


FIRST_BLOCK = 1 << 10  # rows
GROWTH = 4  # each block prepares the other side anew: few blocks, the last of which are large


def growing_blocks(rows: int, first: int = FIRST_BLOCK) -> Iterator[range]:
    """All rows in blocks, each some times as long as the one before."""
    start = 0
    while start < rows:
        stop = min(rows, start + first)
        yield range(start, stop)
        start, first = stop, GROWTH * first
