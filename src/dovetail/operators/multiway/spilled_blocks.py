"""Spilled rows of several inputs, and the pending work on them: blocks against blocks of all inputs.

Rows are written under the number of a box; only blocks of one box are joined with each other. Results whose rows were
all in memory together when the last of them arrived are recognised by the residence rule and skipped:

    max(arrived) < min(left)        over all rows of a result

Every block has the range of codes of its rows; blocks whose ranges do not overlap for an equality are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import concatenate, no_matches
from dovetail.core.rows import Matches, Rows
from dovetail.matching.expansion import Hop, Partial, Paths, checked, expand, results
from dovetail.matching.links import Attribute
from dovetail.matching.residents import Batch, extra_bytes
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.budget import Budget, Shares
from dovetail.storage.residence import Ticks


class OdometerStep(NamedTuple):
    """How an outer batch is joined with the others: the inner inputs from slow to fast, and the number of blocks to
    load of each."""

    order: tuple[int, ...]
    loads: tuple[int, ...]


class Cell(NamedTuple):
    """Join these blocks of every input. Inputs and blocks are numbered from 0; `order` starts with the outer input."""

    order: tuple[int, ...]
    blocks: tuple[range, ...]

    def to_json(self) -> list[Any]:
        return [list(self.order), [[r.start, r.stop] for r in self.blocks]]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Cell:
        order, blocks = fields
        return cls(tuple(order), tuple(range(start, stop) for start, stop in blocks))


@dataclass(slots=True)
class BlockOdometer:
    """Which blocks of all inputs have been joined with each other."""

    joined: list[int] = field(default_factory=list)  # empty: not started
    outer: int = 0
    order: list[int] = field(default_factory=list)  # inner inputs, slowest first
    loads: list[int] = field(default_factory=list)  # blocks to load at a time, by input
    places: list[int] = field(default_factory=list)  # the odometer, by input; empty: between two batches

    def advance(self, blocks: Sequence[int], turn: Callable[[int], OdometerStep]) -> Cell | None:
        """The next step, recorded as done; None if all combinations of existing blocks are done."""
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
                self.joined[self.outer] = blocks[self.outer]  # no blocks to join yet: only the bounds move
                continue
            order, loads = turn(self.outer)
            self.order, self.loads = list(order), list(loads)
            self.loads[self.outer] = min(loads[self.outer], blocks[self.outer] - self.joined[self.outer])
            self.places = [0] * len(blocks)
        cell = Cell((self.outer, *self.order), tuple(self._range(i) for i in range(len(blocks))))
        self.skip(cell, len(self.order))
        return cell

    def skip(self, cell: Cell, depth: int) -> None:
        """Continue after a step, skipping all that differ from it only in the inputs after `order[depth]`."""
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
    def from_json(cls, fields: dict[str, Any]) -> BlockOdometer:
        return cls(**fields)


LOADED = "loaded blocks"


class _Spilled(NamedTuple):
    """A block on disk, the eviction tick of its rows, and the least and greatest code of each attribute."""

    block: Block
    left: int
    zones: list[list[int]]


class _Loaded(NamedTuple):
    """Blocks that were read back."""

    rows: Batch
    left: Ticks
    nbytes: int


class SpilledBlocks:
    def __init__(
        self, paths: Paths, blocks: BlockStore, budget: Budget, shares: Shares, free_memory: Callable[[], None]
    ) -> None:
        self._paths = paths
        self._aliases = paths.graph.aliases
        self._store = blocks
        self._budget = budget
        self._shares = shares
        self._free_memory = free_memory  # called before blocks are loaded
        self._boxes: dict[int, tuple[BlockOdometer, dict[str, list[_Spilled]]]] = {}
        self._cell: tuple[int, Cell] | None = None  # the unfinished step, how many of its pieces have been emitted,
        self._yielded = 0
        self._pieces: Iterator[Matches] = iter(())  # and the remaining ones
        self._loaded: dict[str, tuple[tuple[int, range], _Loaded]] = {}
        self._nothing = no_matches(tuple(paths.graph.schemas.values()))

    def write(self, box: int, alias: str, rows: pa.RecordBatch, left: int) -> None:
        """Store rows that were evicted at that tick."""
        if box not in self._boxes:
            self._boxes[box] = (BlockOdometer(), {a: [] for a in self._aliases})
        mine = Batch(self._paths.attributes[alias], rows)
        codes = [mine.codes(attribute) for attribute in self._paths.attributes[alias]]
        zones = [[int(found.min()), int(found.max())] for found in codes]
        self._boxes[box][1][alias].append(_Spilled(self._store.write(rows, alias), left, zones))

    def has(self, alias: str) -> bool:
        """Whether any row of an input was evicted."""
        return any(spilled[alias] for _, spilled in self._boxes.values())

    @property
    def blocks(self) -> list[Block]:
        return [s.block for _, spilled in self._boxes.values() for side in spilled.values() for s in side]

    def join(self, at_end: bool = False) -> Iterator[Matches]:
        """All remaining results, one step per yield. It may be dropped at any yield and called again."""
        while True:
            # Not `yield from`: when this generator is dropped, the step must stay open for the next call.
            for tuples in self._pieces:
                self._yielded += 1
                yield tuples
            self._cell = self._next(at_end)
            if self._cell is None:
                self.release()
                return
            self._yielded = 0
            self._pieces = self._run(*self._cell)

    @property
    def is_loaded(self) -> bool:
        return bool(self._loaded)

    def release(self) -> bool:
        """Release loaded blocks; an unfinished step reads them again. False if there are none."""
        if not self._loaded:
            return False
        self._loaded = {}
        self._budget.release(LOADED)
        self._pieces = iter(()) if self._cell is None else islice(self._run(*self._cell), self._yielded, None)
        return True

    def _next(self, at_end: bool) -> tuple[int, Cell] | None:
        for number, (box, spilled) in self._boxes.items():
            counts = [len(spilled[alias]) for alias in self._aliases]
            cell = box.advance(counts, lambda outer: self._turn(outer, at_end))
            if cell is not None:
                return number, cell
        return None

    def _turn(self, outer: int, at_end: bool) -> OdometerStep:
        """While sources stall, the outer input gets the memory for blocks; at the end, all inputs share it equally."""
        inputs = len(self._aliases)
        order = tuple(self._aliases.index(hop.new) for hop in self._paths.hops(self._aliases[outer]))
        if at_end:
            each = max(1, (self._shares.outer_blocks_at_end + inputs - 1) // inputs)
            return OdometerStep(order, (each,) * inputs)
        return OdometerStep(order, tuple(self._shares.outer_blocks if i == outer else 1 for i in range(inputs)))

    def _run(self, number: int, cell: Cell) -> Iterator[Matches]:
        outer, *order = (self._aliases[i] for i in cell.order)
        hops = self._paths.hops_in_order(outer, order)
        depth = self._promising(number, cell, hops)
        if depth == len(hops):
            depth = yield from self._join_blocks(number, cell, hops)
        if depth < len(hops):
            self._boxes[number][0].skip(cell, depth + 1)  # no matches in the next input, so none in later ones
        self._cell = None
        yield self._nothing  # every step yields at least once

    def _promising(self, number: int, cell: Cell, hops: Sequence[Hop]) -> int:
        """How many hops may find matches, by the codes of the blocks."""
        for depth, (link, known, new, _) in enumerate(hops):
            if link.is_equality:
                (low, high), (other_low, other_high) = (
                    self._zone(number, cell, link.attribute(a)) for a in (known, new)
                )
                if low > other_high or other_low > high:
                    return depth
        return len(hops)

    def _zone(self, number: int, cell: Cell, attribute: Attribute) -> tuple[int, int]:
        alias = attribute.alias
        spilled, place = self._boxes[number][1][alias], self._paths.attributes[alias].index(attribute)
        zones = [spilled[i].zones[place] for i in cell.blocks[self._aliases.index(alias)]]
        return min(low for low, _ in zones), max(high for _, high in zones)

    def _join_blocks(self, number: int, cell: Cell, hops: Sequence[Hop]) -> Generator[Matches, None, int]:
        """The results of the blocks. Returns the number of hops after which partial results remained."""
        tables = self._load(number, cell)
        outer = self._aliases[cell.order[0]]
        depth = 0

        def reach(hop: Hop, probes: int, candidates: int, found: int) -> None:
            nonlocal depth
            if found:
                depth = max(depth, hops.index(hop) + 1)

        start: Partial = {outer: np.arange(len(tables[outer].rows))}
        batches = {alias: loaded.rows for alias, loaded in tables.items()}
        for rows in expand(hops, batches, start, reach):
            good = self._unmet(tables, rows)
            satisfied = checked(self._paths.graph, batches, rows)
            if satisfied is not None:
                good &= satisfied
            if good.any():
                yield results(self._paths.graph, batches, {alias: taken[good] for alias, taken in rows.items()})
        return depth

    def _unmet(self, tables: Mapping[str, _Loaded], rows: Partial) -> np.ndarray[Any, np.dtype[np.bool_]]:
        arrived = [loaded.rows.arrived[rows[alias]] for alias, loaded in tables.items()]
        left = [loaded.left[rows[alias]] for alias, loaded in tables.items()]
        met: np.ndarray[Any, np.dtype[np.bool_]] = np.max(arrived, axis=0) < np.min(left, axis=0)
        return ~met

    def _load(self, number: int, cell: Cell) -> dict[str, _Loaded]:
        """Load the blocks of a step; those already loaded for the step before are reused."""
        self._free_memory()
        wanted = {alias: (number, cell.blocks[i]) for i, alias in enumerate(self._aliases)}
        self._loaded = {a: kept for a, kept in self._loaded.items() if kept[0] == wanted[a]}
        for alias, blocks in wanted.items():
            if alias not in self._loaded:
                self._loaded[alias] = (blocks, self._read(alias, *blocks))
            rows = sum(len(loaded.rows) for _, loaded in self._loaded.values())
            self._budget.hold(LOADED, rows, sum(loaded.nbytes for _, loaded in self._loaded.values()))
        return {alias: loaded for alias, (_, loaded) in self._loaded.items()}

    def _read(self, alias: str, number: int, numbers: range) -> _Loaded:
        spilled = [self._boxes[number][1][alias][i] for i in numbers]
        batches = [self._store.read(s.block) for s in spilled]
        rows = Batch(self._paths.attributes[alias], concatenate(batches))
        left: Rows = np.repeat(np.array([s.left for s in spilled]), [s.block.rows for s in spilled])
        index_bytes = extra_bytes(len(rows), len(self._paths.attributes[alias]))
        return _Loaded(rows, left, sum(s.block.nbytes for s in spilled) + index_bytes)

    def to_json(self) -> dict[str, Any]:
        return {
            "boxes": [
                {
                    "number": number,
                    "box": box.to_json(),
                    "blocks": {
                        alias: [{"left": s.left, "zones": s.zones, "block": s.block.to_json()} for s in found]
                        for alias, found in spilled.items()
                    },
                }
                for number, (box, spilled) in self._boxes.items()
            ],
            "cell": None if self._cell is None else [self._cell[0], self._cell[1].to_json()],
            "yielded": self._yielded,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for fields in state["boxes"]:
            spilled = {
                alias: [_Spilled(Block.from_json(s["block"]), s["left"], s["zones"]) for s in found]
                for alias, found in fields["blocks"].items()
            }
            self._boxes[fields["number"]] = (BlockOdometer.from_json(fields["box"]), spilled)
        if state["cell"] is not None:
            self._cell = (state["cell"][0], Cell.from_json(state["cell"][1]))
            self._yielded = state["yielded"]
            self._pieces = islice(self._run(*self._cell), self._yielded, None)
