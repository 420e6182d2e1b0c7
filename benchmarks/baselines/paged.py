"""Joins of paged relations that count every page transfer: GRACE hash join, block-wise and index nested loop.

They run the join on keys and count what the Diag-Join paper compares: pages read and written, hash operations and key
comparisons. Memory is a number of pages; the key of the first relation is unique.

GRACE         partition both by hash, so that a partition of the first fits in memory; then build and probe each
block-wise    load as much of the outer relation as fits in memory; read the inner one again for each part
index         a B+-tree on the key of the first relation; for each row of the second, follow a path to a leaf, then read
              the row's page; pages are cached, and the least recently used is evicted first
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]

ENTRIES = 7.6  # index entries in the space of a row: key and pointer take 16 bytes, a row 121
SLACK = 1.2  # partitions of a random hash differ in size


@dataclass(frozen=True, slots=True, eq=False)
class Paged:
    """The keys of a relation in physical order."""

    keys: Keys
    page_rows: float

    @property
    def pages(self) -> int:
        return ceil(len(self.keys) / self.page_rows)

    def part(self, keys: Keys) -> Paged:
        return Paged(keys, self.page_rows)


@dataclass(slots=True)
class Transfers:
    """The operations of a join."""

    read: int = 0
    written: int = 0
    hashed: int = 0  # rows inserted into a partition or table, or looked up
    compared: int = 0  # keys
    results: int = 0
    read_before_first: int = 0  # pages read before the first result

    @property
    def pages(self) -> int:
        return self.read + self.written


def grace_join(one: Paged, many: Paged, memory: int) -> Transfers:
    done = Transfers()
    parts = max(1, ceil(SLACK * one.pages / memory))
    if parts >= memory:
        raise ValueError(f"{parts} partitions need as many pages of output; memory has {memory}")
    ones, manys = (list(_partition(relation, parts, done)) for relation in (one, many))
    done.read_before_first = done.read
    for build, probe in zip(ones, manys, strict=True):
        if build.pages > memory:
            raise ValueError(f"a partition of {build.pages} pages does not fit in {memory}")
        done.read += build.pages + probe.pages
        done.hashed += len(build.keys) + len(probe.keys)
        done.results += int(np.isin(probe.keys, build.keys).sum())
    return done


def _partition(relation: Paged, parts: int, done: Transfers) -> Iterator[Paged]:
    done.read += relation.pages
    done.hashed += len(relation.keys)
    homes = (relation.keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) % np.uint64(parts)
    for home in range(parts):
        part = relation.part(relation.keys[homes == home])
        done.written += part.pages
        yield part


def block_nested_loop(one: Paged, many: Paged, memory: int) -> Transfers:
    """The cheaper choice of the outer side; one page is reserved for the inner side."""
    rounds = {side: ceil(side.pages / (memory - 1)) for side in (one, many)}
    outer, inner = min(((one, many), (many, one)), key=lambda pair: pair[0].pages + rounds[pair[0]] * pair[1].pages)
    done = Transfers()
    step = int((memory - 1) * outer.page_rows)
    for start in range(0, len(outer.keys), step):
        held = outer.part(outer.keys[start : start + step])
        done.read += held.pages + inner.pages
        done.hashed += len(held.keys) + len(inner.keys)
        # The key of `one` is unique: every row of `many` has at most one partner.
        of_many, of_one = (inner, held) if outer is one else (held, inner)
        done.results += int(np.isin(of_many.keys, of_one.keys).sum())
    done.read_before_first = min(memory, outer.pages + 1)
    return done


def index_nested_loop(one: Paged, many: Paged, memory: int) -> Transfers:
    done = Transfers()
    order = np.argsort(one.keys, kind="stable")
    ordered = one.keys[order]
    entries = max(2, round(ENTRIES * one.page_rows))
    leaves = ceil(len(ordered) / entries)
    upper = _upper_pages(leaves, entries)  # these stay in memory
    cache = _Cache(max(1, memory - upper - 1))
    places = np.searchsorted(ordered, many.keys)
    hits = ordered[places.clip(max=len(ordered) - 1)] == many.keys
    leaf_of, page_of = places // entries, (order[places.clip(max=len(ordered) - 1)] / one.page_rows).astype(np.int64)
    done.read = upper + many.pages
    done.compared = len(many.keys) * ceil(log2(max(2, len(ordered))))
    for leaf, page, is_hit in zip(leaf_of.tolist(), page_of.tolist(), hits.tolist(), strict=True):
        done.read += cache.miss(leaf)
        if is_hit:
            done.read += cache.miss(leaves + page)
            done.results += 1
    done.read_before_first = upper + 3
    return done


def _upper_pages(leaves: int, entries: int) -> int:
    pages, level = 0, leaves
    while level > 1:
        level = ceil(level / entries)
        pages += level
    return pages


class _Cache:
    """A cache of pages that evicts the least recently used page first."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._held: OrderedDict[int, None] = OrderedDict()

    def miss(self, page: int) -> int:
        """1 if the page has to be read."""
        if page in self._held:
            self._held.move_to_end(page)
            return 0
        self._held[page] = None
        if len(self._held) > self._pages:
            self._held.popitem(last=False)
        return 1
