"""Routers send rows to cells. Defines the interface, and the routers that do not need ordered keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Condition, passing
from dovetail.condition.graph import Graph
from dovetail.core.rows import Rows, Side
from dovetail.kernels.hashing import hash_codes
from dovetail.kernels.sorting import order_by_count
from dovetail.matching.equal_keys import HashKeys
from dovetail.matching.links import Attribute, attributes_of, encode_keys, equal_attributes, links_of

Spread = NDArray[np.int64]
"""One number per row that chooses between equivalent cells. It must be the same when a task is retried."""

FEWEST = 20  # a key counts as heavy only if it is at least this often in a sample


class Visits(NamedTuple):
    """Row `rows[i]` of the batch visits cell `cells[i]`. A row may visit many cells, or none if it matches nothing."""

    rows: Rows
    cells: NDArray[np.int32]

    def by_cell(self) -> NDArray[np.int64]:
        """Order of the visits by cell."""
        return order_by_count(self.cells, int(self.cells.max(initial=0)))


class Router(Protocol):
    """Decides for one row at a time. Any two matching rows share exactly one cell."""

    @property
    def cells(self) -> int:
        """The number of cells. They are numbered from 0."""

    @property
    def needs_spread(self) -> bool:
        """Whether it uses `spread`. If so, the caller must provide the same values on a retry."""

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits: ...


class Heavy(NamedTuple):
    """A heavy key: the side that is distributed, and over how many cells."""

    side: Side
    parts: int


@dataclass(frozen=True, slots=True)
class HashRouter:
    """Hash: rows with equal keys share a cell; a key too heavy for one cell is split over several.

    For a heavy key the side with more rows of it is distributed over the key's cells, and the other side is replicated
    to all of them, so that a pair still shares exactly one cell.
    """

    condition: Condition
    cells: int
    heavy: Mapping[int, Heavy] = field(default_factory=dict)  # by hash

    @property
    def needs_spread(self) -> bool:
        return bool(self.heavy)

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, hashes = HashKeys(self.condition).hash(side, batch)
        if rows is None:
            rows = np.arange(batch.num_rows)
        home = home_cells(hashes, self.cells)
        if not self.heavy:
            return Visits(rows, home)
        light = ~np.isin(hashes, np.fromiter(self.heavy, np.int64))
        visits = [Visits(rows[light], home[light])]
        for key, heavy in self.heavy.items():
            mine = np.flatnonzero(hashes == key)
            if len(mine):
                visits.append(self._split(side, heavy, rows[mine], home[mine], spread))
        return Visits(np.concatenate([v.rows for v in visits]), np.concatenate([v.cells for v in visits]))

    def _split(self, side: Side, heavy: Heavy, rows: Rows, home: NDArray[np.int32], spread: Spread) -> Visits:
        if side is heavy.side:
            return Visits(rows, ((home + spread[rows] % heavy.parts) % self.cells).astype(np.int32))
        copies = np.arange(heavy.parts)
        cells = (home[:, None] + copies) % self.cells
        return Visits(np.repeat(rows, heavy.parts), cells.astype(np.int32).ravel())


def home_cells(hashes: NDArray[np.int64], cells: int) -> NDArray[np.int32]:
    """The cell of each hash. High bits, because the low ones choose the slot of the hash table in the cell."""
    high = (hashes.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    of = np.uint32(cells)
    return (high - high // of * of).view(np.int32)  # NumPy divides faster than it finds remainders


def heavy_keys(
    condition: Condition, samples: Sequence[tuple[pa.RecordBatch, float]], cells: int, unique: Side | None = None
) -> dict[int, Heavy]:
    """Keys with more rows than half a cell should have, estimated from samples and their weights.

    Rows of side `unique` may visit only one cell, so this side is the one to distribute.
    """
    counts = [_frequent(condition, side, *samples[side]) for side in Side]
    fair = max(1.0, sum(batch.num_rows * weight for batch, weight in samples) / cells)
    heavy = {}
    for key in sorted(counts[0].keys() | counts[1].keys()):
        rows = [count.get(key, 0.0) for count in counts]
        parts = min(cells, round(2 * sum(rows) / fair))
        if parts > 1:
            larger = Side.LEFT if rows[0] >= rows[1] else Side.RIGHT
            heavy[key] = Heavy(larger if unique is None else unique, parts)
    return heavy


def _frequent(condition: Condition, side: Side, batch: pa.RecordBatch, weight: float) -> dict[int, float]:
    """Estimated rows by hash, for keys that are frequent in the sample."""
    hashes, times = np.unique(HashKeys(condition).hash(side, batch).hashes, return_counts=True)
    often = times >= FEWEST
    return dict(zip(hashes[often].tolist(), (times[often] * weight).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class OneBucketRouter:
    """1-bucket: a grid of cells in which any two rows share one cell, for any condition.

                         right rows, distributed over columns
                         |    |    |
        left rows,     --+----+----+--   a left row visits its row of the grid, a right row its column:
        distributed    --+----+----+--   they share exactly one cell
        over grid rows

    Okcan and Riedewald, Processing theta-joins using MapReduce, SIGMOD 2011.
    """

    condition: Condition
    lines: int
    columns: int

    @property
    def cells(self) -> int:
        return self.lines * self.columns

    @property
    def needs_spread(self) -> bool:
        return self.cells > 1

    @classmethod
    def best_shape(cls, condition: Condition, cells: int, left_rows: float, right_rows: float) -> OneBucketRouter:
        """The grid of at most `cells` cells with the fewest rows per cell."""
        shapes = [(lines, cells // lines) for lines in range(1, cells + 1)]
        lines, columns = min(shapes, key=lambda shape: left_rows / shape[0] + right_rows / shape[1])
        return cls(condition, lines, columns)

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        alive = passing(self.condition.filters[side], side, batch)
        rows = np.arange(batch.num_rows) if alive is None else np.flatnonzero(alive)
        if side is Side.LEFT:
            copies = np.arange(self.columns)
            cells = (spread[rows] % self.lines)[:, None] * self.columns + copies
        else:
            copies = np.arange(self.lines)
            cells = (spread[rows] % self.columns)[:, None] + copies * self.columns
        return Visits(np.repeat(rows, len(copies)), cells.astype(np.int32).ravel())


@dataclass(frozen=True, slots=True)
class UnionRouter:
    """Union: the alternatives of a disjunction, each with its own router.

        l.a = r.a OR l.b = r.b     cells 0..3   hash of a; in them l.a = r.a is joined
                                   cells 4..7   hash of b; in them l.b = r.b, without what l.a = r.a finds

    A row visits cells of every alternative, and two rows may share several cells. A cell joins only its own
    alternative, without pairs of earlier ones, so no pair is found twice. Join types that track partners are not
    supported: they need all partners of a row in one cell.
    """

    branches: tuple[Condition, ...]
    routers: tuple[Router, ...]  # one per alternative

    @property
    def cells(self) -> int:
        return sum(router.cells for router in self.routers)

    @property
    def needs_spread(self) -> bool:
        return any(router.needs_spread for router in self.routers)

    def branch(self, cell: int) -> Condition:
        """The condition that a cell joins."""
        ends = list(accumulate(router.cells for router in self.routers))
        return self.branches[bisect_right(ends, cell)]

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, cells, first = [], [], 0
        for router in self.routers:
            visits = router.route(side, batch, spread)
            rows.append(visits.rows)
            cells.append(visits.cells + np.int32(first))
            first += router.cells
        return Visits(np.concatenate(rows), np.concatenate(cells))


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension with `share` positions: by the key of some inputs, or with one input distributed over it."""

    share: int
    keys: Mapping[str, Attribute]
    dealt: str | None = None

    def places(self, alias: str) -> bool:
        """Whether rows of an input have a position in it."""
        return alias in self.keys or alias == self.dealt


