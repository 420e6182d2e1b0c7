"""As-of joins: the last partner of each left row up to its time, and the first from its time on, by one sweep.

    times        1  2  3  4  5  6  7
    right rows   a  b     a     b
    left rows          a     b     a       partners: a at 1, b at 2, a at 4

The sweep moves forwards in time and remembers the last right row of every key. Keys are numbered from 0 without large
gaps, so an array has one entry per key, and rows need not be grouped by key. To find the first partner from a time on,
time is reversed.

Among right rows at the same time, the last partner is the one with the highest row number and the first the one with
the lowest, as in pandas and Polars.

Until the end, rows are identified by position in the order, so memory is read sequentially. Which side comes next is
practically random, so the loop has no branch for it. A sweep is cut into ranges of time. Each starts with an empty
memory; rows it did not find are then looked up in the last rows remembered by the ranges before it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import allowed_threads, in_threads
from dovetail.kernels.compiling import kernel
from dovetail.kernels.taking import take_numbers

Words = NDArray[np.int64]
Rows = NDArray[Any]  # int32 if all row numbers fit, else int64
Keys = NDArray[np.int32]
Floats = NDArray[np.float64]
Ranges = list[tuple[slice, slice]]

FEW_ROWS = 1 << 16  # too few left rows to use another thread
NONE = -1  # instead of the position of a right row
EARLIEST = -(2**63)


class Timeline(NamedTuple):
    """Times in order, and the key at each position; an empty array if there are no keys."""

    times: Words
    keys: Keys

    @property
    def turned(self) -> Timeline:
        """The same with time reversed."""
        return Timeline(~self.times[::-1], np.ascontiguousarray(self.keys[::-1]))


def last_before(left: Timeline, right: Timeline, keys: int, strict: bool) -> Rows:
    """For each left position, the position of the last right row of its key up to its time. `strict`: before it."""
    found = np.empty(len(left.times), np.int32 if len(right.times) < 2**31 else np.int64)
    ranges = _ranges(left, right, strict)

    def sweep(lefts: slice, rights: slice) -> Rows:
        memory = np.full(max(keys, 1), NONE, found.dtype)
        times = left.times[lefts], right.times[rights]
        if keys:
            mine, theirs = left.keys[lefts], right.keys[rights]
            _sweep_keys(*times, mine, theirs, rights.start, strict, memory, found[lefts])
        else:
            _sweep(*times, rights.start, strict, found[lefts])
            memory[0] = rights.stop - 1 if rights.stop > rights.start else NONE
        return memory

    memories = in_threads([partial(sweep, *one) for one in ranges])
    before = memories[0]
    for (lefts, _), memory in zip(ranges[1:], memories[1:], strict=True):
        _look_back(found[lefts], left.keys[lefts], before)
        before = np.where(memory == NONE, before, memory)
    return found


def first_after(left: Timeline, right: Timeline, keys: int, strict: bool) -> Rows:
    """For each left position, the position of the first right row of its key from its time on. `strict`: after it."""
    found = last_before(left.turned, right.turned, keys, strict)[::-1]
    return np.where(found == NONE, NONE, len(right.times) - 1 - found).astype(found.dtype)


def _ranges(left: Timeline, right: Timeline, strict: bool) -> Ranges:
    """Ranges of left positions for the threads, each with the right positions between it and the range before."""
    size = len(left.times)
    parts = max(1, min(allowed_threads(), size // FEW_ROWS))
    cuts = np.linspace(0, size, parts + 1).astype(np.int64)
    inner = np.searchsorted(right.times, left.times[cuts[1:-1]], side="left" if strict else "right")
    bounds = [0, *inner.tolist(), len(right.times)]
    return [(slice(*cuts[i : i + 2].tolist()), slice(*bounds[i : i + 2])) for i in range(parts)]


@kernel
def _look_back(found: Rows, keys: Keys, memory: Rows) -> None:
    for i in range(len(found)):
        if found[i] == NONE:
            found[i] = memory[np.uint32(keys[i])] if len(keys) else memory[0]


@kernel
def _sweep(lefts: Words, rights: Words, first: int, strict: bool, found: Rows) -> None:
    """Takes the right row next, as long as it is not later than the left one."""
    i = np.uint64(0)
    at = np.uint64(0)
    one = np.uint64(1)
    step = np.int64(1) if strict else np.int64(0)
    while i < len(lefts) and lefts[i] == EARLIEST and strict:
        found[i] = NONE
        i += one
    while i < len(lefts) and at < len(rights):
        is_right = np.uint64(rights[at] <= lefts[i] - step)
        found[i] = first + np.int64(at) - 1 if at else NONE
        at += is_right
        i += one - is_right
    while i < len(lefts):
        found[i] = first + np.int64(at) - 1 if at else NONE
        i += one


@kernel
def _sweep_keys(
    lefts: Words,
    rights: Words,
    left_keys: Keys,
    right_keys: Keys,
    first: int,
    strict: bool,
    memory: Rows,
    found: Rows,
) -> None:
    """The same with keys: the entry of the key is read and written at every step, whichever side it is for."""
    i = np.uint64(0)
    at = np.uint64(0)
    one = np.uint64(1)
    step = np.int64(1) if strict else np.int64(0)
    while i < len(lefts) and lefts[i] == EARLIEST and strict:
        found[i] = NONE
        i += one
    while i < len(lefts) and at < len(rights):
        is_right = rights[at] <= lefts[i] - step
        key = np.uint32(right_keys[at] if is_right else left_keys[i])
        place = first + np.int64(at) if is_right else np.int64(memory[key])
        memory[key] = place
        found[i] = place
        moved = np.uint64(is_right)
        at += moved
        i += one - moved
    while i < len(lefts):
        found[i] = memory[np.uint32(left_keys[i])]
        i += one
    while at < len(rights):
        memory[np.uint32(right_keys[at])] = first + np.int64(at)
        at += one


@kernel
def keep_near(lefts: Words, rights: Words, found: Rows, most: np.uint64) -> None:
    """Remove partners that are more than `most` away, in integers."""
    for i in range(len(found)):
        if found[i] >= 0:
            mine, theirs = lefts[i], rights[np.uint64(found[i])]
            apart = np.uint64(mine) - np.uint64(theirs) if mine >= theirs else np.uint64(theirs) - np.uint64(mine)
            if apart > most:
                found[i] = NONE


@kernel
def nearer(lefts: Words, rights: Words, before: Rows, after: Rows) -> None:
    """Put the nearer of two partners into `before`; on a tie, keep the one before."""
    for i in range(len(before)):
        if after[i] < 0:
            continue
        if before[i] < 0:
            before[i] = after[i]
            continue
        back = np.uint64(lefts[i]) - np.uint64(rights[np.uint64(before[i])])
        forth = np.uint64(rights[np.uint64(after[i])]) - np.uint64(lefts[i])
        if forth < back:
            before[i] = after[i]


@kernel
def nearer_floats(lefts: Floats, rights: Floats, before: Rows, after: Rows) -> None:
    """The same for doubles. A distance that is not finite does not count."""
    for i in range(len(before)):
        back = abs(lefts[i] - rights[np.uint64(before[i])]) if before[i] >= 0 else np.inf
        forth = abs(rights[np.uint64(after[i])] - lefts[i]) if after[i] >= 0 else np.inf
        if not back < np.inf:
            back = np.inf
            before[i] = NONE
        if forth < back:
            before[i] = after[i]


def by_row(found: Rows, lefts: Rows | None, rights: Rows | None) -> Rows:
    """Convert partners by position to partners by row; None: positions are row numbers."""
    if rights is not None:
        found = _rows_at(rights, found)
    return found if lefts is None else _scatter(found, lefts)


@kernel
def _rows_at(rows: Rows, found: Rows) -> Rows:
    taken = np.empty(len(found), rows.dtype)
    for i in range(len(found)):
        taken[i] = rows[np.uint64(found[i])] if found[i] >= 0 else NONE
    return taken


@kernel
def _scatter(found: Rows, rows: Rows) -> Rows:
    scattered = np.empty(len(found), found.dtype)
    for i in range(len(found)):
        scattered[np.uint64(rows[i])] = found[i]
    return scattered


def timeline(times: Words, rows: Rows | None, keys: Keys | None) -> Timeline:
    """Times in order, the row at each position (None: positions are row numbers), and the key of each row."""
    if keys is None:
        return Timeline(times, np.empty(0, np.int32))
    return Timeline(times, keys if rows is None else take_numbers(keys, rows))


def in_batches(found: Rows, rows: tuple[Rows, Rows], lefts: int, rights: int) -> Rows:
    """Convert partners among the rows that can match to rows of whole sides of this size."""
    if len(rows[1]) != rights:
        found = np.where(found >= 0, rows[1][np.maximum(found, 0)] if len(rows[1]) else NONE, NONE)
    if len(rows[0]) == lefts:
        return found
    spread = np.full(lefts, NONE, found.dtype)
    spread[rows[0]] = found
    return spread
