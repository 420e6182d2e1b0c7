"""MINER's flushing policy: from the largest input the area of the least benefit, over all of its attributes.

Every result is credited to the area of every attribute of every row in it. Edge areas give their outermost rows; in the
middle a clock hand goes round in key order, spares rows that took part in a result since it last came by, and takes the
others. Where an area has less than a block, the one with the next lowest benefit fills it up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.batch import Rows
from dovetail.state.areas import LOWER, MIDDLE, TIES, UPPER, Areas
from dovetail.state.expansion import Partial, Table
from dovetail.state.links import Attribute
from dovetail.state.multiway import Multiway
from dovetail.state.residents import Batch, Flags, Residents


class Benefits:
    def __init__(self, state: Multiway, seed: int) -> None:
        self._state = state
        self._random = np.random.default_rng(seed)
        self.areas = {attribute: Areas() for found in state.residents.values() for attribute in found.attributes}
        self._hands: dict[Attribute, tuple[int, int]] = {}  # code and arrival of the row to visit next

    def arrived(self, alias: str, batch: Batch) -> None:
        """Rows that arrive say nothing yet."""

    def found(self, rows: Partial, tables: Mapping[str, Table]) -> None:
        for alias, taken in rows.items():
            for attribute in self._state.residents[alias].attributes:
                self.areas[attribute].credit(tables[alias].codes(attribute)[taken])

    def kept(self, alias: str, batch: Batch) -> None:
        for attribute in self._state.residents[alias].attributes:
            self.areas[attribute].add(batch.codes(attribute))

    def flush(self) -> bool:
        """Evict a block; False where nothing is left."""
        residents = self._state.residents
        alias = max(residents, key=lambda a: len(residents[a]))
        mine = residents[alias]
        if not len(mine):
            return False
        block = self._state.block_size(alias)
        chosen, victim = self._choose(mine, min(block, len(mine)))
        self._state.evict({alias: chosen[np.argsort(mine.codes(victim)[chosen], kind="stable")]})
        for attribute in mine.attributes:
            self.areas[attribute].flushed(mine.codes(attribute), block)
        return True

    def forgotten(self, alias: str) -> None:
        """All rows of an input have left."""
        for attribute in self._state.residents[alias].attributes:
            self.areas[attribute] = Areas()

    def _choose(self, mine: Residents, need: int) -> tuple[Rows, Attribute]:
        """The rows that leave, and by which attribute first."""
        order = sorted(
            ((attribute, area) for attribute in mine.attributes for area in TIES if self.areas[attribute].rows[area]),
            key=lambda place: self.areas[place[0]].benefit(place[1]),
        )
        staying = np.ones(len(mine), np.bool_)
        chosen: list[Rows] = []
        for attribute, area in order:
            missing = need - sum(map(len, chosen))
            if not missing:
                break
            rows = self._take(mine, attribute, area, staying, missing)
            staying[rows] = False
            chosen.append(rows)
        return np.concatenate(chosen), order[0][0]

    def _take(self, mine: Residents, attribute: Attribute, area: int, staying: Flags, most: int) -> Rows:
        codes = mine.codes(attribute)
        rows = np.flatnonzero(staying & (self.areas[attribute].of(codes) == area))
        rows = rows[np.argsort(codes[rows], kind="stable")]  # by code, then by arrival
        if area == UPPER:
            return rows[::-1][:most]
        if area == LOWER:
            return rows[:most]
        assert area == MIDDLE
        return self._clock(mine, attribute, rows, most)

    def _clock(self, mine: Residents, attribute: Attribute, rows: Rows, most: int) -> Rows:
        """At most two rounds: rows that are spared in the first have their mark cleared, and leave in the second."""
        codes, arrived = mine.codes(attribute)[rows], mine.arrived[rows]
        start = int(self._random.integers(len(rows))) if len(rows) else 0
        if attribute in self._hands:
            code, tick = self._hands[attribute]
            first, last = np.searchsorted(codes, code, "left"), np.searchsorted(codes, code, "right")
            start = int(first + np.searchsorted(arrived[first:last], tick, "left"))
        visited = np.roll(rows, -start)
        unused = np.flatnonzero(~mine.used[visited])
        if len(unused) >= most:
            end = int(unused[most - 1]) + 1 if most else 0
            chosen, cleared = visited[unused[:most]], visited[:end]
        else:
            again = np.flatnonzero(mine.used[visited])[: most - len(unused)]
            chosen, cleared = visited[np.concatenate([unused, again])], visited
            end = int(again[-1]) + 1 if len(again) else 0
        mine.used[cleared] = False
        if len(visited):
            following = visited[end % len(visited)]
            self._hands[attribute] = (int(mine.codes(attribute)[following]), int(mine.arrived[following]))
        return chosen
