"""Joins on equal codes: the right side is stored in buckets, and left rows look up their codes.

    starts    0   2   2   5 …        where each bucket begins
    codes     7 7   |   | 3 3 9      by bucket, ascending within it, so equal codes are adjacent
    rows      4 0   |   | 2 6 1      the right row of each

Codes in a narrow range are their own buckets, and need no comparison; others are spread by multiplication (Knuth, TAOCP
3, section 6.4). Left rows keep their order, and so do the partners of a left row. Only buckets are sorted; they have
about one code each.

Codes may be hashes: rows with equal hashes have equal keys unless hashes collide. `same_codes` and `same_strings`
compare the keys of the pairs that `pairs_to_compare` lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.core.parts import part_ranges
from dovetail.core.threads import in_ranges, in_threads, ranges
from dovetail.kernels import windows
from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import WORD_BYTES, prefetch, read_word
from dovetail.kernels.sorting import PIECES, count_numbers, row_type
from dovetail.kernels.windows import CHUNK, Flags, Rows, Windows, Words

Bytes = NDArray[np.uint8]
Offsets = NDArray[Any]  # int32 or int64
Number = TypeVar("Number", np.float64, np.int64)

ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
HALF = np.uint64(32)
BITS = 64
PART_BITS = 6  # bits of the number of a part
SPARSE = 4  # times the number of codes that the range may have, for each code to be a bucket
FEW = 1 << 16  # a number of buckets that is always acceptable
FAR, NEAR = 32, 16  # look-ups ahead whose bucket, and whose codes, are prefetched
SHORT = 8  # up to this number, codes are searched one by one
GAPS = np.array([1750, 701, 301, 132, 57, 23, 10, 4, 1])  # of Shell's sort (Ciura 2001)
AHEAD = 16  # strings ahead that are prefetched


class Buckets(NamedTuple):
    """The right side. If codes are their own buckets, `codes` is empty and `low` is the first one."""

    starts: Rows  # of each bucket, and the end
    codes: Words
    rows: Rows
    low: np.int64
    shift: np.uint64


class Equality(NamedTuple):
    """The partners of left row first + k are the right rows rows[starts[k] : ends[k]]."""

    starts: Rows
    ends: Rows
    rows: Rows
    first: int
    left_rows: int  # size of the whole side


def prepare(left: Words, right: Words) -> Equality:
    """Find the partners of every left row."""
    buckets = fill_buckets(right, len(left))
    type_ = buckets.starts.dtype
    starts, ends = np.empty(len(left), type_), np.empty(len(left), type_)
    in_ranges(lambda a, b: _find(buckets, left[a:b], starts[a:b], ends[a:b]), len(left))
    return Equality(starts, ends, buckets.rows, 0, len(left))


def fill_buckets(codes: Words, lookups: int = 0) -> Buckets:
    """Put rows with these codes into buckets, for a number of rows that will probe them."""
    type_ = row_type(len(codes))
    low, high = _extremes(codes) if len(codes) else (0, 0)
    is_dense = high - low < max(FEW, SPARSE * len(codes), lookups)
    bits = (len(codes) - 1).bit_length()
    starts = np.zeros((high - low if is_dense else (1 << bits) - 1) + 2, type_)
    ordered = np.empty(0 if is_dense else len(codes), np.int64)
    low, shift = (low, 0) if is_dense else (0, BITS - bits)
    buckets = Buckets(starts, ordered, np.empty(len(codes), type_), np.int64(low), np.uint64(shift))
    parts = ranges(len(codes))
    if len(parts) == 1:
        _fill(codes, np.empty(0, type_), 0, buckets)
    else:
        _fill_in_parts(codes, buckets, parts)
    return buckets


def _extremes(codes: Words) -> tuple[int, int]:
    found = in_ranges(lambda start, end: (codes[start:end].min(), codes[start:end].max()), len(codes))
    return int(min(low for low, _ in found)), int(max(high for _, high in found))


def _fill_in_parts(codes: Words, buckets: Buckets, parts: list[tuple[int, int]]) -> None:
    """Each thread fills consecutive buckets; rows are first moved to the part of their buckets."""
    last = len(buckets.starts) - 2
    shift = max(0, last.bit_length() - (PIECES * len(parts) - 1).bit_length(), last.bit_length() - PART_BITS)
    number = (last >> shift) + 1
    numbers = np.empty(len(codes), np.uint8)
    counts = np.zeros((number, len(parts)), np.int64)
    places = np.zeros_like(counts)
    moved, rows = np.empty_like(codes), np.empty_like(buckets.rows)

    def choose(part: int, start: int, end: int) -> None:
        _choose_parts(codes[start:end], buckets, np.uint64(shift), numbers[start:end])
        counts[:, part] = count_numbers(numbers[start:end], number)

    def move(part: int, start: int, end: int) -> None:
        _move(codes[start:end], start, numbers[start:end], places[:, part].copy(), moved, rows)

    def fill(part: int) -> None:
        start, end = int(places[part, 0]), int(places[part, 0] + counts[part].sum())
        first, behind = part << shift, min((part + 1) << shift, last + 1)
        starts = buckets.starts[first : behind + (part == number - 1)]
        mine = buckets._replace(starts=starts, codes=buckets.codes[start:end], rows=buckets.rows[start:end])
        _fill(moved[start:end], rows[start:end], first, mine)
        starts += starts.dtype.type(start)

    in_threads([partial(choose, part, *range_) for part, range_ in enumerate(parts)])
    places.ravel()[1:] = np.cumsum(counts)[:-1]  # by part, and within each part by range
    in_threads([partial(move, part, *range_) for part, range_ in enumerate(parts)])
    in_threads([partial(fill, part) for part in range(number)])


def count(join: Equality) -> int:
    """How many pairs there are."""
    return sum(in_ranges(lambda start, end: int(_counts(join, start, end).sum()), len(join.starts)))


def row_counts(join: Equality) -> Words:
    """The number of partners of each left row."""
    counts = np.zeros(join.left_rows, np.int64)
    counts[join.first : join.first + len(join.starts)] = join.ends - join.starts
    return counts


def row_exists(join: Equality) -> Flags:
    """Which left rows have a partner."""
    exists = np.zeros(join.left_rows, np.bool_)
    exists[join.first : join.first + len(join.starts)] = join.ends > join.starts
    return exists


def right_exists(join: Equality) -> Flags:
    """Which right rows have a partner."""
    return windows.right_exists(Windows(join.starts, join.rows, join.starts, join.ends))


def row_sums(join: Equality, values: NDArray[Number]) -> NDArray[Number]:
    """For each left row, the sum of its partners' `values` (one per right row); 0 if it has none."""
    return windows.row_sums(_in_order(join), values)


