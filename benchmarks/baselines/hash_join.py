"""Hash join: rows by the keys that are compared with `=`; other predicates are checked on the rows of a bucket."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from benchmarks.baselines.predicates import INDEXED, Floats, Query, Tests, Words, holds
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import COMPARISONS, HASHED, KEYS, Counts
from dovetail.kernels.cross import EQUAL


class Buckets:
    """One stream."""

    def __init__(self, query: Query) -> None:
        indexed = query.predicates[:INDEXED]
        self._hashed = [k for k, predicate in enumerate(indexed) if predicate.operator == EQUAL]
        self._checked = [k for k, predicate in enumerate(indexed) if predicate.operator != EQUAL]
        if not self._hashed:
            raise ValueError("a hash join needs an equality among its first two predicates")
        self._buckets: dict[tuple[float, ...], deque[tuple[int, Floats]]] = defaultdict(deque)
        self._arrivals: deque[tuple[int, tuple[float, ...]]] = deque()

    @property
    def declared_bytes(self) -> int:
        """Per row a position and keys, per bucket a key and a pointer."""
        return len(self._arrivals) * 8 * (1 + INDEXED) + len(self._buckets) * 8 * (1 + len(self._hashed))

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        while self._arrivals and self._arrivals[0][0] < oldest:
            _, key = self._arrivals.popleft()
            bucket = self._buckets[key]
            bucket.popleft()
            if not bucket:
                del self._buckets[key]

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        key = self._key(keys)
        self._buckets[key].append((position, keys))
        self._arrivals.append((position, key))
        counts[HASHED] += 1

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        counts[HASHED] += 1
        bucket = self._buckets.get(self._key(keys), ())
        counts[KEYS] += len(bucket)
        if not self._checked:
            return np.array([stored for stored, _ in bucket], np.int64)
        counts[COMPARISONS] += len(bucket) * len(self._checked)
        operators, widths = tests
        return np.array(
            [
                stored
                for stored, others in bucket
                if all(holds(operators[k], widths[k], keys[k], others[k]) for k in self._checked)
            ],
            np.int64,
        )

    def _key(self, keys: Floats) -> tuple[float, ...]:
        return tuple(float(keys[k]) for k in self._hashed)


def hash_join(query: Query, window: int) -> WindowJoin:
    return WindowJoin(query, window, Buckets)
