"""The state of a spilling join of several inputs: residents of each input, blocks on disk, one clock.

    take_in --> probe --> (evict, as often as needed) --> keep        an arriving batch
    left_over                                                         blocks against blocks, re-entrant

The operator decides which rows to evict. A batch probes before anything is evicted for it, and its own arrival never
evicts it. So a result was found online if and only if the residence periods of all its rows overlap.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.row_store import MOST_BYTES
from dovetail.core.rows import Matches, Rows
from dovetail.matching.expansion import (
    Hop,
    Partial,
    Paths,
    ProbeTable,
    Selectivities,
    Tally,
    checked,
    expand,
    results,
)
from dovetail.matching.links import encode_keys
from dovetail.matching.residents import Batch, Flags, Residents, extra_bytes, resident_schema
from dovetail.operators.multiway.spilled_blocks import SpilledBlocks
from dovetail.operators.protocol import JoinOperator, Manifest, Usage, Workspace
from dovetail.storage.allocator import trim_heap
from dovetail.storage.blocks import Block
from dovetail.storage.budget import BUFFER
from dovetail.storage.residence import Clock
from dovetail.storage.resident_snapshot import ResidentSnapshot

ROW_BYTES = 200  # per row, if the budget is in rows
SCRATCH_BYTES = 16_000_000  # that work on residents may take in addition to the budget
SMALLEST_PART = 64 * 1024  # minimal bytes of residents that are packed together


class Multiway:
    def __init__(self, workspace: Workspace, flush: Callable[[], bool]) -> None:
        """`flush` evicts some rows, and returns whether there were any."""
        graph, budget, blocks = workspace.graph, workspace.budget, workspace.blocks
        self.graph = graph
        self.paths = Paths(graph)
        self.shares = workspace.shares
        by_bytes = budget.limit is not None and budget.unit == "bytes"
        part_bytes = min(max(SMALLEST_PART, self.shares.block // 2), MOST_BYTES) if by_bytes else MOST_BYTES
        self.residents = {
            a: Residents(graph.schemas[a], self.paths.attributes[a], self.paths.ordered, part_bytes)
            for a in graph.aliases
        }
        self.ended = dict.fromkeys(graph.aliases, False)
        self._budget = budget
        self._counters = workspace.counters
        self._clock = Clock()
        self._aside = 0
        self._beside = dict.fromkeys(graph.aliases, 0)  # bytes per resident row of an input
        self._flush = flush
        self._saved = {
            a: ResidentSnapshot(blocks, resident_schema(graph.schemas[a], self.paths.attributes[a]), a)
            for a in graph.aliases
        }
        self._left_over = SpilledBlocks(self.paths, blocks, budget, self.shares, self._free_memory)

    def take_in(self, alias: str, batch: pa.RecordBatch) -> Batch:
        """The rows that can match, with their tick of arrival."""
        attributes = self.paths.attributes[alias]
        return Batch.arriving(attributes, encode_keys(self.graph, alias, attributes, batch), self._clock.tick())

    def probe(self, alias: str, arriving: Batch, hops: Sequence[Hop], tally: Tally) -> Iterator[Partial]:
        """Results of arriving rows with residents, as row numbers; numbers of `alias` are rows of the batch."""
        tables = self.tables(alias, arriving)
        if not len(arriving) or not all(len(table) for table in tables.values()):
            return
        self._counters.probes += len(arriving)

        def count(hop: Hop, probes: int, candidates: int, found: int) -> None:
            self._counters.pairs_tested += found
            tally(hop, probes, candidates, found)

        for rows in expand(hops, tables, {alias: np.arange(len(arriving))}, count):
            good = checked(self.graph, tables, rows)
            yield rows if good is None else {a: taken[good] for a, taken in rows.items()}

    def tables(self, alias: str, arriving: Batch) -> dict[str, ProbeTable]:
        """The residents of the other inputs, and the batch itself."""
        return {**self.residents, alias: arriving}

    def results(self, alias: str, arriving: Batch, rows: Partial) -> Matches:
        return results(self.graph, self.tables(alias, arriving), rows)

    def is_wanted(self, alias: str) -> bool:
        """Whether rows of an input can still be joined with others: with future arrivals, or with rows on disk."""
        others = [a for a in self.graph.aliases if a != alias]
        return not all(self.ended[a] for a in others) or any(self._left_over.has(a) for a in others)

    def free_memory(self, alias: str, arriving: Batch) -> None:
        """Evict residents until the batch fits."""
        mine = self.residents[alias]
        while self.resident_size + self._budget.measure(len(arriving), mine.nbytes_for(arriving)) > self._memory:
            if not self._left_over.release() and not self._flush():
                return

    def _free_memory(self) -> None:
        """Called before blocks are loaded."""
        while self.resident_size > self._for_residents(self.shares.residents) and self._flush():
            pass

    @property
    def _memory(self) -> int:
        """The memory for residents."""
        return self._for_residents(self.shares.residents if self._left_over.is_loaded else self.shares.alone)

    def _for_residents(self, share: int) -> int:
        """What remains of a share after the memory that is set aside."""
        return share - self._aside

    def keep(self, alias: str, arriving: Batch, used: Flags) -> None:
        self.residents[alias].insert(arriving, used)
        self._budget.release(BUFFER)
        self.hold()

    def block_size(self, alias: str) -> int:
        """The number of rows of an input in a block, counting the memory they take when read back."""
        beside = extra_bytes(1, len(self.paths.attributes[alias])) if self._budget.unit == "bytes" else 0
        return max(1, self.shares.block // (self.row_size(alias, stored=True) + beside))

    def set_aside(self, share: float) -> int:
        """Reserve a share of the memory, taken from the residents; returns its bytes."""
        if self._budget.limit is None:
            return 0
        self._aside = int(self._budget.limit * share)
        by_bytes = self._budget.unit == "bytes"
        self._budget.hold("set aside", 0 if by_bytes else self._aside, self._aside if by_bytes else 0)
        return self._aside * (1 if by_bytes else ROW_BYTES)

    def count_beside(self, nbytes: Mapping[str, int]) -> None:
        """Set the bytes per resident row that work on all residents of an input takes."""
        self._beside = dict(nbytes)

    def row_size(self, alias: str, stored: bool = False) -> int:
        """The size of a row of an input, in the budget's unit; in memory, or stored with its extra columns."""
        residents = self.residents[alias]
        nbytes = residents.stored_bytes if stored else residents.nbytes
        return max(1, self._budget.measure(1, -(-nbytes // max(1, len(residents)))))

    def evict(self, chosen: Mapping[str, Rows], box: int = 0) -> None:
        """Spill rows of several inputs; all of them are evicted at one tick."""
        left = self._clock.tick()
        for alias, rows in chosen.items():
            for block in self._portions(alias, rows):
                self._left_over.write(box, alias, block, left)
                del block
            self.residents[alias].remove(rows)
        self.hold()
        trim_heap()

    def _portions(self, alias: str, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Residents in batches that each fit in a block."""
        most = self.shares.block if self._budget.unit == "rows" else self.block_size(alias)
        stack = [rows[start : start + most] for start in range(0, len(rows), most)][::-1]
        while stack:
            some = stack.pop()
            batch = self.residents[alias].take(some)
            extra = extra_bytes(len(some), len(self.paths.attributes[alias]))
            if self._budget.measure(len(some), batch.nbytes + extra) <= self.shares.block or len(some) == 1:
                yield batch
            else:
                stack += [some[len(some) // 2 :], some[: len(some) // 2]]

    def end(self, alias: str) -> None:
        self.ended[alias] = True
        for other, residents in self.residents.items():
            if len(residents) and not self.is_wanted(other):
                residents.remove(np.arange(len(residents)))  # no more partners can arrive
        self.hold()

    def left_over(self, at_end: bool = False) -> Iterator[Matches]:
        return self._left_over.join(at_end)

    def save(self) -> dict[str, Any]:
        """The whole state, ready for JSON; its rows are then on disk."""
        residents = {alias: self._saved[alias].save(found.held()) for alias, found in self.residents.items()}
        for found in self.residents.values():
            found.saved()
        left_over = self._left_over.to_json()
        return {"ended": self.ended, "clock": self._clock.now, "residents": residents, "left over": left_over}

    def restore(self, state: Mapping[str, Any]) -> Iterator[tuple[str, Batch]]:
        """Restore the state; yields the rows that are resident again."""
        self.ended = dict(state["ended"])
        self._clock = Clock(state["clock"])
        self._left_over.restore(state["left over"])
        for alias, residents in self.residents.items():
            for rows in self._saved[alias].load(state["residents"][alias]):
                batch = Batch(self.paths.attributes[alias], rows.batch)
                residents.insert(batch, rows.marks)
                yield alias, batch
            residents.saved()
        self.hold()

    def fit(self) -> None:
        """Evict until the residents fit in memory, which may have been reduced."""
        while self.resident_size > self._memory and self._flush():
            pass

    @property
    def resident_size(self) -> int:
        residents = self.residents.values()
        return sum(self._budget.measure(len(found), found.nbytes) for found in residents) + self._beside_rows

    @property
    def _beside_rows(self) -> int:
        """The memory for work on all residents, beyond what every join may take in addition to its budget."""
        nbytes = sum(len(found) * self._beside[alias] for alias, found in self.residents.items())
        return self._budget.measure(0, max(0, nbytes - SCRATCH_BYTES))

    @property
    def blocks(self) -> list[Block]:
        """All blocks on disk."""
        return self._left_over.blocks

    @property
    def names(self) -> list[str]:
        """The names of all files that the saved state needs."""
        return [*(name for saved in self._saved.values() for name in saved.names), *(b.name for b in self.blocks)]

    @property
    def usage(self) -> Usage:
        residents, blocks = self.residents.values(), self.blocks
        return Usage(
            sum(map(len, residents)),
            sum(found.nbytes for found in residents),
            sum(block.rows for block in blocks),
            sum(block.nbytes for block in blocks),
        )

    def hold(self) -> None:
        residents = self.residents.values()
        nbytes = sum(found.nbytes for found in residents) + self._beside_rows
        self._budget.hold("residents", sum(map(len, residents)), nbytes)


class MultiwayOperator(JoinOperator):
    """The common part of the operators on this state; they differ in the order of probing and in eviction."""

    _selectivities: Selectivities

    def __init__(self, workspace: Workspace) -> None:
        self._state = Multiway(workspace, self._flush)
        self._version = 0

    def end(self, number: int) -> None:
        self._state.end(self._state.graph.aliases[number])

    def react(self) -> Iterator[Matches]:
        return self._state.left_over()

    def clean_up(self) -> Iterator[Matches]:
        self._flush_all()
        return self._state.left_over(at_end=True)

    def snapshot(self) -> Manifest:
        self._version += 1
        state = {**self._state.save(), "selectivities": self._selectivities.to_json()}
        return Manifest(self._version, state, tuple(self._state.names))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        if (counted := manifest.state.get("selectivities")) is not None:  # state of 0.1.0 has none
            self._selectivities.restore(counted)
        for alias, batch in self._state.restore(manifest.state):
            self._note_restored(alias, batch)
        self._state.fit()

    @property
    def usage(self) -> Usage:
        return self._state.usage

    @abstractmethod
    def _flush(self) -> bool:
        """Evict some rows; False if there are none."""

    def _flush_all(self) -> None:
        """Evict all rows."""
        while self._flush():
            pass

    def _note_restored(self, alias: str, batch: Batch) -> None:
        """Called when rows are resident again."""

    def _sizes(self) -> dict[str, int]:
        return {alias: len(residents) for alias, residents in self._state.residents.items()}
