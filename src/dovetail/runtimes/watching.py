"""How far a join at rest is, for whoever watches.

A total costs a count. It is made only after pairs have been listed for a while, and for longer than was prepared: then
it is a small part of a long join, and no part of a short one. Where candidates are checked, the total is what has
passed so far, scaled from the candidates seen to all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from dovetail.matchers.protocol import Matcher
from dovetail.metrics import Observer, Progress

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
        self._candidates: int | None = None
        self._exact = True
        self._results = 0
        self._tell("preparing")

    def prepared(self, matcher: Matcher, *, pairs_only: bool) -> None:
        """Pairs come next; after them, unless it is pairs only, as many rows without a partner as there may be."""
        now = self._clock()
        self._count_at = now + max(PATIENCE_S, PATIENCE * (now - self._began))
        self._matcher = matcher
        self._exact = matcher.exact and pairs_only
        self._tell("joining")

    def counted(self, batches: Iterator[pa.RecordBatch], total: int | None = None) -> Iterator[pa.RecordBatch]:
        """The batches of results, reported as they pass; `total`: how many rows they have in all, where it is known."""
        for batch in batches:
            self._results += batch.num_rows
            self._tell("joining", total)
            yield batch

    def _tell(self, phase: str, total: int | None = None) -> None:
        if self._observer is not None:
            known = self._expected() if total is None else total
            self._observer(Progress(phase, self._results, known, total is not None or self._exact))

    def _expected(self) -> int | None:
        matcher = self._matcher
        if matcher is None:
            return None
        if self._candidates is None and self._clock() >= self._count_at:
            self._candidates = matcher.candidates()
        if self._candidates is None or matcher.exact:
            return self._candidates
        return self._results * self._candidates // max(1, matcher.seen)
