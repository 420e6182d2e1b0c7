"""Byte strings as 64-bit codes that keep their order, as far as eight bytes can tell.

    a < b  =>  code(a) <= code(b)          a = b  =>  code(a) = code(b)

A prefix that most strings share says nothing: the code is made of the eight bytes behind it. Strings that do not start
with the prefix are below all others or above them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Bytes = NDArray[np.uint8]
Words = NDArray[np.int64]

SIGN = np.uint64(2**63)
EIGHT = np.uint64(8)
LEAST, MOST = -(2**63), 2**63 - 1


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
            codes[i] = LEAST if differs < 0 else MOST
            continue
        word = np.uint64(0)
        for k in range(len(prefix), len(prefix) + 8):
            word = (word << EIGHT) | np.uint64(data[start + k] if k < size else 0)
        codes[i] = np.int64(word ^ SIGN)
    return codes
