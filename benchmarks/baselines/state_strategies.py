"""How elements learn that a batch has left the window: the state strategies of SPO-Join, section 4.2, with delays.

    batches 0 1 2 3 4 5 ... are assigned to the elements round-robin; every row probes all elements

Replacement (strategy 1)   as many elements as batches in a window: a new batch evicts the one its element holds
Partitioner (A)            the size of every merged batch is sent to all elements, which add them up
Distributed cache (B)      the first element publishes its count at intervals, the others poll it

An element with an outdated count drops its oldest batch late. Rows that have left the window then give false results,
unless matches are filtered by position. Replacement can also drop too early: rows queued at an element still need the
old batch when the new one overtakes them, so the queue has to be drained first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.baselines.po_join import PoBatch
from benchmarks.baselines.predicates import Floats, Query, Words
from benchmarks.baselines.two_part import Span
from benchmarks.baselines.work import Work
from dovetail.core.rows import Side


class Strategy(Protocol):
    """Decides which batches a row is joined with. Batch b has the rows b * delta .. (b + 1) * delta."""

    window: int
    delta: int

    def holds(self, batch: int, position: int) -> bool:
        """Whether the batch's element still holds it when it processes the row at this position."""


class Counting:
    """Strategies in which each element has a count of arrived rows, which may be outdated."""

    window: int
    delta: int
    elements: int

    def known(self, element: int, position: int) -> int:
        """The number of rows before this one, as far as the element knows."""
        raise NotImplementedError

    def holds(self, batch: int, position: int) -> bool:
        end = (batch + 1) * self.delta
        return end <= position and end > self.known(batch % self.elements, position) - self.window + 1

    def mean_difference(self, rows: int, step: int = 1) -> float:
        """The average lag in rows of all elements except the first, over every `step`-th row."""
        behind = [
            position - self.known(element, position)
            for position in range(self.window, rows, step)
            for element in range(1, self.elements)
        ]
        return float(np.mean(behind))


@dataclass(frozen=True)
class Partitioner(Counting):
    """Strategy A. A message takes as long as `lag` rows take to arrive."""

    window: int
    delta: int
    elements: int
    lag: int = 0

    def known(self, element: int, position: int) -> int:
        merged = position // self.delta
        told = max(0, position - self.lag) // self.delta
        own = sum(batch % self.elements == element for batch in range(told, merged))  # known at once
        return (told + own) * self.delta


@dataclass(frozen=True)
class DistributedCache(Counting):
    """Strategy B; intervals in rows, as in the authors' code."""

    window: int
    delta: int
    elements: int
    lag: int = 0
    publish_every: int = 20
    poll_every: int = 200

    def known(self, element: int, position: int) -> int:
        if element == 0:
            return position
        polled = position // self.poll_every * self.poll_every
        return max(0, polled - self.lag) // self.publish_every * self.publish_every


@dataclass(frozen=True)
class Replacement:
    """Strategy 1. `queued` rows wait at each element when a batch arrives; with `drain` the batch waits for them."""

    window: int
    delta: int
    queued: int = 0
    drain: bool = True

    def holds(self, batch: int, position: int) -> bool:
        return self._has_come(batch, position) and not self._has_come(batch + self.window // self.delta, position)

    def _has_come(self, batch: int, position: int) -> bool:
        return (batch + 1) * self.delta <= position + (0 if self.drain else self.queued)


class Outcome(NamedTuple):
    """Numbers of pairs of a probing row and a merged row."""

    expected: int
    lost: int
    false: int


def simulate_state(query: Query, sides: Words, keys: Floats, strategy: Strategy, *, exact: bool) -> Outcome:
    """Probe the batches of all elements with every row; `exact`: filter matches by position."""
    expected = lost = false = 0
    batches: dict[tuple[int, Side], PoBatch] = {}
    first, delta, work = 0, strategy.delta, Work()
    tests = {side: query.tests(left_probes=side is Side.LEFT) for side in Side}
    for batch in range(len(sides) // delta):
        span = Span(batch * delta, (batch + 1) * delta)
        for side in Side:
            rows = span.first + np.flatnonzero(sides[span.first : span.end] == side)
            orders = [rows[np.argsort(keys[rows, k], kind="stable")] for k in range(keys.shape[1])]
            leaves = [(keys[order, k], order) for k, order in enumerate(orders)]
            batches[batch, side] = PoBatch(span, leaves, work.counts)
    for position in range(len(sides)):
        side = Side(sides[position])
        oldest = position - strategy.window + 1
        merged = position // delta * delta
        for batch in range(first, len(sides) // delta):
            needed = merged >= (batch + 1) * delta > oldest
            held = strategy.holds(batch, position)
            if not needed and not held:
                if (batch + 1) * delta <= oldest and batch == first:
                    first += 1  # no longer held or needed
                elif batch * delta > position + delta:
                    break
                continue
            found = batches[batch, side.other].probe(keys[position], tests[side], work.counts)
            good = int(((found >= oldest) & (found < merged)).sum())
            expected += good
            if not held:
                lost += good
            elif not exact:
                false += len(found) - good
    return Outcome(expected, lost, false)
