"""Broadcast join (BCHJ): each row is stored on all workers and probes one of them, chosen by a hash of its position.

    probing row -> one worker           worker 0   r0 r1 r2 r3 ...
    arriving row -> all workers         worker 1   r0 r1 r2 r3 ...

The opposite of a split join: a probe costs one message, but memory grows with the number of workers. As in SPO-Join,
section 5.4, a worker runs a nested loop. The workers are simulated: `worker_work` has the work of each of them.
"""

from __future__ import annotations

from functools import partial

from benchmarks.baselines.nested_loop import Rows
from benchmarks.baselines.predicates import Floats, Query, Tests, Words
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import Counts, Work

SPREAD = 2654435761


class CopiedRows:
    """One stream, copied to every worker."""

    def __init__(self, query: Query, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"a broadcast join needs at least one worker, not {workers}")
        self._stores = [Rows(query) for _ in range(workers)]
        self.worker_work = [Work() for _ in range(workers)]

    @property
    def declared_bytes(self) -> int:
        return sum(store.declared_bytes for store in self._stores)

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        for store in self._stores:
            store.advance(position, oldest, counts)

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        for store in self._stores:
            store.insert(position, keys, counts)

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        worker = (position * SPREAD >> 16) % len(self._stores)
        own = Work()
        found = self._stores[worker].probe(position, keys, tests, own.counts)
        self.worker_work[worker] += own
        counts += own.counts
        return found


def bchj(query: Query, window: int, workers: int = 4) -> WindowJoin:
    return WindowJoin(query, window, partial(CopiedRows, workers=workers))
