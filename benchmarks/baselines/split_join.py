"""Split join: each row is stored on one worker, round-robin, and probes all workers with a nested loop.

    rows of a stream   r0 r1 r2 r3 r4 r5        probing row -> every worker
    worker 0           r0    .. r3 ..
    worker 1              r1 ..    r4 ..
    worker 2                 r2 ..    r5

Najafi, Sadoghi, Jacobsen, SplitJoin: a scalable, low-latency stream join architecture with adjustable ordering
precision, USENIX ATC 2016. The workers are simulated: `worker_work` has the work of each of them.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.baselines.nested_loop import Rows
from benchmarks.baselines.predicates import Floats, Query, Tests, Words
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import Counts, Work


class SplitRows:
    """One stream, divided among workers."""

    def __init__(self, query: Query, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"a split join needs at least one worker, not {workers}")
        self._stores = [Rows(query) for _ in range(workers)]
        self._inserted = 0
        self.worker_work = [Work() for _ in range(workers)]

    @property
    def declared_bytes(self) -> int:
        return sum(store.declared_bytes for store in self._stores)

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        for store in self._stores:
            store.advance(position, oldest, counts)

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        self._stores[self._inserted % len(self._stores)].insert(position, keys, counts)
        self._inserted += 1

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        found = []
        for k, store in enumerate(self._stores):
            own = Work()
            found.append(store.probe(position, keys, tests, own.counts))
            self.worker_work[k] += own
            counts += own.counts
        return np.concatenate(found)


def split_join(query: Query, window: int, workers: int = 4) -> WindowJoin:
    return WindowJoin(query, window, partial(SplitRows, workers=workers))
