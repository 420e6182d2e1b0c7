"""The k nearest points in two or more dimensions, by a k-d tree over the right points.

    points in the order of the tree     [ . . . | . . . ‖ . . . | . . . ]      cut at the middle, along the longest side
    boxes                                the smallest around the points of each node

A query visits the nearer child first and skips nodes that are no nearer than the last point of its list. Left points
are queried leaf by leaf, so that consecutive queries take the same path. Cutting by number of points keeps the tree
balanced for any distribution; boxes are tight, so empty space costs nothing.

With keys, there is a tree per key. Distances are sums of squares from the first dimension to the last, in doubles;
points without a finite distance do not count.

Friedman, Bentley, Finkel, An algorithm for finding best matches in logarithmic expected time, ACM TOMS 3(3), 1977.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import allowed_threads, in_threads
from dovetail.kernels.compiling import kernel
from dovetail.kernels.sorting import order_by_count

Floats = NDArray[np.float64]
Words = NDArray[np.int64]
Keys = NDArray[np.int32]

LEAF = 8  # points at most
FEW_ROWS = 1 << 12  # too few to use another thread
DEPTH = 64
NO_ROW = -1


class Tree(NamedTuple):
    """Nodes are numbered from a root; the children of a node are consecutive. A leaf has no child."""

    points: Floats  # in the order of the tree
    rows: Words  # the right row of each
    starts: Words  # for each node, where its points begin
    ends: Words
    children: Words  # the first child of each node; 0: none
    axes: Words  # the axis along which a node is cut
    borders: Floats  # the position of the cut
    boxes: Floats  # for each node: the smallest coordinates, then the largest
    roots: Words  # for each key; -1: it has no points


def nearest(
    left: Floats, right: Floats, keys: tuple[Keys, Keys] | None, size: int, k: int, most: float
) -> tuple[Words, Words]:
    """The rows of the `k` nearest right points of each left one, ascending by distance, and their number.

    `most`: the largest sum of squares. Entries beyond the number of a left row are undefined.
    """
    rows = np.empty((len(left), k), np.int64)
    sizes = np.zeros(len(left), np.int64)
    search(left, right, keys, size, k, most, None, rows, sizes)
    return rows, sizes


def search(
    left: Floats,
    right: Floats,
    keys: tuple[Keys, Keys] | None,
    size: int,
    k: int,
    most: float,
    some: Words | None,
    rows: Words,
    sizes: Words,
) -> None:
    """The same for some left points, or all of them."""
    tree = build(right, None if keys is None else keys[1], size)
    of_key = np.zeros(len(left), np.int32) if keys is None else keys[0]
    near = _leaves(left if some is None else left[some], of_key if some is None else of_key[some], tree)
    order = order_by_count(near, len(tree.starts))
    order = order if some is None else some[order]
    parts = max(1, min(4 * allowed_threads(), len(order) // FEW_ROWS)) if allowed_threads() > 1 else 1
    cuts = np.linspace(0, len(order), parts + 1).astype(np.int64).tolist()
    in_threads([partial(_search, tree, left, of_key, order[a:b], k, most, rows, sizes) for a, b in pairwise(cuts)])


def build(points: Floats, keys: Keys | None, size: int) -> Tree:
    """Build a tree for each key. Points that are not finite are left out."""
    rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    if keys is None:
        bounds = np.array([0, len(rows)])
    else:
        mine = keys[rows]
        rows = rows[order_by_count(mine, size)]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(mine, minlength=size))])
    nodes = _count_nodes(bounds)
    dimensions = points.shape[1]
    tree = Tree(
        np.ascontiguousarray(points[rows]),
        rows.astype(np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes),
        np.zeros((nodes, 2 * dimensions)),
        np.full(len(bounds) - 1, NO_ROW, np.int64),
    )
    _build(tree, bounds)
    return tree


@kernel
def _count_nodes(bounds: Words) -> int:
    """An upper bound for the number of nodes."""
    total = 1
    for key in range(len(bounds) - 1):
        points = bounds[key + 1] - bounds[key]
        if points:
            leaves = 1
            while leaves * LEAF < points:
                leaves *= 2
            total += 2 * leaves
    return total


@kernel
def _build(tree: Tree, bounds: Words) -> None:
    dimensions = tree.points.shape[1]
    used = 1  # node 0 is not used: 0 means no child
    waiting = np.empty(DEPTH * 2, np.int64)
    for key in range(len(bounds) - 1):
        if bounds[key] == bounds[key + 1]:
            continue
        tree.roots[key] = used
        tree.starts[used] = bounds[key]
        tree.ends[used] = bounds[key + 1]
        waiting[0] = used
        used += 1
        depth = 1
        while depth:
            depth -= 1
            node = waiting[depth]
            start, end = tree.starts[node], tree.ends[node]
            box = tree.boxes[node]
            for d in range(dimensions):
                low, high = tree.points[start, d], tree.points[start, d]
                for i in range(start + 1, end):
                    value = tree.points[i, d]
                    low = min(low, value)
                    high = max(high, value)
                box[d] = low
                box[dimensions + d] = high
            if end - start <= LEAF:
                continue
            widest = 0
            for d in range(1, dimensions):
                if box[dimensions + d] - box[d] > box[dimensions + widest] - box[widest]:
                    widest = d
            middle = (start + end) // 2
            _select(tree.points, tree.rows, start, end, middle, widest)
            tree.children[node] = used
            tree.axes[node] = widest
            tree.borders[node] = tree.points[middle, widest]
            tree.starts[used], tree.ends[used] = start, middle
            tree.starts[used + 1], tree.ends[used + 1] = middle, end
            waiting[depth] = used
            waiting[depth + 1] = used + 1
            depth += 2
            used += 2


@kernel
def _select(points: Floats, rows: Words, start: int, end: int, middle: int, d: int) -> None:
    """Partition the points so that none before `middle` is behind those from there on, along d."""
    low = start
    high = end - 1
    while low < high:
        # The median of three, so that sorted points are not a bad case.
        a, b, c = points[low, d], points[(low + high) // 2, d], points[high, d]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while points[i, d] < pivot:
                i += 1
            while points[j, d] > pivot:
                j -= 1
            if i <= j:
                for e in range(points.shape[1]):
                    kept = points[i, e]
                    points[i, e] = points[j, e]
                    points[j, e] = kept
                row = rows[i]
                rows[i] = rows[j]
                rows[j] = row
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@kernel
def _leaves(left: Floats, keys: Keys, tree: Tree) -> Keys:
    """A leaf close to each left point; points with the same leaf are queried together."""
    found = np.zeros(len(left), np.int32)
    for i in range(len(left)):
        if keys[i] >= len(tree.roots) or tree.roots[keys[i]] < 0:
            continue
        node = tree.roots[keys[i]]
        while tree.children[node]:
            node = tree.children[node] + (left[i, tree.axes[node]] > tree.borders[node])
        found[i] = node
    return found


@kernel
def _distance(point: Floats, box: Floats, dimensions: int) -> float:
    """The sum of squares from a point to a box."""
    total = 0.0
    for d in range(dimensions):
        value = point[d]
        apart = max(max(box[d] - value, value - box[dimensions + d]), 0.0)
        total += apart * apart
    return total


@kernel
def _search(tree: Tree, left: Floats, keys: Keys, order: Words, k: int, most: float, rows: Words, sizes: Words) -> None:
    dimensions = left.shape[1]
    nodes = np.empty(DEPTH * 2, np.int64)
    bounds = np.empty(DEPTH * 2)
    best = np.empty(k)
    found = np.empty(k, np.int64)
    for place in range(len(order)):
        i = order[place]
        point = left[i]
        if keys[i] >= len(tree.roots) or tree.roots[keys[i]] < 0:
            continue
        is_finite = True
        for d in range(dimensions):
            is_finite &= abs(point[d]) < np.inf
        if not is_finite:
            continue
        size = 0
        limit = most
        nodes[0] = tree.roots[keys[i]]
        bounds[0] = 0.0
        depth = 1
        while depth:
            depth -= 1
            if bounds[depth] > limit or (size == k and bounds[depth] == limit):
                continue
            node = nodes[depth]
            child = tree.children[node]
            while child:
                near = _distance(point, tree.boxes[child], dimensions)
                far = _distance(point, tree.boxes[child + 1], dimensions)
                node, other = child, child + 1
                if far < near:
                    node, other = other, node
                    near, far = far, near
                if far < limit or (far == limit and size < k):
                    nodes[depth] = other
                    bounds[depth] = far
                    depth += 1
                if near > limit or (size == k and near == limit):
                    node = 0
                    break
                child = tree.children[node]
            if node == 0:
                continue
            for j in range(tree.starts[node], tree.ends[node]):
                total = 0.0
                for d in range(dimensions):
                    apart = point[d] - tree.points[j, d]
                    total += apart * apart
                if total <= limit and total < np.inf and (size < k or total < best[k - 1]):
                    at = size if size < k else k - 1
                    size = min(size + 1, k)
                    while at > 0 and best[at - 1] > total:
                        best[at] = best[at - 1]
                        found[at] = found[at - 1]
                        at -= 1
                    best[at] = total
                    found[at] = tree.rows[j]
                    if size == k:
                        limit = best[k - 1]
        sizes[i] = size
        for j in range(size):
            rows[i, j] = found[j]
