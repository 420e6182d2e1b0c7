"""Chooses a router: every candidate routes the sample, and the one with the least work is taken.

The work is that of the busiest task plus the average over all tasks, counted in rows received and pairs found. So a
router loses if it copies rows too often, and also if it fills a single cell.

Windowed streams have no sample when a query starts. The class of predicate decides:

    equality             hash of the keys: a row goes to one cell
    bands, distances     stripes, if there are enough cells for a row to skip most of them
    anything else        None: every row visits all cells, which store rows in turn

If a row's partners are tracked, it is stored in at most one cell, which can tell whether it has one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.taking import take_rows
from dovetail.condition import Band, Condition, Distance, Literal, keyed_rows
from dovetail.condition.expression import type_of
from dovetail.condition.render import text_of
from dovetail.condition.types import is_list
from dovetail.core.codes import Floats
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.kernels.hashing import hash_codes
from dovetail.matching import build_matcher
from dovetail.planning.plan import Choice
from dovetail.planning.statistics import Sample
from dovetail.routing.candidates import Task, candidates
from dovetail.routing.grid import GridRouter, Slabs, WindowAxis, band_axis, distance_axis
from dovetail.routing.routers import HashRouter, Router, Spread, UnionRouter, Visits, home_cells

PAIR = 0.2  # the cost of a result, in rows
FEW = 1024  # rows of a sample whose pairs are enumerated
PAIRS = 1 << 14  # how many of these pairs are assigned to cells
UNEVEN = 2.0  # a cell is split if it has more than this many times the average
FAR = 2.0**50  # stripes from zero; beyond, neighbours are indistinguishable. From half of it, rows visit all cells

Loads = NDArray[np.float64]
Places = NDArray[np.int64]


class Routing(NamedTuple):
    """A router, the work in each of its cells, and why it was chosen."""

    router: Router
    loads: Loads
    choice: Choice


def choose_router(task: Task) -> Routing:
    """The candidate with the least work."""
    pairs = _sample_pairs(task)
    routings = [_measure_routing(task, pairs, router, choice) for router, choice in candidates(task)]
    if task.by_branch and task.unique is None and task.condition.alternatives:
        routings.append(_union(task))
    return min(routings, key=lambda routing: _work(task, routing.loads))


def _union(task: Task) -> Routing:
    """Every alternative with its own router."""
    branches = task.condition.branches
    samples = replace(task.samples[0], reach=None), replace(task.samples[1], reach=None)  # `reach` is of the whole
    parts = [choose_router(replace(task, condition=one, samples=samples, by_branch=False)) for one in branches]
    names = ", ".join(f"by {part.choice.name} for {one.text}" for one, part in zip(branches, parts, strict=True))
    router = UnionRouter(branches, tuple(part.router for part in parts))
    return Routing(router, np.concatenate([part.loads for part in parts]), Choice("union", f"rows are routed {names}"))


def in_tasks(loads: Loads, tasks: int) -> list[int]:
    """The task of each cell. Heavy cells are assigned first, each to the task with the least work."""
    filled = np.zeros(max(1, min(tasks, len(loads))))
    chosen = [0] * len(loads)
    for cell in np.argsort(-loads, kind="stable").tolist():
        chosen[cell] = int(np.argmin(filled))
        filled[chosen[cell]] += loads[cell] + 1
    return chosen


def _work(task: Task, loads: Loads) -> float:
    busiest = np.bincount(in_tasks(loads, task.tasks), loads).max(initial=0.0)
    return float(busiest + loads.sum() / task.tasks)


class _Pairs(NamedTuple):
    """Matching pairs by row of the samples, and the number of pairs that each of them represents."""

    rows: tuple[Places, Places]
    weight: float


NO_PAIRS = _Pairs((np.empty(0, np.int64), np.empty(0, np.int64)), 0.0)


def _sample_pairs(task: Task, few: int = FEW) -> _Pairs:
    if not task.listed:
        return NO_PAIRS
    rows = [_some(sample, seed, few) for seed, sample in enumerate(task.samples)]
    batches = [take_rows(sample.batch, chosen) for sample, chosen in zip(task.samples, rows, strict=True)]
    chunks = list(build_matcher(task.condition, batches[0], batches[1]).pairs(PAIRS))
    if not chunks:
        return NO_PAIRS
    left, right = (np.concatenate([chunk[side] for chunk in chunks]) for side in Side)
    chosen = np.random.default_rng(0).choice(len(left), min(len(left), PAIRS), replace=False)
    sampled = task.samples[0].rows / len(rows[0]) * task.samples[1].rows / len(rows[1])
    return _Pairs((rows[0][left[chosen]], rows[1][right[chosen]]), sampled * len(left) / len(chosen))


def _some(sample: Sample, seed: int, few: int) -> Places:
    rows = np.arange(sample.batch.num_rows)
    return rows if len(rows) <= few else np.sort(np.random.default_rng(seed).choice(rows, few, replace=False))


def _measure_routing(task: Task, pairs: _Pairs, router: Router, choice: Choice) -> Routing:
    """The candidate with its loads. Overloaded cells of a grid are split."""
    loads = _loads(task, pairs, router)
    fair = float(loads.sum()) / task.tasks
    if isinstance(router, GridRouter) and loads.max(initial=0.0) > UNEVEN * fair:
        pieces = np.clip(np.round(loads / fair), 1, task.tasks).astype(np.int64)
        larger = Side.LEFT if task.samples[0].rows >= task.samples[1].rows else Side.RIGHT
        router = replace(router, pieces=pieces, dealt=larger if task.unique is None else task.unique)
        loads = _loads(task, pairs, router)
        choice = Choice(choice.name, f"{choice.why}; overloaded cells that are split: {int((pieces > 1).sum())}")
    return Routing(router, loads, choice)


def expected_pairs(task: Task, router: Router) -> Loads:
    """The number of pairs in each cell, from as much of the sample as is needed to find enough pairs."""
    pairs = _sample_pairs(task)
    seen = len(pairs.rows[0])
    if seen < PAIRS:
        pairs = _sample_pairs(task, int(FEW * np.sqrt(PAIRS / max(1, seen))))
    return _estimate_loads(task, pairs, router)[1]


def _loads(task: Task, pairs: _Pairs, router: Router) -> Loads:
    """The load of each cell: its rows and its pairs."""
    rows, met = _estimate_loads(task, pairs, router)
    return rows + met * PAIR


def _estimate_loads(task: Task, pairs: _Pairs, router: Router) -> tuple[Loads, Loads]:
    """Rows of both sides and pairs in each cell."""
    cells = router.cells
    rows = np.zeros(cells)
    met = []
    for side in Side:
        sample = task.samples[side]
        visits = router.route(side, sample.batch, np.arange(sample.batch.num_rows))
        rows += np.bincount(visits.cells, minlength=cells) * sample.weight
        met.append(_meeting_places(visits, pairs.rows[side], sample.batch.num_rows, cells))
    shared = np.intersect1d(met[0], met[1], assume_unique=True)
    meetings = np.bincount(shared % cells, minlength=cells).astype(np.float64)
    return rows, meetings * pairs.weight


def _meeting_places(visits: Visits, wanted: Places, rows: int, cells: int) -> Places:
    """For each wanted row and each cell that it visits: the row's position in `wanted` and the cell, as one number."""
    counts = np.bincount(visits.rows, minlength=rows)
    starts = np.cumsum(counts) - counts
    times = counts[wanted]
    offsets = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    by_row = visits.cells[np.argsort(visits.rows, kind="stable")]
    return np.repeat(np.arange(len(wanted)), times) * cells + by_row[np.repeat(starts[wanted], times) + offsets]


