"""What all listings of pairs have in common: chunks, and runs of rows that are copied in whole strides.

The compiler turns a stride into one instruction. What it writes too much is overwritten by the next run, so all arrays
have room for a stride behind their end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Rows = NDArray[Any]  # int32 where all row numbers fit, else int64
Flags = NDArray[np.bool_]
Check = Callable[[Rows, Rows], Flags]
"""Which of the pairs (left_rows[i], right_rows[i]) satisfy the condition as it was written."""

CHUNK = 1 << 20  # pairs
STRIDE = np.uint64(8)  # rows


def pad_rows(rows: Rows) -> Rows:
    """The rows with room for a stride behind their end."""
    return np.concatenate([rows, np.zeros(int(STRIDE), rows.dtype)])


def new_chunk(pairs: int, type_: np.dtype[Any]) -> tuple[Rows, Rows]:
    """Arrays for a number of pairs."""
    return np.empty(pairs + int(STRIDE), type_), np.empty(pairs + int(STRIDE), type_)


def apart(lefts: Rows, rights: Rows, left_sources: Words, right_sources: Words) -> tuple[Rows, Rows]:
    """Those of the pairs (lefts[i], rights[i]); the arrays are used for the answer."""
    count = _keep(lefts, rights, left_sources, right_sources)
    return lefts[:count], rights[:count]


@kernel
def _keep(lefts: Rows, rights: Rows, left_sources: Words, right_sources: Words) -> int:
    """Every pair is written; one that is not wanted is overwritten by the next: no unpredictable branch."""
    count = 0
    for k in range(len(lefts)):
        left, right = lefts[k], rights[k]
        lefts[count], rights[count] = left, right
        count += left_sources[left] != right_sources[right]
    return count
