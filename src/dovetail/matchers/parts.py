"""A join as the union of parts, each with a kernel, rows of both sides, and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dovetail.batch import Rows, Side
from dovetail.condition import Expression, matching
from dovetail.matchers.listed import Listed
from dovetail.matchers.operands import Batches
from dovetail.matchers.protocol import Flags

ROOM = 1 << 18  # candidates that are checked at a time


@dataclass(frozen=True, slots=True)
class Part:
    """Candidates in positions of `rows`, and what they still have to satisfy."""

    listed: Listed
    rows: tuple[Rows, Rows]
    checks: tuple[Expression, ...]


@dataclass(slots=True)
class Parts:
    """A matcher. No pair is a candidate in two parts."""

    batches: Batches
    parts: tuple[Part, ...]
    seen: int = field(default=0, init=False)

    @property
    def exact(self) -> bool:
        return not any(part.checks for part in self.parts)

    def candidates(self) -> int:
        return sum(part.listed.count() for part in self.parts)

    def count(self) -> int:
        return sum(
            sum(len(lefts) for lefts, _ in self._checked(part, ROOM)) if part.checks else part.listed.count()
            for part in self.parts
        )

    def pairs(self, room: int) -> Iterator[tuple[Rows, Rows]]:
        for part in self.parts:
            yield from self._checked(part, min(room, ROOM) if part.checks else room)

    def partnered(self, side: Side) -> Flags:
        """Only where candidates have to be checked are they enumerated."""
        found = np.zeros(self.batches[side].num_rows, np.bool_)
        for part in self.parts:
            if part.checks:
                for pair in self._checked(part, ROOM):
                    found[pair[side]] = True
            else:
                found[part.rows[side][part.listed.partnered(side)]] = True
        return found

    def _checked(self, part: Part, room: int) -> Iterator[tuple[Rows, Rows]]:
        whole = [len(rows) == batch.num_rows for rows, batch in zip(part.rows, self.batches, strict=True)]
        for lefts, rights in part.listed.pairs(room):
            self.seen += len(lefts)
            # Where all rows of a batch are in the part, its positions are their numbers.
            left_rows = lefts if whole[0] else part.rows[0][lefts]
            right_rows = rights if whole[1] else part.rows[1][rights]
            if part.checks:
                good = matching(part.checks, self.batches[0], left_rows, self.batches[1], right_rows)
                left_rows, right_rows = left_rows[good], right_rows[good]
            if len(left_rows):
                yield left_rows, right_rows
