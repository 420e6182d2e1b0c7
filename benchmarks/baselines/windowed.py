"""Exact windows over rows, for every structure that can store rows and find partners.

    arrive(side, row)   advance: structures merge, archive and forget, each in its own way
                        probe the other side's structure, keep what is still in the window: results
                        insert into the own side's structure

A pair is a result iff its positions in the order of arrival, both streams counted together, differ by less than the
window, so both rows are in it when the later one arrives. A row with a null or NaN counts for positions and matches
nothing. A structure may forget late, in whole batches: what it finds is filtered exactly, and `false_candidates` says
how many results would have been false otherwise. In a self-join a row is stored once and probes twice, as the left row
and as the right one, before it is stored: it never meets itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.baselines.predicates import INDEXED, Floats, Query, Tests, Words, as_keys, check_rows
from benchmarks.baselines.work import Counts, Work
from dovetail.core.rows import Side


class Pairs(NamedTuple):
    """Results, by position of arrival."""

    left: Words
    right: Words


NO_ROWS = np.empty(0, np.int64)
NO_PAIRS = Pairs(NO_ROWS, NO_ROWS)


class Index(Protocol):
    """Rows of one stream, by position."""

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        """A row arrives at `position`; nothing before `oldest` is in the window any more."""

    def insert(self, position: int, keys: Floats, counts: Counts) -> None: ...

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        """The partners of a row that arrives at `position`; some may have left the window."""

    @property
    def declared_bytes(self) -> int:
        """What the structure needs, without room for growth."""


class StreamJoin(Protocol):
    """What experiments run."""

    def arrive(self, side: Side, row: Sequence[float | None]) -> Pairs:
        """The results that become known with this row, which has one key per predicate."""

    def finish(self) -> Pairs:
        """The results still outstanding when the streams end."""

    @property
    def work(self) -> Work: ...


class WindowJoin:
    """Two structures, one for a self-join, and the rule of the window."""

    def __init__(self, query: Query, window: int, index: Callable[[Query], Index]) -> None:
        if window < 1:
            raise ValueError(f"a window needs at least one row, not {window}")
        self.query = query
        self.window = window
        left = index(query)
        self.indexes = (left, left if query.self_join else index(query))
        self.arrived = 0
        self.false_candidates = 0
        self.inserting, self.probing, self.merging = Work(), Work(), Work()
        self._tests = (query.tests(left_probes=True), query.tests(left_probes=False))
        self._recent = np.empty((window, len(query.predicates)))  # keys by position, for predicates without an index

    @property
    def work(self) -> Work:
        return self.inserting + self.probing + self.merging

    @property
    def declared_bytes(self) -> int:
        return sum(index.declared_bytes for index in self._structures())

    def arrive(self, side: Side, row: Sequence[float | None]) -> Pairs:
        return self._take(side, row, self._roles(side))

    def load(self, side: Side, row: Sequence[float | None]) -> None:
        """As `arrive`, without looking for results: to fill a window before anything is measured."""
        self._take(side, row, ())

    def finish(self) -> Pairs:
        return NO_PAIRS

    def _take(self, side: Side, row: Sequence[float | None], roles: Sequence[Side]) -> Pairs:
        position = self.arrived
        self.arrived += 1
        self._advance(position, max(0, position - self.window + 1))
        keys = as_keys(row)
        if np.isnan(keys).any():
            return NO_PAIRS
        found = [self._probe(role, position, keys) for role in roles]
        self._recent[position % len(self._recent)] = keys
        self.indexes[side].insert(position, keys, self.inserting.counts)
        return join_pairs(found)

    def _advance(self, position: int, oldest: int) -> None:
        for index in self._structures():
            index.advance(position, oldest, self.merging.counts)

    def _structures(self) -> tuple[Index, ...]:
        return self.indexes[:1] if self.query.self_join else self.indexes

    def _roles(self, side: Side) -> tuple[Side, ...]:
        if not self.query.self_join:
            return (side,)
        return (Side.LEFT,) if self.query.once else (Side.LEFT, Side.RIGHT)

    def _probe(self, role: Side, position: int, keys: Floats) -> Pairs:
        found = self.indexes[role.other].probe(position, keys, self._tests[role], self.probing.counts)
        return self._results(role, position, keys, found)

    def _results(self, role: Side, position: int, keys: Floats, found: Words) -> Pairs:
        """What is in the window and satisfies the remaining predicates."""
        current = found[found > position - self.window]
        self.false_candidates += len(found) - len(current)
        if len(keys) > INDEXED:
            stored = self._recent[current % len(self._recent)]
            current = current[check_rows(stored, self._tests[role], keys, INDEXED, self.probing.counts)]
        own = np.full(len(current), position)
        return Pairs(own, current) if role is Side.LEFT else Pairs(current, own)


def join_pairs(found: Sequence[Pairs]) -> Pairs:
    """All of them in one."""
    if len(found) == 1:
        return found[0]
    return Pairs(*(np.concatenate(rows) for rows in zip(*found, strict=True))) if found else NO_PAIRS
