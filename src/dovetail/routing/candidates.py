"""The routers that a class of predicate allows.

equality                      hash, heavy keys split
bands, distances              a grid of ranges, one side at home, the other beside its neighbours
overlaps, rectangles          slabs or a grid with reference points; where the rows of a side must not be copied,
                              ranges of where its intervals begin
inequalities, overlaps too    pairs of blocks, pruned by the least and greatest of both keys
anything                      1-bucket
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Side
from dovetail.condition import (
    Band,
    Condition,
    Distance,
    Expression,
    Interval,
    Less,
    Literal,
    Overlap,
    Predicate,
    Rectangles,
    closed_bounds,
    columns_of,
    describe,
    keyed_rows,
    types,
)
from dovetail.condition.expression import type_of
from dovetail.keys import list_lengths
from dovetail.matchers import Drive
from dovetail.plan import Choice
from dovetail.routers.blocks import BlockRouter, Comparison, cut_blocks, meeting, number_cells
from dovetail.routers.codes import Floats, rough_codes
from dovetail.routers.grid import DOUBLE, SINGLE, Axis, GridRouter, Span, Window, element_of
from dovetail.routers.hash import HashRouter, heavy_keys
from dovetail.routers.one_bucket import OneBucketRouter
from dovetail.routers.protocol import Router
from dovetail.statistics import LEAST, MOST, Samples

FINER = 2  # cells per task, so that tasks can be evened out
MOST_CELLS = 1 << 12
BLOCKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of a side
AXES = 2  # of a grid, at most

Candidate = tuple[Router, Choice]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be routed."""

    condition: Condition
    drive: Drive
    samples: Samples
    tasks: int  # beside each other, or one after the other
    unique: Side | None = None  # the side whose rows may visit one cell only, because the join type preserves them
    listed: bool = True  # whether pairs are listed, which is work


def candidates(task: Task) -> Iterator[Candidate]:
    if task.drive.equal:
        yield _hash(task)
        return
    match task.drive.kind:
        case "band" | "two_bands" | "distance":
            for home in Side if task.unique is None else [task.unique]:
                yield _grid(task, _windows(task, home))
        case "overlap" | "rectangles":
            if task.unique is None:
                yield _grid(task, [Span(overlap.left, overlap.right) for overlap in _overlaps(task)])
            elif task.samples[task.unique].extremes.longest:
                yield _grid(task, _beginnings(task, task.unique))
            yield from _blocks(task)
        case "one_inequality" | "two_inequalities":
            yield from _blocks(task)
    yield _one_bucket(task)


def _hash(task: Task) -> Candidate:
    weighted = [(sample.batch, sample.weight) for sample in task.samples]
    heavy = heavy_keys(task.condition, weighted, task.tasks, task.unique)
    split = f"; {len(heavy)} heavy keys are split" if heavy else ""
    keys = " AND ".join(describe(p) for p in task.drive.equal)
    return HashRouter(task.condition, task.tasks, heavy), Choice("hash", f"rows meet by {keys}{split}")


def _one_bucket(task: Task) -> Candidate:
    if task.unique is None:
        router = OneBucketRouter.shaped(task.condition, task.tasks, task.samples[0].rows, task.samples[1].rows)
    elif task.unique is Side.LEFT:
        router = OneBucketRouter(task.condition, task.tasks, 1)
    else:
        router = OneBucketRouter(task.condition, 1, task.tasks)
    why = f"a grid of {router.lines} x {router.columns}, in which any two rows meet once"
    return router, Choice("one_bucket", why)


# Pairs of blocks.


def _blocks(task: Task) -> Iterator[Candidate]:
    """Blocks of some sizes; and, where rows of both sides may be copied, also lines and columns of them."""
    comparisons = _comparisons(task)
    codes, extremes = [], []
    for side in Side:
        sample = task.samples[side]
        keys = [c.left if side is Side.LEFT else c.right for c in comparisons]
        _, columns = keyed_rows(task.condition, side, sample.batch, keys)
        codes.append([rough_codes(column) for column in columns])
        known = list(zip(sample.extremes.lows, sample.extremes.highs, strict=True))
        extremes.append(known[: len(keys)] or [(LEAST, MOST)] * len(keys))
    for number in BLOCKS:
        if number > FINER * task.tasks:
            break
        blocks = (cut_blocks(codes[0], number, extremes[0]), cut_blocks(codes[1], number, extremes[1]))
        met = meeting(blocks[0], blocks[1], [c.operator for c in comparisons])
        why = f"{int(met.sum())} of {met.size} pairs of blocks can hold a result, by their least and greatest keys"
        for unique in (None, *Side) if task.unique is None else (task.unique,):
            cells = number_cells(met, unique)
            if cells.max(initial=0) < MOST_CELLS:
                yield BlockRouter(task.condition, comparisons, blocks, cells), Choice("block_pairs", why)


