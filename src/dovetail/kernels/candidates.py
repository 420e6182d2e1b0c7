"""Joins that look at candidates: runs of points that a box may hold (`cells.py`), and a kernel that flags what it does.

    points   . . . . . . . . . . . . . .        box a  visits  [2, 6)   box b  visits  [4, 9)
    flags            1 0 1 1 | 0 0 1 1 0        one byte per visited point, run after run

Flags are made for a block of visits at a time, so memory stays small whatever the number of candidates. Counting adds
them up; listing picks the points, or copies the run where all are flagged. Flags that the count has made are kept for
the listing as long as they take about as much room as the rows themselves.

A flag of 2 says that the numbers are too near the limit to tell: the condition as it was written decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.cells import Visits
from dovetail.kernels.compiling import kernel
from dovetail.kernels.listing import CHUNK, STRIDE, Check, Flags, Rows, Words, new_chunk, padded

Bytes = NDArray[np.uint8]
Flag = Callable[[Rows, Rows, Rows, Bytes, Rows], None]
"""Fill in the flags of the visits (boxes, firsts, lasts), run after run, and how many of each run are flagged."""

ZERO, ONE = np.uint64(0), np.uint64(1)
BLOCK = 1 << 20  # flags
KEEP = 16  # flags per row that may be kept
GLANCE = 16  # points that a box looks at before others have had a look
ASK = 2


class _Block(NamedTuple):
    """Some visits, run after run."""

    boxes: Rows
    firsts: Rows
    lasts: Rows


@dataclass(slots=True)
class Candidates:
    """Pairs of a box and a visited point that is flagged."""

    visits: Visits
    flag: Flag
    left_rows: int
    right_rows: int
    check: Check | None = None
    _counts: Rows | None = field(default=None, init=False)  # by visit
    _flags: list[Bytes] = field(default_factory=list, init=False)  # by block, of the first blocks


def count(join: Candidates) -> int:
    """How many pairs there are."""
    return int(_counted(join).sum(dtype=np.int64))


def row_counts(join: Candidates) -> Words:
    """How many partners each left row has."""
    by_row = np.bincount(join.visits.left[join.visits.boxes], _counted(join), join.left_rows)
    return by_row.astype(np.int64)


def row_exists(join: Candidates) -> Flags:
    """Which left rows have a partner. A glance at a few candidates of each comes first, and settles most."""
    exists = np.zeros(join.left_rows, np.bool_)
    visits = _all_visits(join)
    reach = GLANCE
    while len(visits.boxes):
        ends = np.minimum(visits.lasts, visits.firsts + reach)
        for block in _blocks(visits._replace(lasts=ends)):
            _, counts = _flagged(join, block)
            exists[join.visits.left[block.boxes[counts > 0]]] = True
        rest = (ends < visits.lasts) & ~exists[join.visits.left[visits.boxes]]
        visits = _Block(visits.boxes[rest], ends[rest], visits.lasts[rest])
        reach *= 4
    return exists


def right_counts(join: Candidates) -> Words:
    """How many partners each right row has."""
    found = np.zeros(len(join.visits.points), np.int64)
    for block in _blocks(_all_visits(join)):
        _add(block, _flagged(join, block)[0], found)
    return np.bincount(join.visits.points, found, join.right_rows).astype(np.int64)


def right_exists(join: Candidates) -> Flags:
    """Which right rows have a partner."""
    found = np.zeros(len(join.visits.points), np.uint8)
    for block in _blocks(_all_visits(join)):
        _mark(block, _flagged(join, block)[0], found)
    exists = np.zeros(join.right_rows, np.bool_)
    exists[join.visits.points[found > 0]] = True
    return exists


def pairs(join: Candidates, room: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `room`; only the last is smaller."""
    counts = _counted(join)
    missing = count(join)
    points = padded(join.visits.points)
    size = min(room, missing)
    lefts, rights = new_chunk(size, points.dtype)
    filled = 0
    begin = 0
    for number, block in enumerate(_blocks(_all_visits(join))):
        mine = counts[begin : begin + len(block.boxes)]
        begin += len(block.boxes)
        if not mine.any():
            continue
        flags = join._flags[number] if number < len(join._flags) else _flagged(join, block)[0]
        at = np.zeros(3, np.uint64)  # visit, how many of its points have been looked at, where its flags begin
        while True:
            filled = _fill(join.visits.left, points, block, mine, flags, at, filled, size, lefts, rights)
            if filled < size:
                break
            yield lefts[:size], rights[:size]
            missing -= size
            if missing == 0:
                return
            size = min(room, missing)
            lefts, rights = new_chunk(size, points.dtype)
            filled = 0


