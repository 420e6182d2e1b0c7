"""Decides how long a cell does background work in one micro-batch.

    |-- price --|- arrivals -|---- background ----|-- price --|- arrivals -|---- background ----| …
    |<------------ one micro-batch -------------->|

Every micro-batch has a fixed price: planning, tasks, commits. Small slices of work pay it often, large slices delay
arriving rows: rows that arrive in one micro-batch are joined in the next, so they wait for up to two. A micro-batch
therefore takes half of the latency, if its price allows that. If the price alone takes more, background work adds
little to it.

The price is measured: from one call of a cell to the next, without the work of the cells that share its core.
"""

from __future__ import annotations

from dataclasses import dataclass

MICRO_BATCHES = 2  # maximum number of micro-batches that a row waits for
FIRST_PRICE_S = 0.5  # assumed until it is measured
MOST_PRICE_S = 10.0  # upper bound: a longer gap means that the query was stopped
LEAST, MOST = 1 / 3, 4.0  # minimum and maximum background work of all cells of a core, as multiples of the price
FED_SHARE = 1 / 3  # of a slice, for cells whose arrivals took the whole slice


@dataclass(slots=True)
class Pace:
    """The pace of one cell, ready for JSON. Uses wall-clock time, since the next call may be in another process."""

    price_s: float = FIRST_PRICE_S
    began_s: float | None = None  # the last call that left work for the next micro-batch,
    worked_s: float = 0.0  # and how long it took

    def begin(self, now: float, cells: int) -> None:
        """A call begins, on a core that runs `cells` cells."""
        if self.began_s is not None:
            price = now - self.began_s - cells * self.worked_s
            self.price_s = (self.price_s + min(max(price, 0.0), MOST_PRICE_S)) / 2
        self.began_s = now

    def end(self, now: float, more: bool) -> None:
        """The call has ended. Without `more` work, no call is needed in the next micro-batch."""
        self.worked_s = 0.0 if self.began_s is None else now - self.began_s
        if not more:
            self.began_s = None

    def slice_s(self, latency_s: float, cells: int) -> float:
        """The intended duration of the call."""
        wanted = latency_s / MICRO_BATCHES - self.price_s
        return min(max(wanted, LEAST * self.price_s), MOST * self.price_s) / cells

    def deadline(self, now: float, latency_s: float, cells: int) -> float:
        """When background work should stop. Arrivals come first, but leave it some time."""
        length = self.slice_s(latency_s, cells)
        return max((now if self.began_s is None else self.began_s) + length, now + FED_SHARE * length)
