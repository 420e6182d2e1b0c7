"""Policies that choose which resident rows to spill when memory is full: those of XJoin, HMJ, DPHJ and RPJ.

    all         everything                                                          (RPJ section 2.2)
    largest     the largest partition, or pair of partitions                        (XJoin)
    smallest    the smallest
    adaptive    a large pair that leaves both sides balanced                        (HMJ)
    symmetric   pairs that were flushed before, then the largest                    (DPHJ)
    optimal     the rows that the fewest arrivals are expected to match                      (RPJ Fig. 4)

A paired policy evicts both sides of a partition together. A policy selects at least the requested number of rows, if
there are that many.

The optimal policy needs statistics of arrivals: the probability that the next row belongs to a partition, and the
number of distinct keys of a partition.

    P(j | side)   = rows of the side in partition j so far / all rows of the side so far       (RPJ eq. 5)
    p(side, j)    = P(j | side) * recent rows of the side / recent rows of both                (RPJ eq. 6)

Recent rows are counted in units: recent <- decay * recent + (1 - decay) * rows in the last complete unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.errors import InputError

Hashes = NDArray[np.int64]
Counts = NDArray[np.int64]
Shares = NDArray[np.float64]

REGISTERS = 256  # per sketch: an error of about 6 %
BITS = 8  # bits of a hash that choose the register


class Dropped:
    """The number of dropped rows of one side per hash."""

    def __init__(self, partitions: int) -> None:
        self._hashes: Hashes = np.empty(0, np.int64)  # ascending
        self._by_partition = np.zeros(partitions, np.int64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._counts.nbytes

    def add(self, partition: int, hashes: Hashes) -> None:
        self._by_partition[partition] += len(hashes)
        merged = np.concatenate([self._hashes, hashes])
        counts = np.concatenate([self._counts, np.ones(len(hashes), np.int64)])
        self._hashes, places = np.unique(merged, return_inverse=True)
        self._counts = np.bincount(places, counts, len(self._hashes)).astype(np.int64)

    def count_missed(self, hashes: Hashes) -> int:
        """The number of dropped rows that these rows would have been joined with."""
        if not len(self._hashes):
            return 0
        places = np.searchsorted(self._hashes, hashes).clip(max=len(self._hashes) - 1)
        return int(self._counts[places][self._hashes[places] == hashes].sum())

    def expect_missed(self, rows: int, shares: Shares, keys: Shares) -> float:
        """The expected number of dropped rows that these rows would match, from the share and the keys of each
        partition."""
        return float(rows * (self._by_partition * shares / keys).sum())

    def to_json(self) -> dict[str, Any]:
        counts = {"counts": self._counts.tolist(), "by_partition": self._by_partition.tolist()}
        return {"hashes": self._hashes.tolist(), **counts}

    def restore(self, fields: Mapping[str, Any]) -> None:
        names = ("hashes", "counts", "by_partition")
        self._hashes, self._counts, self._by_partition = (np.array(fields[name], np.int64) for name in names)


class ResidentCounts(NamedTuple):
    """The input of a policy: one row per side, one column per partition."""

    rows: Counts  # resident rows
    arrival: NDArray[np.float64]  # the probability that the next row is of that side and partition
    spilled: Counts  # rows on disk


class Victim(NamedTuple):
    """A number of the oldest rows of a partition."""

    side: Side
    partition: int
    rows: int


Policy = Callable[[ResidentCounts, int], list[Victim]]


def policy(name: str, paired: bool = False, acceptable: int | None = None, tolerance: float = 0.25) -> Policy:
    """A policy by name. `acceptable` and `tolerance` are a and b of HMJ's adaptive policy."""

    largest, smallest = (_of_pairs(f) if paired else f for f in (_largest, _smallest))
    choices: dict[str, Policy] = {
        "all": flush_all,
        "largest": _by_partition(largest, paired),
        "smallest": _by_partition(smallest, paired),
        "adaptive": _by_partition(lambda rows, _: adaptive_pair(rows, acceptable, tolerance), paired=True),
        "symmetric": _by_partition(_spilled_first, paired=True),
    }
    if not paired:
        choices["optimal"] = optimal_flush
    if name not in choices:
        raise InputError(f"flush must be one of {', '.join(choices)} here; got {name!r}.")
    return choices[name]


def flush_all(held: ResidentCounts, need: int) -> list[Victim]:
    return [Victim(Side(side), int(j), int(held.rows[side, j])) for side, j in np.argwhere(held.rows)]


def optimal_flush(held: ResidentCounts, need: int) -> list[Victim]:
    """Residents wait for arrivals of the other side: those with the least likely partners are evicted first."""
    victims = []
    for place in np.argsort(held.arrival, axis=None, kind="stable"):
        side, j = divmod(int(place), held.rows.shape[1])
        opposite = Side(side).other
        rows = min(int(held.rows[opposite, j]), need)  # Fig. 4, l. 4; the partition may be empty: then the next one
        if rows:
            victims.append(Victim(opposite, j, rows))
            need -= rows
        if need == 0:
            break
    return victims


