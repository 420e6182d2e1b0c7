"""DINER: an adaptive join that keeps productive values in memory, and joins spilled rows during stalls.

    arriving   batch --> probe the other side's residents --> results, credited to regions of values and to rows
                     \\-> when full, evict a block of the least useful region (regions.py); then keep the batch
    reactive   evict residents; blocks x blocks, one inner block per step, re-entrant (blockwise/block_join.py)
    cleanup    evict all residents, then join all blocks: range by range if keys are equal, else blocks x blocks

Guarantee: every matching pair exactly once. Pairs that were joined in memory are recognised by the residence rule
(storage/residence.py). An arriving batch waits for at most one inner block of background work, however much is on disk.

Bornea, Vassalos, Kotidis, Deligiannakis, Adaptive join operators for result rate optimization on streaming inputs,
TKDE 2010, sections 3.1 to 3.5: Algorithms 1 to 4.

Deviations: batches instead of tuples: a batch probes, then rows are evicted for all of it, so a flush happens between
batches. Equal keys are found in a hash table, and values are sorted when a block is spilled; other predicates use
sorted runs. The arriving phase lasts until both sides have ended (Alg. 1 prints one). Rows count in a region once they
are kept. Results of ranges are credited to the region of each partner's own value. Ticks are those of a logical clock,
taken when a batch probes. The loop of Alg. 4 tests for exhaustion first. Cleanup starts by flushing; otherwise
residents would miss rows that were evicted before they arrived. Blocks of equal keys are then joined by ranges of
codes, reading each row once (blockwise/range_join.py). Inner blocks that cannot match are skipped. Once a side has
ended and none of it was spilled, rows of the other side are not kept; `reload` is footnote 1. MaxNewArr is part of the
driver: it counts the rows that wait, and starts no further step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.row_store import MOST_BYTES
from dovetail.columns.taking import take_rows
from dovetail.condition.graph import Graph
from dovetail.condition.render import conjunction
from dovetail.core.rows import Matches, Rows, Side
from dovetail.kernels.sorting import sort_codes
from dovetail.operators.blockwise.regions import Policy, Regions
from dovetail.operators.diner.eviction_trial import EvictionTrial
from dovetail.operators.diner.keys import Keyed, OrderKeys, ordering_predicate
from dovetail.operators.diner.sides import OrderedSide, Reloaded, SpilledBlocks, SpilledRows, with_arrival
from dovetail.operators.protocol import Approach, JoinOperator, Manifest, OperatorSpec, Usage, Workspace
from dovetail.storage.budget import BUFFER
from dovetail.storage.packed_rows import packed_part_bytes
from dovetail.storage.residence import Clock
from dovetail.storage.resident_snapshot import ResidentSnapshot

MOST_PAIRS = 1 << 18  # per yield
EVICTION_PARAMETERS = {"regions": int, "middle": str, "ties": str, "counted": bool, "ageing": bool}

Words = NDArray[np.int64]


class Diner(JoinOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(
        name="diner",
        parameters={**EVICTION_PARAMETERS, "outer_blocks": int, "reload": bool},
    )

    def __init__(self, workspace: Workspace) -> None:
        parameters = workspace.parameters
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._store = workspace.blocks
        self._schemas = workspace.condition.schemas
        self._shares = workspace.shares
        self._keys = OrderKeys(workspace.condition)
        self._policy = Policy(
            regions=parameters.get("regions", 3),
            middle=parameters.get("middle", "clock"),
            ties=parameters.get("ties", "edges"),
            counted=parameters.get("counted", False),
            seed=workspace.seed,
        )
        self._most_units = self._capacity()
        self._sides = tuple(self._empty(side) for side in Side)
        self._saved = [self._nothing_saved(side) for side in Side]
        self._regions = tuple(Regions(self._policy) for _ in Side)
        self._trial = EvictionTrial(self._policy) if parameters.get("ageing", True) else None
        self._clock = Clock()
        self._reloaded: Reloaded | None = None
        self._spilled = self._make_spilled(workspace)
        self._ended = [False, False]
        self._learned = not self._keys.is_text
        self._version = 0

    def _make_spilled(self, workspace: Workspace) -> SpilledRows:
        blocks = SpilledBlocks(self._keys, workspace, workspace.parameters.get("outer_blocks"))
        if workspace.parameters.get("reload", True):
            self._reloaded = Reloaded(blocks.work, self._keys, self._clock)
        return blocks

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        condition = graph.condition
        if ordering_predicate(condition) is not None:
            return None
        return "diner needs an equality, a band or an inequality between the two sides to order values by"

    @staticmethod
    def approach(graph: Graph) -> Approach:
        condition, spills = graph.condition, "spills the rows with the fewest results"
        if condition.equalities:
            return Approach(f"hash join on {conjunction(condition.equalities)}; {spills}", condition.equalities)
        key = ordering_predicate(condition)
        return Approach(f"ordered by one key; {spills}", tuple(p for p in condition.predicates if p == key))

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        """Algorithm 1, l. 4-15."""
        mine = self._sides[side]
        needed = self._budget.measure(batch.num_rows, mine.nbytes_for(batch))
        yield from self._spilled.release(self._most_units - self._used_units() - needed)
        if self._reloaded is not None and self._ended[side.other]:
            self._reload(side.other)
        keyed = self._keys.read(side, batch)
        if keyed.rows is not None:
            batch = take_rows(batch, keyed.rows)  # the other rows match nothing and are not kept
        if self._trial is not None:
            self._trial.arrive(side, keyed)
        tick = self._clock.tick()
        results = np.zeros(batch.num_rows, np.int64)
        self._counters.probes += batch.num_rows
        others = [self._sides[side.other]]
        if self._reloaded is not None and self._reloaded.rows is not None:
            others.append(self._reloaded.rows)
        for theirs in others:
            yield from self._probe(side, batch, keyed, theirs, results)
        if self._ended[side.other] and not self._spilled.has_spilled(side.other):
            return  # it has probed all possible partners
        self._regions[side].credit(keyed.codes, results)
        learned = self._learned
        for _ in self._free_memory(batch.num_rows, mine.nbytes_for(batch)):
            pass
        if learned != self._learned:
            keyed = self._keys.read(side, batch)
        mine.insert(batch, keyed, tick, self._marks(results))
        self._regions[side].add(keyed.codes)
        self._budget.release(BUFFER)
        self._hold()

    def adopt(self, rows: tuple[Iterable[pa.RecordBatch], Iterable[pa.RecordBatch]], matches: int) -> None:
        """Take over rows of both sides that have been joined with each other and fit in memory."""
        for side in Side:
            for batch in rows[side]:
                keyed = self._keys.read(side, batch)
                none = np.zeros(batch.num_rows, np.int64)
                self._sides[side].insert(batch, keyed, self._clock.tick(), self._marks(none))
                self._regions[side].add(keyed.codes)
                self._hold()

    def end(self, side: Side) -> None:
        self._ended[side] = True
        if not self._spilled.has_spilled(side):
            # No row of this side was ever evicted, so the residents of the other side have been joined with all of its
            # rows.
            self._forget(side.other)
        elif self._reloaded is not None and not self._ended[side.other]:
            self._spill_all(side.other)  # footnote 1: no future row can match them

    def react(self) -> Iterator[Matches]:
        """Algorithm 4. Once all rows have arrived, all memory is for blocks."""
        return self._spilled.react(self._free_memory, at_end=all(self._ended))

    def clean_up(self) -> Iterator[Matches]:
        """Section 3.5. Residents only have to be joined with the other side's spilled rows."""
        if self._reloaded is not None:
            self._reloaded.drop()
        needed = [self._spilled.has_spilled(side.other) for side in Side]
        for side in Side:
            if needed[side]:
                self._spill_all(side)
            else:
                self._forget(side)
        return self._spilled.finish()

    def snapshot(self) -> Manifest:
        if self._reloaded is not None:
            self._reloaded.drop()
        self._version += 1
        state = {
            "ended": list(self._ended),
            "clock": self._clock.now,
            "learned": self._keys.learned.hex() if self._learned else None,
            "regions": [regions.to_json() for regions in self._regions],
            "trial": None if self._trial is None else self._trial.save(self._store),
            "work": self._spilled.to_json(),
            "residents": [self._saved[side].save(self._sides[side].held()) for side in Side],
        }
        for mine in self._sides:
            mine.saved()
        names = [name for saved in self._saved for name in saved.names]
        names += [] if self._trial is None else self._trial.names
        return Manifest(self._version, state, (*names, *self._spilled.names()))

    def restore(self, manifest: Manifest) -> None:
        state = manifest.state
        self._version = manifest.version
        self._ended = list(state["ended"])
        self._clock.now = state["clock"]
        self._learned = state["learned"] is not None
        self._keys.learned = bytes.fromhex(state["learned"] or "")
        self._regions = tuple(Regions.from_json(self._policy, fields) for fields in state["regions"])
        if self._trial is not None and (decided := state.get("trial")) is not None:  # state of 0.1.0 has none
            self._trial.restore(decided, self._store)
        self._spilled.from_json(state["work"])
        for side, fields in zip(Side, state["residents"], strict=True):
            self._read_residents(side, fields)
        for _ in self._free_memory(0, 0):
            pass
        self._hold()

    @property
    def usage(self) -> Usage:
        rows, nbytes = self._resident()
        return Usage(rows, nbytes, *self._spilled.size())

    @property
    def flushed_from(self) -> Words:
        """The number of blocks flushed from each region of each side."""
        return np.stack([regions.flushed_from for regions in self._regions])

    # The arriving phase.

    def _probe(
        self, side: Side, batch: pa.RecordBatch, keyed: Keyed, theirs: OrderedSide, results: Words
    ) -> Iterator[Matches]:
        """The pairs of a batch with residents, counted in `results` and credited to the residents (Algorithm 3)."""
        regions = self._regions[side.other]
        before = results.copy() if self._keys.by_hash else results
        for found in theirs.find(keyed, MOST_PAIRS):
            self._counters.pairs_tested += len(found.probing)
            if self._keys.has_checks:
                mine = batch, found.probing, keyed.codes[found.probing]
                found = found.only(self._keys.matching(side, mine, (found.batch, found.rows, found.codes)))
            if not len(found.probing):
                continue
            results += np.bincount(found.probing, minlength=len(results))
            theirs.marks.add(found.positions)
            if not self._keys.by_hash:
                regions.credit(found.codes)
            yield Matches.oriented(side, batch, found.probing, found.batch, found.rows)
        if self._keys.by_hash:  # equal keys have equal codes
            regions.credit(keyed.codes, results - before)

    def _marks(self, results: Words) -> NDArray[np.int32]:
        return (results if self._policy.counted else results > 0).astype(np.int32)

    # Memory.

    def _capacity(self) -> int:
        """The memory for residents: all but one block, which is for the input buffer."""
        if self._budget.limit is None:
            return 2**62
        loaded = self._shares.outer_blocks + 2
        return self._budget.limit - (self._budget.limit - self._shares.residents) // loaded

    def _free_memory(self, rows: int, nbytes: int) -> Iterator[None]:
        """Flush until the given rows and bytes fit in addition to the residents; one block per yield."""
        need = self._budget.measure(rows, nbytes)
        if self._reloaded is not None and rows and self._used_units() + need > self._most_units:
            self._reloaded.drop()
        while self._used_units() + need > self._most_units and self._flush():
            yield None
        self._hold()

    def _used_units(self) -> int:
        return self._budget.measure(*self._resident())

    def _flush(self) -> bool:
        """Algorithm 2: evict a block of the least useful residents; False if there are no residents."""
        side = self._victim()
        mine = self._sides[side]
        if not mine.rows:
            return False
        if not self._learned:
            self._learn()
        codes = mine.codes()
        rows = self._choose(side, codes)
        leaving = rows[sort_codes(codes[rows]).order]
        del codes
        self._spill(side, leaving)
        mine.remove(leaving)
        return True

    def _choose(self, side: Side, codes: Words) -> Rows:
        """Positions of a block of residents: the oldest, or the least useful ones."""
        mine, regions, need = self._sides[side], self._regions[side], self._block_rows(side)
        if self._trial is not None and self._trial.decide(sum(s.rows for s in self._sides), need):
            oldest = np.arange(min(need, mine.rows))
            regions.move_bounds(codes[len(oldest) :], need, set())
            return oldest
        victims = regions.choose(codes, mine.marks.all(), mine.arrived, need)
        mine.marks.lower(victims.spared)
        return victims.rows

    def _victim(self) -> Side:
        """The side with more residents; with `reload`, after the end of one side, the other side."""
        if self._reloaded is not None and self._ended[0] != self._ended[1]:
            arriving = Side.RIGHT if self._ended[0] else Side.LEFT
            if self._sides[arriving].rows:
                return arriving
        return Side.LEFT if self._sides[0].rows >= self._sides[1].rows else Side.RIGHT

    def _spill(self, side: Side, positions: Rows) -> None:
        """Write these residents, sorted by value."""
        mine = self._sides[side]
        batch, keyed = mine.block(positions)
        self._spilled.spill(side, batch, keyed, mine.arrived[positions], self._clock.tick())

    def _spill_all(self, side: Side) -> None:
        """Spill all residents of a side, sorted by value, one block's memory at a time."""
        mine = self._sides[side]
        if not self._learned and mine.rows:
            self._learn()
        rows = self._block_rows(side)
        ordered = sort_codes(mine.codes()).order
        for start in range(0, len(ordered), rows):
            self._spill(side, ordered[start : start + rows])
        self._forget(side)

    def _forget(self, side: Side) -> None:
        self._sides = tuple(self._empty(s) if s is side else self._sides[s] for s in Side)
        self._saved[side] = self._nothing_saved(side)
        self._regions[side].recount(np.empty(0, np.int64))
        self._hold()

    def _learn(self) -> None:
        """Before the first block is written, adapt the codes of strings so that they distinguish most of them."""
        self._keys.learn(tuple(side.parts for side in self._sides))
        self._learned = True
        if self._trial is not None:
            self._trial.restart()
        for side, regions in zip(self._sides, self._regions, strict=True):
            side.code_again()
            regions.recount(side.codes())

    def _block_rows(self, side: Side) -> int:
        if self._budget.unit == "rows":
            return self._shares.block
        return max(1, int(self._shares.block / max(1.0, self._sides[side].row_bytes)))

    def _empty(self, side: Side) -> OrderedSide:
        return OrderedSide(side, self._schemas[side], self._keys, self._part_bytes, self._policy.counted)

    @property
    def _part_bytes(self) -> int:
        return packed_part_bytes(self._shares.block // 2) if self._budget.unit == "bytes" else MOST_BYTES

    def _resident(self) -> tuple[int, int]:
        held = list(self._sides)
        if self._reloaded is not None and self._reloaded.rows is not None:
            held.append(self._reloaded.rows)
        beside = 0 if self._trial is None else self._trial.nbytes
        return sum(side.rows for side in held), sum(side.nbytes for side in held) + beside

    def _hold(self) -> None:
        self._budget.hold("residents", *self._resident())

    # After the end of one side, its blocks are reloaded (footnote 1).

    def _reload(self, side: Side) -> None:
        assert self._reloaded is not None
        spare = 2 * self._shares.block  # for rows that still arrive
        free = self._most_units - self._used_units() - spare
        if self._reloaded.rows is None and free > self._shares.block:
            self._reloaded.load(side, self._empty(side), free, self._budget)
            self._hold()

    # Snapshots.

    def _nothing_saved(self, side: Side) -> ResidentSnapshot:
        return ResidentSnapshot(self._store, with_arrival(self._schemas[side]), side.alias)

    def _read_residents(self, side: Side, fields: Mapping[str, Any] | None) -> None:
        mine = self._sides[side]
        for rows in self._saved[side].load(fields):
            arrived = np.asarray(rows.batch.columns[-1])
            batch = pa.RecordBatch.from_arrays(rows.batch.columns[:-1], schema=self._schemas[side])
            mine.insert(batch, self._keys.read(side, batch), arrived, rows.marks)
        mine.saved()
        self._regions[side].recount(mine.codes())
