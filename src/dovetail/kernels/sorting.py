"""Sorts codes stably, and computes codes of byte strings.

The sort is for 64-bit codes: key and row are packed into one word, and words are sorted digit by digit.

    code   -> key = code - smallest code                  only the bits in use count
    word   =  | as many high bits of the key as fit | row |
    sorted -> rows, and the codes at these rows           insertion sort for the few with equal high bits

Only the bits of the key are sorted, the lowest digit first (LSD radix sort): words start in the order of their rows, so
equal keys keep it. Keys that mostly share their high bits, for example small numbers and one very large one, would cost
insertion too many moves. It gives up after a bounded number of moves, and two rounds, by the low bits and then by the
high ones, sort the keys exactly.

The codes of byte strings keep their order, as far as eight bytes can distinguish them:

    a < b  =>  code(a) <= code(b)          a = b  =>  code(a) = code(b)

A prefix that most strings share does not distinguish them: the code is made of the eight bytes after it. Strings
without the prefix are below all others or above them.
"""

from __future__ import annotations

import platform
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import in_ranges, in_threads, ranges
from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import prefetch

Words = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Keys = NDArray[np.uint64]
Rows = NDArray[np.signedinteger[Any]]  # int32, or int64 from 2^31 rows on
Whole = TypeVar("Whole", bound=np.signedinteger[Any])

ZERO, ONE, TWO = np.uint64(0), np.uint64(1), np.uint64(2)
SIGN = np.uint64(2**63)
WIDTH = 64  # bits of a word
SMALL = 256  # rows for which the set-up does not pay
FEW_WORDS = 4096  # NumPy sorts these as fast
PIECES = 2  # per thread: pieces are about equally long, but a thread may have to wait for its core
MOST_PIECES = 64  # lines of memory open at a time
SAMPLED = 64  # words per piece
CELLS = 12  # bits of a word that choose its piece
FAR = 32  # codes ahead that are prefetched
VECTOR_SORT = platform.machine().lower() in ("x86_64", "amd64")  # NumPy has a faster sort there: decision 8
DIGIT = 10  # bits, at most: the counters for all values fit in the first-level cache
MOST = 2**32  # rows; with more, their numbers leave too few bits for the key in each of two rounds
EIGHT = np.uint64(8)
SMALLEST, LARGEST = -(2**63), 2**63 - 1


class Sorted(NamedTuple):
    """`codes` ascend; `order` has the original position of each. Equal codes keep their order."""

    order: Rows
    codes: Words


def row_type(rows: int) -> type[np.signedinteger[Any]]:
    """The smallest type that can number these rows."""
    return np.int32 if rows < 2**31 else np.int64


def sort_codes(codes: Words) -> Sorted:
    """Sort codes, ascending. Codes that are already sorted are returned as they are, not copied."""
    size = len(codes)
    if ascends(codes):
        return Sorted(np.arange(size, dtype=row_type(size)), codes)
    if size <= SMALL or size > MOST:
        order = np.argsort(codes, kind="stable")
        return Sorted(order.astype(row_type(size)), codes[order])
    smallest, largest = _extremes(codes)
    for_rows = (size - 1).bit_length()
    bits = (int(largest) - int(smallest)).bit_length() + for_rows
    packing = _Packing(np.uint64(smallest) ^ SIGN, np.uint64(max(0, bits - WIDTH)), np.uint64(for_rows))
    words, pieces = _pack_in_pieces(codes, packing, min(bits, WIDTH))
    order = np.empty(size, row_type(size))

    def sort(start: int, end: int) -> bool:
        piece = words[start:end]
        ordered = _sort_words(piece, for_rows)
        if ordered is not piece:
            piece[:] = ordered
        return bool(_unpack(piece, codes, packing, order[start:end]))

    if not all(in_threads([partial(sort, start, end) for start, end in pairwise(pieces) if start < end])):
        _sort_twice(codes, packing, words, order)
    return Sorted(order, words.view(np.int64))


def put_in_order(codes: Words) -> tuple[Words, Rows | None]:
    """Sorted codes, and the original position of each; None if they were already sorted."""
    if ascends(codes):
        return codes, None
    order, ordered = sort_codes(codes)
    return ordered, order


def _extremes(codes: Words) -> tuple[np.int64, np.int64]:
    found = in_ranges(lambda start, end: (codes[start:end].min(), codes[start:end].max()), len(codes))
    return min(smallest for smallest, _ in found), max(largest for _, largest in found)


class _Packing(NamedTuple):
    """The layout of a word: the key (code minus the smallest code, without its lowest bits), and the row.

    Codes are signed: with the sign bit flipped, they are ordered as unsigned numbers.
    """

    origin: np.uint64
    left_out: np.uint64  # bits of the key
    for_rows: np.uint64


