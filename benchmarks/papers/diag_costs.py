"""The cost models of the Diag-Join paper: seconds, page transfers, and mishits for normally distributed deviations."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from dovetail.diag.choice import diag_transfers, grace_transfers


@dataclass(frozen=True, slots=True)
class Relation:
    rows: float
    pages: float

    def part(self, share: float) -> Relation:
        return Relation(share * self.rows, share * self.pages)


@dataclass(frozen=True, slots=True)
class Machine:
    """The costs of a machine in seconds."""

    seek: float = 0.01  # T_k
    transfer: float = 0.001  # T_t, per page
    hash: float = 1e-6  # T_c, per row
    find: float = 1e-6  # T_j, per row

    def pages(self, pages: float, at_once: float) -> float:
        """(1): the cost of reading or writing pages, a number of them at a time."""
        return ceil(pages / max(1.0, at_once)) * self.seek + pages * self.transfer


@dataclass(frozen=True, slots=True)
class DiagCosts:
    """The cost of a join of R1 and RN; `mishits` is a share of RN. The window is in pages."""

    one: Relation
    many: Relation
    window_pages: float
    tables: int = 5
    machine: Machine = Machine()

    def first_phase(self, mishits: float) -> float:
        m = self.machine
        reading = m.pages(self.one.pages, self.window_pages / self.tables) + m.pages(self.many.pages, 1)
        writing = m.pages(self.many.part(mishits).pages, 1)
        return reading + self.one.rows * m.hash + self.many.rows * m.find + writing

    def diag(self, mishits: float) -> float:
        return self.first_phase(mishits) + (self.grace(self.many.part(mishits)) if mishits else 0.0)

    def grace(self, many: Relation | None = None) -> float:
        """GRACE hash join of R1 with RN, or with a part of it, in the same memory."""
        many, m = many or self.many, self.machine
        parts = max(1, ceil(self.one.pages / self.window_pages))
        io = sum(2 * m.pages(r.pages, 1) + m.pages(r.pages, self.window_pages // parts) for r in (self.one, many))
        return io + (2 * self.one.rows + many.rows) * m.hash + many.rows * m.find


def nested_loop_transfers(one: float, many: float, memory: float) -> float:
    """Block-wise nested loop, with the cheaper choice of the outer side."""
    return min(outer + ceil(outer / (memory - 1)) * inner for outer, inner in ((one, many), (many, one)))


def break_even(one: float, many: float, *, coupled: bool = False) -> float:
    """The share of mishits at which Diag-Join moves as many pages as GRACE."""
    return (grace_transfers(one, many) - diag_transfers(one, many, 0.0) - 3 * one) / ((2 if coupled else 4) * many)


Floats = NDArray[np.float64]

_P = 0.3275911  # Abramowitz and Stegun 7.1.26: accurate to 1.5e-7
_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def normal_between(low: Floats, high: Floats, sigma: float) -> Floats:
    """N(low, high, 0, sigma): the probability that a normal deviation is in between (12)."""
    return _cumulative(high / sigma) - _cumulative(low / sigma)


def _cumulative(x: Floats) -> Floats:
    z = np.abs(x) / sqrt(2)
    t = 1 / (1 + _P * z)
    error = 1 - t * (_A[0] + t * (_A[1] + t * (_A[2] + t * (_A[3] + t * _A[4])))) * np.exp(-z * z)
    return 0.5 * (1 + np.sign(x) * error)


def normal_mishits(tables: int, table_rows: int, sigma: float) -> float:
    """The mean probability of a mishit if deviations are normal (18)."""
    before = tables // 2 * table_rows
    places = np.arange(before + 1, before + table_rows + 1, dtype=np.float64)
    window = tables * table_rows
    return float(np.mean(1 - normal_between(0.5 - places, window + 0.5 - places, sigma)))
