"""Sorted codes: a stable sort, look-ups of whole batches, and codes of byte strings.

The sort is of 64-bit codes: key and row packed into one word, words sorted digit by digit.

    code   -> key = code - smallest code                  only the bits that are in use count
    word   =  | as many high bits of the key as fit | row |
    sorted -> rows, and the codes at these rows           insertion for the few whose high bits are the same

Only the bits of the key are sorted by, the lowest digit first (LSD radix sort): words are in the order of their rows to
begin with, so equal keys keep it. Keys that are mostly the same in their high bits, such as
those of small numbers and one very large one, would cost insertion too many moves: it gives up after a bounded number,
and two rounds, by the low bits and then by the high ones, sort them exactly.

The codes of byte strings keep their order, as far as eight bytes can tell:

    a < b  =>  code(a) <= code(b)          a = b  =>  code(a) = code(b)

A prefix that most strings share says nothing: the code is made of the eight bytes behind it. Strings that do not start
with the prefix are below all others or above them.
"""

from __future__ import annotations

import platform
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Bytes = NDArray[np.uint8]
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
EIGHT = np.uint64(8)
SMALLEST, LARGEST = -(2**63), 2**63 - 1


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
    if ascends(codes):
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


def put_in_order(codes: Words) -> tuple[Words, Rows | None]:
    """Codes in order, and where each stood; None if they are in order already."""
    if ascends(codes):
        return codes, None
    order, ordered = sort_codes(codes)
    return ordered, order


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


@kernel
def order_by_count(numbers: NDArray[np.int32], largest: int) -> NDArray[np.int64]:
    """Positions in the order of small numbers, from 0 to `largest`; those of equal numbers in their own order."""
    places = np.zeros(largest + 2, np.int64)
    for i in range(len(numbers)):
        places[numbers[i] + 1] += 1
    for number in range(1, len(places)):
        places[number] += places[number - 1]
    order = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        order[places[numbers[i]]] = i
        places[numbers[i]] += 1
    return order


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
def ascends(codes: Words) -> bool:
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


@kernel
def find_hashes(resident: Words, probing: Words) -> tuple[Words, Words]:
    """Where each probing hash stands in the sorted resident hashes: first position and number of equals.

    Hashes are spread evenly over all 64-bit numbers, so interpolation finds the neighbourhood in a step or two.
    """
    n = len(resident)
    starts = np.zeros(len(probing), np.int64)
    counts = np.zeros(len(probing), np.int64)
    if n == 0:
        return starts, counts
    scale = n / 18446744073709551616.0
    for i in range(len(probing)):
        h = probing[i]
        position = int((np.float64(h) + 9223372036854775808.0) * scale)
        position = min(max(position, 0), n - 1)
        # Gallop from the guess until [low, high) holds the first position with a hash >= h.
        low = position
        step = 1
        while low > 0 and resident[low - 1] >= h:
            low = max(0, low - step)
            step *= 2
        high = max(low, position)
        step = 1
        while high < n and resident[high] < h:
            low = high + 1
            high = min(n, high + step)
            step *= 2
        while low < high:
            middle = (low + high) >> 1
            if resident[middle] < h:
                low = middle + 1
            else:
                high = middle
        starts[i] = low
        while low < n and resident[low] == h:
            low += 1
        counts[i] = low - starts[i]
    return starts, counts


@kernel
def find_sorted(resident: Words, probing: Words) -> tuple[Words, Words]:
    """Where each probing word stands in the sorted resident words: first position and number of equals.

    The search gallops from where the last one ended: probing words that ascend, too, are found in a step or two.
    """
    n = len(resident)
    starts = np.zeros(len(probing), np.int64)
    counts = np.zeros(len(probing), np.int64)
    position = 0
    for i in range(len(probing)):
        word = probing[i]
        if i > 0 and word == probing[i - 1]:
            starts[i] = starts[i - 1]
            counts[i] = counts[i - 1]
            continue
        # [low, high) will hold the first position with a word that is not smaller.
        low = position
        high = position
        step = 1
        while low > 0 and resident[low - 1] >= word:
            high = low
            low = max(0, low - step)
            step *= 2
        step = 1
        while high < n and resident[high] < word:
            low = high + 1
            high = min(n, high + step)
            step *= 2
        while low < high:
            middle = (low + high) >> 1
            if resident[middle] < word:
                low = middle + 1
            else:
                high = middle
        starts[i] = low
        position = low
        while position < n and resident[position] == word:
            position += 1
        counts[i] = position - low
    return starts, counts


@kernel
def expand(starts: Words, counts: Words, start: int, end: int, pairs: int) -> tuple[Words, Words]:
    """Ranges as pairs: row i with positions starts[i] .. starts[i] + counts[i], for rows start..end."""
    probing = np.empty(pairs, np.int64)
    resident = np.empty(pairs, np.int64)
    out = 0
    for i in range(start, end):
        for position in range(starts[i], starts[i] + counts[i]):
            probing[out] = i
            resident[out] = position
            out += 1
    return probing, resident


@kernel
def prefix_codes(offsets: Words, data: Bytes, prefix: Bytes) -> Words:
    """One code per byte string `data[offsets[i]:offsets[i + 1]]`."""
    codes = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(codes)):
        start = offsets[i]
        size = offsets[i + 1] - start
        differs = 0  # how the string compares with the prefix
        for k in range(len(prefix)):
            if k >= size or data[start + k] < prefix[k]:
                differs = -1
                break
            if data[start + k] > prefix[k]:
                differs = 1
                break
        if differs:
            codes[i] = SMALLEST if differs < 0 else LARGEST
            continue
        word = np.uint64(0)
        for k in range(len(prefix), len(prefix) + 8):
            word = (word << EIGHT) | np.uint64(data[start + k] if k < size else 0)
        codes[i] = np.int64(word ^ SIGN)
    return codes
