"""The state that XJoin, HMJ, DPHJ and RPJ share: partitions of both sides, in memory and on disk.

    arrive     batch --> probe the other side's residents --> pairs      then flush if full, then keep the batch
    flush      spill a policy's victims, sorted, as one match of runs per partition                   (flushing.py)
    meet_disk  the residents of a partition x the other side's runs                         memory-disk task
    merge      some matches of a partition become one, and pairs across matches are found             (merge.py)
    finish     all remaining results of a partition, in one pass over its runs       (blockwise/range_join.py)

The operators decide when to run which of these. A task always completes: `react` may be dropped at any yield, but its
open task is finished before any other work. A snapshot cannot yield, so it stores the results of the open task; these
are emitted first after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import no_matches
from dovetail.columns.taking import take_rows
from dovetail.condition import matching
from dovetail.condition.graph import Graph
from dovetail.condition.render import conjunction
from dovetail.core.rows import Matches, Side
from dovetail.kernels.hashing import partitions_of
from dovetail.operators.blockwise.range_join import Origin, RangeJoin, RangeRows
from dovetail.operators.hashing.cell_keys import axes_of, predicates_with_axes, spilling_keys
from dovetail.operators.hashing.flushing import (
    ArrivalRates,
    DistinctKeys,
    Dropped,
    Policy,
    ResidentCounts,
    Victim,
    flush_all,
    policy,
)
from dovetail.operators.hashing.merge import LoadedRows, PartitionMerge
from dovetail.operators.hashing.parameters import HashMemory, HashParameters
from dovetail.operators.hashing.partitions import Hashes, HashPartitions, Stayed, concat_rows
from dovetail.operators.hashing.runs import (
    HASH,
    HashRun,
    HashRunWriter,
    Match,
    PartitionSnapshot,
    ReportedPairs,
    read_run,
    stayed_rows,
)
from dovetail.operators.protocol import Approach, JoinOperator, Manifest, Usage, Workspace
from dovetail.storage.allocator import trim_heap
from dovetail.storage.blocks import Block
from dovetail.storage.budget import BUFFER
from dovetail.storage.hash_table import HashTable
from dovetail.storage.residence import Clock

MOST_PAIRS = 1 << 16  # per yield
LOADED = "loaded pages"

Task = Iterator[Matches]


class SpillingHash(JoinOperator):
    """Everything an operator needs except its name and `react`."""

    paired: ClassVar[bool] = False  # whether both sides of a partition are always flushed together
    defaults: ClassVar[dict[str, Any]]  # its parameters that differ from the common defaults

    def __init__(self, workspace: Workspace) -> None:
        condition = workspace.condition
        workspace.shares  # noqa: B018  refuses a budget that is too small
        self._keys = spilling_keys(condition)
        self._checks = self._keys.checks
        self._schemas = condition.schemas
        self._store = workspace.blocks
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._memory = HashMemory(workspace.budget, workspace.block_rows)
        self._parameters = p = HashParameters.read({**self.defaults, **workspace.parameters})
        self._policy = policy(p.flush, self.paired, p.acceptable, p.tolerance)
        self._ranges = RangeJoin(workspace, HASH)
        self._flush_share = self._memory.flush_share if p.n_flush is None else max(p.n_flush, self._memory.least_flush)
        self._divide(p.partitions or self._memory.partitions(p.flush))
        self._missed_expected = 0.0
        self._clock = Clock()
        self._open: Task | None = None
        self._stored: list[tuple[Block, Block]] = []  # results of a task that was open during a snapshot
        self._runs_in: Counter[str] = Counter()  # number of runs per block
        self._spilled_rows, self._spilled_bytes = 0, 0.0  # over all runs
        self._named: set[str] = set()  # blocks named by a manifest, which must not be removed
        self._version = 0

    def _divide(self, partitions: int) -> None:
        """Start with the given number of empty partitions per side."""
        self._partitions = partitions
        self._arrivals = ArrivalRates(partitions, self._parameters.decay, self._parameters.unit_rows)
        self._distinct = DistinctKeys(partitions)
        self._reported = ReportedPairs(partitions)
        part_bytes = self._memory.part_bytes
        self._residents = tuple(
            HashPartitions(self._schemas[side], partitions, self._keys.rehash(side), part_bytes) for side in Side
        )
        self._saved = tuple(PartitionSnapshot(self._store, self._schemas[side], side.alias) for side in Side)
        self._matches: list[list[Match]] = [[] for _ in range(partitions)]
        self._dropped = (Dropped(partitions), Dropped(partitions))

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        condition = graph.condition
        if condition.equalities or axes_of(condition):
            return None
        return "it needs an equality, a band or a distance in the plane between the two sides"

    @staticmethod
    def approach(graph: Graph) -> Approach:
        condition = graph.condition
        if condition.equalities:
            return Approach(f"hash partitions by {conjunction(condition.equalities)}", condition.equalities)
        driving = predicates_with_axes(condition)
        return Approach(f"hash partitions by the cells of a grid of {conjunction(driving)}", driving)

    # Arrivals

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        yield from self._finish_open()
        for rows, hashes in self._keys.copies(side, batch):
            # Rows that fail the filters match nothing and are not kept.
            yield from self._take_in(side, batch if rows is None else take_rows(batch, rows), hashes)
        self._budget.release(BUFFER)

    def _take_in(self, side: Side, batch: pa.RecordBatch, hashes: Hashes) -> Iterator[Matches]:
        tick = self._clock.tick()
        self._counters.probes += len(hashes)
        self._count_missed(side, hashes)
        yield from self._probe_residents(side, batch, hashes)
        numbers = partitions_of(hashes, self._partitions)
        self._arrivals.record_arrivals(side, np.bincount(numbers, minlength=self._partitions))
        if self._parameters.sketched:
            self._distinct.add(hashes, numbers)
        if self._arrivals.ended[side.other]:
            waiting = self._reported.spilled[side.other][numbers] > 0  # other rows have probed all possible partners
            if not waiting.all():
                batch, hashes, numbers = take_rows(batch, np.flatnonzero(waiting)), hashes[waiting], numbers[waiting]
        self._reported.record_arrivals(side, np.bincount(numbers, minlength=self._partitions))
        self._free_memory(side, batch)
        self._residents[side].insert(batch, hashes, tick)
        self._hold()

    def _probe_residents(self, side: Side, batch: pa.RecordBatch, hashes: Hashes) -> Iterator[Matches]:
        """The residents that a batch probes. A separate function, so that it leaves no reference to them."""
        for their_rows, probing, theirs in self._residents[side.other].probe(hashes, MOST_PAIRS):
            self._counters.pairs_tested += len(probing)
            yield self._check_pairs(Matches.oriented(side, batch, probing, their_rows, theirs))

    def _count_missed(self, side: Side, hashes: Hashes) -> None:
        dropped = self._dropped[side.other]
        if dropped.nbytes:
            self._counters.results_missed += dropped.count_missed(hashes)
            shares, keys = self._arrivals.shares[side], self._keys_of_partitions()
            self._missed_expected += dropped.expect_missed(len(hashes), shares, keys)
            self._counters.results_missed_expected = round(self._missed_expected)

    def _keys_of_partitions(self) -> NDArray[np.float64]:
        """The number of distinct keys per partition: s in section 5.3 of RPJ's paper."""
        if self._parameters.domain is None:
            return self._distinct.counts()
        return np.full(self._partitions, self._parameters.domain / self._partitions)

    def end(self, side: Side) -> None:
        """From now on, residents of the other side only wait for rows of this side on disk."""
        self._arrivals.ended[side] = True
        over = np.flatnonzero((self._reported.spilled[side] == 0) & (self._residents[side.other].sizes > 0))
        if len(over):
            sizes = self._residents[side.other].sizes
            for _ in self._residents[side.other].evict({int(j): int(sizes[j]) for j in over}, self._clock.tick()):
                pass
            self._hold()

    def _free_memory(self, side: Side, batch: pa.RecordBatch) -> None:
        kept, nbytes = self._residents[side], int(batch.nbytes)
        while True:
            rows = sum(map(len, self._residents)) + batch.num_rows
            size = kept.nbytes_with(batch.num_rows, nbytes) + self._residents[side.other].nbytes
            size += sum(dropped.nbytes for dropped in self._dropped)
            over = self._budget.measure(rows, size) - self._memory.residents
            if over <= 0:
                return
            resident = rows - batch.num_rows
            need = max(1, int(np.ceil(max(0, over) * rows / self._budget.measure(rows, size))))
            if not self._flush(max(need, int(np.ceil(self._flush_share * resident)))):
                return

    def _shrink(self, memory: int) -> None:
        """Evict residents until they take at most this much memory."""
        while (used := self._budget.measure(*self._resident())) > memory:
            rows, _ = self._resident()
            if not self._flush(int(np.ceil(rows * (used - memory) / used))):
                return

    def _flush(self, need: int, policy: Policy | None = None) -> bool:
        """Spill at least this many rows; False if there are none."""
        held = ResidentCounts(
            np.array([side.sizes for side in self._residents]), self._arrivals.probabilities(), self._reported.spilled
        )
        victims = (policy or self._policy)(held, need)
        if not victims:
            return False
        if self._parameters.shed and policy is None:
            self._shed(victims)
            return True
        tick = self._clock.tick()
        runs: dict[int, dict[Side, HashRun | None]] = {}
        for side in Side:
            counts = {v.partition: v.rows for v in victims if v.side is side}
            if not counts:
                continue
            page_rows = self._memory.page_rows(self._residents[side])
            writer = HashRunWriter(self._store, self._schemas[side], side.alias, page_rows)
            written = []
            for j, leaving in self._residents[side].evict(counts, tick):
                self._reported.record_flush(side, j, leaving.arrived, tick)
                for rows in leaving.chunks(self._memory.chunk_rows(page_rows)):
                    writer.write(rows)
                    del rows  # before the next rows are copied
                writer.end_run()
                written.append(j)
            for j, run in zip(written, writer.close(), strict=True):
                runs.setdefault(j, {})[side] = run
        for j, sides in runs.items():
            self._replace(j, [], Match(sides.get(Side.LEFT), sides.get(Side.RIGHT)))
        self._hold()
        trim_heap()
        return True

    def _shed(self, victims: list[Victim]) -> None:
        """Drop the rows and count the lost results of later arrivals."""
        tick = self._clock.tick()
        for side in Side:
            counts = {v.partition: v.rows for v in victims if v.side is side}
            for partition, leaving in self._residents[side].evict(counts, tick) if counts else ():
                self._counters.rows_shed += len(leaving)
                if not self._arrivals.ended[side.other]:
                    self._dropped[side].add(partition, leaving.hashes)
        self._hold()
        trim_heap()

    def _flush_everything(self) -> None:
        self._flush(0, flush_all)

    def clean_up(self) -> Iterator[Matches]:
        yield from self._finish_open()
        self._flush_everything()
        for partition in range(self._partitions):
            yield from self._finish(partition)

    # Tasks

    def _react(self, next_task: Callable[[], Task | None]) -> Iterator[Matches]:
        """Run all tasks in sequence. Yields at least once after each."""
        while True:
            yield from self._finish_open()
            self._open = next_task()
            if self._open is None:
                return
            self._shrink(self._memory.beside)
            yield from self._run_open()
            yield no_matches(self._schemas)

    def _finish_open(self) -> Iterator[Matches]:
        """Finish the open task."""
        while self._stored:
            pair = self._stored.pop(0)
            left, right = (self._store.read(block) for block in pair)
            every = np.arange(left.num_rows)
            yield Matches.pairs(left, every, right, every)
        yield from self._run_open()

    def _run_open(self) -> Iterator[Matches]:
        # Not `yield from`: when this generator is dropped, the task must stay open for the next call.
        if self._open is not None:
            for pairs in self._open:  # noqa: UP028
                yield pairs
            self._open = None

    def _meet_disk(self, side: Side, partition: int) -> Task:
        """Join the residents of a partition with the other side's rows on disk (RPJ Fig. 5)."""
        mine = self._residents[side].partition(partition)
        for run in self._runs_of(side.other, partition):
            for theirs in self._loaded_chunks(side.other, run):
                left, right = (mine, theirs) if side is Side.LEFT else (theirs, mine)
                yield from self._meet(partition, left, right)
        self._budget.release(LOADED)
        # The tick, taken at the end, separates the rows that took part from those that arrive later.
        self._reported.met_disk(side, partition, self._clock.tick())

    def _loaded_chunks(self, side: Side, run: HashRun) -> Iterator[Stayed]:
        """The rows of a run, in chunks of as many pages as fit in the memory for tasks."""
        page = 0
        weights = np.diff(run.starts) * self._memory.weigh(1, run.row_bytes)
        while page < run.pages:
            pages = max(1, int(np.searchsorted(np.cumsum(weights[page:]), self._memory.tasks, side="right")))
            rows = int(run.starts[page + pages] - run.starts[page])
            self._hold_loaded(rows, int(rows * run.row_bytes))
            yield concat_rows(read_run(self._store, run, self._schemas[side], page, page + pages))
            page += pages

    def _can_merge(self, partition: int) -> bool:
        """Whether two matches of the partition can be merged in the memory left free by residents."""
        return len(self._to_merge(partition, self._memory.tasks, 2)) >= 2

    def _merge_some(self, partition: int, most: int) -> Task:
        """Merge the smallest matches of a partition, up to a maximum number, into one; both sides at once."""
        memory = self._memory.tasks
        yield from self._merge(partition, self._to_merge(partition, memory, most), memory)

    def _merge_partitions(self, partitions: Iterable[int]) -> Task:
        """Merge as much as has to be completed before arrivals are processed: once, one partition, or all of them."""
        for partition in partitions:
            while self._can_merge(partition):
                yield from self._merge_some(partition, self._parameters.fan_in)
                if self._parameters.handover == "merge":
                    return
            if self._parameters.handover == "bucket":
                return

    def _finish(self, partition: int) -> Task:
        """Find all missing pairs of a partition. No rows are resident any more, and its runs can be removed."""
        if self._reported.disk_pairs[partition]:
            self._counters.merges += 1
            before = self._pages_in_sequence
            left, right = (list(self._origins(side, partition)) for side in Side)
            for matches in self._ranges.run(left, right, partial(self._meet_range, partition)):
                self._counters.pages_merged += self._pages_in_sequence - before
                before = self._pages_in_sequence
                yield matches
            self._counters.pages_merged += self._pages_in_sequence - before
        self._replace(partition, self._matches[partition], None)

    def _origins(self, side: Side, partition: int) -> Iterator[Origin]:
        """The runs of a partition, with the numbers of their matches."""
        for number, match in enumerate(self._matches[partition]):
            if (run := match.run_of(side)) is not None:
                yield Origin(run.block, number, range(run.first_page, run.first_page + run.pages))

    def _meet_range(self, partition: int, left: RangeRows, right: RangeRows) -> Iterator[Matches]:
        mine, theirs = (
            LoadedRows(stayed_rows(rows.batch, self._schemas[side]), rows.numbers)
            for side, rows in zip(Side, (left, right), strict=True)
        )
        return self._meet(partition, mine.rows, theirs.rows, (mine, theirs))

    def _merge(self, partition: int, chosen: list[Match], memory: float) -> Task:
        runs = [run for match in chosen for run in match.runs]
        page_rows = max(run.page_rows for run in runs)
        merge = PartitionMerge(
            self._store, self._schemas, chosen, memory - self._kept_back(runs), self._memory.weigh, page_rows
        )
        self._counters.merges += 1
        before = self._pages_in_sequence
        for left, right in merge.meetings():
            rows, nbytes = merge.held
            for part in (left, right):
                rows += len(part.rows.hashes)
                nbytes += int(part.rows.batch.nbytes)
            self._hold_loaded(rows, nbytes)
            self._counters.pages_merged += self._pages_in_sequence - before
            before = self._pages_in_sequence
            yield from self._meet(partition, left.rows, right.rows, (left, right))
            del left, right
        self._budget.release(LOADED)
        self._replace(partition, chosen, merge.close())
        self._counters.pages_merged += self._pages_in_sequence - before
        trim_heap()

    @property
    def _pages_in_sequence(self) -> int:
        return self._counters.pages_read_sequential + self._counters.pages_written

    def _to_merge(self, partition: int, memory: float, most: int) -> list[Match]:
        """The smallest matches, as long as one page per run fits in memory in addition to the write buffers."""
        chosen: list[Match] = []
        used = kept_back = 0.0
        for match in sorted(self._matches[partition], key=lambda match: match.rows)[:most]:
            pages = [self._memory.weigh(run.page_rows, run.page_rows * run.row_bytes) for run in match.runs]
            used += sum(pages)
            kept_back = max(kept_back, self._kept_back(match.runs))
            if used + kept_back > memory:
                break
            chosen.append(match)
        return chosen

    def _kept_back(self, runs: list[HashRun]) -> float:
        """The memory of rows that wait for a full page, on each side."""
        return 2 * max(self._memory.weigh(run.page_rows - 1, (run.page_rows - 1) * run.row_bytes) for run in runs)

    def _replace(self, partition: int, old: list[Match], new: Match | None) -> None:
        """Replace matches by their merged match; a block is removed with the last of its runs."""
        if old:
            gone = set(map(id, old))
            self._matches[partition] = [match for match in self._matches[partition] if id(match) not in gone]
        if new is not None:
            self._matches[partition].append(new)
            self._runs_in.update(run.block.name for run in new.runs)
            self._count_spilled(new, 1)
        for match in old:
            self._count_spilled(match, -1)
        if old and len(self._matches[partition]) <= 1:
            self._reported.met_on_disk(partition)
        for block in [run.block for match in old for run in match.runs]:
            self._runs_in[block.name] -= 1
            if not self._runs_in[block.name] and block.name not in self._named:
                self._store.remove([block])

    def _count_spilled(self, match: Match, sign: int) -> None:
        for run in match.runs:
            self._spilled_rows += sign * run.rows
            self._spilled_bytes += sign * run.rows * run.row_bytes

    def _meet(
        self, partition: int, left: Stayed, right: Stayed, loaded: tuple[LoadedRows, LoadedRows] | None = None
    ) -> Iterator[Matches]:
        """The pairs of these rows that have not been emitted yet."""
        table = HashTable()
        table.insert(right.hashes)
        for lefts, rights in table.find(left.hashes, MOST_PAIRS):
            self._counters.pairs_tested += len(lefts)
            new = ~self._reported.find_reported(
                partition, left.arrived[lefts], left.left[lefts], right.arrived[rights], right.left[rights]
            )
            if loaded is not None:
                new &= loaded[0].matches[lefts] != loaded[1].matches[rights]
            pairs = self._check_pairs(Matches.pairs(left.batch, lefts[new], right.batch, rights[new]))
            if pairs.size:
                yield pairs

    def _check_pairs(self, pairs: Matches) -> Matches:
        if not self._checks or not pairs.size:
            return pairs
        return pairs.only(matching(self._checks, pairs.left, pairs.left_rows, pairs.right, pairs.right_rows))

    # Memory and snapshots

    def _hold(self) -> None:
        self._budget.hold("residents", *self._resident())
        self._budget.hold("keys of dropped rows", 0, sum(side.nbytes for side in self._dropped))

    def _resident(self) -> tuple[int, int]:
        """Rows and bytes in memory."""
        return sum(map(len, self._residents)), sum(side.nbytes for side in self._residents)

    def _hold_loaded(self, rows: int, nbytes: int) -> None:
        self._budget.hold(LOADED, rows, self._memory.copies * nbytes)

    @property
    def _runs(self) -> list[HashRun]:
        return [run for matches in self._matches for match in matches for run in match.runs]

    def _runs_of(self, side: Side, partition: int) -> list[HashRun]:
        return [run for match in self._matches[partition] if (run := match.run_of(side)) is not None]

    @property
    def usage(self) -> Usage:
        return Usage(*self._resident(), self._spilled_rows, round(self._spilled_bytes))

    def snapshot(self) -> Manifest:
        for pairs in self._run_open():
            left = self._store.write(take_rows(pairs.left, pairs.left_rows), "results")
            self._stored.append((left, self._store.write(take_rows(pairs.right, pairs.right_rows), "results")))
        self._version += 1
        state = {
            "residents": [self._saved[side].save(self._residents[side]) for side in Side],
            "clock": self._clock.now,
            "arrivals": self._arrivals.to_json(),
            "distinct": self._distinct.to_json(),
            "missed_expected": self._missed_expected,
            "dropped": [side.to_json() for side in self._dropped],
            "ledger": self._reported.to_json(),
            "matches": [[match.to_json() for match in matches] for matches in self._matches],
            "results": [[block.to_json() for block in pair] for pair in self._stored],
        }
        names = {run.block.name for run in self._runs} | {block.name for pair in self._stored for block in pair}
        names = names.union(*(saved.names for saved in self._saved))
        self._named |= names
        return Manifest(self._version, state, tuple(sorted(names)))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        self._named = set(manifest.segments)
        state = manifest.state
        self._divide(len(state["matches"]))  # the number of partitions in the snapshot, even if the memory has changed
        self._clock = Clock(state["clock"])
        self._arrivals.restore(state["arrivals"])
        self._distinct.restore(state["distinct"])
        for dropped, fields in zip(self._dropped, state["dropped"], strict=True):
            dropped.restore(fields)
        self._missed_expected = state["missed_expected"]
        self._reported.restore(state["ledger"])
        self._matches = [[Match.from_json(match) for match in matches] for matches in state["matches"]]
        self._runs_in = Counter(run.block.name for run in self._runs)
        for match in (match for matches in self._matches for match in matches):
            self._count_spilled(match, 1)
        self._stored = [(Block.from_json(left), Block.from_json(right)) for left, right in state["results"]]
        for side in Side:
            self._saved[side].load(self._residents[side], state["residents"][side])
        self._shrink(self._memory.residents)  # there may be less memory than before
        self._hold()
