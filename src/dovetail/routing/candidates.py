"""Lists the routers that a class of predicate allows.

equality                      hash, heavy keys split
bands, distances              a grid of ranges, one side at home, the other beside its neighbours
overlaps, rectangles          slabs or a grid with reference points; where the rows of a side must not be copied,
                              ranges of its interval starts
inequalities, overlaps too    blocks of one side, or pairs of blocks, pruned by their smallest and largest keys
anything                      1-bucket
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dovetail.condition import (
    Band,
    Condition,
    Distance,
    Expression,
    Interval,
    Less,
    Overlap,
    Rectangles,
    describe,
    keyed_rows,
    types,
)
from dovetail.core.codes import Floats, Words, list_lengths, rough_codes
from dovetail.core.rows import Side
from dovetail.matching import most_selective
from dovetail.planning.plan import Choice
from dovetail.planning.statistics import Samples
from dovetail.routing.blocks import BlockRouter, Comparison, HomeRouter, cut_blocks, meeting
from dovetail.routing.grid import Axis, CellSpan, GridRouter, WindowAxis, band_axis, distance_axis, element_of
from dovetail.routing.routers import HashRouter, OneBucketRouter, Router, heavy_keys

FINER = 2  # cells per task, to balance the tasks
MOST_CELLS = 1 << 12
BLOCKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # per side
AXES = 2  # of a grid, at most

Candidate = tuple[Router, Choice]


@dataclass(frozen=True, slots=True)
class Task:
    """A join to be routed."""

    condition: Condition
    samples: Samples
    tasks: int  # number of tasks, parallel or sequential
    unique: Side | None = None  # the side whose rows may visit only one cell, because the join type preserves them
    listed: bool = True  # whether pairs are enumerated, which costs time
    by_branch: bool = False  # whether a cell can join one alternative of a disjunction and skip the others
    finer: int = FINER  # cells per task


def candidates(task: Task) -> Iterator[Candidate]:
    if task.condition.strategy.equal:
        yield _hash(task)
        return
    match task.condition.strategy.kind:
        case "band" | "two_bands" | "distance":
            for home in Side if task.unique is None else [task.unique]:
                yield _grid(task, _windows(task, home))
        case "overlap" | "rectangles":
            if task.unique is None:
                yield _grid(task, [CellSpan(overlap.left, overlap.right) for overlap in _overlaps(task)])
            elif (reach := task.samples[task.unique].reach) is not None and reach.longest:
                yield _grid(task, _beginnings(task, task.unique, reach.longest))
            yield from _blocks(task)
        case "one_inequality" | "two_inequalities":
            yield from _blocks(task)
    rows = (task.samples[0].rows, task.samples[1].rows)
    yield one_bucket(task.condition, task.tasks, rows, task.unique)


def _hash(task: Task) -> Candidate:
    weighted = [(sample.batch, sample.weight) for sample in task.samples]
    heavy = heavy_keys(task.condition, weighted, task.tasks, task.unique)
    split = f"; heavy keys that are split: {len(heavy)}" if heavy else ""
    keys = " AND ".join(describe(p) for p in task.condition.strategy.equal)
    return HashRouter(task.condition, task.tasks, heavy), Choice("hash", f"rows are routed by {keys}{split}")


def one_bucket(condition: Condition, tasks: int, rows: tuple[int, int], unique: Side | None) -> Candidate:
    """The router that needs no knowledge of the data."""
    if unique is None:
        router = OneBucketRouter.best_shape(condition, tasks, rows[0], rows[1])
    elif unique is Side.LEFT:
        router = OneBucketRouter(condition, tasks, 1)
    else:
        router = OneBucketRouter(condition, 1, tasks)
    why = f"a grid of {router.lines} x {router.columns}, in which any two rows share one cell"
    return router, Choice("one_bucket", why)


# Pairs of blocks.


def _blocks(task: Task) -> Iterator[Candidate]:
    """Blocks in several sizes: pairs of blocks if rows of both sides may be copied, or one side at home."""
    for comparisons, order in _comparisons(task):
        sides = []
        for side in Side:
            keys = [c.left if side is Side.LEFT else c.right for c in comparisons]
            _, columns = keyed_rows(task.condition, side, task.samples[side].batch, keys)
            reach = task.samples[side].reach
            boxes = None if reach is None else reach.boxes[:, order]
            sides.append(([rough_codes(column) for column in columns], boxes))
        most = min(AXES, len(comparisons))
        for number, axes in product(BLOCKS, range(1, most + 1)):
            if number > FINER * task.tasks:
                break
            blocks = [cut_blocks(codes, number, boxes, axes) for codes, boxes in sides]
            if FINER * number >= task.tasks:  # with fewer cells, tasks would be idle
                for home in Side if task.unique is None else (task.unique,):
                    why = f"{blocks[home].number} of {_sent(home)}"
                    yield HomeRouter(task.condition, comparisons, home, blocks[home]), Choice("blocks", why)
            met = meeting(blocks[0], blocks[1], [c.operator for c in comparisons])
            if axes == most and task.unique is None and met.sum() <= MOST_CELLS:
                cells = np.where(met, np.cumsum(met).reshape(met.shape) - 1, -1).astype(np.int32)
                why = f"{int(met.sum())} of {met.size} pairs can hold a result, by their smallest and largest keys"
                yield (
                    BlockRouter(task.condition, comparisons, (blocks[0], blocks[1]), cells),
                    Choice("block_pairs", why),
                )


def _comparisons(task: Task) -> Iterator[tuple[tuple[Comparison, ...], list[int]]]:
    """Predicates that prune (blocks are cut along the first two), and their positions among the strategy's ordered
    keys.
    """
    overlaps = _overlaps(task)
    if overlaps:
        pairs = [(overlap.left.low, "<=", overlap.right.high) for overlap in overlaps]
        pairs += [(overlap.left.high, ">=", overlap.right.low) for overlap in overlaps]
        order = [*range(0, 2 * len(overlaps), 2), *range(1, 2 * len(overlaps), 2)]
        yield tuple(Comparison(*pair) for pair in pairs), order
        return
    less = [p for p in task.condition.strategy.predicates if isinstance(p, Less)]
    for order in _orders(task, less):
        yield tuple(Comparison(less[i].left, less[i].operator, less[i].right) for i in order), order


def _orders(task: Task, less: list[Less]) -> list[list[int]]:
    """Inequalities ordered by selectivity; and with the two first that the fewest pairs satisfy together."""
    codes = []
    for side in Side:
        keys = [p.left if side is Side.LEFT else p.right for p in less]
        _, columns = keyed_rows(task.condition, side, task.samples[side].batch, keys)
        codes.append([rough_codes(column) for column in columns])
    shares = [_share(p, left, right) for p, left, right in zip(less, *codes, strict=True)]
    alone = sorted(range(len(less)), key=shares.__getitem__)
    if len(less) <= AXES:
        return [alone]
    best = most_selective(less, list(zip(*codes, strict=True)))
    together = sorted(alone, key=lambda i: i not in best)
    return [alone] if together == alone else [alone, together]


def _share(predicate: Less, left: Words, right: Words) -> float:
    """The share of the sample's pairs that satisfy an inequality."""
    below = float(np.searchsorted(np.sort(right), left).sum()) / max(1, len(left) * len(right))
    return 1 - below if predicate.operator in ("<", "<=") else below


