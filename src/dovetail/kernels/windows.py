"""Joins in which the partners of a left row are adjacent in the right order: counted, listed and aggregated.

    left, in order      l0    l1    l2
    right, in order   r0 r1 r2 r3 r4 r5 r6
                      [------)                starts[0] .. ends[0]
                         [---------)          starts[1] .. ends[1]
                                  [--)        starts[2] .. ends[2]

The number of pairs is known before the first one is listed. Sums, minima and maxima over the partners need no listing:
they use prefix sums (of double doubles, so that nothing cancels), and a queue of candidates that slides along with the
windows (Lemire, Streaming maximum-minimum filter, 2006).

Pairs are always listed in chunks, and runs of rows are copied in whole strides, each of which the compiler turns into
one instruction. What a stride writes beyond its run is overwritten by the next one, so all arrays have room for a
stride beyond their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.core.parts import part_ranges
from dovetail.core.threads import in_threads
from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Rows = NDArray[Any]  # int32 if all row numbers fit, else int64
Flags = NDArray[np.bool_]
Check = Callable[[Rows, Rows], Flags]
"""Which of the pairs (left_rows[i], right_rows[i]) satisfy the condition as written."""
Floats = NDArray[np.float64]
Number = TypeVar("Number", np.float64, np.int64)

CHUNK = 1 << 20  # pairs
STRIDE = np.uint64(8)  # rows
ZERO, ONE = np.uint64(0), np.uint64(1)
HUGE = 1e290  # sums of larger numbers are scaled down, so that none overflows midway
SCALE = 2.0**64


class Windows(NamedTuple):
    """The partners of left row left[k] are the right rows right[starts[k] : ends[k]]. Both ascend."""

    left: Rows
    right: Rows
    starts: Rows
    ends: Rows  # at least as large as starts


def count(join: Windows) -> int:
    """The number of pairs."""
    return int(np.subtract(join.ends, join.starts, dtype=np.int64).sum())


def row_counts(join: Windows) -> Words:
    """The number of partners of each left row."""
    counts = np.empty(len(join.left), np.int64)
    counts[join.left] = join.ends - join.starts
    return counts


def row_exists(join: Windows) -> Flags:
    """Which left rows have a partner."""
    exists = np.empty(len(join.left), np.bool_)
    exists[join.left] = join.ends > join.starts
    return exists


def right_exists(join: Windows) -> Flags:
    """Which right rows have a partner."""
    opened = np.bincount(join.starts, minlength=len(join.right) + 1)
    closed = np.bincount(join.ends, minlength=len(join.right) + 1)
    exists = np.empty(len(join.right), np.bool_)
    exists[join.right] = np.cumsum(opened - closed)[:-1] > 0
    return exists


def pairs(join: Windows, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `capacity`; only the last is smaller."""
    missing = count(join)
    right = pad_rows(join.right)
    at = np.zeros(2, np.uint64)  # position in the left order, and how many of its pairs are already listed
    while missing > 0:
        size = min(capacity, missing)
        lefts, rights = new_chunk(size, join.left.dtype)
        _fill(join, right, at, np.uint64(size), lefts, rights)
        yield lefts[:size], rights[:size]
        missing -= size


def split(join: Windows, parts: int) -> list[Windows]:
    """The same pairs in several joins, of about as many each, one after the other."""

    def count(start: int, end: int) -> NDArray[np.int64]:
        return np.subtract(join.ends[start:end], join.starts[start:end], dtype=np.int64)

    def cut(start: int, end: int) -> Windows:
        starts, ends = join.starts[start:end], join.ends[start:end]
        first, last = starts.min(), ends.max()
        return Windows(join.left[start:end], join.right[first:last], starts - first, ends - first)

    return in_threads([partial(cut, *rows) for rows in part_ranges(count, len(join.starts), parts)])


@kernel
def _fill(join: Windows, right: Rows, at: NDArray[np.uint64], capacity: np.uint64, lefts: Rows, rights: Rows) -> None:
    """List the next `capacity` pairs; there must be this many."""
    place, done = at[0], at[1]
    out = ZERO
    while out < capacity:
        first = np.uint64(join.starts[place]) + done
        end = np.uint64(join.ends[place])
        size = min(end - first, capacity - out)
        row = join.left[place]
        for j in range(ZERO, size, STRIDE):
            for k in range(STRIDE):
                lefts[out + j + k] = row
            for k in range(STRIDE):
                rights[out + j + k] = right[first + j + k]
        out += size
        done += size
        if first + size == end:
            place += ONE
            done = ZERO
    at[0] = place
    at[1] = done


def row_sums(join: Windows, values: NDArray[Number]) -> NDArray[Number]:
    """For each left row, the sum of its partners' `values` (one per right row); 0 if it has none.

    Doubles are correct except for the last bit or two. Integers that overflow 64 bits raise OverflowError.
    """
    ordered = values[join.right]
    sums = np.empty(len(join.left), values.dtype)
    if ordered.dtype == np.float64:
        sums[join.left] = _sum_floats(join, ordered.astype(np.float64, copy=False))
    else:
        sums[join.left] = _sum_integers(join, ordered.astype(np.int64, copy=False))
    return sums


