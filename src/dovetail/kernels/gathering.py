"""Strings copied from several parts into one column: first how long they are, then what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel
from dovetail.kernels.memory import copy_bytes

Rows = NDArray[np.int64]
Offsets = NDArray[Any]
Bytes = NDArray[np.uint8]


@kernel
def note_lengths(offsets: Offsets, rows: Rows, places: Rows, ends: Offsets) -> None:
    """The length of each string `rows[i]` of a part, at the place behind the one it goes to."""
    for i in range(len(rows)):
        row = rows[i]
        ends[places[i] + 1] = offsets[row + 1] - offsets[row]


@kernel
def copy_strings(offsets: Offsets, data: Bytes, rows: Rows, places: Rows, starts: Offsets, copy: Bytes) -> None:
    """Each string `rows[i]` of a part to where its place starts; neighbours that stay neighbours all at once."""
    i = 0
    while i < len(rows):
        last = i
        while last + 1 < len(rows) and rows[last + 1] == rows[last] + 1 and places[last + 1] == places[last] + 1:
            last += 1
        start = offsets[rows[i]]
        copy_bytes(copy, starts[places[i]], data, start, offsets[rows[last] + 1] - start)
        i = last + 1
