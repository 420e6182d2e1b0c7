"""Repeated keys of the side whose keys should be unique.

Every hash of that side is registered when its row is loaded. Once a hash repeats, its rows are hidden from the ring:
later probes for it are mishits and are joined with all of its rows at the end. Earlier probes remain. They were joined
with the first row of that hash and no other, and are identified by position: between the loading of the first row's
table and that moment, or the table's clearing.

A hash may be suspected wrongly, though hardly ever; this costs a second probe and changes no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dovetail.diag.ring import FOREVER, Positions, Stay
from dovetail.kernels.compact_table import mark_seen
from dovetail.storage.hash_table import Hashes

ROOM = 1.4  # slots for each hash


class Met(NamedTuple):
    """Pairs that were already joined: probing rows with hash[i] at [since[i], until[i]) were joined with first[i]."""

    hashes: Hashes  # sorted
    first: Positions
    since: Positions
    until: Positions

    @classmethod
    def nothing(cls) -> Met:
        return cls(*(np.empty(0, np.int64) for _ in cls._fields))

    @property
    def earliest(self) -> int:
        """The first position of a row that was already joined; a large number if there is none."""
        return int(self.since[self.since < self.until].min(initial=FOREVER))

    def position_of(self, hashes: Hashes, positions: Positions) -> Positions:
        """The position of the row that each was joined with, or -1."""
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        met = (self.hashes[at] == hashes) & (self.since[at] <= positions) & (positions < self.until[at])
        return np.where(met, self.first[at], -1)


class Repeats:
    """Registers the hashes of a side, and when one repeats."""

    def __init__(self, rows: int) -> None:
        self._slots = np.zeros(int(ROOM * rows) + 16, np.uint32)
        self._hashes = self._noticed = np.empty(0, np.int64)  # suspects, sorted; and since when each is not found
        self._first = np.empty(0, np.int64)  # row of each, as far as the second look has come

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def nbytes(self) -> int:
        return int(self._slots.nbytes) + 24 * len(self)

    @staticmethod
    def nbytes_for(rows: int) -> int:
        return int(4 * ROOM * rows) + 64

    def note(self, hashes: Hashes, now: int) -> Hashes:
        """Those of them that came before. They are not found from probing position `now` on, or from an earlier one."""
        again = np.unique(hashes[mark_seen(self._slots, hashes)])
        new = again[~np.isin(again, self._hashes)] if len(self) else again
        if len(new):
            places = np.searchsorted(self._hashes, new)
            self._hashes = np.insert(self._hashes, places, new)
            self._noticed = np.insert(self._noticed, places, now)
        return again

    def look(self, hashes: Hashes, positions: Positions) -> None:
        """A second pass over all rows of the side, in order: finds the first row of each suspected key."""
        if len(self._first) < len(self):
            self._first = np.full(len(self), -1)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        rows = np.flatnonzero(self._hashes[at] == hashes)
        suspects, first = np.unique(at[rows], return_index=True)
        new = self._first[suspects] < 0
        self._first[suspects[new]] = positions[rows[first[new]]]

    def settled_probes(self, stays: Sequence[Stay]) -> Met:
        """The pairs already joined, once the second pass is complete."""
        lows, since, until = (np.array(column, np.int64) for column in zip(*stays, strict=True))
        table = np.searchsorted(lows, self._first, "right") - 1
        return Met(self._hashes, self._first, since[table], np.minimum(until[table], self._noticed))
