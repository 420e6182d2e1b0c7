"""Which rows have found a partner, for join types that depend on it: one bit a row.

left, right, full      rows of these sides without a partner are results by themselves, in the end
left_semi              a left row is a result when it finds its first partner, and is not needed any more
left_anti              a left row that finds a partner is not needed any more; those that are left are results
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Side
from dovetail.errors import InputError

Words = NDArray[np.int64]
Flags = NDArray[np.bool_]

WATCHED: dict[str, tuple[Side, ...]] = {
    "inner": (),
    "left": (Side.LEFT,),
    "right": (Side.RIGHT,),
    "full": (Side.LEFT, Side.RIGHT),
    "left_semi": (Side.LEFT,),
    "left_anti": (Side.LEFT,),
}


class Partnered:
    """Rows are numbered from 0 on each side."""

    def __init__(self, how: str) -> None:
        if how not in WATCHED:
            raise InputError(f"how must be one of {', '.join(WATCHED)}; got {how!r}.")
        self.how = how
        self._bits = {side: np.zeros(0, np.uint8) for side in WATCHED[how]}

    def watches(self, side: Side) -> bool:
        return side in self._bits

    @property
    def one_sided(self) -> bool:
        """Whether results are left rows only, so that nobody has to list pairs."""
        return self.how in ("left_semi", "left_anti")

    @property
    def gives_alone(self) -> bool:
        """Whether rows without a partner are results."""
        return self.how not in ("inner", "left_semi")

    @property
    def nbytes(self) -> int:
        return sum(bits.nbytes for bits in self._bits.values())

    def grow(self, side: Side, rows: int) -> None:
        """The side has so many rows now."""
        if side in self._bits and rows > 8 * len(self._bits[side]):
            longer = np.zeros(max(64, rows // 4), np.uint8)  # twice as many as needed
            longer[: len(self._bits[side])] = self._bits[side]
            self._bits[side] = longer

    def mark(self, side: Side, numbers: Words) -> None:
        if side in self._bits and len(numbers):
            np.bitwise_or.at(self._bits[side], numbers >> 3, np.left_shift(1, numbers & 7).astype(np.uint8))

    def has(self, side: Side, numbers: Words) -> Flags:
        """Which of the rows have a partner."""
        flags: Flags = (self._bits[side][numbers >> 3] >> (numbers & 7).astype(np.uint8)) & 1 == 1
        return flags

    def first(self, side: Side, numbers: Words) -> Words:
        """Places of rows that had no mark; they are marked now. A row may stand there several times."""
        places = np.flatnonzero(~self.has(side, numbers))
        _, first = np.unique(numbers[places], return_index=True)
        self.mark(side, numbers[places])
        return places[np.sort(first)]

    def to_batch(self, side: Side) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"bits": self._bits[side]})

    def restore(self, side: Side, batch: pa.RecordBatch) -> None:
        self._bits[side] = np.array(batch.column(0))
