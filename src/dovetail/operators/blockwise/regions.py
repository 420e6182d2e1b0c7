"""Chooses which rows of a side to evict: a block at a time, from the least useful region of key values.

    codes      | lower |           middle             | upper |
               smallest first     clock by marks      largest first

Each region counts its rows and their results since the side's last flush. The region with the fewest results per row is
the victim. The outer regions hold about a block each; all other rows are in the middle, where a clock hand moves in key
order: it spares marked rows and removes their mark, and evicts unmarked ones.

DINER (TKDE 2010), section 3.3, Algorithms 2 and 3. A region is a half-open range of codes, so no value has to exist
between two of them: lower is below bounds[0], upper starts at bounds[-1]. More than one middle region is an experiment,
and so are two regions without a middle.

Deviations: a region without rows is never a victim. If a region holds less than a block, the one with the next fewest
results follows (printed: the most). The hand stops after two rounds. If lower and upper would overlap, for example when
all keys are equal, upper takes precedence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Rows
from dovetail.errors import InputError
from dovetail.kernels.sorting import sort_codes
from dovetail.storage.residence import ArrivalTicks

Words = NDArray[np.int64]
Marks = NDArray[Any]
Flags = NDArray[np.bool_]
Ticks = Words | ArrivalTicks


@dataclass(frozen=True, slots=True)
class Policy:
    """The variants of the policy."""

    regions: int = 3
    middle: Literal["clock", "random"] = "clock"
    ties: Literal["edges", "middle"] = "edges"  # which region is evicted first if benefits are equal
    counted: bool = False  # marks count results instead of being a single bit
    seed: int = 0

    def __post_init__(self) -> None:
        if self.regions < 2:
            raise InputError(f"regions must be at least 2, a lower and an upper one; got {self.regions}.")
        for name, known in (("middle", ("clock", "random")), ("ties", ("edges", "middle"))):
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be {' or '.join(known)}; got {getattr(self, name)!r}.")


class Victims(NamedTuple):
    """Positions of the evicted rows, and of those that lose their mark."""

    rows: Rows
    spared: Rows


class Regions:
    """The regions of one side. Codes and marks are passed in the order of arrival."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.bounds: Words | None = None  # None: never flushed, there is a single region
        self.joins = np.zeros(policy.regions, np.int64)
        self.tups = np.zeros(policy.regions, np.int64)
        self.flushes = 0
        self.flushed_from = np.zeros(policy.regions, np.int64)  # number of blocks whose first victim was each region
        self._hand: tuple[int, int] | None = None  # code and arrival of the row where the hand is

    def region_of(self, codes: Words) -> Rows:
        """The region of each code."""
        narrow = np.uint8 if self.policy.regions < 256 else np.int64
        if self.bounds is None:
            return np.full(len(codes), min(1, self.policy.regions - 2), narrow)
        regions: Rows = np.zeros(len(codes), narrow)
        for bound in self.bounds:  # there are few bounds: comparing is faster than searching
            regions += codes >= bound
        return regions

    def credit(self, codes: Words, results: NDArray[Any] | None = None) -> None:
        """Credit rows with these codes with one result each, or with the given numbers."""
        if self.bounds is None:
            return  # benefits are ignored until the first flush
        self.joins += np.bincount(self.region_of(codes), results, self.policy.regions).astype(np.int64)

    def add(self, codes: Words) -> None:
        """Record that rows with these codes are now in memory."""
        self.tups += np.bincount(self.region_of(codes), minlength=self.policy.regions)

    def choose(self, codes: Words, marks: Marks, arrivals: Ticks, need: int) -> Victims:
        """Algorithm 2, l. 1-16: chooses `need` rows to evict, or all of them if there are fewer."""
        left = np.ones(len(codes), np.bool_)
        region_of = self.region_of(codes)
        touched: set[int] = set()
        spared: list[Rows] = []
        order = [region for *_, region in sorted(self.benefits())]
        self.flushed_from[order[0]] += 1
        for region in order:
            missing = need - int(np.count_nonzero(~left))
            if missing <= 0:
                break
            taken, passed = self.take(region, codes, marks, arrivals, np.flatnonzero(region_of == region), missing)
            spared.append(passed)
            left[taken] = False
            touched.add(region)
        self.move_bounds(codes[left], need, touched)
        return Victims(np.flatnonzero(~left), np.concatenate([np.empty(0, np.int64), *spared]))

    def benefits(self) -> list[tuple[float, int, int]]:
        """The regions that have rows: results per row, rank on ties (upper, lower, middle), region."""
        last = self.policy.regions - 1
        rank = {last: 0, 0: 1} if self.policy.ties == "edges" else {last: last + 1, 0: last + 2}
        return [(self.joins[r] / self.tups[r], rank.get(r, r + 1), r) for r in np.flatnonzero(self.tups).tolist()]

    def take(self, region: int, codes: Words, marks: Marks, arrivals: Ticks, inside: Rows, need: int) -> Victims:
        """Take up to `need` rows of those `inside` a region."""
        if self.bounds is not None and region == self.policy.regions - 1:
            return Victims(inside[_largest(codes[inside], need)], inside[:0])
        if self.bounds is not None and region == 0:
            return Victims(inside[_smallest(codes[inside], need)], inside[:0])
        return self._middle(codes, marks, arrivals, inside, need)

    def recount(self, codes: Words) -> None:
        """Count the rows again; `codes` are those of all rows in memory."""
        regions = self.region_of(codes)
        self.tups = np.array([np.count_nonzero(regions == region) for region in range(self.policy.regions)])

    def to_json(self) -> dict[str, Any]:
        return {
            "bounds": None if self.bounds is None else self.bounds.tolist(),
            "joins": self.joins.tolist(),
            "flushes": self.flushes,
            "flushed_from": self.flushed_from.tolist(),
            "hand": self._hand,
        }

    @classmethod
    def from_json(cls, policy: Policy, fields: dict[str, Any]) -> Regions:
        regions = cls(policy)
        regions.bounds = None if fields["bounds"] is None else np.array(fields["bounds"], np.int64)
        regions.joins = np.array(fields["joins"], np.int64)
        regions.flushes = fields["flushes"]
        regions.flushed_from = np.array(fields["flushed_from"], np.int64)
        regions._hand = None if fields["hand"] is None else (fields["hand"][0], fields["hand"][1])
        return regions

    def _middle(self, codes: Words, marks: Marks, arrivals: Ticks, inside: Rows, need: int) -> Victims:
        """The clock over the rows `inside`: which are evicted, and which lose a mark."""
        rng = np.random.default_rng([self.policy.seed, self.flushes])
        if self.policy.middle == "random":
            return Victims(rng.permutation(inside)[:need], inside[:0])
        ring = inside[self._ring(codes[inside], marks[inside] == 0, arrivals, inside, need, rng)]
        unmarked = np.flatnonzero(marks[ring] == 0)
        if len(unmarked) >= need:
            stop = int(unmarked[need - 1]) + 1
            leaving, passed = unmarked[:need], np.flatnonzero(marks[ring[:stop]])
        else:  # the first round clears all marks, and the second one finds enough rows
            passed = np.flatnonzero(marks[ring])
            again = passed[np.argsort(marks[ring[passed]], kind="stable")][: need - len(unmarked)]
            leaving = np.concatenate([unmarked, again])
            stop = int(again[-1]) + 1 if len(again) else 0
        if len(ring) > len(leaving):
            ahead = np.setdiff1d(np.arange(stop, stop + len(ring)) % len(ring), leaving, assume_unique=True)
            following = ring[ahead[np.argmin((ahead - stop) % len(ring))]]
            self._hand = (int(codes[following]), int(arrivals[following]))
        return Victims(ring[leaving], ring[passed])

    def _ring(
        self, codes: Words, unmarked: Flags, arrivals: Ticks, inside: Rows, need: int, rng: np.random.Generator
    ) -> Rows:
        """Positions in key order from the hand on, only as far as it will move, so that not all rows are sorted."""
        if self._hand is None:
            start = int(rng.integers(len(codes)))
            code = int(np.partition(codes, start)[start])
            same = np.flatnonzero(codes == code)[start - int(np.count_nonzero(codes < code)) :]
        else:
            code, arrival = self._hand
            same = np.flatnonzero(codes == code)
            same = same[np.searchsorted(arrivals[inside[same]], arrival) :]
        ahead = codes > code
        ahead[same] = True
        sorted_parts: list[Rows] = []
        for part in (ahead, ~ahead):
            here = codes[unmarked & part]
            enough = len(here) >= need > 0
            if enough:
                here.partition(need - 1)
                # Include the rows of the next code: the first one that stays is the new position of the hand.
                beyond = codes[part & (codes > here[need - 1])]
                part = part & (codes <= (beyond.min() if len(beyond) else here[need - 1]))
                enough = len(beyond) > 0
            need -= len(here)
            rows = np.flatnonzero(part)
            sorted_parts.append(rows[sort_codes(codes[rows]).order])
            if enough:
                break
        return np.concatenate(sorted_parts)

    def move_bounds(self, codes: Words, need: int, touched: set[int]) -> None:
        """Algorithm 2, l. 17-20: move the bounds of the regions that rows were taken from, and reset the counts."""
        self.flushes += 1
        last = self.policy.regions - 1
        if len(codes) and (self.bounds is None or touched & {0, last}):
            first = self.bounds is None
            if self.bounds is None:
                self.bounds = np.zeros(last, np.int64)
            self.bounds = self.bounds.copy()
            ascending = np.sort(codes)
            if last == 1:
                self.bounds[0] = ascending[len(ascending) // 2]
            else:
                if first or last in touched:
                    self.bounds[-1] = ascending[max(0, len(ascending) - need)]
                if first or 0 in touched:
                    lower = int(ascending[min(need, len(ascending)) - 1])
                    self.bounds[0] = min(lower, int(self.bounds[-1]) - 1) + 1
                self.bounds[0] = min(self.bounds[0], self.bounds[-1])
                self._divide(ascending)
        self.joins[:] = 0
        self.recount(codes)

    def _divide(self, ascending: Words) -> None:
        """Splits the middle into several regions with equally many rows."""
        assert self.bounds is not None
        low, high = np.searchsorted(ascending, self.bounds[[0, -1]])
        for k in range(1, len(self.bounds) - 1):
            place = low + (high - low) * k // (len(self.bounds) - 1)
            self.bounds[k] = min(max(ascending[min(place, len(ascending) - 1)], self.bounds[0]), self.bounds[-1])


def _largest(codes: Words, count: int) -> Rows:
    """Positions of the largest codes; on ties, the latest rows."""
    if count >= len(codes):
        return np.arange(len(codes))
    cut = np.partition(codes, len(codes) - count)[len(codes) - count]
    above = np.flatnonzero(codes > cut)
    return np.concatenate([above, np.flatnonzero(codes == cut)[len(above) - count :]])


def _smallest(codes: Words, count: int) -> Rows:
    """Positions of the smallest codes; on ties, the earliest rows."""
    if count >= len(codes):
        return np.arange(len(codes))
    cut = np.partition(codes, count - 1)[count - 1]
    below = np.flatnonzero(codes < cut)
    return np.concatenate([below, np.flatnonzero(codes == cut)[: count - len(below)]])
