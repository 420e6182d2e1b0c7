"""Ranges and boxes: which one holds a row, which ones a row's codes can reach, and boxes around parts of the rows.

Codes have one row per key; `bounds` has one row per box.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
STEP = 16  # up to this number, cuts are counted one by one
LEAST, MOST = np.int64(-(2**63)), np.int64(2**63 - 1)


def ranges(values: NDArray[Any], cuts: NDArray[Any]) -> Words:
    """The range of each value. Ranges begin at the cuts, except the first. NaN comes last."""
    found = np.empty(len(values), np.int64)
    _ranges(values, cuts.astype(values.dtype), found)
    return found


class Reached(NamedTuple):
    """Pairs of a row and a box, ordered by box."""

    rows: Words
    boxes: NDArray[np.int32]


def around(codes: Words, cuts: Words) -> Words:
    """(box, key, 0: least and 1: greatest) for the rows between two cuts of the first key, without empty boxes."""
    ends = np.empty((len(cuts) + 1, len(codes), 2), np.int64)
    ends[:, :, 0], ends[:, :, 1] = MOST, LEAST
    _around(codes, cuts, ends)
    return ends[ends[:, 0, 0] <= ends[:, 0, 1]]


def holding(codes: Words, first: Words, second: Words) -> NDArray[np.int32]:
    """The box of each row: ranges of the first key begin at `first`, those of the second in range r at `second[r]`."""
    boxes = np.empty(codes.shape[1], np.int32)
    _holding(codes, first, second, boxes)
    return boxes


def reach(codes: Words, bounds: Words) -> Reached:
    """The boxes that have no bound above the row's code for that key."""
    counts = np.empty(len(bounds), np.int64)
    _count(codes, bounds, counts)
    rows = np.empty(int(counts.sum()) + 1, np.int64)  # the last entry is written but not read
    _list(codes, bounds, rows)
    return Reached(rows[:-1], np.repeat(np.arange(len(bounds), dtype=np.int32), counts))


@kernel
def _range(value: Any, cuts: NDArray[Any]) -> int:
    """How many cuts are not above the value. A few cuts are all counted, because mispredicted branches cost more."""
    start, end = 0, len(cuts)
    if end > 2 * STEP:
        for place in range(STEP - 1, end, STEP):
            start += STEP * (not (value < cuts[place]))
        end = min(start + STEP, end)
    found = start
    for place in range(start, end):
        found += not (value < cuts[place])
    return found


@kernel
def _ranges(values: NDArray[Any], cuts: NDArray[Any], found: Words) -> None:
    for row in range(len(values)):
        found[row] = _range(values[row], cuts)


@kernel
def _around(codes: Words, cuts: Words, ends: Words) -> None:
    for row in range(codes.shape[1]):
        box = _range(codes[0, row], cuts)
        for key in range(codes.shape[0]):
            code = codes[key, row]
            ends[box, key, 0] = min(ends[box, key, 0], code)
            ends[box, key, 1] = max(ends[box, key, 1], code)


@kernel
def _holding(codes: Words, first: Words, second: Words, boxes: NDArray[np.int32]) -> None:
    last = codes.shape[0] - 1  # the second key, or the only one: then `second` has no cuts
    for row in range(codes.shape[1]):
        box = _range(codes[0, row], first)
        within = 0
        for place in range(second.shape[1]):
            within += codes[last, row] >= second[box, place]
        boxes[row] = box * (second.shape[1] + 1) + within


@kernel
def _reaches(codes: Words, row: int, bounds: Words, box: int) -> bool:
    found = True
    for key in range(codes.shape[0]):
        found &= bounds[box, key] <= codes[key, row]
    return found


@kernel
def _count(codes: Words, bounds: Words, counts: Words) -> None:
    for box in range(bounds.shape[0]):
        reached = 0
        for row in range(codes.shape[1]):
            reached += _reaches(codes, row, bounds, box)
        counts[box] = reached


@kernel
def _list(codes: Words, bounds: Words, rows: Words) -> None:
    at = 0
    for box in range(bounds.shape[0]):
        for row in range(codes.shape[1]):
            rows[at] = row
            at += _reaches(codes, row, bounds, box)
