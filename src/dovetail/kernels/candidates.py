"""Joins that check candidates: runs of points that a box may hold, and a kernel that flags those that it does hold.

    points   . . . . . . . . . . . . . .        box a  visits  [2, 6)   box b  visits  [4, 9)
    flags            1 0 1 1 | 0 0 1 1 0        one byte per visited point, run after run

Boxes are left rows and points are right rows, possibly repeated, in an order that the join chooses. Visits come in
blocks of about a million flags, so memory stays small for any number of candidates. Counting sums the flags; listing
picks the points, or copies the run if all are flagged. Flags computed by a count are kept for the listing as long as
they take about as much memory as the rows.

A flag of 2 means that the numbers are too close to the limit: the condition is then evaluated as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel
from dovetail.kernels.windows import CHUNK, STRIDE, Check, Flags, Rows, Words, new_chunk, pad_rows

Bytes = NDArray[np.uint8]

ZERO, ONE = np.uint64(0), np.uint64(1)
BLOCK = 1 << 20  # flags
KEEP = 16  # flags per row that may be kept
FIRST_POINTS = 16  # points of a visit that are checked first
SPARSE = np.uint64(16)  # points per flagged one from which it pays to check whole strides
ASK = 2

# The state of a listing: the visit of the block, how many of its points have been processed, where its flags begin; how
# many pairs are in the chunk, and how many fit.
VISIT, DONE, FLAGS, FILLED, CAPACITY = range(5)


class Visits(NamedTuple):
    """Box boxes[v] may hold the points firsts[v] .. lasts[v]."""

    boxes: Rows
    firsts: Rows
    lasts: Rows


Flag = Callable[[Rows, Rows, Rows, Bytes, Rows], None]
"""Fill in the flags of some visits (boxes, firsts, lasts), run after run, and the number flagged in each run."""


@dataclass(slots=True)
class Candidates:
    """The pairs of a box and a visited, flagged point."""

    left: Rows  # by box
    right: Rows  # by point
    visits: Callable[[], Iterator[Visits]]  # every pair in one visit only; not too many points at a time
    flag: Flag
    left_rows: int
    right_rows: int
    check: Check | None = None
    _count: int | None = field(default=None, init=False)
    _kept: list[tuple[Bytes, Rows]] = field(default_factory=list, init=False)  # for the first blocks


def blocks(visits: Visits) -> Iterator[Visits]:
    """The visits in pieces of about BLOCK points; a larger visit is a separate piece."""
    ends = np.cumsum(visits.lasts - visits.firsts, dtype=np.int64)
    begin = done = 0
    while begin < len(ends):
        end = max(int(np.searchsorted(ends, done + BLOCK, side="right")), begin + 1)
        yield Visits(*(column[begin:end] for column in visits))
        begin, done = end, int(ends[end - 1])


def count(join: Candidates) -> int:
    """The number of pairs."""
    if join._count is None:
        total = 0
        capacity = KEEP * (join.left_rows + join.right_rows)
        for block in join.visits():
            flags, counts = _flag_block(join, block)
            total += int(counts.sum(dtype=np.int64))
            capacity -= len(flags)
            if capacity >= 0:
                join._kept.append((flags, counts))
        join._count = total
    return join._count


def row_counts(join: Candidates) -> Words:
    """The number of partners of each left row."""
    counts = np.zeros(join.left_rows, np.int64)
    for block, _, by_visit in _all_flagged(join):
        np.add.at(counts, join.left[block.boxes], by_visit)
    return counts


def right_counts(join: Candidates) -> Words:
    """The number of partners of each right row."""
    found = np.zeros(len(join.right), np.int64)
    for block, flags, _ in _all_flagged(join):
        _add(block, flags, found)
    return np.bincount(join.right, found, join.right_rows).astype(np.int64)


def row_exists(join: Candidates) -> Flags:
    """Which left rows have a partner. A few candidates are tried first, which is enough for most rows."""
    exists = np.zeros(join.left_rows, np.bool_)
    for block in join.visits():
        reach = FIRST_POINTS
        rest = ~exists[join.left[block.boxes]]
        while rest.any():
            boxes, firsts, lasts = (column[rest] for column in block)
            ends = np.minimum(lasts, firsts + reach)
            _, counts = _flag_block(join, Visits(boxes, firsts, ends))
            exists[join.left[boxes[counts > 0]]] = True
            block = Visits(boxes, ends, lasts)
            rest = (ends < lasts) & ~exists[join.left[boxes]]
            reach *= 4
    return exists


def right_exists(join: Candidates) -> Flags:
    """Which right rows have a partner."""
    found = np.zeros(len(join.right), np.uint8)
    for block, flags, _ in _all_flagged(join):
        _mark(block, flags, found)
    exists = np.zeros(join.right_rows, np.bool_)
    exists[join.right[found > 0]] = True
    return exists


def pairs(join: Candidates, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `capacity`; only the last is smaller. Does not count first."""
    right = pad_rows(join.right)
    lefts, rights = new_chunk(capacity, right.dtype)
    at = np.zeros(5, np.uint64)
    at[CAPACITY] = capacity
    for block, flags, counts in _all_flagged(join):
        at[:FILLED] = 0
        while True:
            _fill(join.left, right, block, flags, counts, at, lefts, rights)
            if at[FILLED] < capacity:
                break
            yield lefts[:capacity], rights[:capacity]
            lefts, rights = new_chunk(capacity, right.dtype)
            at[FILLED] = 0
    if at[FILLED]:
        yield lefts[: at[FILLED]], rights[: at[FILLED]]