def _counted(join: Candidates) -> Rows:
    """How many partners each visit finds."""
    if join._counts is None:
        counts = []
        keep = KEEP * (join.left_rows + join.right_rows)
        for block in _blocks(_all_visits(join)):
            flags, by_visit = _flagged(join, block)
            counts.append(by_visit)
            keep -= len(flags)
            if keep >= 0:
                join._flags.append(flags)
        join._counts = np.concatenate(counts) if counts else np.empty_like(join.visits.boxes)
    return join._counts


def _all_visits(join: Candidates) -> _Block:
    return _Block(join.visits.boxes, join.visits.firsts, join.visits.lasts)


def _blocks(visits: _Block) -> Iterator[_Block]:
    """The visits in pieces of about BLOCK points; one that has more is a piece of its own."""
    ends = np.cumsum(visits.lasts - visits.firsts, dtype=np.int64)
    begin = 0
    done = 0
    while begin < len(ends):
        end = max(int(np.searchsorted(ends, done + BLOCK, side="right")), begin + 1)
        yield _Block(*(column[begin:end] for column in visits))
        begin, done = end, int(ends[end - 1])


def _flagged(join: Candidates, block: _Block) -> tuple[Bytes, Rows]:
    """The flags, and how many of each run are flagged."""
    flags = np.empty(int((block.lasts - block.firsts).sum(dtype=np.int64)), np.uint8)
    counts = np.empty_like(block.boxes)
    join.flag(*block, flags, counts)
    if join.check is not None:
        boxes, points = _doubtful(block, flags)
        if len(boxes):
            flags[flags == ASK] = join.check(join.visits.left[boxes], join.visits.points[points])
            _recount(block, flags, counts)
    return flags, counts


@kernel
def _doubtful(block: _Block, flags: Bytes) -> tuple[Rows, Rows]:
    """The box and the point of each flag that asks."""
    asking = 0
    for q in range(len(flags)):
        asking += flags[q] == ASK
    boxes = np.empty(asking, block.boxes.dtype)
    points = np.empty(asking, block.boxes.dtype)
    out = 0
    q = 0
    for v in range(len(block.boxes)):
        for p in range(block.firsts[v], block.lasts[v]):
            if flags[q] == ASK:
                boxes[out] = block.boxes[v]
                points[out] = p
                out += 1
            q += 1
    return boxes, points


@kernel
def _recount(block: _Block, flags: Bytes, counts: Rows) -> None:
    begin = 0
    for v in range(len(counts)):
        end = begin + block.lasts[v] - block.firsts[v]
        found = 0
        for q in range(begin, end):
            found += flags[q]
        counts[v] = found
        begin = end


@kernel
def _mark(block: _Block, flags: Bytes, found: Bytes) -> None:
    q = ZERO
    for v in range(len(block.boxes)):
        first = np.uint64(block.firsts[v])
        length = np.uint64(block.lasts[v]) - first
        for k in range(length):
            found[first + k] |= flags[q + k]
        q += length


@kernel
def _add(block: _Block, flags: Bytes, found: Words) -> None:
    q = 0
    for v in range(len(block.boxes)):
        for p in range(block.firsts[v], block.lasts[v]):
            found[p] += flags[q]
            q += 1


@kernel
def _fill(
    left: Rows,
    points: Rows,
    block: _Block,
    counts: Rows,
    flags: Bytes,
    at: NDArray[np.uint64],
    filled: int,
    room: int,
    lefts: Rows,
    rights: Rows,
) -> int:
    """List pairs of the block until there is no room or no pair left; returns how many are in the chunk then."""
    v, done, q = at[0], at[1], at[2]
    out, end = np.uint64(filled), np.uint64(room)
    while out < end and v < np.uint64(len(counts)):
        first = np.uint64(block.firsts[v])
        length = np.uint64(block.lasts[v]) - first
        size = np.uint64(counts[v])
        row = left[block.boxes[v]]
        if done > ZERO or size > end - out:  # a visit that does not fit in one chunk
            while done < length and out < end:
                lefts[out] = row
                rights[out] = points[first + done]
                out += np.uint64(flags[q + done])
                done += ONE
            if done < length:
                break
        elif size > ZERO:
            for j in range(ZERO, size, STRIDE):
                for k in range(STRIDE):
                    lefts[out + j + k] = row
            if size == length:
                for j in range(ZERO, size, STRIDE):
                    for k in range(STRIDE):
                        rights[out + j + k] = points[first + j + k]
                out += size
            else:
                for k in range(length):
                    rights[out] = points[first + k]
                    out += np.uint64(flags[q + k])
        v += ONE
        q += length
        done = ZERO
    at[0] = v
    at[1] = done
    at[2] = q
    return int(out)
