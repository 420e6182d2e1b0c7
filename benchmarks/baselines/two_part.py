"""A window in two parts: small B+-trees for new rows, and a list of immutable batches for the rest.

    arriving rows -> [ mutable: B+-trees ] --every delta positions--> [ batch ] [ batch ] [ batch ] -> dropped whole

Batches are cut by position of arrival, so both streams and all predicates cut at the same row. Building a batch takes
as long as `merge_arrivals` further rows take to arrive. These rows probe the new trees and the older batches at once,
and are queued; when the batch is ready, the queued rows probe it. So every row probes every batch once.

SPO-Join, sections 3.1 to 3.4. Deviations: merged at delta rows, not at delta + 1 as printed; batches are cut by
position, not by counters of each processing element; rows of batches that are dropped late are filtered exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.baselines.bplus_tree import Trees
from benchmarks.baselines.predicates import Floats, Query, Tests, Words, as_keys
from benchmarks.baselines.windowed import Pairs, WindowJoin, join_pairs
from benchmarks.baselines.work import Counts, Work
from dovetail.core.rows import Side


class Span(NamedTuple):
    """Positions first .. end, excluding the end."""

    first: int
    end: int


class Batch(Protocol):
    """Rows of one stream that were merged together."""

    span: Span

    def probe(self, keys: Floats, tests: Tests, counts: Counts) -> Words: ...

    @property
    def declared_bytes(self) -> int: ...


Build = Callable[[Span, list[tuple[Floats, Words]], Counts], Batch]


class TwoPart:
    """One stream."""

    def __init__(self, query: Query, delta: int, build: Build, order: int, intersection: str) -> None:
        if delta < 1:
            raise ValueError(f"a merge needs at least one row, not {delta}")
        self.delta = delta
        self.batches: deque[Batch] = deque()
        self.unpublished: Batch | None = None
        self.largest_mutable = 0
        self.largest_merge = 0  # keys moved in one merge
        self.mutable_work = Work()
        self._build = build
        self._new_trees: Callable[[], Trees] = lambda: Trees(query, order, intersection)
        self._trees = self._new_trees()
        self._first = 0

    @property
    def declared_bytes(self) -> int:
        return self._trees.declared_bytes + sum(batch.declared_bytes for batch in self.batches)

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        if position - self._first >= self.delta:
            self._merge(position, counts)
        while self.batches and self.batches[0].span.end <= oldest:
            self.batches.popleft()

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        own = Work()
        self._trees.insert(position, keys, own.counts)
        self.mutable_work += own
        counts += own.counts
        self.largest_mutable = max(self.largest_mutable, len(self._trees))

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        own = Work()
        found = [self._trees.find(keys, tests, self._first, self.delta, own.counts)]
        self.mutable_work += own
        counts += own.counts
        found += [batch.probe(keys, tests, counts) for batch in self.batches]
        return np.concatenate(found)

    def publish(self) -> Batch | None:
        """Add the batch that was being built to the list."""
        ready, self.unpublished = self.unpublished, None
        if ready is not None:
            self.batches.append(ready)
        return ready

    def _merge(self, position: int, counts: Counts) -> None:
        self.publish()
        before = int(counts.sum())
        leaves = [tree.sorted(counts) for tree in self._trees.trees]
        self.unpublished = self._build(Span(self._first, position), leaves, counts)
        self.largest_merge = max(self.largest_merge, int(counts.sum()) - before)
        self._trees = self._new_trees()
        self._first = position


class Waiting(NamedTuple):
    role: Side
    position: int
    keys: Floats


class TwoPartJoin(WindowJoin):
    """Both streams, and the queue of rows that wait for a batch."""

    indexes: tuple[TwoPart, TwoPart]

    def __init__(self, query: Query, window: int, index: Callable[[Query], TwoPart], merge_arrivals: int = 0) -> None:
        super().__init__(query, window, index)
        if merge_arrivals >= self.indexes[0].delta:
            raise ValueError("a batch must be built before the next one is due: merge_arrivals must be below delta")
        self.queued_probes = 0
        self._recent = np.empty((window + merge_arrivals, len(query.predicates)))  # also for rows that wait
        self._merge_arrivals = merge_arrivals
        self._ready_at = -1
        self._queue: list[Waiting] = []

    def arrive(self, side: Side, row: Sequence[float | None]) -> Pairs:
        position = self.arrived
        found = [super().arrive(side, row)]
        if self.indexes[0].unpublished is not None:
            keys = as_keys(row)
            if not np.isnan(keys).any():
                self._queue += [Waiting(role, position, keys) for role in self._roles(side)]
            if position + 1 >= self._ready_at:
                found.append(self._publish())
        return join_pairs(found)

    def finish(self) -> Pairs:
        return self._publish()

    def _advance(self, position: int, oldest: int) -> None:
        merges = position > 0 and position % self.indexes[0].delta == 0
        super()._advance(position, oldest)
        if merges:
            self._merged()
            self._ready_at = position + self._merge_arrivals
            if not self._merge_arrivals:
                self._publish()

    def _merged(self) -> None:
        """Called when new batches have been built on both sides."""

    def _publish(self) -> Pairs:
        ready = [index.publish() for index in self.indexes[: len(self._structures())]]
        found = []
        for role, position, keys in self._queue:
            batch = ready[role.other if len(ready) == 2 else 0]
            if batch is not None:
                self.queued_probes += 1
                candidates = batch.probe(keys, self._tests[role], self.probing.counts)
                found.append(self._results(role, position, keys, candidates))
        self._queue.clear()
        return join_pairs(found)
