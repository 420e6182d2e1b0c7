"""Nested loop: compares every arriving row with every stored row; also for two tables at rest."""

from __future__ import annotations

import numpy as np

from benchmarks.baselines.predicates import Floats, Query, Tests, Words, holds
from benchmarks.baselines.windowed import Pairs, WindowJoin
from benchmarks.baselines.work import COMPARISONS, Counts, Work
from dovetail.kernels.compiling import kernel


class Rows:
    """The rows of one stream in order of arrival. When the array is full, rows are moved to its front."""

    def __init__(self, query: Query) -> None:
        self._keys = np.empty((8, len(query.predicates)))
        self._positions = np.empty(8, np.int64)
        self._start = self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def declared_bytes(self) -> int:
        return len(self) * 8 * (1 + self._keys.shape[1])

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        while self._start < self._end and self._positions[self._start] < oldest:
            self._start += 1

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        if self._end == len(self._positions):
            self._make_room()
        self._keys[self._end] = keys
        self._positions[self._end] = position
        self._end += 1

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        found = np.empty(len(self), np.int64)
        stored = slice(self._start, self._end)
        size = _scan(self._keys[stored], self._positions[stored], tests, keys, found, counts)
        return found[:size]

    def _make_room(self) -> None:
        size = len(self)
        room = max(8, 2 * size)
        keys, positions = np.empty((room, self._keys.shape[1])), np.empty(room, np.int64)
        keys[:size] = self._keys[self._start : self._end]
        positions[:size] = self._positions[self._start : self._end]
        self._keys, self._positions, self._start, self._end = keys, positions, 0, size


@kernel
def _scan(stored: Floats, positions: Words, tests: Tests, keys: Floats, found: Words, counts: Counts) -> int:
    out = 0
    compared = 0
    for row in range(len(positions)):
        good = True
        for k in range(len(keys)):
            compared += 1
            if not holds(tests.operators[k], tests.widths[k], keys[k], stored[row, k]):
                good = False
                break
        if good:
            found[out] = positions[row]
            out += 1
    counts[COMPARISONS] += compared
    return out


def nested_loop_join(query: Query, window: int) -> WindowJoin:
    return WindowJoin(query, window, Rows)


def nested_loop_at_rest(query: Query, left: Floats, right: Floats, work: Work) -> Pairs:
    """All pairs of two tables, [row, key], without NaN."""
    tests = query.tests(left_probes=True)
    rows = np.arange(len(right))
    found = np.empty(len(right), np.int64)
    lefts, rights = [], []
    for row, keys in enumerate(left):
        size = _scan(right, rows, tests, keys, found, work.counts)
        lefts.append(np.full(size, row))
        rights.append(found[:size].copy())
    return Pairs(np.concatenate(lefts), np.concatenate(rights))
