"""A stable sort of 64-bit codes: key and row packed into one word, words sorted digit by digit.

    code   -> key = code - smallest code                  only the bits that are in use count
    word   =  | as many high bits of the key as fit | row |
    sorted -> rows, and the codes at these rows           insertion for the few whose high bits are the same

Only the bits of the key are sorted by, the lowest digit first (LSD radix sort): words are in the order of their rows to
begin with, so equal keys keep it. Keys that are mostly the same in their high bits, such as
those of small numbers and one very large one, would cost insertion too many moves: it gives up after a bounded number,
and two rounds, by the low bits and then by the high ones, sort them exactly.
"""

from __future__ import annotations

import platform
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Keys = NDArray[np.uint64]
Rows = NDArray[np.signedinteger[Any]]  # int32, or int64 from 2^31 rows on
Whole = TypeVar("Whole", bound=np.signedinteger[Any])

ONE = np.uint64(1)
SIGN = np.uint64(2**63)
WIDTH = 64  # bits of a word
SMALL = 256  # rows that are not worth the set-up
FEW_WORDS = 4096  # that NumPy sorts as fast
VECTOR_SORT = platform.machine().lower() in ("x86_64", "amd64")  # where NumPy has a faster one: decision 8
DIGIT = 10  # bits, at most: a counter for each value stays in the first cache
MOST = 2**32  # rows whose numbers leave enough bits for the key in each of two rounds


class Sorted(NamedTuple):
    """`codes` ascend; `order` says where each stood. Equal codes keep their order."""

    order: Rows
    codes: Words


def row_type(rows: int) -> type[np.signedinteger[Any]]:
    """The smallest type that can number that many rows."""
    return np.int32 if rows < 2**31 else np.int64


def sort_codes(codes: Words) -> Sorted:
    """Sort codes, ascending. Codes that are sorted already are returned themselves, not a copy."""
    size = len(codes)
    if _ascends(codes):
        return Sorted(np.arange(size, dtype=row_type(size)), codes)
    if size <= SMALL or size > MOST:
        order = np.argsort(codes, kind="stable")
        return Sorted(order.astype(row_type(size)), codes[order])
    smallest, largest = codes.min(), codes.max()
    origin = np.uint64(smallest) ^ SIGN
    for_rows = (size - 1).bit_length()
    left_out = max(0, (int(largest) - int(smallest)).bit_length() + for_rows - WIDTH)
    words = np.empty(size, np.uint64)
    order = np.empty(size, row_type(size))
    _pack(codes, origin, np.uint64(left_out), np.uint64(for_rows), words)
    words = _sort_words(words, for_rows)
    if not _unpack(words, codes, np.uint64(for_rows), order):
        _sort_twice(codes, origin, np.uint64(for_rows), words, order)
    return Sorted(order, words.view(np.int64))


def _sort_twice(codes: Words, origin: np.uint64, for_rows: np.uint64, words: Keys, order: Rows) -> None:
    """By as many low bits of the keys as fit beside the row; then by the others, beside the place in that order."""
    mask = (ONE << for_rows) - ONE
    _pack(codes, origin, np.uint64(0), for_rows, words)
    by_low_bits = (_sort_words(words, int(for_rows)) & mask).astype(order.dtype)
    _pack(pick(codes, by_low_bits), origin, np.uint64(WIDTH) - for_rows, for_rows, words)
    order[:] = by_low_bits[_sort_words(words, int(for_rows)) & mask]
    words.view(np.int64)[:] = pick(codes, order)


def _sort_words(words: Keys, low: int) -> Keys:
    """Sort by the bits from `low` on, in place or into another array; words ascend by the bits below."""
    if len(words) < FEW_WORDS or VECTOR_SORT:
        words.sort()
        return words
    bits = int(words.max()).bit_length() - low
    passes = -(-bits // DIGIT)
    digit = -(-bits // passes) if passes else 1
    counts = np.zeros((passes, 1 << digit), np.int64)
    spare = np.empty_like(words)
    return spare if _radix_sort(words, spare, np.uint64(low), np.uint64(digit), counts) else words


@kernel
def _radix_sort(words: Keys, spare: Keys, low: np.uint64, digit: np.uint64, counts: NDArray[np.int64]) -> bool:
    """Whether the sorted words are in `spare`. A digit that all words share is passed over."""
    mask = (ONE << digit) - ONE
    for i in range(len(words)):
        rest = words[i] >> low
        for at in range(len(counts)):
            counts[at, rest & mask] += 1
            rest >>= digit
    source, target = words, spare
    moved = False
    shift = low
    for at in range(len(counts)):
        places = counts[at]
        if places[(source[0] >> shift) & mask] < len(words):
            total = 0
            for d in range(len(places)):
                count = places[d]
                places[d] = total
                total += count
            for i in range(len(words)):
                d = (source[i] >> shift) & mask
                target[np.uint64(places[d])] = source[i]
                places[d] += 1
            source, target = target, source
            moved = not moved
        shift += digit
    return moved


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
def _pack(codes: Words, origin: np.uint64, left_out: np.uint64, for_rows: np.uint64, words: Keys) -> None:
    """The key of each code, without its lowest bits, above the row; what does not fit at the top is lost.

    The bits of codes are those of signed numbers: with the sign flipped, they are in order as unsigned ones.
    """
    for i in range(len(codes)):
        key = (np.uint64(codes[i]) ^ SIGN) - origin
        words[i] = ((key >> left_out) << for_rows) | np.uint64(i)


@kernel
def _unpack(words: Keys, codes: Words, for_rows: np.uint64, order: Rows) -> bool:
    """The rows into `order`, the codes in place of the words; False if that takes too many moves, and is not done.

    A word is read before its place is written to, and places before it only.
    """
    mask = (ONE << for_rows) - ONE
    ascending = words.view(np.int64)
    moves = np.int64(len(words))
    largest = codes[words[0] & mask]
    for i in range(len(words)):
        row = words[i] & mask
        code = codes[row]
        at = np.uint64(i)
        if code < largest:
            while at > np.uint64(0) and ascending[at - ONE] > code:
                ascending[at] = ascending[at - ONE]
                order[at] = order[at - ONE]
                at -= ONE
            moves -= np.int64(np.uint64(i) - at)
            if moves < 0:
                return False
        else:
            largest = code
        ascending[at] = code
        order[at] = row
    return True
