"""How many pairs a growing block of rows has given, altogether and by chunks: what an early estimate goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dovetail.batch import Rows
from dovetail.state.merging.runs import NO_WORDS, Words

CHUNK = 512  # rows of each side


class Tally(NamedTuple):
    """Pairs found, and those among the first CHUNK rows of both sides, among the next ones, and so on."""

    matches: int
    diagonal: Words
    sums: Mapping[str, float] = {}  # over the pairs

    @classmethod
    def none(cls) -> Tally:
        return cls(0, NO_WORDS)

    @classmethod
    def of(cls, lefts: Rows, rights: Rows, sums: Mapping[str, float]) -> Tally:
        """Of pairs of rows by their arrival."""
        chunks = lefts // CHUNK
        return cls(len(lefts), np.bincount(chunks[chunks == rights // CHUNK]), sums)

    def with_(self, other: Tally) -> Tally:
        total = np.zeros(max(len(self.diagonal), len(other.diagonal)), np.int64)
        for part in (self, other):
            total[: len(part.diagonal)] += part.diagonal
        sums = {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in {**self.sums, **other.sums}}
        return Tally(self.matches + other.matches, total, sums)

    def complete(self, rows: int) -> list[int]:
        """The diagonal, as far as both sides have so many rows."""
        counts = np.zeros(rows // CHUNK, np.int64)
        counts[: len(self.diagonal)] = self.diagonal[: len(counts)]
        return counts.tolist()