def _overlaps(task: Task) -> list[Overlap]:
    match task.condition.strategy.predicates:
        case [Rectangles(x, y)]:
            return [x, y]
        case [Overlap() as overlap]:
            return [overlap]
    return []


# Grids.


def _grid(task: Task, axes: list[Axis]) -> Candidate:
    """The axes, cut into slabs with equally many rows of the sample."""
    slabs = max(1, round(min(MOST_CELLS, task.finer * task.tasks) ** (1 / len(axes))))
    cut = tuple(_with_cuts(task, axis, slabs) for axis in axes)
    router = GridRouter(task.condition, cut)
    shape = " x ".join(str(axis.slabs) for axis in cut)
    if isinstance(cut[0], CellSpan):
        if len(cut) == 1:
            return router, Choice("slabs", f"{shape} of them; a pair is joined where the later interval begins")
        return router, Choice("grid", f"{shape} tiles; a pair is joined where the later rectangle begins in x and in y")
    home = cut[0].home
    name, ranges = ("range", "ranges") if len(cut) == 1 else ("grid", "tiles")
    return router, Choice(name, f"{shape} {ranges} of {_sent(home)}")


def _sent(home: Side) -> str:
    return f"{home.alias}; a row of {home.other.alias} is sent to those that can hold its partners"


def _with_cuts(task: Task, axis: Axis, slabs: int) -> Axis:
    places: list[NDArray[np.float64] | NDArray[np.int64]] = []
    for side in Side:
        _, columns = keyed_rows(task.condition, side, task.samples[side].batch, axis.keys(side))
        places.append(axis.places(columns))
    both = np.concatenate(places)
    both = np.sort(both[np.isfinite(both)])
    if not len(both):
        return axis
    cuts = np.unique(both[np.arange(1, slabs) * len(both) // slabs])
    return replace(axis, cuts=cuts)


def _windows(task: Task, home: Side) -> list[Axis]:
    """One axis for each band; for a distance, the dimensions with the largest spread."""
    axes: list[Axis] = []
    for predicate in task.condition.strategy.predicates:
        match predicate:
            case Band():
                axes.append(band_axis(predicate, home))
            case Distance(left):
                axes += [distance_axis(predicate, home, key, element) for key, element in _widest(task, left)]
    return axes


def _widest(task: Task, keys: tuple[Expression, ...]) -> list[tuple[int, int | None]]:
    """The coordinates with the largest spread among left rows: the key, and its element if keys are lists."""
    _, columns = keyed_rows(task.condition, Side.LEFT, task.samples[0].batch, keys)
    if types.is_list(columns[0].type):
        dimensions = int(list_lengths(columns[0]).max(initial=1))
        spreads = [(_spread(element_of(columns[0], i)), 0, i) for i in range(dimensions)]
        return [(key, element) for _, key, element in sorted(spreads, reverse=True)[:AXES]]
    widest = sorted(((_spread(np.asarray(column)), key) for key, column in enumerate(columns)), reverse=True)
    return [(key, None) for _, key in widest[:AXES]]


def _spread(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.std(finite)) if len(finite) else 0.0


def _beginnings(task: Task, home: Side, lengths: tuple[float, ...]) -> list[Axis]:
    """The starts of one side's intervals. A partner starts inside, or earlier by at most the longest partner's
    length.
    """
    axes: list[Axis] = []
    for overlap, longest in zip(_overlaps(task), lengths, strict=True):
        mine, theirs = _intervals(overlap, home)
        axes.append(WindowAxis(home, mine.low, theirs.low, theirs.high, -longest, 0.0))
    return axes


def _intervals(overlap: Overlap, home: Side) -> tuple[Interval, Interval]:
    return (overlap.left, overlap.right) if home is Side.LEFT else (overlap.right, overlap.left)
