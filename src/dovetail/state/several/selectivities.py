"""Which link leads to the fewest partners: counted since the last flush, remembered over it.

    per resident    matches / (residents of one input x residents of the other)   as the MINER paper has it
    per candidate   matches / pairs looked at                                     not biased by links seldom reached

Right after a flush the counts are zero and would order the links at random, so that until there have been some probes
the estimate from before stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from dovetail.state.several.expansion import Hop
from dovetail.state.several.links import Link

FEWEST_PROBES = 32  # since the last flush, before counts are trusted

Per = Literal["resident", "candidate"]


class Selectivities:
    def __init__(self, links: Iterable[Link], per: Per = "resident") -> None:
        self.links = tuple(links)
        self.matches = dict.fromkeys(self.links, 0)
        self.probes = dict.fromkeys(self.links, 0)
        self._candidates = dict.fromkeys(self.links, 0)
        self._per = per
        self._before = dict.fromkeys(self.links, 1.0)

    def tally(self, hop: Hop, probes: int, candidates: int, found: int) -> None:
        self.probes[hop.link] += probes
        self.matches[hop.link] += found
        self._candidates[hop.link] += probes * candidates

    def of(self, link: Link, sizes: Mapping[str, int]) -> float:
        """The share of pairs that match; `sizes` are the residents of each input."""
        if self.probes[link] < FEWEST_PROBES:
            return self._before[link]
        pairs = self._candidates[link]
        if self._per == "resident":
            pairs = sizes[link.left.alias] * sizes[link.right.alias]
        return self.matches[link] / max(1, pairs)

    def flushed(self, sizes: Mapping[str, int]) -> None:
        """Count anew; `sizes` are from before the flush."""
        self._before = {link: self.of(link, sizes) for link in self.links}
        self.matches = dict.fromkeys(self.links, 0)
        self.probes = dict.fromkeys(self.links, 0)
        self._candidates = dict.fromkeys(self.links, 0)