def adaptive_pair(rows: Counts, acceptable: int | None, tolerance: float) -> int:
    """The partition that HMJ's adaptive policy flushes; pairs without rows are never chosen.

    By default, a partition is acceptable from a quarter of the mean size.
    """
    left, right = rows
    whole = left + right
    if acceptable is None:
        acceptable = int(whole.sum()) // (4 * len(whole))
    total, surplus = int(whole.sum()), int(left.sum() - right.sum())
    candidates = whole > 0
    large = candidates & (left >= acceptable) & (right >= acceptable)
    if abs(surplus) < tolerance * total:
        candidates = _narrow_candidates(candidates, large)
        still_balanced = np.abs(surplus - (left - right)) < tolerance * total  # of the old total
        candidates = _narrow_candidates(candidates, still_balanced)
    else:
        candidates = _narrow_candidates(candidates, left >= right if surplus >= 0 else right >= left)
        candidates = _narrow_candidates(candidates, large)
    return int(np.argmax(np.where(candidates, whole, -1)))


def _narrow_candidates(candidates: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    both = candidates & wanted
    return both if both.any() else candidates


Choose = Callable[[Counts, ResidentCounts], int]
"""Chooses from the remaining rows: the number of a partition, or a flat index over sides and partitions."""


def _largest(rows: Counts, held: ResidentCounts) -> int:
    return int(np.argmax(rows))


def _smallest(rows: Counts, held: ResidentCounts) -> int:
    return int(np.argmin(np.where(rows > 0, rows, np.iinfo(np.int64).max)))


def _of_pairs(choose: Choose) -> Choose:
    return lambda rows, held: choose(rows.sum(axis=0), held)


def _spilled_first(rows: Counts, held: ResidentCounts) -> int:
    pairs = rows.sum(axis=0)
    before = (pairs > 0) & (held.spilled.sum(axis=0) > 0)
    return int(np.argmax(before if before.any() else pairs))


def _by_partition(choose: Choose, paired: bool) -> Policy:
    """Evicts one partition (or pair) after the other, until there are enough rows."""

    def victims(held: ResidentCounts, need: int) -> Iterator[Victim]:
        rows = held.rows.copy()
        while need > 0 and rows.any():
            place = choose(rows, held)
            side, j = (0, place) if paired else divmod(place, rows.shape[1])
            for gone in Side if paired else [Side(side)]:
                if rows[gone, j]:
                    yield Victim(gone, j, int(rows[gone, j]))
                    need -= int(rows[gone, j])
                    rows[gone, j] = 0

    return lambda held, need: list(victims(held, need))


class ArrivalRates:
    """Counts time in units of a number of arrived rows of both sides: an operator has no clock."""

    def __init__(self, partitions: int, decay: float = 0.5, unit_rows: int = 1000) -> None:
        self.total = np.zeros((2, partitions), np.int64)
        self.ended = [False, False]
        self._decay = decay
        self._unit_rows = unit_rows
        self._recent: NDArray[np.float64] | None = None  # None during the first unit
        self._unit = np.zeros(2)

    def record_arrivals(self, side: Side, counts: NDArray[np.int64]) -> None:
        """Record the number of rows that have arrived in each partition."""
        self.total[side] += counts
        self._unit[side] += counts.sum()
        if self._unit.sum() >= self._unit_rows:
            self.end_unit()

    def end_unit(self) -> None:
        before = self._unit if self._recent is None else self._recent
        recent = self._decay * before + (1 - self._decay) * self._unit
        if recent.sum() > 0:  # after a long stall the last rates are kept, to avoid 0 / 0
            self._recent = recent
        self._unit = np.zeros(2)

    def probabilities(self) -> NDArray[np.float64]:
        """p(side, j); zero for a side that has ended."""
        recent = self._unit if self._recent is None else self._recent
        rates = np.where(self.ended, 0.0, recent / max(1e-300, recent.sum()))
        probabilities: NDArray[np.float64] = self.shares * rates[:, None]
        return probabilities

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of a side's rows in each partition."""
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
    """Estimates the number of distinct keys in each partition: one HyperLogLog sketch per partition."""

    def __init__(self, partitions: int) -> None:
        self._registers = np.zeros((partitions, REGISTERS), np.int8)

    def add(self, hashes: NDArray[np.int64], partitions: NDArray[np.int64]) -> None:
        low = hashes.view(np.uint64) & np.uint64(0xFFFFFFFF)  # the upper half has chosen the partition
        rest = (low >> np.uint64(BITS)).astype(np.float64)
        zeros = 32 - BITS - np.frexp(rest)[1]  # leading ones of the remaining 24 bits
        places = partitions * REGISTERS + (low & np.uint64(REGISTERS - 1)).view(np.int64)
        np.maximum.at(self._registers.reshape(-1), places, (zeros + 1).astype(np.int8))

    def counts(self) -> NDArray[np.float64]:
        """The estimates, at least 1 each."""
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
