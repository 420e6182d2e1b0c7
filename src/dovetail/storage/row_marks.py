"""Marks of resident rows: one bit each, whether the row was recently part of a result, or a count of results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Rows

Flags = NDArray[np.bool_]

FEW = 16  # times fewer rows than there are: each is marked separately


class RowMarks:
    """Rows are numbered without gaps. When rows are removed, the rows after them move up."""

    def __init__(self, counted: bool = False) -> None:
        self._counted = counted
        self._marks: NDArray[Any] = np.empty(0, np.int32 if counted else np.uint8)  # a count or a bit per row
        self._rows = 0

    @property
    def nbytes(self) -> int:
        return self._marks.nbytes

    def nbytes_with(self, more: int) -> int:
        """The size in bytes after `more` more rows, at least."""
        return max(self.nbytes, self._size(self._rows + more) * self._marks.itemsize)

    def all(self) -> NDArray[Any]:
        """The marks of all rows."""
        if self._counted:
            return self._marks[: self._rows]
        return np.unpackbits(self._marks, count=self._rows, bitorder="little")

    def append(self, marks: NDArray[Any]) -> None:
        first, self._rows = self._rows, self._rows + len(marks)
        size = self._size(self._rows)
        if size > len(self._marks):
            longer = np.zeros(size + size // 16, self._marks.dtype)
            longer[: len(self._marks)] = self._marks
            self._marks = longer
        if self._counted:
            self._marks[first : self._rows] = marks
            return
        rest = first % 8  # the last byte is partly filled: rewrite it
        last = np.unpackbits(self._marks[first // 8 : first // 8 + 1], count=rest, bitorder="little")
        self._marks[first // 8 : size] = np.packbits(np.concatenate([last, marks != 0]), bitorder="little")

    def add(self, rows: Rows) -> None:
        """Mark rows that were part of a result. A row may be given several times."""
        if self._counted:
            np.add.at(self._marks, rows, np.int32(1))
        elif len(rows) > self._rows // FEW:
            flags = np.zeros(self._rows, np.bool_)
            flags[rows] = True
            self._marks[: self._size(self._rows)] |= np.packbits(flags, bitorder="little")
        else:
            np.bitwise_or.at(self._marks, rows >> 3, np.left_shift(1, rows & 7).astype(np.uint8))

    def lower(self, rows: Rows) -> None:
        """Halve counts, clear bits."""
        if self._counted:
            self._marks[rows] //= 2
        else:
            np.bitwise_and.at(self._marks, rows >> 3, ~np.left_shift(1, rows & 7).astype(np.uint8))

    def remove(self, gone: Flags) -> None:
        """Remove the marked rows."""
        kept = self.all()[~gone]
        self._rows = len(kept)
        self._marks[: self._size(self._rows)] = kept if self._counted else np.packbits(kept, bitorder="little")

    def _size(self, rows: int) -> int:
        return rows if self._counted else -(-rows // 8)
