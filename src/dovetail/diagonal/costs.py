"""What Diag-Join costs (section 4.1, equations 1 to 9), and GRACE and the block-wise nested loop beside it.

    C        = C_phase1 + C_phase2                                             (2)
    C_phase1 = read R1 + hash R1 + read RN + look up RN + write tmp            (3) … (8)
    C_phase2 = C_GRACE(R1, tmp)                                                (9)

C_GRACE is not in print; here both inputs are read, written to partitions and read again. `transfers` are pages alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Relation:
    rows: float
    pages: float

    def part(self, share: float) -> Relation:
        return Relation(share * self.rows, share * self.pages)


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds, and pages of buffer."""

    seek: float = 0.01  # T_k
    transfer: float = 0.001  # T_t, a page
    hash: float = 1e-6  # T_c, a row
    find: float = 1e-6  # T_j, a row

    def pages(self, pages: float, at_once: float) -> float:
        """(1): reading or writing so many pages at a time."""
        return ceil(pages / max(1.0, at_once)) * self.seek + pages * self.transfer


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a join of R1 and RN with a window of so many pages in so many tables; `mishits` is their share of RN."""

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


def diag_transfers(one: float, many: float, mishits: float, *, coupled: bool = False) -> float:
    """Pages read and written. Coupled: mishits go to their partitions at once, which saves writing and reading them."""
    again = 3 * one if mishits else 0.0
    return one + many + again + (2 if coupled else 4) * mishits * many


def grace_transfers(one: float, many: float) -> float:
    return 3 * (one + many)


def nested_loop_transfers(one: float, many: float, memory: float) -> float:
    """Block-wise nested loop, the better side as the outer one."""
    return min(outer + ceil(outer / (memory - 1)) * inner for outer, inner in ((one, many), (many, one)))


def break_even(one: float, many: float, *, coupled: bool = False) -> float:
    """The share of mishits at which Diag-Join moves as many pages as GRACE."""
    return (grace_transfers(one, many) - diag_transfers(one, many, 0.0) - 3 * one) / ((2 if coupled else 4) * many)
