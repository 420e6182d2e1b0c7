"""Keeps the best of a stream of pairs: for each left row, a short sorted list of the smallest codes so far.

A list has `top` entries. A pair that is no better than the last one of a full list costs one comparison.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Rows = NDArray[Any]


class Lists(NamedTuple):
    """The smallest codes of each left row, ascending, with their right rows; on ties, the lowest row numbers."""

    codes: Words  # left rows x top
    rows: Words
    sizes: Words  # length of each list


def new_lists(lefts: int, top: int) -> Lists:
    """Empty lists."""
    return Lists(np.empty((lefts, top), np.int64), np.empty((lefts, top), np.int64), np.zeros(lefts, np.int64))


@kernel
def offer(lists: Lists, lefts: Rows, rights: Rows, codes: Words) -> None:
    """Add some pairs to the lists."""
    top = lists.codes.shape[1]
    for p in range(len(lefts)):
        left, code, right = lefts[p], codes[p], np.int64(rights[p])
        size = lists.sizes[left]
        if size == top:
            last = lists.codes[left, top - 1]
            if code > last or (code == last and right > lists.rows[left, top - 1]):
                continue
            at = top - 1
        else:
            at = size
            lists.sizes[left] = size + 1
        while at > 0 and (
            lists.codes[left, at - 1] > code or (lists.codes[left, at - 1] == code and lists.rows[left, at - 1] > right)
        ):
            lists.codes[left, at] = lists.codes[left, at - 1]
            lists.rows[left, at] = lists.rows[left, at - 1]
            at -= 1
        lists.codes[left, at] = code
        lists.rows[left, at] = right
