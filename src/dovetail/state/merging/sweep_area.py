"""The rows of one side that a sweep has passed and that later rows can still match.

    insert   rows that the sweep has just passed
    query    the parts in which partners of rows at a place of the sweep can be, in memory and on disk
    expire   forget what ends before the sweep

SweepArea of XXL and of PMJ (Fig. 4), for batches: rows stand in a few parts, larger ones merged from smaller ones. What
exceeds the area's share of memory is written to disk and read again, piece by piece, at each query that reaches it: a
nested loop over the overflow, as for keys that are all equal. An area can leave memory as a whole and come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dovetail.state.blocks import Block
from dovetail.state.merging.runs import Items, Pages, joined


class SweepArea:
    def __init__(self, pages: Pages, number: int, room: int, piece: int) -> None:
        self._pages = pages
        self._number = number  # of the input
        self._room = room  # for rows in memory, in the budget's unit
        self._piece = piece  # of what is on disk, that is read at once
        self._parts: list[Items] = []  # larger ones first
        self._spilled: list[Block] = []
        self._asleep: list[Block] = []  # the parts, while they are on disk

    @property
    def parts(self) -> list[Items]:
        return self._parts

    def insert(self, items: Items) -> None:
        if not items.size:
            return
        self._parts.append(items)
        while len(self._parts) > 1 and self._parts[-2].size <= 2 * self._parts[-1].size:
            newer, older = self._parts.pop(), self._parts.pop()
            self._parts.append(joined([older, newer]))

    def gather(self) -> None:
        """What is in memory becomes one part."""
        if len(self._parts) > 1:
            self._parts = [joined(self._parts)]

    def spill(self) -> None:
        """Write the largest parts to disk until the others keep to their share of memory."""
        while self._parts and sum(map(self._pages.size, self._parts)) > self._room:
            for piece in self._pages.cut(self._parts.pop(0), self._piece):
                self._spilled.append(self._pages.spill(self._number, piece))

    def query(self, start: int) -> Iterator[Items]:
        """What reaches a place of the sweep, part by part. A part from disk is let go before the next is read."""
        for part in self._parts:
            if part.ends.max() >= start:
                yield part
        for block in self._spilled:
            if block.high is not None and block.high >= start:
                yield self._pages.unspill(self._number, block)

    def expire(self, start: int) -> None:
        """The sweep is at `start`: what ends before it has met all it ever could."""
        kept = []
        for part in self._parts:
            alive = np.flatnonzero(part.ends >= start)
            if 2 * len(alive) <= part.size:  # a few that are over cost less than a copy
                part = part.take(alive)
            if part.size:
                kept.append(part)
        self._parts = kept
        over = [block for block in self._spilled if block.high is not None and block.high < start]
        if over:
            self._pages.store.remove(over)
            self._spilled = [block for block in self._spilled if block not in over]

    def clear(self) -> None:
        self._parts = []
        self._pages.store.remove(self._spilled)
        self._spilled = []

    def sleep(self) -> None:
        """Let go of all memory."""
        self._asleep += [self._pages.spill(self._number, part) for part in self._parts]
        self._parts = []

    def wake(self) -> None:
        """Be as before: the same parts, with the same rows."""
        self._parts += [self._pages.unspill(self._number, block) for block in self._asleep]
        self._pages.store.remove(self._asleep)
        self._asleep = []

    @property
    def blocks(self) -> list[Block]:
        return [*self._spilled, *self._asleep]

    def to_json(self) -> dict[str, Any]:
        """Of an area that sleeps."""
        return {
            "spilled": [block.to_json() for block in self._spilled],
            "asleep": [block.to_json() for block in self._asleep],
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        self._spilled = [Block.from_json(block) for block in fields["spilled"]]
        self._asleep = [Block.from_json(block) for block in fields["asleep"]]