def split(join: Candidates, parts: int) -> list[Candidates]:
    """The same pairs in order, in several joins with about equally many candidates; an empty list if there are none."""
    visits = list(join.visits())
    size = max(1, -(-len(visits) // parts))
    return [
        Candidates(join.left, join.right, partial(iter, some), join.flag, join.left_rows, join.right_rows, join.check)
        for some in (visits[start : start + size] for start in range(0, len(visits), size))
    ]


def _all_flagged(join: Candidates) -> Iterator[tuple[Visits, Bytes, Rows]]:
    for number, block in enumerate(join.visits()):
        yield block, *(join._kept[number] if number < len(join._kept) else _flag_block(join, block))


def _flag_block(join: Candidates, block: Visits) -> tuple[Bytes, Rows]:
    """The flags, and the number flagged in each run."""
    size = int((block.lasts - block.firsts).sum(dtype=np.int64))
    flags = np.empty(size + int(STRIDE), np.uint8)  # listing reads a stride ahead
    flags[size:] = 0
    counts = np.empty_like(block.boxes)
    join.flag(*block, flags, counts)
    if join.check is not None:
        boxes, points = _doubtful(block, flags)
        if len(boxes):
            flags[flags == ASK] = join.check(join.left[boxes], join.right[points])
            _recount(block, flags, counts)
    return flags, counts


@kernel
def _doubtful(block: Visits, flags: Bytes) -> tuple[Rows, Rows]:
    """The box and the point of each flag that requires a check."""
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
def _recount(block: Visits, flags: Bytes, counts: Rows) -> None:
    begin = 0
    for v in range(len(counts)):
        end = begin + block.lasts[v] - block.firsts[v]
        found = 0
        for q in range(begin, end):
            found += flags[q]
        counts[v] = found
        begin = end


@kernel
def _mark(block: Visits, flags: Bytes, found: Bytes) -> None:
    q = ZERO
    for v in range(len(block.boxes)):
        first = np.uint64(block.firsts[v])
        length = np.uint64(block.lasts[v]) - first
        for k in range(length):
            found[first + k] |= flags[q + k]
        q += length


@kernel
def _add(block: Visits, flags: Bytes, found: Words) -> None:
    q = 0
    for v in range(len(block.boxes)):
        for p in range(block.firsts[v], block.lasts[v]):
            found[p] += flags[q]
            q += 1


@kernel
def _fill(
    left: Rows,
    right: Rows,
    block: Visits,
    flags: Bytes,
    counts: Rows,
    at: NDArray[np.uint64],
    lefts: Rows,
    rights: Rows,
) -> None:
    """List pairs of the block until the chunk is full or no pair is left."""
    v, done, q = at[VISIT], at[DONE], at[FLAGS]
    out, end = at[FILLED], at[CAPACITY]
    while out < end and v < np.uint64(len(counts)):
        first = np.uint64(block.firsts[v])
        length = np.uint64(block.lasts[v]) - first
        size = np.uint64(counts[v])
        row = left[block.boxes[v]]
        if done > ZERO or size > end - out:  # the visit does not fit in one chunk
            while done < length and out < end:
                lefts[out] = row
                rights[out] = right[first + done]
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
                        rights[out + j + k] = right[first + j + k]
                out += size
            elif SPARSE * size < length:
                for j in range(ZERO, length, STRIDE):
                    some = ZERO
                    for k in range(STRIDE):
                        some |= np.uint64(flags[q + j + k])
                    if some > ZERO:
                        for k in range(j, min(j + STRIDE, length)):
                            rights[out] = right[first + k]
                            out += np.uint64(flags[q + k])
            else:
                for k in range(length):
                    rights[out] = right[first + k]
                    out += np.uint64(flags[q + k])
        v += ONE
        q += length
        done = ZERO
    at[VISIT], at[DONE], at[FLAGS], at[FILLED] = v, done, q, out
