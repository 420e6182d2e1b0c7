"""Which hashes have been seen before, in four bytes each.

    slots[place]   0, or the low half of a hash; the place is where its high half falls, or the next free one

Two different hashes are taken for one only if their low halves agree and they lie side by side: about once in a
thousand sets of a million. Callers must tolerate that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
ONE = np.uint64(1)


@kernel
def mark(slots: NDArray[np.uint32], hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Note the hashes, and say which of them had been noted before. There must be more slots than hashes in all."""
    before = np.zeros(len(hashes), np.bool_)
    places = np.uint64(len(slots))
    for i in range(len(hashes)):
        word = np.uint64(hashes[i])
        low = np.uint32((word & LOW) | ONE)  # 0 is free
        place = np.int64(((word >> HALF) * places) >> HALF)
        while slots[place] != 0 and slots[place] != low:
            place = np.int64((place + 1) % len(slots))
        before[i] = slots[place] == low
        slots[place] = low
    return before