@dataclass(frozen=True, slots=True)
class StripeRouter:
    """Rows of one stream go to the cell of their stripe. Rows of the other visit the stripes in reach."""

    condition: Condition
    axis: WindowAxis
    cells: int

    needs_spread = False

    @property
    def width(self) -> float:
        return (self.axis.high - self.axis.low) or 1.0

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        alive, columns = keyed_rows(self.condition, side, batch, self.axis.keys(side))
        rows = np.arange(batch.num_rows) if alive is None else alive
        with np.errstate(over="ignore", invalid="ignore"):
            if side is self.axis.home:
                return Visits(rows, self._homes(self.axis.places(columns)))
            places, cells = self._visits(*self.axis.reach(columns))
            return Visits(rows[places], cells.astype(np.int32))

    def _homes(self, values: Floats) -> NDArray[np.int32]:
        stripes = values / self.width
        near = np.abs(stripes) < FAR  # not NaN
        return np.where(near, self._cells(np.where(near, stripes, 0.0)), 0).astype(np.int32)

    def _visits(self, low: Floats, high: Floats) -> tuple[Slabs, Slabs]:
        """Which rows visit which cells, without duplicates, from the ends of their ranges."""
        low, high = np.floor(low / self.width), np.floor(high / self.width)
        near = (np.abs(low) < FAR / 2) & (np.abs(high) < FAR / 2) & (high - low < self.cells)
        few, many = np.flatnonzero(near), np.flatnonzero(~near)
        counts = np.maximum(high[few] - low[few] + 1, 0).astype(np.int64)
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        cells = self._cells(np.repeat(low[few], counts) + offsets)
        visits = np.repeat(few, counts) * self.cells + cells
        everywhere = (many[:, None] * self.cells + np.arange(self.cells)).ravel()
        visits = np.unique(np.concatenate([visits, everywhere]))
        return visits // self.cells, visits % self.cells

    def _cells(self, stripes: Floats) -> Slabs:
        return home_cells(hash_codes(np.floor(stripes).astype(np.int64)), self.cells).astype(np.int64)


