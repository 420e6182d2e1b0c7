"""Extends partial results by one input after the other. They are arrays of row numbers, one per input joined so far.

    {o: [0, 0, 1]}  --c-->  {o: [0, 0, 0, 1], c: [4, 7, 7, 2]}  --n-->  …

Used both for an arriving batch against residents and for blocks against blocks. Candidates come from a hash table, or
from an ordered index by the range that a link gives. Every edge that a new input closes is checked at once, so that
wrong combinations are dropped as early as possible, also in cyclic conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Expression, columns_of, matching
from dovetail.condition.graph import Edge, Graph
from dovetail.core.rows import Matches, Rows, Side
from dovetail.matching.links import Attribute, Bounds, Codes, Link, attributes_of, links_of

MOST = 1 << 18  # partial results per piece

Partial = dict[str, Rows]
Tally = Callable[["Hop", int, int, int], None]
"""Called for every hop with the number of partial results, of rows probed, and of pairs found."""


class ProbeTable(Protocol):
    """Rows of one input that can be probed."""

    def __len__(self) -> int: ...
    def codes(self, attribute: Attribute, rows: Rows) -> Codes:
        """The codes of the rows with these numbers."""

    def find(self, attribute: Attribute, bounds: Bounds, most: int) -> Iterator[tuple[Rows, Rows]]:
        """All (i, row) such that the row's code is within the i-th bounds, in pieces of about `most`."""

    def located(self, rows: Rows, names: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Rows]:
        """A batch with these rows, and their positions in it; it has the columns of these names, or all."""


class Check(NamedTuple):
    """The check on both ends of an edge: equal codes, or conjuncts as written."""

    edge: Edge
    equal: Link | None
    conjuncts: tuple[Expression, ...]


class Hop(NamedTuple):
    """A step from an input that is already joined to one that is not."""

    link: Link
    known: str
    new: str
    checks: tuple[Check, ...]


