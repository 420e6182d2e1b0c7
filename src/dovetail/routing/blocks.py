"""Blocks router: a side is cut into blocks, and rows are compared only with blocks that can hold a partner.

       y ^      |     |         A block is a range of the first attribute and, within it, a range of the second. For
         |  2   |  5  |  8      l.x < r.x AND l.y > r.y, a left block can match a right one if its smallest x is not
         |------|     |---      above the other's largest x, and its largest y not below the other's smallest y.
         |  1   |-----|  7
         |------|  4  |---      Either both sides are cut, and every pair of blocks that can match is a cell. Or only
         |  0   |  3  |  6      one side (home) is cut, each of its blocks is a cell, and a row of the other side
         +---------------> x    visits the blocks that it can match. Then no row of the home side is copied.

Khayyat et al., Lightning fast and space efficient inequality joins, PVLDB 8(13), 2015, prune partitions by the minima
and maxima of one attribute. Deviation: both attributes prune, and blocks are cut along both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Condition, Expression, keyed_rows
from dovetail.core.codes import Words, rough_codes
from dovetail.core.rows import Rows, Side
from dovetail.kernels import boxes
from dovetail.routing.routers import Spread, Visits

LEAST, MOST = np.int64(-(2**63)), np.int64(2**63 - 1)


class Comparison(NamedTuple):
    """left < right, or one of <=, >, >=."""

    left: Expression
    operator: str
    right: Expression


class Blocks(NamedTuple):
    """Ranges of the first key, each divided into ranges of the second key, if there is one."""

    first: Words  # starts of the ranges of the first key, except for the lowest
    second: Words  # the starts of the second key's ranges, one row for each range of the first
    lows: Words  # (block, key) the smallest code in a block; above `highs` if it is empty
    highs: Words

    @property
    def number(self) -> int:
        return len(self.lows)

    def holding(self, codes: Sequence[Words]) -> NDArray[np.int32]:
        """The block of each row."""
        return boxes.holding(np.stack(codes[:2]), self.first, self.second)


def cut_blocks(codes: Sequence[Words], number: int, boxes: Words | None, keys: int) -> Blocks:
    """About `number` blocks with equally many rows, cut along the first one or two keys of a sample.

    `boxes` (box, key, minimum and maximum) are known to contain all rows. Each block is bounded by its intersections
    with them.
    """
    ranges = max(1, round(number ** (1 / keys)))
    within = max(1, round(number / ranges))
    first = _quantiles(codes[0], ranges)
    holding = np.searchsorted(first, codes[0], side="right")
    lines = [_quantiles(codes[min(1, len(codes) - 1)][holding == r], within, fill=True) for r in range(len(first) + 1)]
    second = np.stack(lines)
    lows = np.full((len(lines) * within, len(codes)), LEAST)
    highs = np.full((len(lines) * within, len(codes)), MOST)
    lows[:, 0], highs[:, 0] = (np.repeat(ends, within) for ends in _ends(first))
    if len(codes) > 1:
        lows[:, 1], highs[:, 1] = (np.concatenate(ends) for ends in zip(*map(_ends, lines), strict=True))
    return _bound_blocks(Blocks(first, second, lows, highs), boxes)


def _quantiles(codes: Words, parts: int, fill: bool = False) -> Words:
    """The starts of the parts, except for the first. Distinct, unless `fill` requires this number of them."""
    places = np.arange(1, parts) * len(codes) // parts
    cuts = np.sort(codes)[places] if len(codes) else np.zeros(len(places), np.int64)
    return cuts if fill else np.unique(cuts)


def _ends(cuts: Words) -> tuple[Words, Words]:
    """The smallest and the largest code of each part."""
    return np.append(LEAST, cuts), np.append(np.maximum(cuts, LEAST + 1) - 1, MOST)


def _bound_blocks(blocks: Blocks, boxes: Words | None) -> Blocks:
    if boxes is None:
        return blocks
    lows, highs = np.full_like(blocks.lows, MOST), np.full_like(blocks.highs, LEAST)
    for block in range(blocks.number):
        least = np.maximum(boxes[:, :, 0], blocks.lows[block])
        greatest = np.minimum(boxes[:, :, 1], blocks.highs[block])
        common = (least <= greatest).all(axis=1)
        if common.any():
            lows[block], highs[block] = least[common].min(axis=0), greatest[common].max(axis=0)
    return blocks._replace(lows=lows, highs=highs)


def meeting(left: Blocks, right: Blocks, operators: Sequence[str]) -> NDArray[np.bool_]:
    """Which left blocks (rows) can hold a partner of which right blocks (columns)."""
    found = np.ones((left.number, right.number), np.bool_)
    for key, operator in enumerate(operators):
        if operator in ("<", "<="):
            found &= left.lows[:, key, None] <= right.highs[:, key]
        else:
            found &= left.highs[:, key, None] >= right.lows[:, key]
    some = [np.asarray((side.lows <= side.highs).all(axis=1)) for side in (left, right)]
    return found & some[0][:, None] & some[1]


@dataclass(frozen=True, slots=True)
class HomeRouter:
    """Rows of side `home` go to one block. Rows of the other side visit every block that can hold a partner."""

    condition: Condition
    comparisons: tuple[Comparison, ...]
    home: Side
    blocks: Blocks

    needs_spread = False

    @property
    def cells(self) -> int:
        return self.blocks.number

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, codes = _codes(self.condition, self.comparisons, side, batch)
        if side is self.home:
            return Visits(rows, self.blocks.holding(codes))
        # All as "bound <= code": ~ reverses the order, and is defined for every code.
        lower = [(c.operator in ("<", "<=")) is (self.home is Side.LEFT) for c in self.comparisons]
        mine = np.stack([code if low else ~code for code, low in zip(codes, lower, strict=True)])
        bounds = np.where(lower, self.blocks.lows, ~self.blocks.highs)
        reached = boxes.reach(mine, bounds)
        return Visits(rows[reached.rows], reached.boxes)


@dataclass(frozen=True, slots=True)
class BlockRouter:
    """Both sides visit all cells of their block: one for each block of the other side that can hold a partner."""

    condition: Condition
    comparisons: tuple[Comparison, ...]
    blocks: tuple[Blocks, Blocks]
    cell_of: NDArray[np.int32]  # by left and right block; -1: no partners possible

    needs_spread = False

    @property
    def cells(self) -> int:
        return max(1, int(self.cell_of.max(initial=0)) + 1)

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, codes = _codes(self.condition, self.comparisons, side, batch)
        holding = self.blocks[side].holding(codes)
        lines = self.cell_of if side is Side.LEFT else self.cell_of.T
        visited = [line[line >= 0] for line in lines]
        counts = np.array([len(cells) for cells in visited])
        starts = np.cumsum(counts) - counts
        times = counts[holding]
        offsets = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        cells = np.concatenate(visited)[np.repeat(starts[holding], times) + offsets]
        return Visits(np.repeat(rows, times), cells.astype(np.int32))


def _codes(
    condition: Condition, comparisons: Sequence[Comparison], side: Side, batch: pa.RecordBatch
) -> tuple[Rows, list[Words]]:
    """The rows whose keys are all valid, and the codes of these keys."""
    keys = [c.left if side is Side.LEFT else c.right for c in comparisons]
    alive, columns = keyed_rows(condition, side, batch, keys)
    rows = np.arange(batch.num_rows) if alive is None else alive
    return rows, [rough_codes(column) for column in columns]
