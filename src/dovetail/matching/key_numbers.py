"""Numbers the keys of both sides, so that arrays can be indexed by key."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.numbering import find_numbers, number_codes
from dovetail.matching.equal_keys import EqualKeys, same_keys

Numbers = NDArray[np.int32]

SPARSE = 4  # times the number of rows that the range of numbers may have
FEW = 1 << 16  # a range of numbers that is always acceptable
MOST = 2**31 - 2


class KeyNumbers(NamedTuple):
    """Numbers below `size`, by side. All left rows whose key is not on the right side have the last number."""

    numbers: tuple[Numbers, Numbers]
    size: int


def number_keys(keys: EqualKeys) -> KeyNumbers | None:
    """The numbers of the keys; None if different keys have the same code."""
    left, right = keys.codes
    if not len(right):
        return KeyNumbers((np.zeros(len(left), np.int32), np.empty(0, np.int32)), 1)
    low, high = int(right.min()), int(right.max())
    if keys.is_exact and high - low < min(MOST, max(FEW, SPARSE * (len(left) + len(right)))):
        missing = high - low + 1
        inside = (left >= low) & (left <= high)
        numbers = np.where(inside, left - low, missing).astype(np.int32)
        return KeyNumbers((numbers, (right - low).astype(np.int32)), missing + 1)
    theirs, table = number_codes(right)
    missing = len(table.firsts)
    mine = find_numbers(left, table, missing)
    if not keys.is_exact:
        some = np.flatnonzero(mine != missing)
        columns = keys.columns
        if not same_keys(columns[1], columns[1], np.arange(len(right)), table.firsts[theirs]):
            return None
        if not same_keys(columns[0], columns[1], some, table.firsts[mine[some]]):
            return None
    return KeyNumbers((mine, theirs), missing + 1)