@dataclass(frozen=True, slots=True)
class Hypercube:
    """Hypercube: rows of several inputs that match share exactly one cell of a grid of many dimensions.

        one dimension for each group of attributes that are equal to each other, and for each distributed input
        a row's position in a dimension is the hash of its key, or its number if the input is distributed;
        in dimensions where it has no position, it visits all: small inputs are copied, large ones are not

    The size of a dimension is its share. Of all shares whose product is the number of cells, those with the fewest rows
    per cell are used. Afrati and Ullman, Optimizing joins in a map-reduce environment, EDBT 2010.
    """

    graph: Graph
    dimensions: tuple[Dimension, ...]

    @property
    def cells(self) -> int:
        return prod(dimension.share for dimension in self.dimensions)

    def needs_spread(self, alias: str) -> bool:
        """Whether it uses `spread` for an input. If so, the caller must provide the same values on a retry."""
        return any(dimension.dealt == alias and dimension.share > 1 for dimension in self.dimensions)

    def route(self, alias: str, batch: pa.RecordBatch, spread: Spread) -> tuple[pa.RecordBatch, Visits]:
        """The rows that can match at all, and the cells that they visit."""
        attributes = attributes_of(links_of(self.graph), alias)
        numbered = batch.append_column("__spread", pa.array(spread))
        numbered, codes = encode_keys(self.graph, alias, attributes, numbered)
        rows = numbered.num_rows
        cells = np.zeros((rows, 1), np.int64)
        for dimension in self.dimensions:
            place: NDArray[np.int64]
            if alias in dimension.keys:
                hashes = hash_codes(codes[attributes.index(dimension.keys[alias])]).view(np.uint64)
                place = ((hashes >> np.uint64(32)) % np.uint64(dimension.share)).astype(np.int64)[:, None]
            elif alias == dimension.dealt:
                place = (np.asarray(numbered.column(batch.num_columns)) % dimension.share)[:, None]
            else:
                place = np.arange(dimension.share)[None, :]
            both = cells[:, :, None] * dimension.share + place[:, None, :]
            cells = both.reshape(rows, both.shape[1] * both.shape[2])
        visits = Visits(np.repeat(np.arange(rows), cells.shape[1]), cells.astype(np.int32).ravel())
        return numbered.select(range(batch.num_columns)), visits


def hypercube(graph: Graph, rows: Mapping[str, int], cells: int) -> Hypercube:
    """The shares with the fewest rows per cell; among equals, with the fewest copies."""
    groups = [{a.alias: a for a in group} for group in equal_attributes(links_of(graph))]
    candidates = [Dimension(1, group) for group in groups] + [Dimension(1, {}, alias) for alias in graph.aliases]

    def load(shares: Sequence[int]) -> tuple[float, int]:
        per_cell = 0.0
        for alias in graph.aliases:
            placed = prod(s for s, d in zip(shares, candidates, strict=True) if d.places(alias))
            per_cell += max(1, rows[alias]) / placed
        return per_cell, prod(shares)

    best = min(_shares(len(candidates), cells), key=load)
    chosen = [Dimension(s, d.keys, d.dealt) for s, d in zip(best, candidates, strict=True) if s > 1]
    return Hypercube(graph, tuple(chosen))


def _shares(dimensions: int, cells: int) -> Iterator[tuple[int, ...]]:
    """Candidate shares with a product of at most `cells`: powers of two, and all cells in one dimension."""
    if dimensions == 0:
        yield ()
        return
    sizes = sorted({1 << i for i in range(cells.bit_length()) if 1 << i <= cells} | {cells})
    for share in sizes:
        for rest in _shares(dimensions - 1, cells // share):
            yield (share, *rest)
