"""The block nested loop of several inputs that can stop after any step and go on later, while all of them keep growing.

    joined     blocks 1 .. joined[i] of every input i span a box: all combinations of blocks inside it are done
    batch      the next blocks of the outer input, which make the box larger in one direction
    odometer   where each inner input is: the last input of the order turns fastest

    outer blocks joined so far | batch   x   inner a: 0 .. [2] .. joined   x   inner b: 0 .. [5] .. joined

MINER's reactive phase (Adaptive Join Operators, TKDE 2010, section 4.3), where the inner inputs of both join sequences
are stepped through as the digits of one odometer. Only joined[outer] ever grows; another input grows when it is outer
itself. Invariant: everything inside the box is done, outside of it only the batch's part before the odometer.

Deviations: blocks of an inner input may be read several at a time, so many as when the odometer started. Where the
outer batch and the slower inputs have no partial result, the faster ones are not stepped through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Turn(NamedTuple):
    """How an outer batch meets the others: the inner inputs from slow to fast, and how many blocks to load of each."""

    order: tuple[int, ...]
    loads: tuple[int, ...]


class Cell(NamedTuple):
    """Join these blocks of every input. Inputs and blocks count from 0; `order` starts with the outer input."""

    order: tuple[int, ...]
    blocks: tuple[range, ...]

    def to_json(self) -> list[Any]:
        return [list(self.order), [[r.start, r.stop] for r in self.blocks]]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Cell:
        order, blocks = fields
        return cls(tuple(order), tuple(range(start, stop) for start, stop in blocks))


@dataclass(slots=True)
class Box:
    """How far the blocks of all inputs have been joined with each other."""

    joined: list[int] = field(default_factory=list)  # empty: not started
    outer: int = 0
    order: list[int] = field(default_factory=list)  # inner inputs, slow to fast
    loads: list[int] = field(default_factory=list)  # blocks at a time, by input
    places: list[int] = field(default_factory=list)  # the odometer, by input; empty: between two batches

    def advance(self, blocks: Sequence[int], turn: Callable[[int], Turn]) -> Cell | None:
        """The next step, recorded as done; None when all combinations of blocks that exist now are done."""
        if not self.joined:
            self.outer = min(range(len(blocks)), key=lambda i: blocks[i])
            self.joined = [0 if i == self.outer else count for i, count in enumerate(blocks)]
        while not self.places:
            if self.joined[self.outer] == blocks[self.outer]:
                growing = [i for i, count in enumerate(blocks) if self.joined[i] < count]
                if not growing:
                    return None
                self.outer = growing[0]
            if any(done == 0 for i, done in enumerate(self.joined) if i != self.outer):
                self.joined[self.outer] = blocks[self.outer]  # nothing to meet yet: an empty box grows
                continue
            order, loads = turn(self.outer)
            self.order, self.loads = list(order), list(loads)
            self.loads[self.outer] = min(loads[self.outer], blocks[self.outer] - self.joined[self.outer])
            self.places = [0] * len(blocks)
        cell = Cell((self.outer, *self.order), tuple(self._range(i) for i in range(len(blocks))))
        self.skip(cell, len(self.order))
        return cell

    def skip(self, cell: Cell, depth: int) -> None:
        """Go on after a step, leaving out all that differ from it only in the inputs after `order[depth]`."""
        self.places = [taken.start for taken in cell.blocks]
        for place in range(depth, 0, -1):
            i = cell.order[place]
            if cell.blocks[i].stop < self.joined[i]:
                self.places[i] = cell.blocks[i].stop
                for faster in cell.order[place + 1 :]:
                    self.places[faster] = 0
                return
        self.joined[self.outer] = cell.blocks[self.outer].stop
        self.places = []

    def _range(self, i: int) -> range:
        if i == self.outer:
            return range(self.joined[i], self.joined[i] + self.loads[i])
        return range(self.places[i], min(self.places[i] + self.loads[i], self.joined[i]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Box:
        return cls(**fields)