def smallest_partners(join: Equality, codes: Words) -> Rows:
    """For each left row, the partner with the smallest code; -1 if it has none. For the largest, pass `~codes`."""
    return windows.smallest_partners(_in_order(join), codes)


def _in_order(join: Equality) -> Windows:
    """The same as ascending windows."""
    order = np.argsort(join.starts, kind="stable").astype(join.starts.dtype)
    return Windows(order, join.rows, join.starts[order], join.ends[order])


def split(join: Equality, parts: int) -> list[Equality]:
    """The same pairs in several joins, of about as many each, one after the other."""
    return [
        join._replace(starts=join.starts[start:end], ends=join.ends[start:end], first=join.first + start)
        for start, end in part_ranges(partial(_counts, join), len(join.starts), parts)
    ]


def _counts(join: Equality, start: int, end: int) -> Words:
    return np.subtract(join.ends[start:end], join.starts[start:end], dtype=np.int64)


def pairs(join: Equality, capacity: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `capacity`; only the last is smaller."""
    if capacity < 1:
        raise ValueError(f"a chunk needs room for at least one pair, not {capacity}")
    type_ = row_type(join.left_rows)
    at = np.zeros(2, np.uint64)  # position in `starts`, and how many of its partners are already listed
    while True:
        lefts, rights = np.empty(capacity, type_), np.empty(capacity, join.rows.dtype)
        size = int(_emit(join, at, lefts, rights))
        if size < capacity:
            if size:
                yield lefts[:size].copy(), rights[:size].copy()  # copied so that unused memory is released
            return
        yield lefts, rights


@kernel
def _bucket(code: np.int64, shift: np.uint64) -> np.uint64:
    bits = np.uint64(code)
    return ((bits ^ (bits >> HALF)) * ODD) >> shift


@kernel
def _bucket_of(code: np.int64, buckets: Buckets) -> np.uint64:
    if len(buckets.codes) == 0:
        return np.uint64(code - buckets.low)
    return _bucket(code, buckets.shift)


@kernel
def _choose_parts(codes: Words, buckets: Buckets, shift: np.uint64, numbers: Bytes) -> None:
    for i in range(len(codes)):
        numbers[i] = _bucket_of(codes[i], buckets) >> shift


@kernel
def _move(codes: Words, first: int, numbers: Bytes, places: Words, moved: Words, rows: Rows) -> None:
    """Move each code and its row to the next free place of its part."""
    for i in range(len(codes)):
        place = np.uint64(places[numbers[i]])
        moved[place] = codes[i]
        rows[place] = first + i
        places[numbers[i]] += 1


def _fill(codes: Words, numbers: Rows, first: int, buckets: Buckets) -> None:
    """Put rows into their buckets; these are the buckets from `first` on.

    Computes the counts, then the end of each bucket, then, from the last row to the first, its start. Rows are numbered
    by position, or by `numbers`.
    """
    if len(buckets.codes):
        _fill_spread(codes, numbers, np.uint64(first), buckets)
    else:
        _fill_dense(codes, numbers, buckets.low + first, buckets.starts, buckets.rows)


@kernel
def _fill_dense(codes: Words, numbers: Rows, low: np.int64, starts: Rows, rows: Rows) -> None:
    for i in range(len(codes)):
        if i + FAR < len(codes):
            prefetch(starts, np.uint64(codes[i + FAR] - low))
        starts[np.uint64(codes[i] - low)] += 1
    _add_up(starts)
    for i in range(len(codes) - 1, -1, -1):
        if i >= FAR:
            prefetch(starts, np.uint64(codes[i - FAR] - low))
            prefetch(rows, np.uint64(starts[np.uint64(codes[i - NEAR] - low)]))
        bucket = np.uint64(codes[i] - low)
        starts[bucket] -= 1
        rows[np.uint64(starts[bucket])] = numbers[i] if len(numbers) > 0 else i


@kernel
def _fill_spread(codes: Words, numbers: Rows, first: np.uint64, buckets: Buckets) -> None:
    starts, ordered, rows, shift = buckets.starts, buckets.codes, buckets.rows, buckets.shift
    for i in range(len(codes)):
        if i + FAR < len(codes):
            prefetch(starts, _bucket(codes[i + FAR], shift) - first)
        starts[_bucket(codes[i], shift) - first] += 1
    _add_up(starts)
    for i in range(len(codes) - 1, -1, -1):
        if i >= FAR:
            prefetch(starts, _bucket(codes[i - FAR], shift) - first)
            place = np.uint64(starts[_bucket(codes[i - NEAR], shift) - first])
            prefetch(ordered, place)
            prefetch(rows, place)
        bucket = _bucket(codes[i], shift) - first
        starts[bucket] -= 1
        place = np.uint64(starts[bucket])
        ordered[place] = codes[i]
        rows[place] = numbers[i] if len(numbers) > 0 else i
    for number in range(len(starts)):
        start = starts[number]
        end = starts[number + 1] if number + 1 < len(starts) else len(codes)
        if end - start > 1:
            sort_range(ordered, rows, start, end)


@kernel
def _add_up(starts: Rows) -> None:
    total = 0
    for bucket in range(len(starts)):
        total += starts[bucket]
        starts[bucket] = total


@kernel
def sort_range(codes: Words, rows: Rows, start: int, end: int) -> None:
    """Sort what is between two places by code, then by row."""
    for gap in GAPS:
        if gap > 1 and gap >= end - start:
            continue
        for i in range(start + gap, end):
            code, row = codes[i], rows[i]
            j = i
            while j >= start + gap and (codes[j - gap] > code or (codes[j - gap] == code and rows[j - gap] > row)):
                codes[j] = codes[j - gap]
                rows[j] = rows[j - gap]
                j -= gap
            codes[j] = code
            rows[j] = row


@kernel
def _find(buckets: Buckets, codes: Words, starts: Rows, ends: Rows) -> None:
    if len(buckets.codes) == 0:
        _find_dense(buckets, codes, starts, ends)
        return
    for i in range(len(codes)):
        if i + FAR < len(codes):
            prefetch(buckets.starts, _bucket(codes[i + FAR], buckets.shift))
            prefetch(buckets.codes, buckets.starts[_bucket(codes[i + NEAR], buckets.shift)])
        code = codes[i]
        bucket = _bucket(code, buckets.shift)
        start = np.uint64(buckets.starts[bucket])
        end = np.uint64(buckets.starts[bucket + np.uint64(1)])
        if end - start > SHORT:
            start = _first(buckets.codes, start, end, code)
        else:
            while start < end and buckets.codes[start] < code:
                start += np.uint64(1)
        starts[i] = start
        if end - start > SHORT:
            start = _behind(buckets.codes, start, end, code)
        else:
            while start < end and buckets.codes[start] == code:
                start += np.uint64(1)
        ends[i] = start


@kernel
def _find_dense(buckets: Buckets, codes: Words, starts: Rows, ends: Rows) -> None:
    last = np.uint64(len(buckets.starts) - 1)
    for i in range(len(codes)):
        if i + FAR < len(codes):
            later = np.uint64(codes[i + FAR]) - np.uint64(buckets.low)
            prefetch(buckets.starts, later if later < last else np.uint64(0))
        bucket = np.uint64(codes[i]) - np.uint64(buckets.low)  # codes below `low` wrap to beyond all buckets
        here = bucket < last
        bucket = bucket if here else np.uint64(0)
        starts[i] = buckets.starts[bucket]
        ends[i] = buckets.starts[bucket + np.uint64(1)] if here else buckets.starts[bucket]


@kernel
def _first(codes: Words, start: np.uint64, end: np.uint64, code: np.int64) -> np.uint64:
    """The first position in an ascending range whose code is not smaller."""
    while start < end:
        middle = (start + end) >> np.uint64(1)
        if codes[middle] < code:
            start = middle + np.uint64(1)
        else:
            end = middle
    return start


@kernel
def _behind(codes: Words, start: np.uint64, end: np.uint64, code: np.int64) -> np.uint64:
    """The first position in an ascending range whose code is larger."""
    while start < end:
        middle = (start + end) >> np.uint64(1)
        if codes[middle] <= code:
            start = middle + np.uint64(1)
        else:
            end = middle
    return start


@kernel
def _emit(join: Equality, at: NDArray[np.uint64], lefts: Rows, rights: Rows) -> np.uint64:
    """Fill both arrays with the next pairs; returns how many. Only at the end are they fewer than fit."""
    k = at[0]
    n = np.uint64(len(join.starts))
    capacity = np.uint64(len(lefts))
    out = np.uint64(0)
    while k < n:
        if k + np.uint64(FAR) < n:
            prefetch(join.rows, np.uint64(join.starts[k + np.uint64(FAR)]))
        start, end = np.uint64(join.starts[k]) + at[1], np.uint64(join.ends[k])
        at[1] = np.uint64(0)
        row = join.first + np.int64(k)
        size = min(end - start, capacity - out)
        for j in range(size):
            lefts[out + j] = row
            rights[out + j] = join.rows[start + j]
        out += size
        if start + size < end:
            at[1] = start + size - np.uint64(join.starts[k])
            break
        k += np.uint64(1)
    at[0] = k
    return out


def pairs_to_compare(join: Equality) -> tuple[Rows, Rows]:
    """The pairs (left row, right row) to compare to know whether all keys of each range are equal.

    Every left row with the first of its partners, then the other partners with one left row.
    """
    parts = ranges(len(join.starts))
    counts = in_threads([partial(_count_firsts, join, *part) for part in parts])
    ends = np.cumsum([rows for rows, _ in counts])
    further = _further_pairs(join) if any(longer for _, longer in counts) else (join.starts[:0], join.starts[:0])
    size = int(ends[-1]) + len(further[0])
    lefts, rights = np.empty(size, join.starts.dtype), np.empty(size, join.starts.dtype)
    lefts[ends[-1] :], rights[ends[-1] :] = further

    def list_firsts(part: tuple[int, int], end: int, rows: int) -> None:
        _list_firsts(join, *part, lefts[end - rows : end], rights[end - rows : end])

    in_threads([partial(list_firsts, *each) for each in zip(parts, ends, (rows for rows, _ in counts), strict=True)])
    return lefts, rights


@kernel
def _count_firsts(join: Equality, first: int, last: int) -> tuple[int, bool]:
    """The number of these left rows that have a partner, and whether one of them has several."""
    rows, longer = 0, False
    for k in range(first, last):
        if join.starts[k] < join.ends[k]:
            rows += 1
            longer |= join.ends[k] - join.starts[k] > 1
    return rows, longer


@kernel
def _list_firsts(join: Equality, first: int, last: int, lefts: Rows, rights: Rows) -> None:
    out = 0
    for k in range(first, last):
        if join.starts[k] < join.ends[k]:
            lefts[out] = k
            rights[out] = join.rows[join.starts[k]]
            out += 1


@kernel
def _further_pairs(join: Equality) -> tuple[Rows, Rows]:
    """The partners behind the first of each range, with one of the left rows that have them."""
    compared = np.zeros(len(join.rows), np.bool_)
    size = 0
    for k in range(len(join.starts)):
        start = join.starts[k]
        if join.ends[k] - start > 1 and not compared[start]:
            compared[start] = True
            size += join.ends[k] - start - 1
    lefts, rights = np.empty(size, join.starts.dtype), np.empty(size, join.starts.dtype)
    compared[:] = False
    out = 0
    for k in range(len(join.starts)):
        start, end = join.starts[k], join.ends[k]
        if end - start > 1 and not compared[start]:
            compared[start] = True
            for place in range(start + 1, end):
                lefts[out] = k
                rights[out] = join.rows[place]
                out += 1
    return lefts, rights


def same_codes(left: Words, right: Words, lefts: Rows, rights: Rows) -> bool:
    def same(start: int, end: int) -> bool:
        return bool(_same_codes(left, right, lefts[start:end], rights[start:end]))

    return all(in_ranges(same, len(lefts)))


def same_strings(mine: tuple[Offsets, Bytes], theirs: tuple[Offsets, Bytes], lefts: Rows, rights: Rows) -> bool:
    def same(start: int, end: int) -> bool:
        return bool(_same_strings(*mine, *theirs, lefts[start:end], rights[start:end]))

    return all(in_ranges(same, len(lefts)))


@kernel
def _same_codes(left: Words, right: Words, lefts: Rows, rights: Rows) -> bool:
    different = 0
    for i in range(len(lefts)):
        different |= left[lefts[i]] != right[rights[i]]
    return different == 0


@kernel
def _same_strings(
    left_offsets: Offsets,
    left: Bytes,
    right_offsets: Offsets,
    right: Bytes,
    lefts: Rows,
    rights: Rows,
) -> bool:
    for i in range(len(lefts)):
        if i + AHEAD < len(lefts):
            prefetch(left, left_offsets[lefts[i + AHEAD]])
            prefetch(right, right_offsets[rights[i + AHEAD]])
        a, b = left_offsets[lefts[i]], right_offsets[rights[i]]
        size = left_offsets[lefts[i] + 1] - a
        if right_offsets[rights[i] + 1] - b != size:
            return False
        done = 0
        while size - done >= WORD_BYTES:
            if read_word(left, a + done) != read_word(right, b + done):
                return False
            done += WORD_BYTES
        for j in range(done, size):
            if left[a + j] != right[b + j]:
                return False
    return True
