"""Whether keys are equal, pair by pair: rows with equal hashes have equal keys, unless the hashes collide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel
from dovetail.kernels.equality import Equality
from dovetail.kernels.listing import Rows, Words
from dovetail.kernels.memory import WORD_BYTES, prefetch, read_word

Bytes = NDArray[np.uint8]
Offsets = NDArray[Any]

AHEAD = 16  # strings that are fetched from memory while others are compared


@kernel
def pairs_to_compare(join: Equality) -> tuple[Rows, Rows]:
    """Pairs (left row, right row) that tell whether all keys of each range are equal.

    Every left row with the first of its partners, and the other partners with one left row.
    """
    compared = np.zeros(len(join.rows), np.bool_)
    extra = 0
    for k in range(len(join.starts)):
        start = join.starts[k]
        if join.ends[k] - start > 1 and not compared[start]:
            compared[start] = True
            extra += join.ends[k] - start - 1
    compared[:] = False
    lefts = np.empty(len(join.starts) + extra, join.starts.dtype)
    rights = np.empty(len(join.starts) + extra, join.starts.dtype)
    out = 0
    for k in range(len(join.starts)):
        start, end = join.starts[k], join.ends[k]
        if start == end:
            continue
        lefts[out] = k
        rights[out] = join.rows[start]
        out += 1
        if end - start > 1 and not compared[start]:
            compared[start] = True
            for place in range(start + 1, end):
                lefts[out] = k
                rights[out] = join.rows[place]
                out += 1
    return lefts[:out], rights[:out]


@kernel
def same_codes(left: Words, right: Words, lefts: Rows, rights: Rows) -> bool:
    different = 0
    for i in range(len(lefts)):
        different |= left[lefts[i]] != right[rights[i]]
    return different == 0


@kernel
def same_strings(
    left_offsets: Offsets,
    left: Bytes,
    right_offsets: Offsets,
    right: Bytes,
    lefts: Rows,
    rights: Rows,
) -> bool:
    for i in range(len(lefts)):
        if i + AHEAD < len(lefts):
            prefetch(left, left_offsets[lefts[i + AHEAD]])
            prefetch(right, right_offsets[rights[i + AHEAD]])
        a, b = left_offsets[lefts[i]], right_offsets[rights[i]]
        size = left_offsets[lefts[i] + 1] - a
        if right_offsets[rights[i] + 1] - b != size:
            return False
        done = 0
        while size - done >= WORD_BYTES:
            if read_word(left, a + done) != read_word(right, b + done):
                return False
            done += WORD_BYTES
        for j in range(done, size):
            if left[a + j] != right[b + j]:
                return False
    return True
