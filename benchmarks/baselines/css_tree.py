"""CSS-tree: sorted keys and a directory without pointers, for parts of a window that do not change.

    directory   | k3 k7 k11 |                    the last key of each block below
                | k1 k2 k3 | k5 k6 k7 | ...
    keys        k0 k1 k2 k3 k4 k5 k6 k7 ...      blocks of `order` keys

The block below entry i is block i of the next level, so children are found by arithmetic. Nothing can be inserted:
a merge builds a new tree. Rao and Ross, Cache conscious indexing for decision-support in main memory, VLDB 1999.

The join is SPO-Join with CSS-trees as its immutable batches, one per predicate. Their matches are intersected with hash
sets ("CSS-hash") or with bit arrays ("CSS-bit").
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.intersection import INTERSECTIONS
from benchmarks.baselines.predicates import Floats, Query, Tests, Words, place
from benchmarks.baselines.two_part import Span, TwoPart, TwoPartJoin
from benchmarks.baselines.work import COMPARISONS, KEYS, Counts
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import NOT_EQUAL


class Directory(NamedTuple):
    """Levels one after the other, the sorted keys first; level k is entries[ends[k - 1] : ends[k]]."""

    entries: Floats
    ends: Words


class CssTree:
    """Sorted keys with their rows, and the directory over them."""

    def __init__(self, keys: Floats, rows: Words, order: int = 4) -> None:
        if order < 2:
            raise ValueError(f"a CSS-tree needs an order of at least 2, not {order}")
        self.order = order
        self.keys = keys
        self.rows = rows
        levels = [keys]
        while len(levels[-1]) > order:
            below = levels[-1]
            lasts = np.arange(order - 1, len(below) + order - 1, order).clip(max=len(below) - 1)
            levels.append(below[lasts])
        self.directory = Directory(np.concatenate(levels), np.cumsum([len(level) for level in levels]))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def depth(self) -> int:
        """Levels of the directory above the keys."""
        return len(self.directory.ends) - 1

    @property
    def declared_bytes(self) -> int:
        return self.directory.entries.nbytes + self.rows.nbytes

    def width_at(self, depth: int) -> int:
        """The number of children this many directory levels down."""
        if depth == 0:
            return 1
        level = len(self.directory.ends) - depth
        return int(self.directory.ends[level] - self.directory.ends[level - 1])

    def descend(self, operator: int, width: float, x: float, least: int, depth: int, counts: Counts) -> int:
        """The child, this many levels down, that would contain the first key with a place of at least `least`."""
        return int(_descend(self.directory, self.order, operator, width, x, least, depth, counts))

    def find_range(self, operator: int, width: float, x: float, counts: Counts) -> tuple[int, int]:
        """Start and end of the partners of x; with !=, of the rows that do not match."""
        levels = len(self.directory.ends)
        start = _descend(self.directory, self.order, operator, width, x, 0, levels, counts)
        end = _descend(self.directory, self.order, operator, width, x, 1, levels, counts)
        return int(start), int(end)

    def probe(self, operator: int, width: float, x: float, counts: Counts) -> Words:
        """The rows whose keys match x, sorted by key."""
        start, end = self.find_range(operator, width, x, counts)
        if operator == NOT_EQUAL:
            found = np.concatenate([self.rows[:start], self.rows[end:]])
        else:
            found = self.rows[start : max(start, end)]
        counts[KEYS] += len(found)
        return found


@kernel
def _descend(
    directory: Directory, order: int, operator: int, width: float, x: float, least: int, depth: int, counts: Counts
) -> int:
    """If there is no such key: on the lowest level one past the last key, above it the last child."""
    levels = len(directory.ends)
    at = 0
    for level in range(levels - 1, max(levels - 1 - depth, -1), -1):
        base = directory.ends[level - 1] if level > 0 else 0
        size = directory.ends[level] - base
        low = at * order if level < levels - 1 else 0
        high = min(low + order, size) if level < levels - 1 else size
        end = high
        while low < high:
            middle = (low + high) >> 1
            counts[COMPARISONS] += 1
            if place(operator, width, x, directory.entries[base + middle]) < least:
                low = middle + 1
            else:
                high = middle
        at = low if level == 0 else min(low, end - 1)
    return at


class CssBatch:
    """An immutable batch: a CSS-tree per key."""

    def __init__(
        self, span: Span, sorted_keys: list[tuple[Floats, Words]], counts: Counts, order: int, intersection: str
    ) -> None:
        self.span = span
        self._trees = [CssTree(*each, order) for each in sorted_keys]
        self._intersect = INTERSECTIONS[intersection]
        counts[KEYS] += sum(len(tree.directory.entries) for tree in self._trees)

    @property
    def declared_bytes(self) -> int:
        return sum(tree.declared_bytes for tree in self._trees)

    def probe(self, keys: Floats, tests: Tests, counts: Counts) -> Words:
        if not len(self._trees[0]):
            return np.empty(0, np.int64)
        parts = [
            tree.probe(operator, width, key, counts)
            for tree, operator, width, key in zip(self._trees, *tests, keys, strict=False)
        ]
        return self._intersect(parts, self.span.first, self.span.end - self.span.first, counts)


def css_tree_join(query: Query, window: int, delta: int, intersection: str = "bit", order: int = 4) -> TwoPartJoin:
    build = partial(CssBatch, order=order, intersection=intersection)
    index = partial(TwoPart, delta=delta, build=build, order=order, intersection=intersection)
    return TwoPartJoin(query, window, index)
