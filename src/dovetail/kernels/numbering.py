"""Numbers equal codes from 0 without gaps, in the order of their first occurrence.

A hash table of codes and their numbers with linear probing. It is at most half full; when it grows, it is refilled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Numbers = NDArray[np.int32]

ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
HALF = np.uint64(32)
FIRST_BITS = 10
WIDTH = 64


class Numbering(NamedTuple):
    """The codes by slot, and their numbers; -1: the slot is empty."""

    codes: Words
    numbers: Numbers
    firsts: Words  # by number: the first row with the code


def number_codes(codes: Words) -> tuple[Numbers, Numbering]:
    """The number of each code, and the table to look up others."""
    found = np.empty(len(codes), np.int32)
    bits, done, known = FIRST_BITS, 0, 0
    firsts = np.empty(1 << (bits - 1), np.int64)
    while True:
        table = np.empty(1 << bits, np.int64), np.full(1 << bits, -1, np.int32)
        numbering = Numbering(*table, firsts)
        _refill(codes, known, numbering)
        done, known = _number(codes, done, known, numbering, found)
        if done == len(codes):
            return found, Numbering(*table, firsts[:known])
        bits += 2
        firsts = np.concatenate([firsts[:known], np.empty((1 << (bits - 1)) - known, np.int64)])


@kernel
def _place(code: np.int64, size: int) -> np.uint64:
    bits = np.uint64(code)
    mixed = (bits ^ (bits >> HALF)) * ODD
    return (mixed >> HALF) & np.uint64(size - 1)


@kernel
def _refill(codes: Words, known: int, table: Numbering) -> None:
    size = len(table.codes)
    for number in range(known):
        code = codes[table.firsts[number]]
        at = _place(code, size)
        while table.numbers[at] >= 0:
            at = (at + np.uint64(1)) & np.uint64(size - 1)
        table.codes[at] = code
        table.numbers[at] = number


@kernel
def _number(codes: Words, done: int, known: int, table: Numbering, found: Numbers) -> tuple[int, int]:
    """Continue until all codes have numbers, or the table is half full."""
    size = len(table.codes)
    for i in range(done, len(codes)):
        code = codes[i]
        at = _place(code, size)
        while table.numbers[at] >= 0 and table.codes[at] != code:
            at = (at + np.uint64(1)) & np.uint64(size - 1)
        if table.numbers[at] < 0:
            if known == len(table.firsts):
                return i, known
            table.codes[at] = code
            table.numbers[at] = known
            table.firsts[known] = i
            known += 1
        found[i] = table.numbers[at]
    return len(codes), known


@kernel
def find_numbers(codes: Words, table: Numbering, missing: int) -> Numbers:
    """The numbers of codes; `missing` for those not in the table."""
    found = np.empty(len(codes), np.int32)
    size = len(table.codes)
    for i in range(len(codes)):
        code = codes[i]
        at = _place(code, size)
        while table.numbers[at] >= 0 and table.codes[at] != code:
            at = (at + np.uint64(1)) & np.uint64(size - 1)
        found[i] = table.numbers[at] if table.numbers[at] >= 0 else missing
    return found
