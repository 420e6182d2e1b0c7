"""Decides how much background work a cell does in one micro-batch.

    |-- price --|- arrivals -|---- background ----|-- price --|- arrivals -|---- background ----| …
    |<------------ one micro-batch -------------->|

Every micro-batch has a fixed price: planning, tasks, commits. Small slices of work pay it often, large slices delay
arriving rows: rows that arrive in one micro-batch are joined in the next, so they wait for up to two. A micro-batch
therefore takes half of the latency, if its price allows that. If the price alone takes more, background work adds
little to it.

A slice is a number of units of work, not a deadline: all attempts at a micro-batch have to emit the same rows, and no
two take the same time. The number follows from the committed pace of the cell: what units, rows and micro-batches took
until the last micro-batch but one, which is the same in the states of all attempts at the last one. The price is
measured from one call of a cell to the next, without the work of the cells that share its core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

MICRO_BATCHES = 2  # maximum number of micro-batches that a row waits for
FIRST_PRICE_S = 0.5  # assumed until it is measured
MOST_PRICE_S = 10.0  # upper bound: a longer gap means that the query was stopped
LEAST, MOST = 1 / 3, 4.0  # minimum and maximum background work of all cells of a core, as multiples of the price
FED_SHARE = 1 / 3  # of a slice, for cells whose arrivals take the whole slice
FIRST_UNITS = 16  # until their time is known
REST_S = 5.0  # per micro-batch, after all inputs have ended: no arriving row has to wait then
KEPT = 0.5  # weight of all earlier micro-batches in a mean


class Call(NamedTuple):
    """What a cell did in one micro-batch. Wall-clock time, since the next call may be in another process."""

    began_s: float
    rows: int  # that arrived
    arriving_s: float
    units: int  # of background work
    reacting_s: float
    more: bool  # whether there is work left


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of one cell, ready for JSON."""

    price_s: float = FIRST_PRICE_S
    began_s: float | None = None  # the last call that left work for the next micro-batch,
    worked_s: float = 0.0  # and how long it took
    rows: float = 0.0  # decaying sums over calls
    arriving_s: float = 0.0
    units: float = 0.0
    reacting_s: float = 0.0

    def slice_s(self, latency_s: float, cells: int) -> float:
        """The intended duration of a call, on a core that runs `cells` cells."""
        wanted = latency_s / MICRO_BATCHES - self.price_s
        return min(max(wanted, LEAST * self.price_s), MOST * self.price_s) / cells

    def units_in_slice(self, latency_s: float, cells: int, rows: int) -> int:
        """The units of a call in which that many rows arrive. Arrivals come first, but leave some time."""
        length = self.slice_s(latency_s, cells)
        arriving_s = rows * self.arriving_s / self.rows if self.rows else 0.0
        return self._units_in(max(length - arriving_s, FED_SHARE * length))

    def units_at_rest(self) -> int:
        """The units of a call after all inputs have ended."""
        return self._units_in(REST_S)

    def after(self, call: Call, cells: int) -> Pace:
        """The pace for the next micro-batch. A price is paid only between calls that leave work."""
        price = self.price_s
        if self.began_s is not None:
            gap = call.began_s - self.began_s - cells * self.worked_s
            price = (price + min(max(gap, 0.0), MOST_PRICE_S)) / 2
        return Pace(
            price,
            call.began_s if call.more else None,
            call.arriving_s + call.reacting_s,
            KEPT * self.rows + call.rows,
            KEPT * self.arriving_s + (call.arriving_s if call.rows else 0.0),
            KEPT * self.units + call.units,
            KEPT * self.reacting_s + (call.reacting_s if call.units else 0.0),
        )

    def _units_in(self, seconds: float) -> int:
        if not self.units or not self.reacting_s > 0:
            return FIRST_UNITS
        return max(1, math.ceil(seconds * self.units / self.reacting_s))
