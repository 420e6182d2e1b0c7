"""Chain index: a list of B+-tree sub-indexes; rows are inserted only into the newest.

    [ archived ] -> [ archived ] -> [ active ] <- rows
      ^ dropped whole when its newest row has left the window; a probe searches all of them

Lin, Ooi, Wang, Yu, Scalable distributed stream join processing (BiStream), SIGMOD 2015. A sub-index is archived when it
has covered the archive period, here a number of positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.bplus_tree import Trees
from benchmarks.baselines.predicates import Floats, Query, Tests, Words
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import Counts


class Link(NamedTuple):
    first: int  # first position; the sub-index covers one archive period from here
    trees: Trees


class Chain:
    """One stream."""

    def __init__(self, query: Query, period: int, order: int, intersection: str) -> None:
        if period < 1:
            raise ValueError(f"an archive period needs at least one row, not {period}")
        self.period = period
        self._new_trees: Callable[[], Trees] = lambda: Trees(query, order, intersection)
        self.links = deque([Link(0, self._new_trees())])

    @property
    def declared_bytes(self) -> int:
        return sum(link.trees.declared_bytes for link in self.links)

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        if position - self.links[-1].first >= self.period:
            self.links.append(Link(position, self._new_trees()))
        while self.links[0].first + self.period <= oldest:
            self.links.popleft()

    def insert(self, position: int, keys: Floats, counts: Counts) -> None:
        self.links[-1].trees.insert(position, keys, counts)

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        return np.concatenate([link.trees.find(keys, tests, link.first, self.period, counts) for link in self.links])


def chain_index_join(query: Query, window: int, period: int, order: int = 4, intersection: str = "hash") -> WindowJoin:
    return WindowJoin(query, window, partial(Chain, period=period, order=order, intersection=intersection))
