"""Takes values of a column at given rows: fixed width, bits, or strings; and combines strings of several parts.

Row numbers are unsigned here: otherwise Numba would check for negative ones, which count from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import allowed_threads, in_threads
from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import copy_bytes, prefetch

Rows = NDArray[Any]  # int32 or int64, not negative
Values = NDArray[np.unsignedinteger[Any]]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Offsets = NDArray[Any]  # int32 or int64

MOST_BYTES = {4: 2**31 - 1, 8: 2**63 - 1}  # of strings, by the size of an offset
FEW_ROWS = 1 << 17  # too few to use another thread
AHEAD = 16  # strings ahead that are prefetched
FAR_AHEAD = 128  # values ahead that are prefetched
NEAR_BYTES = 1 << 20  # values that fit in a core's own cache need no prefetching
ONE, THREE, SEVEN, EIGHT = (np.uint64(number) for number in (1, 3, 7, 8))


def take_values(columns: Sequence[tuple[Values, Values]], rows: Rows) -> None:
    """taken[i] = values[rows[i]] for each (values, taken); values of several words are rows of a matrix."""
    rows = _unsigned(rows)
    if len(rows) < FEW_ROWS:
        for values, taken in columns:
            _kernel(values)(values, rows, taken)
    elif columns:
        cuts = np.linspace(0, len(rows), allowed_threads() + 1).astype(np.int64).tolist()
        parts = [slice(*ends) for ends in pairwise(cuts)]
        in_threads([partial(_kernel(values), values, rows[p], taken[p]) for values, taken in columns for p in parts])


def _kernel(values: Values) -> Callable[[Values, Rows, Values], None]:
    if values.ndim > 1:
        return _take_words
    return _take if values.nbytes <= NEAR_BYTES else _take_far


def take_numbers(numbers: Rows, rows: Rows) -> Rows:
    """numbers[rows], for numbers that are row numbers themselves."""
    taken = np.empty(len(rows), numbers.dtype)
    _take(_unsigned(numbers), _unsigned(rows), _unsigned(taken))
    return taken


def take_bits(bits: Bytes, offset: int, rows: Rows, taken: Bytes) -> int:
    """The same for bits, starting at bit `offset`; returns how many of those taken are 1."""
    return int(_take_bits(bits, np.uint64(offset), _unsigned(rows), taken))


def is_run(rows: Rows) -> bool:
    """Whether the rows are consecutive."""
    return len(rows) > 0 and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool(_follow(_unsigned(rows)))


def mark(flags: Flags, rows: Rows) -> None:
    """flags[rows] = True"""
    _mark(flags, _unsigned(rows))


def _unsigned(rows: Rows) -> Rows:
    return rows.view(np.uint32 if rows.dtype.itemsize == 4 else np.uint64)


def take_lengths(offsets: Offsets, rows: Rows, ends: Offsets) -> int | None:
    """The offsets of the strings at these rows when taken; None if they overflow the offset type."""
    most = MOST_BYTES[offsets.dtype.itemsize]
    size = int(_add_lengths(offsets, _unsigned(rows), ends, most))
    return size if size <= most else None


def take_strings(offsets: Offsets, data: Bytes, rows: Rows, ends: Offsets, taken: Bytes) -> None:
    """Copy the strings at these rows to the offsets from `take_lengths`."""
    _copy_strings(offsets, data, _unsigned(rows), ends, taken)


@kernel
def _mark(flags: Flags, rows: Rows) -> None:
    for i in range(len(rows)):
        flags[rows[i]] = True


@kernel
def _take(values: Values, rows: Rows, taken: Values) -> None:
    for i in range(len(rows)):
        taken[i] = values[rows[i]]


@kernel
def _take_far(values: Values, rows: Rows, taken: Values) -> None:
    ahead = max(0, len(rows) - FAR_AHEAD)
    for i in range(ahead):
        prefetch(values, rows[i + FAR_AHEAD])
        taken[i] = values[rows[i]]
    for i in range(ahead, len(rows)):
        taken[i] = values[rows[i]]


@kernel
def _take_words(values: Values, rows: Rows, taken: Values) -> None:
    for i in range(len(rows)):
        for word in range(values.shape[1]):
            taken[i, word] = values[rows[i], word]


@kernel
def _take_bits(bits: Bytes, offset: np.uint64, rows: Rows, taken: Bytes) -> np.uint64:
    ones = np.uint64(0)
    for start in range(np.uint64(0), np.uint64(len(rows)), EIGHT):
        byte = np.uint64(0)
        for i in range(start, min(start + EIGHT, np.uint64(len(rows)))):
            place = offset + np.uint64(rows[i])
            bit = (np.uint64(bits[place >> THREE]) >> (place & SEVEN)) & ONE
            byte |= bit << (i - start)
            ones += bit
        taken[start >> THREE] = np.uint8(byte)
    return ones


@kernel
def _add_lengths(offsets: Offsets, rows: Rows, ends: Offsets, most: int) -> np.int64:
    total = np.int64(0)
    ends[0] = 0
    for i in range(len(rows)):
        row = np.uint64(rows[i])
        total += offsets[row + ONE] - offsets[row]
        if total <= most:
            ends[i + 1] = total
    return total


@kernel
def _copy_strings(offsets: Offsets, data: Bytes, rows: Rows, ends: Offsets, taken: Bytes) -> None:
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(data, offsets[rows[i + AHEAD]])
        copy_bytes(taken, ends[i], data, offsets[rows[i]], ends[i + 1] - ends[i])


@kernel
def _follow(rows: Rows) -> bool:
    apart = 0
    for i in range(1, len(rows)):
        apart |= rows[i] - rows[i - 1] != 1
    return apart == 0


# Strings from several parts into one column: first the lengths, then the bytes.


@kernel
def note_lengths(offsets: Offsets, rows: Rows, places: Rows, ends: Offsets) -> None:
    """Write the length of each string `rows[i]` of a part to the entry after its place."""
    for i in range(len(rows)):
        row = rows[i]
        ends[places[i] + 1] = offsets[row + 1] - offsets[row]


@kernel
def copy_strings(offsets: Offsets, data: Bytes, rows: Rows, places: Rows, starts: Offsets, copy: Bytes) -> None:
    """Copy each string `rows[i]` of a part to the start of its place; adjacent strings are copied together."""
    i = 0
    while i < len(rows):
        last = i
        while last + 1 < len(rows) and rows[last + 1] == rows[last] + 1 and places[last + 1] == places[last] + 1:
            last += 1
        start = offsets[rows[i]]
        copy_bytes(copy, starts[places[i]], data, start, offsets[rows[last] + 1] - start)
        i = last + 1
