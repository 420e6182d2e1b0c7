"""B+-tree with doubly linked leaves, and a join whose trees hold the whole window.

    inner node   | · k1 k2 k3 |         k_i: a bound below everything in child i and above everything in child i - 1
                   |  |  |  |
    leaves       [..]=[..]=[..]=[..]    entries (key, position), ascending; positions make them unique

Nodes are rows of arrays, so that the loops can be compiled. A node is freed when it becomes empty, not when it is half
full: Johnson and Shasha, B-trees with inserts and deletes: why free-at-empty is better than merge-at-half, JCSS 47(1),
1993. The join keeps a tree per key, inserts each row and deletes the one that leaves the window.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.intersection import INTERSECTIONS
from benchmarks.baselines.predicates import INDEXED, Floats, Query, Tests, Words, place
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import COMPARISONS, KEYS, Counts
from dovetail.kernels.compiling import kernel
from dovetail.kernels.cross import NOT_EQUAL

ROOT, HEIGHT, USED, FREE, ENTRIES = range(5)  # in Nodes.state
NOWHERE = -1
DEEPEST = 64


class Nodes(NamedTuple):
    """One line per node. A node may overflow by one entry before it is split, so there is a spare slot."""

    keys: Floats  # [node, slot]
    rows: Words  # [node, slot]
    children: Words  # [node, slot], of inner nodes
    sizes: Words  # entries of a leaf, children of an inner node
    before: Words  # the neighbours of a leaf
    after: Words  # also the next one of free nodes
    state: Words
    path: Words  # [level, node or slot]: the path from the root, while a tree is modified


class BPlusTree:
    """Entries (key, row number) in order."""

    def __init__(self, order: int = 4) -> None:
        if order < 3:
            raise ValueError(f"a B+-tree needs an order of at least 3, not {order}")
        self.order = order
        self._nodes = _new_nodes(8, order)
        self._found = np.empty(8, np.int64)

    def __len__(self) -> int:
        return int(self._nodes.state[ENTRIES])

    @property
    def height(self) -> int:
        """Levels above the leaves."""
        return int(self._nodes.state[HEIGHT])

    @property
    def declared_bytes(self) -> int:
        """Per node in use: a key, a row and a pointer per slot, its size and two neighbours."""
        return int((self._nodes.sizes > 0).sum()) * 8 * (2 * self.order + 3)

    def insert(self, key: float, row: int, counts: Counts) -> None:
        state = self._nodes.state
        if state[USED] + state[HEIGHT] + 2 > len(self._nodes.sizes):
            self._nodes = _grown(self._nodes, self.order)
        _insert(self._nodes, key, row, self.order, counts)

    def delete(self, key: float, row: int, counts: Counts) -> bool:
        """Delete an entry. Returns whether it was there."""
        return bool(_delete(self._nodes, key, row, counts))

    def probe(self, operator: int, width: float, x: float, counts: Counts) -> Words:
        """The rows whose keys match x, sorted by key; valid until the next probe."""
        if len(self._found) < len(self):
            self._found = np.empty(2 * len(self), np.int64)
        return self._found[: _probe(self._nodes, operator, width, x, self._found, counts)]

    def sorted(self, counts: Counts) -> tuple[Floats, Words]:
        """All keys and rows in order, from one pass over the leaves."""
        keys, rows = np.empty(len(self)), np.empty(len(self), np.int64)
        _read_leaves(self._nodes, keys, rows)
        counts[KEYS] += len(self)
        return keys, rows


def _new_nodes(capacity: int, order: int) -> Nodes:
    slots = (capacity, order + 1)
    nodes = Nodes(
        np.empty(slots),
        np.empty(slots, np.int64),
        np.empty(slots, np.int64),
        np.zeros(capacity, np.int64),
        np.full(capacity, NOWHERE),
        np.full(capacity, NOWHERE),
        np.zeros(5, np.int64),
        np.empty((DEEPEST, 2), np.int64),
    )
    nodes.state[USED] = 1  # the root, an empty leaf
    nodes.state[FREE] = NOWHERE
    return nodes


def _grown(nodes: Nodes, order: int) -> Nodes:
    larger = _new_nodes(2 * len(nodes.sizes), order)
    for old, new in zip(nodes[:6], larger[:6], strict=True):
        new[: len(old)] = old
    larger.state[:] = nodes.state
    return larger


@kernel
def _precedes(nodes: Nodes, node: int, slot: int, key: float, row: int, counts: Counts) -> bool:
    """Whether the entry in this slot is at most (key, row)."""
    counts[COMPARISONS] += 1
    there = nodes.keys[node, slot]
    return bool(there < key or (there == key and nodes.rows[node, slot] <= row))


@kernel
def _slots_up_to(nodes: Nodes, node: int, first: int, key: float, row: int, counts: Counts) -> int:
    """The first slot from `first` on that is greater than (key, row)."""
    low = first
    high = nodes.sizes[node]
    while low < high:
        middle = (low + high) >> 1
        if _precedes(nodes, node, middle, key, row, counts):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _descend(nodes: Nodes, key: float, row: int, counts: Counts) -> int:
    """The leaf where (key, row) belongs; `path` receives the path to it."""
    node = nodes.state[ROOT]
    for level in range(nodes.state[HEIGHT]):
        slot = _slots_up_to(nodes, node, 1, key, row, counts) - 1
        nodes.path[level, 0] = node
        nodes.path[level, 1] = slot
        node = nodes.children[node, slot]
    return node


@kernel
def _allocate(nodes: Nodes) -> int:
    node = nodes.state[FREE]
    if node >= 0:
        nodes.state[FREE] = nodes.after[node]
    else:
        node = nodes.state[USED]
        nodes.state[USED] += 1
    return node


@kernel
def _open_slot(nodes: Nodes, node: int, slot: int, key: float, row: int, child: int) -> None:
    for k in range(nodes.sizes[node], slot, -1):
        nodes.keys[node, k] = nodes.keys[node, k - 1]
        nodes.rows[node, k] = nodes.rows[node, k - 1]
        nodes.children[node, k] = nodes.children[node, k - 1]
    nodes.keys[node, slot] = key
    nodes.rows[node, slot] = row
    nodes.children[node, slot] = child
    nodes.sizes[node] += 1


@kernel
def _close_slot(nodes: Nodes, node: int, slot: int) -> None:
    nodes.sizes[node] -= 1
    for k in range(slot, nodes.sizes[node]):
        nodes.keys[node, k] = nodes.keys[node, k + 1]
        nodes.rows[node, k] = nodes.rows[node, k + 1]
        nodes.children[node, k] = nodes.children[node, k + 1]


@kernel
def _split(nodes: Nodes, node: int, is_leaf: bool) -> int:
    """Move the upper half of a node into a new node, and return that."""
    new = _allocate(nodes)
    size = nodes.sizes[node]
    kept = (size + 1) >> 1
    for k in range(kept, size):
        nodes.keys[new, k - kept] = nodes.keys[node, k]
        nodes.rows[new, k - kept] = nodes.rows[node, k]
        nodes.children[new, k - kept] = nodes.children[node, k]
    nodes.sizes[node] = kept
    nodes.sizes[new] = size - kept
    nodes.before[new] = NOWHERE
    nodes.after[new] = NOWHERE
    if is_leaf:
        after = nodes.after[node]
        nodes.before[new] = node
        nodes.after[new] = after
        nodes.after[node] = new
        if after >= 0:
            nodes.before[after] = new
    return new


@kernel
def _insert(nodes: Nodes, key: float, row: int, order: int, counts: Counts) -> None:
    node = _descend(nodes, key, row, counts)
    _open_slot(nodes, node, _slots_up_to(nodes, node, 0, key, row, counts), key, row, NOWHERE)
    nodes.state[ENTRIES] += 1
    level = nodes.state[HEIGHT] - 1
    is_leaf = True
    while nodes.sizes[node] > order:
        new = _split(nodes, node, is_leaf)
        if level < 0:
            root = _allocate(nodes)
            nodes.sizes[root] = 0
            _open_slot(nodes, root, 0, nodes.keys[node, 0], nodes.rows[node, 0], node)
            _open_slot(nodes, root, 1, nodes.keys[new, 0], nodes.rows[new, 0], new)
            nodes.state[ROOT] = root
            nodes.state[HEIGHT] += 1
            return
        parent = nodes.path[level, 0]
        _open_slot(nodes, parent, nodes.path[level, 1] + 1, nodes.keys[new, 0], nodes.rows[new, 0], new)
        node = parent
        level -= 1
        is_leaf = False


@kernel
def _delete(nodes: Nodes, key: float, row: int, counts: Counts) -> bool:
    node = _descend(nodes, key, row, counts)
    slot = _slots_up_to(nodes, node, 0, key, row, counts) - 1
    if slot < 0 or nodes.keys[node, slot] != key or nodes.rows[node, slot] != row:
        return False
    _close_slot(nodes, node, slot)
    nodes.state[ENTRIES] -= 1
    level = nodes.state[HEIGHT] - 1
    is_leaf = True
    while level >= 0 and nodes.sizes[node] == 0:
        if is_leaf:
            before = nodes.before[node]
            after = nodes.after[node]
            if before >= 0:
                nodes.after[before] = after
            if after >= 0:
                nodes.before[after] = before
        nodes.after[node] = nodes.state[FREE]
        nodes.state[FREE] = node
        node = nodes.path[level, 0]
        _close_slot(nodes, node, nodes.path[level, 1])
        level -= 1
        is_leaf = False
    while nodes.state[HEIGHT] > 0 and nodes.sizes[nodes.state[ROOT]] == 1:
        root = nodes.state[ROOT]
        nodes.state[ROOT] = nodes.children[root, 0]
        nodes.state[HEIGHT] -= 1
        nodes.sizes[root] = 0
        nodes.after[root] = nodes.state[FREE]
        nodes.state[FREE] = root
    return True


@kernel
def _first_leaf(nodes: Nodes) -> int:
    node = nodes.state[ROOT]
    for _ in range(nodes.state[HEIGHT]):
        node = nodes.children[node, 0]
    return node


@kernel
def _range_leaf(nodes: Nodes, operator: int, width: float, x: float, counts: Counts) -> int:
    """The leaf at which a scan for the partners of x starts."""
    node = nodes.state[ROOT]
    for _ in range(nodes.state[HEIGHT]):
        low = 1
        high = nodes.sizes[node]
        while low < high:
            middle = (low + high) >> 1
            counts[COMPARISONS] += 1
            if place(operator, width, x, nodes.keys[node, middle]) < 0:
                low = middle + 1
            else:
                high = middle
        node = nodes.children[node, low - 1]
    return node


@kernel
def _probe(nodes: Nodes, operator: int, width: float, x: float, found: Words, counts: Counts) -> int:
    others = operator == NOT_EQUAL
    node = _first_leaf(nodes) if others else _range_leaf(nodes, operator, width, x, counts)
    out = 0
    compared = 0
    while node >= 0:
        for slot in range(nodes.sizes[node]):
            compared += 1
            where = place(operator, width, x, nodes.keys[node, slot])
            if (where == 0) != others:
                found[out] = nodes.rows[node, slot]
                out += 1
            elif where > 0 and not others:
                counts[COMPARISONS] += compared
                counts[KEYS] += out
                return out
        node = nodes.after[node]
    counts[COMPARISONS] += compared
    counts[KEYS] += out
    return out


@kernel
def _read_leaves(nodes: Nodes, keys: Floats, rows: Words) -> None:
    node = _first_leaf(nodes)
    out = 0
    while node >= 0:
        for slot in range(nodes.sizes[node]):
            keys[out] = nodes.keys[node, slot]
            rows[out] = nodes.rows[node, slot]
            out += 1
        node = nodes.after[node]


class Trees:
    """A tree per key, and the intersection of their matches. Positions are first .. first + size."""

    def __init__(self, query: Query, order: int, intersection: str) -> None:
        self.trees = [BPlusTree(order) for _ in query.predicates[:INDEXED]]
        self._intersect = INTERSECTIONS[intersection]

    def __len__(self) -> int:
        return len(self.trees[0])

    @property
    def declared_bytes(self) -> int:
        return sum(tree.declared_bytes for tree in self.trees)

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        for tree, key in zip(self.trees, keys, strict=False):
            tree.insert(key, position, counts)

    def delete(self, position: int, keys: Floats, counts: Counts) -> None:
        for tree, key in zip(self.trees, keys, strict=False):
            tree.delete(key, position, counts)

    def find(self, keys: Floats, tests: Tests, first: int, size: int, counts: Counts) -> Words:
        """The rows that satisfy the predicates; all are within `size` positions from `first` on."""
        if not len(self):
            return np.empty(0, np.int64)
        parts = [
            tree.probe(operator, width, key, counts)
            for tree, operator, width, key in zip(self.trees, *tests, keys, strict=False)
        ]
        return self._intersect(parts, first, size, counts)


class WindowTrees:
    """Trees over the whole window: every row is inserted, and deleted one window later."""

    def __init__(self, query: Query, window: int, order: int, intersection: str) -> None:
        self._trees = Trees(query, order, intersection)
        self._window = window
        self._stored: deque[tuple[int, Floats]] = deque()

    @property
    def declared_bytes(self) -> int:
        return self._trees.declared_bytes

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        while self._stored and self._stored[0][0] < oldest:
            self._trees.delete(*self._stored.popleft(), counts)

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        self._trees.insert(position, keys, counts)
        self._stored.append((position, keys))

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        return self._trees.find(keys, tests, position - self._window, self._window, counts)


def bplus_tree_join(query: Query, window: int, order: int = 4, intersection: str = "bit") -> WindowJoin:
    return WindowJoin(query, window, partial(WindowTrees, window=window, order=order, intersection=intersection))
