"""Block pairs: both sides are cut into blocks, and only blocks that can hold a matching pair share a cell.

       y ^      |     |         A block is a range of the first attribute and, within it, a range of the second. For
         |  2   |  5  |  8      l.x < r.x AND l.y > r.y, a left block meets a right one if its least x is not above the
         |------|     |---      other's greatest x, and its greatest y not below the other's least y.
         |  1   |-----|  7
         |------|  4  |---      Every pair of blocks that meets is a cell of its own; or, where the rows of one side
         |  0   |  3  |  6      must not be copied (outer and semi joins), all that meet a block of it share a cell.
         +---------------> x

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
from dovetail.core.rows import Side
from dovetail.routing.protocol import Spread, Visits

LEAST, MOST = np.int64(-(2**63)), np.int64(2**63 - 1)


class Comparison(NamedTuple):
    """left < right, or one of <=, >, >=."""

    left: Expression
    operator: str
    right: Expression


class Blocks(NamedTuple):
    """Ranges of the first key, and within each of them ranges of the second (if there is one)."""

    first: Words  # where ranges of the first key begin, but for the lowest
    second: Words  # a line of such cuts for each of them
    lows: Words  # (block, key) the least code that a block holds; above `highs` in an empty one
    highs: Words

    @property
    def number(self) -> int:
        return len(self.lows)

    def holding(self, codes: Sequence[Words]) -> NDArray[np.int64]:
        """The block of each row."""
        ranges: NDArray[np.int64] = np.searchsorted(self.first, codes[0], side="right")
        if len(codes) == 1:
            return ranges
        within: NDArray[np.int64] = (codes[1][:, None] >= self.second[ranges]).sum(axis=1)
        return ranges * np.int64(self.second.shape[1] + 1) + within


def cut_blocks(codes: Sequence[Words], number: int, boxes: Words | None) -> Blocks:
    """About `number` blocks of equally many rows, cut along the first two keys of a sample.

    `boxes` (box, key, least and greatest) are known to hold all rows: what they have in common with a block bounds it.
    """
    ranges = number if len(codes) == 1 else max(1, round(number**0.5))
    within = 1 if len(codes) == 1 else max(1, round(number / ranges))
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
    """Where the parts begin, but for the first; distinct, unless they have to `fill` a line."""
    places = np.arange(1, parts) * len(codes) // parts
    cuts = np.sort(codes)[places] if len(codes) else np.zeros(len(places), np.int64)
    return cuts if fill else np.unique(cuts)


def _ends(cuts: Words) -> tuple[Words, Words]:
    """The least and the greatest code of each part."""
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
    """Which left blocks (lines) can hold a partner of which right ones (columns)."""
    found = np.ones((left.number, right.number), np.bool_)
    for key, operator in enumerate(operators):
        if operator in ("<", "<="):
            found &= left.lows[:, key, None] <= right.highs[:, key]
        else:
            found &= left.highs[:, key, None] >= right.lows[:, key]
    some = [np.asarray((side.lows <= side.highs).all(axis=1)) for side in (left, right)]
    return found & some[0][:, None] & some[1]


def number_cells(met: NDArray[np.bool_], unique: Side | None) -> NDArray[np.int32]:
    """The cell of each pair of blocks, -1 where they do not meet. Rows of side `unique` visit one cell only."""
    if unique is None:
        cells = np.cumsum(met).reshape(met.shape) - 1
    else:
        axis = 1 if unique is Side.LEFT else 0
        lines = np.cumsum(met.any(axis=axis)) - 1
        cells = np.broadcast_to(np.expand_dims(lines, axis), met.shape)
    return np.where(met, cells, -1).astype(np.int32)


@dataclass(frozen=True, slots=True)
class BlockRouter:
    condition: Condition
    comparisons: tuple[Comparison, ...]
    blocks: tuple[Blocks, Blocks]
    cell_of: NDArray[np.int32]  # by left and right block; -1: they do not meet

    needs_spread = False

    @property
    def cells(self) -> int:
        return max(1, int(self.cell_of.max(initial=0)) + 1)

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        keys = [c.left if side is Side.LEFT else c.right for c in self.comparisons]
        alive, columns = keyed_rows(self.condition, side, batch, keys)
        rows = np.arange(batch.num_rows) if alive is None else alive
        holding = self.blocks[side].holding([rough_codes(column) for column in columns])
        lines = self.cell_of if side is Side.LEFT else self.cell_of.T
        visited = [np.unique(line[line >= 0]) for line in lines]
        counts = np.array([len(cells) for cells in visited])
        starts = np.cumsum(counts) - counts
        times = counts[holding]
        offsets = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        cells = np.concatenate(visited)[np.repeat(starts[holding], times) + offsets]
        return Visits(np.repeat(rows, times), cells.astype(np.int32))
