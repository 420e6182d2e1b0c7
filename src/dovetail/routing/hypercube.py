"""Hypercube: rows of several inputs that match share exactly one cell of a grid of many dimensions.

    one dimension for each group of attributes that are equal to each other, and one for each input that is dealt out
    a row's place in a dimension is the hash of its key, or its number where it is dealt out;
    in dimensions that it has no place in, it visits every one: small inputs are copied, large ones are not

The cells of a dimension are its share. Of all shares whose product is the number of cells, those that give a cell the
fewest rows are taken. Afrati and Ullman, Optimizing joins in a map-reduce environment, EDBT 2010.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition.graph import Graph
from dovetail.kernels.hashing import hash_codes
from dovetail.matching.links import Attribute, attributes_of, encode_keys, equal_attributes, links_of
from dovetail.routing.routers import Spread, Visits


@dataclass(frozen=True, slots=True)
class Dimension:
    """Places `share` many; by the key of some inputs, or one input dealt out."""

    share: int
    keys: Mapping[str, Attribute]
    dealt: str | None = None

    def places(self, alias: str) -> bool:
        """Whether rows of an input have a place in it."""
        return alias in self.keys or alias == self.dealt


@dataclass(frozen=True, slots=True)
class Hypercube:
    graph: Graph
    dimensions: tuple[Dimension, ...]

    @property
    def cells(self) -> int:
        return prod(dimension.share for dimension in self.dimensions)

    def needs_spread(self, alias: str) -> bool:
        """Whether it uses `spread` for an input, so that the caller must see to a repeatable one."""
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
    """The shares that give a cell the fewest rows; of those, the fewest copies."""
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
    """Shares of each dimension whose product is at most the number of cells: powers of two, and all of them in one."""
    if dimensions == 0:
        yield ()
        return
    sizes = sorted({1 << i for i in range(cells.bit_length()) if 1 << i <= cells} | {cells})
    for share in sizes:
        for rest in _shares(dimensions - 1, cells // share):
            yield (share, *rest)
