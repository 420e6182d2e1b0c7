"""MINER's flushing policy: from the largest input the region of the least benefit, over all of its attributes.

Every result is credited to the region of every attribute of every row in it (ordered/regions.py). Where one has less
than a block, the one with the next lowest benefit fills it up, of whatever attribute. A row that leaves is taken out of
the indexes and regions of all attributes, and the edges of all of them are moved to hold a block again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.batch import Rows
from dovetail.state.ordered.regions import Policy, Regions
from dovetail.state.several.expansion import Partial, Table
from dovetail.state.several.links import Attribute
from dovetail.state.several.multiway import Multiway
from dovetail.state.several.residents import Batch, Residents


class Benefits:
    def __init__(self, state: Multiway, seed: int) -> None:
        self._state = state
        self._policy = Policy(seed=seed)
        self.regions = {a: Regions(self._policy) for found in state.residents.values() for a in found.attributes}

    def arrived(self, alias: str, batch: Batch) -> None:
        """Rows that arrive say nothing yet."""

    def found(self, rows: Partial, tables: Mapping[str, Table]) -> None:
        for alias, taken in rows.items():
            for attribute in self._state.residents[alias].attributes:
                self.regions[attribute].credit(tables[alias].codes(attribute)[taken])

    def kept(self, alias: str, batch: Batch) -> None:
        for attribute in self._state.residents[alias].attributes:
            self.regions[attribute].add(batch.codes(attribute))

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
        edges = {0, self._policy.regions - 1}
        for attribute in mine.attributes:
            self.regions[attribute].settle(mine.codes(attribute), block, edges)
        return True

    def forgotten(self, alias: str) -> None:
        """All rows of an input have left."""
        for attribute in self._state.residents[alias].attributes:
            self.regions[attribute] = Regions(self._policy)

    def _choose(self, mine: Residents, need: int) -> tuple[Rows, Attribute]:
        """The rows that leave, and by which attribute first."""
        order = sorted(
            (benefit, rank, place, region)
            for place, attribute in enumerate(mine.attributes)
            for benefit, rank, region in self.regions[attribute].benefits()
        )
        staying = np.ones(len(mine), np.bool_)
        missing = need
        for _, _, place, region in order:
            if not missing:
                break
            attribute = mine.attributes[place]
            regions, codes = self.regions[attribute], mine.codes(attribute)
            inside = np.flatnonzero(staying & (regions.of(codes) == region))
            if len(inside):
                rows, spared = regions.take(region, codes, mine.used, mine.arrived, inside, missing)
                mine.used[spared] = 0
                staying[rows] = False
                missing -= len(rows)
        return np.flatnonzero(~staying), mine.attributes[order[0][2]]