def _pack_in_pieces(codes: Words, packing: _Packing, bits: int) -> tuple[Keys, list[int]]:
    """Words in pieces for threads, where all words of a piece are below those of the next, and the starts of pieces.

    Each piece keeps the order of the rows. Words that differ only in dropped bits are in one piece.
    """
    words = np.empty(len(codes), np.uint64)
    parts = ranges(len(codes))
    number = min(MOST_PIECES, PIECES * len(parts))
    if len(parts) == 1:
        _pack(codes, packing, ZERO, ONE, words)
        return words, [0, len(words)]
    apart = max(1, len(codes) // (number * SAMPLED))
    sample = np.empty(len(codes[::apart]), np.uint64)
    _pack(codes[::apart].copy(), packing, ZERO, np.uint64(apart), sample)
    cells = _choose_cells(np.sort(sample), number, bits, int(packing.for_rows) if packing.left_out else 0)
    numbers = np.empty(len(codes), np.uint8)
    counts = np.zeros((number, len(parts)), np.int64)
    places = np.zeros_like(counts)

    def choose(part: int, start: int, end: int) -> None:
        _look_up(codes[start:end], packing, np.uint64(start), cells, numbers[start:end])
        counts[:, part] = count_numbers(numbers[start:end], number)

    def put(part: int, start: int, end: int) -> None:
        _put(codes[start:end], packing, np.uint64(start), numbers[start:end], places[:, part].copy(), words)

    in_threads([partial(choose, part, *range_) for part, range_ in enumerate(parts)])
    places.ravel()[1:] = np.cumsum(counts)[:-1]  # by piece, and within each piece by range
    in_threads([partial(put, part, *range_) for part, range_ in enumerate(parts)])
    return words, [*places[:, 0].tolist(), len(words)]


class _Cells(NamedTuple):
    """A tree of tables: a word's high bits give its piece, or (negative) the table to look up its next bits in."""

    entries: NDArray[np.int16]
    shifts: Keys
    masks: Keys


def _choose_cells(sample: Keys, number: int, bits: int, lowest: int) -> _Cells:
    """Cells for pieces of about equally many words, from a sorted sample. A crowded cell gets a table of its own.

    Words are distinct, because each contains its row: tables can split keys of any distribution.
    """
    many = len(sample) // (2 * number)
    entries: list[NDArray[np.int16]] = []
    shifts, masks = [], []

    def add_table(start: int, end: int, bits: int) -> int:
        shift = max(lowest, bits - CELLS, 0)
        table, mask = len(entries), (1 << max(0, bits - shift)) - 1
        found = ((sample[start:end] >> np.uint64(shift)) & np.uint64(mask)).astype(np.int64)
        counts = np.bincount(found, minlength=mask + 1)
        ends = start + np.cumsum(counts)
        entries.append(np.zeros(1 << CELLS, np.int16))
        entries[table][: mask + 1] = np.minimum((ends - counts) * number // len(sample), number - 1)
        shifts.append(shift)
        masks.append(mask)
        for cell in np.flatnonzero(counts > many).tolist() if shift > lowest else ():
            entries[table][cell] = -add_table(int(ends[cell] - counts[cell]), int(ends[cell]), shift)
        return table

    add_table(0, len(sample), bits)
    return _Cells(np.stack(entries), np.array(shifts, np.uint64), np.array(masks, np.uint64))


def _sort_twice(codes: Words, packing: _Packing, words: Keys, order: Rows) -> None:
    """Sort by the low bits of the keys that fit next to the row, then by the others next to the position."""
    mask, for_rows = (ONE << packing.for_rows) - ONE, int(packing.for_rows)
    _pack(codes, packing._replace(left_out=ZERO), ZERO, ONE, words)
    by_low_bits = (_sort_words(words, for_rows) & mask).astype(order.dtype)
    high = packing._replace(left_out=np.uint64(WIDTH) - packing.for_rows)
    _pack(pick(codes, by_low_bits), high, ZERO, ONE, words)
    order[:] = by_low_bits[_sort_words(words, for_rows) & mask]
    words.view(np.int64)[:] = pick(codes, order)


def _sort_words(words: Keys, low: int) -> Keys:
    """Sort by the bits from `low` on, in place or into another array; words already ascend by the bits below."""
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
    """Returns whether the sorted words are in `spare`. A digit that all words share is skipped."""
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
    """Positions in the order of small numbers, from 0 to `largest`; equal numbers keep their order."""
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
    """values[rows], or ~values[rows]; twice as fast as NumPy, which first widens the rows."""
    picked = np.empty(len(rows), values.dtype)
    mask = values.dtype.type(-1 if flip else 0)
    in_ranges(lambda start, end: _pick(values, rows[start:end], mask, picked[start:end]), len(rows))
    return picked


def scatter(values: NDArray[Whole], rows: Rows) -> NDArray[Whole]:
    """The array whose elements at `rows`, a permutation, are `values`."""
    scattered = np.empty(len(rows), values.dtype)
    in_ranges(lambda start, end: _scatter(values[start:end], rows[start:end], scattered), len(rows))
    return scattered


def invert(rows: Rows) -> Rows:
    """The position of each row in `rows`, a permutation."""
    places = np.empty(len(rows), rows.dtype)
    in_ranges(lambda start, end: _invert(rows[start:end], rows.dtype.type(start), places), len(rows))
    return places


@kernel
def _pick(values: NDArray[Whole], rows: Rows, flip: Whole, picked: NDArray[Whole]) -> None:
    for i in range(len(rows)):
        picked[i] = values[np.uint64(rows[i])] ^ flip


@kernel
def _scatter(values: NDArray[Whole], rows: Rows, scattered: NDArray[Whole]) -> None:
    for i in range(len(rows)):
        scattered[np.uint64(rows[i])] = values[i]


@kernel
def _invert(rows: Rows, first: Any, places: Rows) -> None:
    for i in range(len(rows)):
        places[np.uint64(rows[i])] = first + i


@kernel
def ascends(codes: Words) -> bool:
    for i in range(1, len(codes)):  # noqa: SIM110  Numba compiles no generators
        if codes[i] < codes[i - 1]:
            return False
    return True


@kernel
def _word(code: np.int64, row: np.uint64, packing: _Packing) -> np.uint64:
    key = (np.uint64(code) ^ SIGN) - packing.origin
    return ((key >> packing.left_out) << packing.for_rows) | row


@kernel
def _pack(codes: Words, packing: _Packing, first: np.uint64, apart: np.uint64, words: Keys) -> None:
    """Pack each code into a word, with rows numbered first, first + apart and so on."""
    for i in range(len(codes)):
        words[i] = _word(codes[i], first + np.uint64(i) * apart, packing)


@kernel
def _look_up(codes: Words, packing: _Packing, first: np.uint64, cells: _Cells, numbers: Bytes) -> None:
    """The piece of each word."""
    for i in range(len(codes)):
        word = _word(codes[i], first + np.uint64(i), packing)
        entry = np.int64(cells.entries[0, word >> cells.shifts[0]])
        while entry < 0:
            table = np.uint64(-entry)
            entry = np.int64(cells.entries[table, (word >> cells.shifts[table]) & cells.masks[table]])
        numbers[i] = entry


@kernel
def count_numbers(numbers: Bytes, most: int) -> NDArray[np.int64]:
    """How often each number occurs. Neighbours use separate counters, so that no counter waits for itself."""
    counts = np.zeros((4, most), np.int64)
    whole = np.uint64(len(numbers)) >> TWO
    for i in range(whole):
        for lane in range(4):
            counts[lane, numbers[(i << TWO) + np.uint64(lane)]] += 1
    for i in range(whole << TWO, len(numbers)):
        counts[0, numbers[i]] += 1
    total: NDArray[np.int64] = counts.sum(axis=0)
    return total


@kernel
def _put(
    codes: Words, packing: _Packing, first: np.uint64, numbers: Bytes, places: NDArray[np.int64], words: Keys
) -> None:
    """Move the word of each code to the next free place of its piece."""
    for i in range(len(codes)):
        number = numbers[i]
        words[np.uint64(places[number])] = _word(codes[i], first + np.uint64(i), packing)
        places[number] += 1


@kernel
def _unpack(words: Keys, codes: Words, packing: _Packing, order: Rows) -> bool:
    """Unpack rows into `order`, and codes in place of the words; False if that takes too many moves, and is not done.

    If keys lack bits, neighbours may have to be swapped. A word is read before its place is overwritten, and writes
    only go to places before it.
    """
    mask = (ONE << packing.for_rows) - ONE
    ascending = words.view(np.int64)
    if packing.left_out == ZERO:
        for i in range(len(words)):
            word = words[i]
            order[i] = word & mask
            ascending[i] = np.int64(((word >> packing.for_rows) + packing.origin) ^ SIGN)
        return True
    moves = np.int64(len(words))
    largest = codes[words[0] & mask]
    for i in range(len(words)):
        if i + FAR < len(words):
            prefetch(codes, words[i + FAR] & mask)
        row = words[i] & mask
        code = codes[row]
        at = np.uint64(i)
        if code < largest:
            while at > ZERO and ascending[at - ONE] > code:
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
def prefix_codes(offsets: Words, data: Bytes, prefix: Bytes) -> Words:
    """One code per byte string `data[offsets[i]:offsets[i + 1]]`."""
    codes = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(codes)):
        start = offsets[i]
        size = offsets[i + 1] - start
        differs = 0  # result of comparing the string with the prefix
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