class Paths:
    """Join orders along the graph of a condition, from any input to all others."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.links = links_of(graph)
        self.attributes = {alias: attributes_of(self.links, alias) for alias in graph.aliases}
        ranges = [link for link in self.links if not link.is_equality]
        self.ordered = frozenset(end for link in ranges for end in (link.left, link.right))  # indexed by range
        self._known: dict[tuple[str, tuple[Link, ...]], tuple[Hop, ...]] = {}

    @property
    def unreached(self) -> list[str]:
        """Inputs that cannot be reached by links."""
        first = self.graph.aliases[0]
        reached = {first, *(hop.new for hop in self.hops(first))}
        return [alias for alias in self.graph.aliases if alias not in reached]

    def hops(self, start: str, rank: Callable[[Link], float] = lambda _: 0.0) -> tuple[Hop, ...]:
        """Hops that each take the best link from a joined input to one that is not joined yet."""
        joined, order = {start}, []
        links = sorted(self.links, key=rank)  # stable: ties keep the order of the condition
        while (best := next((k for k in links if len(k.ends & joined) == 1), None)) is not None:
            order.append(best)
            joined |= best.ends
        key = (start, tuple(order))
        if key not in self._known:
            self._known[key] = tuple(self._checked_hops(start, order))
        return self._known[key]

    def hops_in_order(self, start: str, order: Sequence[str]) -> tuple[Hop, ...]:
        """Hops that join the inputs in the given order."""
        places = {alias: place for place, alias in enumerate((start, *order))}
        return self.hops(start, lambda link: max(places[alias] for alias in link.ends))

    def _checked_hops(self, start: str, order: Sequence[Link]) -> Iterator[Hop]:
        joined = {start}
        for link in order:
            (known,), (new,) = link.ends & joined, link.ends - joined
            edges = [e for e in self.graph.edges if new in e.ends and e.other(new) in joined]
            checks = [check for edge in edges if (check := self._check(edge, link)) is not None]
            yield Hop(link, known, new, tuple(checks))
            joined.add(new)

    def _check(self, edge: Edge, driving: Link) -> Check | None:
        own = next((link for link in self.links if link.ends == edge.ends), None)
        covered = set(own.covered) if own is not None else set()
        conjuncts = tuple(c for c in edge.condition.conjuncts if c not in covered)
        if own is driving or not covered:
            return Check(edge, None, conjuncts) if conjuncts else None
        if own is not None and own.is_equality:
            return Check(edge, own, conjuncts)
        return Check(edge, None, edge.condition.conjuncts)


def expand(hops: Sequence[Hop], tables: Mapping[str, ProbeTable], partial: Partial, tally: Tally) -> Iterator[Partial]:
    """All complete results that extend these partial ones, in pieces of bounded size."""
    if not hops:
        yield partial
        return
    hop, rest = hops[0], hops[1:]
    for extended in _one_hop(hop, tables, partial, tally):
        yield from expand(rest, tables, extended, tally)


def _one_hop(hop: Hop, tables: Mapping[str, ProbeTable], partial: Partial, tally: Tally) -> Iterator[Partial]:
    known, new = tables[hop.known], tables[hop.new]
    bounds = hop.link.bounds(hop.known, known.codes(hop.link.attribute(hop.known), partial[hop.known]))
    probes = len(partial[hop.known])
    found = 0
    for probing, rows in new.find(hop.link.attribute(hop.new), bounds, MOST):
        found += len(rows)
        extended = {alias: taken[probing] for alias, taken in partial.items()}
        extended[hop.new] = rows
        for check in hop.checks:
            extended = _check_partial(check, tables, extended)
        if len(extended[hop.new]):
            yield extended
    tally(hop, probes, len(new), found)


def _check_partial(check: Check, tables: Mapping[str, ProbeTable], partial: Partial) -> Partial:
    ends = (check.edge.left, check.edge.right)
    if check.equal is not None:
        left, right = (tables[alias].codes(check.equal.attribute(alias), partial[alias]) for alias in ends)
        partial = _only(partial, left == right)
    if check.conjuncts and len(partial[ends[0]]):
        columns = [column for conjunct in check.conjuncts for column in columns_of(conjunct)]
        names = [sorted({column.name for column in columns if column.side is side}) for side in Side]
        located = [tables[ends[side]].located(partial[ends[side]], names[side]) for side in Side]
        partial = _only(partial, matching(check.conjuncts, *located[Side.LEFT], *located[Side.RIGHT]))
    return partial


def checked(graph: Graph, tables: Mapping[str, ProbeTable], rows: Partial) -> NDArray[np.bool_] | None:
    """Which of the complete results satisfy the residual; None: all."""
    if not graph.residual:
        return None
    names = {alias: sorted({name for a, name in graph.wide if a == alias}) for alias, _ in graph.wide}
    located = {alias: tables[alias].located(rows[alias], names[alias]) for alias in names}
    return graph.checked({a: batch for a, (batch, _) in located.items()}, {a: at for a, (_, at) in located.items()})


def results(graph: Graph, tables: Mapping[str, ProbeTable], rows: Partial) -> Matches:
    """Complete results as rows of batches."""
    located = {alias: tables[alias].located(rows[alias]) for alias in graph.aliases}
    return graph.matches({a: batch for a, (batch, _) in located.items()}, {a: at for a, (_, at) in located.items()})


def _only(partial: Partial, good: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Partial:
    return partial if good.all() else {alias: rows[good] for alias, rows in partial.items()}


FEWEST_PROBES = 32  # since the last flush, before the counts are used

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

    def selectivity_of(self, link: Link, sizes: Mapping[str, int]) -> float:
        """The share of pairs that match; `sizes`: the number of residents per input."""
        if self.probes[link] < FEWEST_PROBES:
            return self._before[link]
        pairs = self._candidates[link]
        if self._per == "resident":
            pairs = sizes[link.left.alias] * sizes[link.right.alias]
        return self.matches[link] / max(1, pairs)

    def to_json(self) -> dict[str, Any]:
        counted = {"matches": self.matches, "probes": self.probes, "candidates": self._candidates}
        return {
            "before": [self._before[link] for link in self.links],
            **{name: [counts[link] for link in self.links] for name, counts in counted.items()},
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        self._before = dict(zip(self.links, fields["before"], strict=True))
        self.matches = dict(zip(self.links, fields["matches"], strict=True))
        self.probes = dict(zip(self.links, fields["probes"], strict=True))
        self._candidates = dict(zip(self.links, fields["candidates"], strict=True))

    def reset_counts(self, sizes: Mapping[str, int]) -> None:
        """Reset the counts; `sizes` are from before the flush."""
        self._before = {link: self.selectivity_of(link, sizes) for link in self.links}
        self.matches = dict.fromkeys(self.links, 0)
        self.probes = dict.fromkeys(self.links, 0)
        self._candidates = dict.fromkeys(self.links, 0)
