"""Compares every left row with every right row: the definition of a join, in a tight loop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Matrix = NDArray[np.int64]  # one row of codes per predicate

EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(6)


@kernel
def holds(operator: int, a: np.int64, b: np.int64) -> bool:
    if operator == EQUAL:
        return bool(a == b)
    if operator == NOT_EQUAL:
        return bool(a != b)
    if operator == LESS:
        return bool(a < b)
    if operator == LESS_EQUAL:
        return bool(a <= b)
    if operator == GREATER:
        return bool(a > b)
    return bool(a >= b)


@kernel
def cross_join(left: Matrix, right: Matrix, operators: Words, start: int, capacity: int) -> tuple[Words, Words, int]:
    """Pairs that satisfy all predicates, for left rows from `start` on that certainly fit in `capacity` pairs.

    Returns the pairs and the left row to continue with. `capacity` must be at least the number of right rows.
    """
    n = left.shape[1]
    m = right.shape[1]
    left_rows = np.empty(capacity, np.int64)
    right_rows = np.empty(capacity, np.int64)
    out = 0
    i = start
    while i < n and out + m <= capacity:
        for j in range(m):
            good = True
            for k in range(len(operators)):
                if not holds(operators[k], left[k, i], right[k, j]):
                    good = False
                    break
            if good:
                left_rows[out] = i
                right_rows[out] = j
                out += 1
        i += 1
    return left_rows[:out], right_rows[:out], i
