"""The block nested loop that can stop after any step and go on later, while both sides keep growing.

    inner blocks 1 .. joined[inner]
    +-----------------+
    |  joined before  |   joined[outer] outer blocks
    +---------+-------+
    | batch   |           the next `batch_size` outer blocks have met inner blocks 1 .. next_inner - 1
    +---------+

DINER's ReactiveNL (TKDE 2010, Algorithm 4). Deviation: exhaustion is tested at the top of the loop and the roles are
swapped there; as printed, leaving in the last step hangs on re-entry. The size of an unfinished batch never changes.
Invariant: all of the first joined[0] x joined[1] block pairs are done, outside of it only the batch's part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dovetail.batch import Side


class Step(NamedTuple):
    """Join these outer blocks with that inner block. Numbers count from 0."""

    outer: Side
    outer_blocks: range
    inner_block: int

    def to_json(self) -> list[int]:
        return [self.outer, self.outer_blocks.start, self.outer_blocks.stop, self.inner_block]

    @classmethod
    def from_json(cls, fields: list[int]) -> Step:
        outer, start, stop, inner = fields
        return cls(Side(outer), range(start, stop), inner)


@dataclass(slots=True)
class Rectangle:
    """How far the blocks of both sides have been joined with each other."""

    outer: Side | None = None  # None: not started
    joined_left: int = 0
    joined_right: int = 0
    next_inner: int = 0
    batch_size: int = 0

    def advance(self, blocks: Callable[[Side], int], most_outer: int) -> Step | None:
        """The next step, recorded as done; None when every pair of blocks that exist now is done."""
        if self.outer is None:
            self.outer = Side.LEFT if blocks(Side.LEFT) < blocks(Side.RIGHT) else Side.RIGHT
            self._set(self.outer.other, blocks(self.outer.other))
        while True:
            outer = self.outer
            if self._joined(outer) == blocks(outer):
                if self._joined(outer.other) == blocks(outer.other):
                    return None
                self.outer = outer = outer.other
                self.next_inner = 0
            if self.next_inner == 0:
                self.batch_size = min(most_outer, blocks(outer) - self._joined(outer))
            if self._joined(outer.other) > 0:
                break
            self._set(outer, self._joined(outer) + self.batch_size)  # nothing to meet yet: an empty rectangle grows
        first = self._joined(outer)
        step = Step(outer, range(first, first + self.batch_size), self.next_inner)
        self.next_inner += 1
        if self.next_inner == self._joined(outer.other):
            self._set(outer, first + self.batch_size)
            self.next_inner = 0
        return step

    def to_json(self) -> dict[str, Any]:
        return {
            "outer": self.outer,
            "joined": [self.joined_left, self.joined_right],
            "next_inner": self.next_inner,
            "batch_size": self.batch_size,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Rectangle:
        outer = None if fields["outer"] is None else Side(fields["outer"])
        left, right = fields["joined"]
        return cls(outer, left, right, fields["next_inner"], fields["batch_size"])

    def _joined(self, side: Side) -> int:
        return self.joined_left if side is Side.LEFT else self.joined_right

    def _set(self, side: Side, joined: int) -> None:
        if side is Side.LEFT:
            self.joined_left = joined
        else:
            self.joined_right = joined
