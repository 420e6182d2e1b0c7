"""Exact windows over rows, for any structure that stores rows and finds partners.

    arrive(side, row)   advance: structures merge, archive and drop rows, each in its own way
                        probe the other side's structure and keep the matches still in the window: results
                        insert into the structure of the row's own side

A pair is a result iff its positions in the order of arrival, both streams counted together, differ by less than the
window, so both rows are in it when the later one arrives. A row with a null or NaN counts for positions but matches
nothing. A structure may drop rows late, in whole batches: its matches are filtered exactly, and `false_candidates`
counts the results that would have been false otherwise. In a self-join a row probes twice, as the left and as the right
row, before it is stored once, so it is never paired with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.baselines.predicates import INDEXED, Floats, Query, Tests, Words, as_keys, check_rows
from benchmarks.baselines.work import Counts, Work
from dovetail.core.rows import Side


class Pairs(NamedTuple):
    """Results as pairs of positions of arrival."""

    left: Words
    right: Words


NO_ROWS = np.empty(0, np.int64)
NO_PAIRS = Pairs(NO_ROWS, NO_ROWS)


class Index(Protocol):
    """Rows of one stream, by position."""

    def advance(self, position: int, oldest: int, counts: Counts) -> None:
        """A row arrives at `position`; rows before `oldest` are no longer in the window."""

    def insert(self, position: int, keys: Floats, counts: Counts) -> None: ...

    def probe(self, position: int, keys: Floats, tests: Tests, counts: Counts) -> Words:
        """The partners of a row that arrives at `position`; some may have left the window."""

    @property
    def declared_bytes(self) -> int:
        """The bytes that the structure needs, without spare capacity."""


class StreamJoin(Protocol):
    """The interface that experiments use."""

    def arrive(self, side: Side, row: Sequence[float | None]) -> Pairs:
        """The results that are known after this row, which has one key per predicate."""

    def finish(self) -> Pairs:
        """The results still outstanding when the streams end."""

    @property
    def work(self) -> Work: ...


class WindowJoin:
    """Two structures (one for a self-join), and the window."""

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
        """Like `arrive`, but does not search for results: fills a window before a measurement."""
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
        """The matches that are in the window and satisfy the remaining predicates."""
        current = found[found > position - self.window]
        self.false_candidates += len(found) - len(current)
        if len(keys) > INDEXED:
            stored = self._recent[current % len(self._recent)]
            current = current[check_rows(stored, self._tests[role], keys, INDEXED, self.probing.counts)]
        own = np.full(len(current), position)
        return Pairs(own, current) if role is Side.LEFT else Pairs(current, own)


def join_pairs(found: Sequence[Pairs]) -> Pairs:
    """All results in one object."""
    if len(found) == 1:
        return found[0]
    return Pairs(*(np.concatenate(rows) for rows in zip(*found, strict=True))) if found else NO_PAIRS
