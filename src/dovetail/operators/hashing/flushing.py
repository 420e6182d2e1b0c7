"""Which resident rows are spilled when memory is full: the policies of XJoin, HMJ, DPHJ and RPJ, interchangeable.

    all         everything                                                          (RPJ section 2.2)
    largest     the largest partition, or pair of partitions                        (XJoin)
    smallest    the smallest
    adaptive    a large pair that leaves both sides balanced                        (HMJ)
    symmetric   pairs that were flushed before, then the largest                    (DPHJ)
    optimal     the rows that the fewest arrivals are expected to match                      (RPJ Fig. 4)

A paired policy evicts both sides of a partition together. A policy selects at least the requested number of rows, if
there are that many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.errors import InputError

Hashes = NDArray[np.int64]
Shares = NDArray[np.float64]


class Dropped:
    """How many rows of one side were dropped with each hash."""

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
        """The number of dropped rows that these would have been joined with."""
        if not len(self._hashes):
            return 0
        places = np.searchsorted(self._hashes, hashes).clip(max=len(self._hashes) - 1)
        return int(self._counts[places][self._hashes[places] == hashes].sum())

    def expect_missed(self, rows: int, shares: Shares, keys: Shares) -> float:
        """The expected number of dropped rows that these would be joined with, by the share and the keys of each
        partition."""
        return float(rows * (self._by_partition * shares / keys).sum())

    def to_json(self) -> dict[str, Any]:
        counts = {"counts": self._counts.tolist(), "by_partition": self._by_partition.tolist()}
        return {"hashes": self._hashes.tolist(), **counts}

    def restore(self, fields: Mapping[str, Any]) -> None:
        names = ("hashes", "counts", "by_partition")
        self._hashes, self._counts, self._by_partition = (np.array(fields[name], np.int64) for name in names)


Counts = NDArray[np.int64]


class ResidentCounts(NamedTuple):
    """What a policy sees. One line per side, one column per partition."""

    rows: Counts  # that are resident
    arrival: NDArray[np.float64]  # how likely the next row is of that side and partition
    spilled: Counts  # rows on disk


class Victim(NamedTuple):
    """The oldest rows of a partition."""

    side: Side
    partition: int
    rows: int


Policy = Callable[[ResidentCounts, int], list[Victim]]


def policy(name: str, paired: bool = False, acceptable: int | None = None, tolerance: float = 0.25) -> Policy:
    """A policy by name. `acceptable` and `tolerance` are a and b of HMJ's adaptive one."""

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
    """Rows wait for arrivals of the other side: those go first that wait for the least likely ones."""
    victims = []
    for place in np.argsort(held.arrival, axis=None, kind="stable"):
        side, j = divmod(int(place), held.rows.shape[1])
        opposite = Side(side).other
        rows = min(int(held.rows[opposite, j]), need)  # Fig. 4, l. 4; it may have none: then the next
        if rows:
            victims.append(Victim(opposite, j, rows))
            need -= rows
        if need == 0:
            break
    return victims


def adaptive_pair(rows: Counts, acceptable: int | None, tolerance: float) -> int:
    """The partition that HMJ's adaptive policy flushes; pairs without rows are never chosen.

    A partition is acceptable from a quarter of the mean on, if nothing else is said.
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
"""The place of a partition among the rows that are left: its number, or its place in all of them, line by line."""


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
    """One partition, or pair of them, after the other, until there are enough rows."""

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