def _sum_integers(join: Windows, ordered: Words) -> Words:
    prefix = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum(ordered, out=prefix[1:])  # wraps around, and back again when the difference is taken
    sums: Words = prefix[join.ends] - prefix[join.starts]
    widest = int((join.ends - join.starts).max(initial=0))
    largest = max(int(ordered.max(initial=0)), -int(ordered.min(initial=0)))
    if widest * largest >= 2**63:
        roughly = _sum_floats(join, ordered.astype(np.float64))
        if (np.abs(roughly - sums) > 2.0**62).any():
            raise OverflowError("the sum over the partners of a row does not fit in 64 bits; sum them as doubles")
    return sums


def _sum_floats(join: Windows, ordered: Floats) -> Floats:
    finite = np.isfinite(ordered)
    clean = ordered if finite.all() else np.where(finite, ordered, 0.0)
    scale = SCALE if np.abs(clean).max(initial=0.0) > HUGE else 1.0
    with np.errstate(over="ignore"):  # sums that are too large become infinite
        sums = _sums(clean / scale, join.starts, join.ends) * scale
    return sums if clean is ordered else _with_infinities(sums, ordered, join)


@kernel
def _sums(values: Floats, starts: Rows, ends: Rows) -> Floats:
    high = np.zeros(len(values) + 1, np.float64)
    low = np.zeros(len(values) + 1, np.float64)
    for j in range(len(values)):
        total = high[j] + values[j]
        part = total - high[j]
        lost = (high[j] - (total - part)) + (values[j] - part)  # two-sum: the rounding error of the addition
        lost += low[j]
        high[j + 1] = total + lost
        low[j + 1] = lost - (high[j + 1] - total)
    sums = np.empty(len(starts), np.float64)
    for i in range(len(starts)):
        a = high[ends[i]]
        b = -high[starts[i]]
        total = a + b
        part = total - a
        lost = (a - (total - part)) + (b - part)
        sums[i] = total + (lost + (low[ends[i]] - low[starts[i]]))
    return sums


def _with_infinities(sums: Floats, ordered: Floats, join: Windows) -> Floats:
    def in_window(flags: Flags) -> Flags:
        prefix = np.zeros(len(flags) + 1, np.int64)
        np.cumsum(flags, out=prefix[1:])
        found: Flags = prefix[join.ends] > prefix[join.starts]
        return found

    plus, minus = in_window(ordered == np.inf), in_window(ordered == -np.inf)
    sums = np.where(plus, np.inf, np.where(minus, -np.inf, sums))
    return np.where(in_window(np.isnan(ordered)) | (plus & minus), np.nan, sums)


def smallest_partners(join: Windows, codes: Words) -> Rows:
    """For each left row, the partner with the smallest code; -1 if it has none. For the largest, pass `~codes`."""
    places = _minima(codes[join.right], join.starts, join.ends)
    partners = np.full(len(join.left), -1, join.right.dtype)
    some = places >= 0
    partners[join.left[some]] = join.right[places[some]]
    return partners


@kernel
def _minima(codes: Words, starts: Rows, ends: Rows) -> Words:
    """The position of the smallest code of each window, -1 if it is empty."""
    places = np.full(len(starts), -1, np.int64)
    queue = np.empty(len(codes), np.int64)  # positions of ascending codes: those that can still be the smallest
    head = 0
    tail = 0
    entered = 0
    for i in range(len(starts)):
        while entered < ends[i]:
            while tail > head and codes[queue[tail - 1]] > codes[entered]:
                tail -= 1
            queue[tail] = entered
            tail += 1
            entered += 1
        while head < tail and queue[head] < starts[i]:
            head += 1
        if starts[i] < ends[i]:
            places[i] = queue[head]
    return places


def pad_rows(rows: Rows) -> Rows:
    """The rows with room for a stride beyond their end."""
    return np.concatenate([rows, np.zeros(int(STRIDE), rows.dtype)])


def new_chunk(pairs: int, type_: np.dtype[Any]) -> tuple[Rows, Rows]:
    """Arrays for this number of pairs."""
    return np.empty(pairs + int(STRIDE), type_), np.empty(pairs + int(STRIDE), type_)


def apart(lefts: Rows, rights: Rows, left_sources: Words, right_sources: Words) -> tuple[Rows, Rows]:
    """The pairs (lefts[i], rights[i]) whose sources differ; the arrays are reused for the result."""
    count = _keep(lefts, rights, left_sources, right_sources)
    return lefts[:count], rights[:count]


@kernel
def _keep(lefts: Rows, rights: Rows, left_sources: Words, right_sources: Words) -> int:
    """Every pair is written, and an unwanted one is overwritten by the next, so there is no unpredictable branch."""
    count = 0
    for k in range(len(lefts)):
        left, right = lefts[k], rights[k]
        lefts[count], rights[count] = left, right
        count += left_sources[left] != right_sources[right]
    return count
