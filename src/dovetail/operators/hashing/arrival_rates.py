"""How rows arrive: which partition the next one belongs to, and how many different keys a partition has.

    P(j | side)   = rows of the side in partition j so far / all rows of the side so far       (RPJ eq. 5)
    p(side, j)    = P(j | side) * recent rows of the side / recent rows of both                (RPJ eq. 6)

Recent rows are counted in units: recent <- decay * recent + (1 - decay) * rows in the unit that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Side

REGISTERS = 256  # of each sketch: an error of about 6 %
BITS = 8  # of a hash that choose the register


class ArrivalRates:
    """A unit is a number of rows of both sides together: an operator sees no clock."""

    def __init__(self, partitions: int, decay: float = 0.5, unit_rows: int = 1000) -> None:
        self.total = np.zeros((2, partitions), np.int64)
        self.ended = [False, False]
        self._decay = decay
        self._unit_rows = unit_rows
        self._recent: NDArray[np.float64] | None = None  # None in the first unit
        self._unit = np.zeros(2)

    def record_arrivals(self, side: Side, counts: NDArray[np.int64]) -> None:
        """Record the number of rows of each partition that have arrived."""
        self.total[side] += counts
        self._unit[side] += counts.sum()
        if self._unit.sum() >= self._unit_rows:
            self.end_unit()

    def end_unit(self) -> None:
        before = self._unit if self._recent is None else self._recent
        recent = self._decay * before + (1 - self._decay) * self._unit
        if recent.sum() > 0:  # after a long stall the last rates are kept: 0 / 0 is no information
            self._recent = recent
        self._unit = np.zeros(2)

    def probabilities(self) -> NDArray[np.float64]:
        """p(side, j). A side that has ended has none."""
        recent = self._unit if self._recent is None else self._recent
        rates = np.where(self.ended, 0.0, recent / max(1e-300, recent.sum()))
        probabilities: NDArray[np.float64] = self.shares * rates[:, None]
        return probabilities

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of the rows of a side, how many are in each partition."""
        shares: NDArray[np.float64] = self.total / np.maximum(1, self.total.sum(axis=1, keepdims=True))
        return shares

    def to_json(self) -> dict[str, Any]:
        recent = None if self._recent is None else self._recent.tolist()
        return {"total": self.total.tolist(), "ended": self.ended, "recent": recent, "unit": self._unit.tolist()}

    def restore(self, fields: Mapping[str, Any]) -> None:
        self.total = np.array(fields["total"], np.int64)
        self.ended = list(fields["ended"])
        self._recent = None if fields["recent"] is None else np.array(fields["recent"], np.float64)
        self._unit = np.array(fields["unit"], np.float64)


class DistinctKeys:
    """How many different keys each partition has seen: one HyperLogLog sketch per partition."""

    def __init__(self, partitions: int) -> None:
        self._registers = np.zeros((partitions, REGISTERS), np.int8)

    def add(self, hashes: NDArray[np.int64], partitions: NDArray[np.int64]) -> None:
        low = hashes.view(np.uint64) & np.uint64(0xFFFFFFFF)  # the high half has chosen the partition
        rest = (low >> np.uint64(BITS)).astype(np.float64)
        zeros = 32 - BITS - np.frexp(rest)[1]  # leading ones of what is left of 24 bits
        places = partitions * REGISTERS + (low & np.uint64(REGISTERS - 1)).view(np.int64)
        np.maximum.at(self._registers.reshape(-1), places, (zeros + 1).astype(np.int8))

    def counts(self) -> NDArray[np.float64]:
        """At least 1 each."""
        harmonic = np.exp2(-self._registers.astype(np.float64)).sum(axis=1)
        estimate = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS**2 / harmonic
        empty = (self._registers == 0).sum(axis=1)
        linear = REGISTERS * np.log(REGISTERS / np.maximum(1, empty))
        counts: NDArray[np.float64] = np.where((estimate <= 2.5 * REGISTERS) & (empty > 0), linear, estimate)
        return np.maximum(1, counts)

    def to_json(self) -> list[list[int]]:
        return [line.tolist() for line in self._registers]

    def restore(self, lines: list[list[int]]) -> None:
        self._registers = np.array(lines, np.int8)