MANY = 8
"""From this number of cells on, stripes are cheaper: a row visits at most three. They may be skewed, unlike
round-robin.
"""


def window_router(condition: Condition, how: JoinType, cells: int) -> tuple[Router | None, Choice]:
    """The router of a windowed join. `cells` is the number that `window_cells` returns."""
    if condition.equalities:
        why = "equal keys share a cell; the other cells only receive the arrival"
        return HashRouter(condition, cells), Choice("hash", why)
    home = home_side(how)
    axis = _axis(condition, home) if cells >= MANY else None
    if axis is not None:
        why = (
            f"of {text_of(axis.at)}; a row of {home.other.alias} is sent to those that can hold its partners, the "
            f"other cells only receive the arrival"
        )
        return StripeRouter(condition, axis, cells), Choice("stripes", why)
    if how == "inner":
        why = "rows are stored round-robin; every row probes all cells"
    elif how is JoinType.FULL:
        why = "one cell knows which rows of both sides have a partner; an equality in the condition allows for more"
    else:
        why = (
            f"rows of {home.alias} are stored in one cell each, which knows whether they have a partner; rows of "
            f"{home.other.alias} in all cells"
        )
    return None, Choice("round_robin", why)


def home_side(how: JoinType) -> Side:
    """The side whose rows go to one cell each."""
    return how.tracked[0] if how.tracked else Side.LEFT


def window_cells(condition: Condition, how: JoinType, cells: int) -> int:
    """How many of the cells can be used. Without equal keys, only a single cell can know all partners of both sides."""
    return 1 if how is JoinType.FULL and not condition.equalities else cells


def _axis(condition: Condition, home: Side) -> WindowAxis | None:
    for predicate in condition.strategy.predicates:
        match predicate:
            case Band():
                return band_axis(predicate, home)
            case Distance(left, radius=Literal()):
                return distance_axis(predicate, home, 0, 0 if is_list(type_of(left[0])) else None)
    return None