def _comparisons(task: Task) -> tuple[Comparison, ...]:
    """What prunes: two inequalities at most."""
    found: list[Comparison] = []
    for overlap in _overlaps(task):
        found.append(Comparison(overlap.left.low, "<=", overlap.right.high))
        found.append(Comparison(overlap.left.high, ">=", overlap.right.low))
    found += [Comparison(p.left, p.operator, p.right) for p in task.drive.predicates if isinstance(p, Less)]
    return tuple(found[:AXES])


def _overlaps(task: Task) -> list[Overlap]:
    match task.drive.predicates:
        case [Rectangles(x, y)]:
            return [x, y]
        case [Overlap() as overlap]:
            return [overlap]
    return []


# Grids.


def _grid(task: Task, axes: list[Axis]) -> Candidate:
    """The axes, cut into slabs of equally many rows of the sample."""
    slabs = max(1, round(min(MOST_CELLS, FINER * task.tasks) ** (1 / len(axes))))
    cut = tuple(_with_cuts(task, axis, slabs) for axis in axes)
    router = GridRouter(task.condition, cut)
    shape = " x ".join(str(axis.slabs) for axis in cut)
    if len(cut) > 1:
        return router, Choice("grid", f"{shape} cells; a pair meets in that of its reference point")
    if isinstance(cut[0], Span):
        return router, Choice("slabs", f"{shape} of them; a pair meets where the later interval begins")
    home = cut[0].home
    why = f"{shape} ranges of {home.alias}; a row of {home.other.alias} visits those that can hold its partners"
    return router, Choice("range", why)


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
    """One axis for each band; of a distance, the dimensions along which rows spread most."""
    axes: list[Axis] = []
    for predicate in task.drive.predicates:
        match predicate:
            case Band(left, right):
                low, high = (float(bound) for bound in closed_bounds(predicate))
                axes.append(_window(home, (left, right), low, high, _slack(predicate)))
            case Distance(left, right, Literal(value)):
                reach = float(value) * (1 + SINGLE)
                for key, element in _widest(task, left):
                    pair = (left[key], right[key])
                    axes.append(_window(home, pair, -reach, reach, _slack(predicate), element))
    return axes


def _window(
    home: Side, keys: tuple[Expression, Expression], low: float, high: float, slack: float, element: int | None = None
) -> Window:
    """low <= left - right <= high, seen from the side that is at home."""
    other = keys[home.other]
    if home is Side.RIGHT:
        low, high = -high, -low
    return Window(home, keys[home], other, other, low, high, slack, element)


def _slack(predicate: Predicate) -> float:
    read = [type_of(column) for source in predicate.source for column in columns_of(source)]
    return SINGLE if any(pa.types.is_float32(t) or pa.types.is_float16(t) for t in read) else DOUBLE


def _widest(task: Task, keys: tuple[Expression, ...]) -> list[tuple[int, int | None]]:
    """Which coordinates spread most among left rows: which key, and which of its elements, if keys are lists."""
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


def _beginnings(task: Task, home: Side) -> list[Axis]:
    """Intervals of one side where they begin; a partner begins at most the longest of them earlier, or inside it."""
    axes: list[Axis] = []
    for overlap, longest in zip(_overlaps(task), task.samples[home].extremes.longest, strict=True):
        mine, theirs = _intervals(overlap, home)
        axes.append(Window(home, mine.low, theirs.low, theirs.high, -longest, 0.0))
    return axes


def _intervals(overlap: Overlap, home: Side) -> tuple[Interval, Interval]:
    return (overlap.left, overlap.right) if home is Side.LEFT else (overlap.right, overlap.left)
