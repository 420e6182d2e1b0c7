"""A stable radix sort of 64-bit codes: most significant digit first, then each bucket while it is in the cache.

    codes     -> keys = code - smallest code             only the bits that are in use count
    keys      -> buckets, by their highest digit          the one pass over memory that is not sequential
    a bucket  -> sorted by just enough high bits to tell its keys apart, lowest of two digits first
              -> insertion sort for the few that are still out of order

How many bits a bucket needs follows from its size and its own smallest and largest key, so that floats (few exponents,
many mantissas), timestamps and small integers all take one or two rounds. Where the guess is wrong, insertion gives up
after a bounded number of moves and the bucket is sorted by all its bits: never more than linear in rows times bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.bits import bit_length
from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Keys = NDArray[np.uint64]
Rows = NDArray[np.signedinteger[Any]]  # int32, or int64 from 2^31 rows on
Whole = TypeVar("Whole", bound=np.signedinteger[Any])

ONE = np.uint64(1)
SIGN = np.uint64(2**63)
DIGIT = np.uint64(11)  # bits; the counters of two digits fit in the first-level cache
NARROW = np.uint64(8)  # with fewer bits per digit, the last one could end beyond the 64th
BUCKET = np.uint64(8)  # buckets of 2^8 rows, if the keys are spread evenly
SLACK = np.uint64(3)  # with so many more bits than a bucket's rows need, most keys differ
FEW = np.uint64(40)  # rows that insertion sorts fastest
MOVES = np.int64(1)  # per row that insertion may make before it gives up
SMALL = 256  # rows that are not worth the set-up


class Sorted(NamedTuple):
    """`codes` ascend; `order` says where each stood. Equal codes keep their order."""

    order: Rows
    codes: Words


class _Pile(NamedTuple):
    keys: Keys
    rows: Rows


class _Counters(NamedTuple):
    low: Keys
    high: Keys


def row_type(rows: int) -> type[np.signedinteger[Any]]:
    """The smallest type that can number so many rows."""
    return np.int32 if rows < 2**31 else np.int64


def sort_codes(codes: Words) -> Sorted:
    """Sort codes, ascending. Codes that are sorted already are returned themselves, not a copy."""
    rows = row_type(len(codes))
    if _ascends(codes):
        return Sorted(np.arange(len(codes), dtype=rows), codes)
    if len(codes) <= SMALL:
        order = np.argsort(codes, kind="stable")
        return Sorted(order.astype(rows), codes[order])
    pile = _Pile(np.empty(len(codes), np.uint64), np.empty(len(codes), rows))
    smallest, largest = codes.min(), codes.max()
    ends = _deal(codes.view(np.uint64), np.uint64(smallest), np.uint64(largest), pile)
    if int(largest) - int(smallest) >> int(DIGIT):  # else the keys of a bucket are all the same
        _sort_buckets(pile, ends)
    ascending = pile.keys.view(np.int64)
    ascending += smallest
    return Sorted(pile.rows, ascending)


def pick(values: NDArray[Whole], rows: Rows, flip: bool = False) -> NDArray[Whole]:
    """values[rows], or ~values[rows]; twice as fast as NumPy, which widens the rows first."""
    picked = np.empty(len(rows), values.dtype)
    _pick(values, rows, values.dtype.type(-1 if flip else 0), picked)
    return picked


@kernel
def scatter(values: NDArray[Whole], rows: Rows) -> NDArray[Whole]:
    """The array whose elements at `rows`, a permutation, are `values`."""
    scattered = np.empty(len(rows), values.dtype)
    for i in range(len(rows)):
        scattered[np.uint64(rows[i])] = values[i]
    return scattered


@kernel
def invert(rows: Rows) -> Rows:
    """Where each row stands in `rows`, a permutation."""
    places = np.empty(len(rows), rows.dtype)
    for i in range(len(rows)):
        places[np.uint64(rows[i])] = i
    return places


@kernel
def _pick(values: NDArray[Whole], rows: Rows, flip: Whole, picked: NDArray[Whole]) -> None:
    for i in range(len(rows)):
        picked[i] = values[np.uint64(rows[i])] ^ flip


@kernel
def _ascends(codes: Words) -> bool:
    for i in range(1, len(codes)):  # noqa: SIM110  Numba compiles no generators
        if codes[i] < codes[i - 1]:
            return False
    return True


@kernel
def _deal(codes: Keys, smallest: np.uint64, largest: np.uint64, pile: _Pile) -> Keys:
    """Fill `pile` with keys and rows, bucket by bucket; returns where the buckets end.

    The bits of codes are those of signed numbers: with the sign flipped, they are in order as unsigned ones.
    """
    n = np.uint64(len(codes))
    origin = smallest ^ SIGN
    width = bit_length((largest ^ SIGN) - origin)
    top = width  # bits of the first digit: all, or as many as make buckets of a good size
    if width > DIGIT:
        top = np.uint64(min(DIGIT, max(bit_length(n), BUCKET + ONE) - BUCKET))
    shift = width - top
    ends = np.zeros(1 << top, np.uint64)
    for i in range(n):
        ends[((codes[i] ^ SIGN) - origin) >> shift] += ONE
    at = np.uint64(0)
    for digit in range(len(ends)):
        at, ends[digit] = at + ends[digit], at
    for i in range(n):
        key = (codes[i] ^ SIGN) - origin
        at = ends[key >> shift]
        ends[key >> shift] = at + ONE
        pile.keys[at] = key
        pile.rows[at] = i
    return ends


@kernel
def _sort_buckets(pile: _Pile, ends: Keys) -> None:
    most = np.uint64(0)
    start = np.uint64(0)
    for bucket in range(len(ends)):
        most = max(most, ends[bucket] - start)
        start = ends[bucket]
    spare = _Pile(np.empty(most, np.uint64), np.empty(most, pile.rows.dtype))  # small, and stays in the cache
    counters = _Counters(np.empty(1 << DIGIT, np.uint64), np.empty(1 << DIGIT, np.uint64))
    start = np.uint64(0)
    for bucket in range(len(ends)):
        _sort_bucket(pile, spare, start, ends[bucket], counters)
        start = ends[bucket]


@kernel
def _sort_bucket(pile: _Pile, spare: _Pile, start: np.uint64, end: np.uint64, counters: _Counters) -> None:
    n = end - start
    if n <= FEW:
        _insert(pile, start, end, np.int64(FEW * FEW))
        return
    smallest = pile.keys[start]
    largest = smallest
    for i in range(start, end):
        smallest = min(smallest, pile.keys[i])
        largest = max(largest, pile.keys[i])
    width = bit_length(largest - smallest)
    needed = min(width, bit_length(n) + SLACK)
    _sort_bits(pile, spare, start, end, smallest, width - needed, needed, counters)
    if needed < width and not _insert(pile, start, end, MOVES * np.int64(n)):
        _sort_bits(pile, spare, start, end, smallest, np.uint64(0), width, counters)


@kernel
def _sort_bits(
    pile: _Pile,
    spare: _Pile,
    start: np.uint64,
    end: np.uint64,
    smallest: np.uint64,
    bit: np.uint64,
    bits: np.uint64,
    counters: _Counters,
) -> None:
    """Sort a bucket by so many bits, from `bit` up, of the distance to the smallest key."""
    digit = min(DIGIT, max(NARROW, bit_length(end - start)))  # no more counters than rows, but for the smallest
    rounds = (bits + digit + digit - ONE) // (digit + digit)
    if rounds > np.uint64(0):
        digit = (bits + rounds + rounds - ONE) // (rounds + rounds)
    for _ in range(rounds):
        _sort_two_digits(pile, spare, start, end, smallest, bit, digit, counters)
        bit += digit + digit


@kernel
def _sort_two_digits(
    pile: _Pile,
    spare: _Pile,
    start: np.uint64,
    end: np.uint64,
    smallest: np.uint64,
    bit: np.uint64,
    width: np.uint64,
    counters: _Counters,
) -> None:
    """Sort a bucket by two digits of `width` bits, the first from `bit` up, through the spare pile and back."""
    size = ONE << width
    mask = size - ONE
    low, high = counters
    low[:size] = np.uint64(0)
    high[:size] = np.uint64(0)
    for i in range(start, end):
        digits = (pile.keys[i] - smallest) >> bit
        low[digits & mask] += ONE
        high[(digits >> width) & mask] += ONE
    low_at = np.uint64(0)
    high_at = start
    for digit in range(size):
        low_at, low[digit] = low_at + low[digit], low_at
        high_at, high[digit] = high_at + high[digit], high_at
    for i in range(start, end):
        key = pile.keys[i]
        low_digit = ((key - smallest) >> bit) & mask
        at = low[low_digit]
        low[low_digit] = at + ONE
        spare.keys[at] = key
        spare.rows[at] = pile.rows[i]
    shift = bit + width
    for i in range(end - start):
        key = spare.keys[i]
        high_digit = ((key - smallest) >> shift) & mask
        at = high[high_digit]
        high[high_digit] = at + ONE
        pile.keys[at] = key
        pile.rows[at] = spare.rows[i]


@kernel
def _insert(pile: _Pile, start: np.uint64, end: np.uint64, moves: np.int64) -> bool:
    """Sort what is nearly sorted; False if that takes more than so many moves and is not done."""
    keys, rows = pile
    for i in range(start + ONE, end):
        key = keys[i]
        if key < keys[i - ONE]:
            row = rows[i]
            at = np.uint64(i)
            while at > start and keys[at - ONE] > key:
                keys[at] = keys[at - ONE]
                rows[at] = rows[at - ONE]
                at -= ONE
            keys[at] = key
            rows[at] = row
            moves -= np.int64(i - at)
            if moves < 0:
                return False
    return True
