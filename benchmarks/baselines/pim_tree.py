"""PIM-tree: an immutable search tree over older rows, with small B+-trees for new rows below its upper nodes.

    immutable directory     | . | . | . |         an insert walks `depth` levels down ...
                             /    |    \\
    small B+-trees          b     b     b         ... and goes into the B+-tree there
    immutable keys          k k k k k k k k k     a probe visits both parts

When new rows make up a given share of the window, the whole tree is rebuilt without expired rows. Shahvarani and
Jacobsen, Parallel index-based stream join on a multicore CPU, SIGMOD 2020. There is one tree per key; one thread.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.baselines.bplus_tree import BPlusTree
from benchmarks.baselines.css_tree import CssTree
from benchmarks.baselines.intersection import INTERSECTIONS
from benchmarks.baselines.predicates import INDEXED, Floats, Query, Tests, Words
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import KEYS, Counts
from dovetail.kernels.cross import LESS_EQUAL, NOT_EQUAL


class PimTree:
    """Entries (key, row number) of one key."""

    def __init__(self, depth: int, order: int) -> None:
        self.depth = depth
        self.order = order
        self._replace(np.empty(0), np.empty(0, np.int64))

    @property
    def declared_bytes(self) -> int:
        return self.immutable.declared_bytes + sum(tree.declared_bytes for tree in self.below)

    def insert(self, key: float, row: int, counts: Counts) -> None:
        child = self.immutable.descend(LESS_EQUAL, 0.0, key, 0, self._depth, counts)
        self.below[child].insert(key, row, counts)

    def probe(self, operator: int, width: float, x: float, counts: Counts) -> Words:
        found = [self.immutable.probe(operator, width, x, counts)]
        first, last = 0, len(self.below) - 1
        if operator != NOT_EQUAL:
            first, last = (self.immutable.descend(operator, width, x, least, self._depth, counts) for least in (0, 1))
        found += [tree.probe(operator, width, x, counts) for tree in self.below[first : last + 1] if len(tree)]
        return np.concatenate(found)

    def rebuild(self, oldest: int, counts: Counts) -> None:
        """Build one immutable tree of all entries that have not expired."""
        runs = [(self.immutable.keys, self.immutable.rows)]
        runs += [tree.sorted(counts) for tree in self.below if len(tree)]
        keys, rows = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        keys, rows = keys[rows >= oldest], rows[rows >= oldest]
        order = np.argsort(keys, kind="stable")  # two ascending runs: a merge
        counts[KEYS] += len(keys)
        self._replace(keys[order], rows[order])

    def _replace(self, keys: Floats, rows: Words) -> None:
        self.immutable = CssTree(keys, rows, self.order)
        self._depth = min(self.depth, self.immutable.depth)
        self.below = [BPlusTree(self.order) for _ in range(self.immutable.width_at(self._depth))]


class PimTrees:
    """One stream."""

    def __init__(self, query: Query, window: int, share: float, depth: int, order: int, intersection: str) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"the mutable share of a window lies above 0 and up to 1, not at {share}")
        self.trees = [PimTree(depth, order) for _ in query.predicates[:INDEXED]]
        self._intersect = INTERSECTIONS[intersection]
        self._most = max(1, int(share * window))
        self._built = 0  # position of the last rebuild
        self._first = 0  # the oldest position that may be stored

    @property
    def declared_bytes(self) -> int:
        return sum(tree.declared_bytes for tree in self.trees)

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        if position - self._built >= self._most:
            for tree in self.trees:
                tree.rebuild(oldest, counts)
            self._built, self._first = position, oldest

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        for tree, key in zip(self.trees, keys, strict=False):
            tree.insert(key, position, counts)

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        parts = [
            tree.probe(operator, width, key, counts)
            for tree, operator, width, key in zip(self.trees, *tests, keys, strict=False)
        ]
        return self._intersect(parts, self._first, position - self._first, counts)


def pim_tree_join(
    query: Query, window: int, share: float = 0.1, depth: int = 2, order: int = 4, intersection: str = "bit"
) -> WindowJoin:
    index = partial(PimTrees, window=window, share=share, depth=depth, order=order, intersection=intersection)
    return WindowJoin(query, window, index)
