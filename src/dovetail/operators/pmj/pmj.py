"""Progressive merge join: a sort-merge join that joins while it sorts, on any condition with a sweep order.

    arriving   rows of both sides --> memory full: sort both, join them, write them as a pair of sorted runs
    reactive   rows that have arrived are joined before memory is full; then run pairs are merged, the smallest first
    cleanup    merge up to F/2 run pairs into one, joining rows of different pairs, until one is left

        (L1 R1) (L2 R2) (L3 R3) (L4 R4)        joined when the runs are made: Li with Ri
            \\      /        \\      /
           (L12   R12)      (L34   R34)         L1 R2, L2 R1, and L3 R4, L4 R3
                  \\            /
                 (not written: the last)        the rest

Guarantee: every matching pair exactly once, at the lowest node of the merge tree that contains both rows; no results
are recorded. The sweep order (matching/sweep_order.py) covers equalities, bands, overlaps, rectangles, distances and
inequalities. Merges stream (operators/pmj/merge.py); sweep areas that exceed memory are spilled. A merge yields to
arrivals between two steps: it is suspended when they need its memory.

Dittrich, Seeger, Taylor, Widmayer, Progressive merge join, VLDB 2002, sections 3.1-3.6.

Deviations: batches. Rows that the sweep has reached are joined with an area by the kernel of the condition's class, not
one by one; partners from the same run pair are found again there and dropped. Runs are built by load and sort, never by
replacement selection. The last merge is not written. The first rows are joined before memory is full, and merges start
while sources stall; the paper defers both to the end. For outer, semi and anti joins (section 3.6), one bit per row
marks rows with a partner, instead of a flag that is written with the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import no_matches, slices
from dovetail.columns.row_store import RowStore
from dovetail.columns.taking import take_rows
from dovetail.condition.graph import Graph
from dovetail.core.rows import Matches, Side
from dovetail.errors import InputError
from dovetail.estimation.measures import Measures
from dovetail.estimation.order import PlacedMatches
from dovetail.matching import build_matcher
from dovetail.matching.sweep_order import COPIES, NO_WORDS, SweepOrder, Words
from dovetail.operators.pmj.pairs import CHUNK, EarlyPairCounts, JoinTypeEmitter, MergedPairs
from dovetail.operators.pmj.runs import Pages, RunGroup, arriving_memory, write_run
from dovetail.operators.pmj.scheduler import STRICTNESS, MergeScheduler
from dovetail.operators.protocol import EVERY, Approach, JoinOperator, Manifest, OperatorSpec, Usage, Workspace
from dovetail.storage.blocks import Block
from dovetail.storage.budget import BUFFER, Budget, Shares

FIRST_ROWS = 1 << 12  # joined before memory is full; then at twice as many rows, and so on, during the first run


COMPARED = 8  # runs in which positions are compared
MOST_BLOCKS = 32  # for the rows of the current run


class Pmj(JoinOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(
        name="pmj",
        join_types=EVERY,
        parameters={
            "fan_in": int,
            "first_rows": int | None,
            "copies": int,
            "strictness": str,
            "sorted_output": bool,
            "measures": Mapping,
        },
        reports_blocks=True,
        resizable=True,
    )

    def __init__(self, workspace: Workspace) -> None:
        self._condition = workspace.condition
        self._budget = workspace.budget
        self._estimator = workspace.estimator
        self._store = workspace.blocks
        self._block_rows = workspace.block_rows
        self._limit = workspace.budget.limit  # effective from the next run or merge on
        self._order = SweepOrder(workspace.condition, workspace.parameters.get("copies", COPIES))
        self._giving = JoinTypeEmitter(workspace.condition, workspace.how, workspace.counters)
        self._measures = Measures(workspace.parameters.get("measures", {}), workspace.condition.schemas)
        schemas = dict(zip("lr", workspace.condition.schemas, strict=True))
        self._pages = Pages(workspace.blocks, workspace.budget, schemas)
        self._strictness: str = workspace.parameters.get("strictness", STRICTNESS[0])
        if self._strictness not in STRICTNESS:
            raise InputError(f"strictness must be one of {', '.join(STRICTNESS)}; got {self._strictness!r}.")
        self._sorts: bool = workspace.parameters.get("sorted_output", False)
        if self._sorts:
            self._strictness = "semi_strict"  # earlier matches are only counted
            if not self._order.keeps_order or not self._giving.pairs_only:
                raise InputError("sorted_output is for inner joins by a key with an order: a number or a time.")
        self._rows = tuple(RowStore(workspace.condition.schema(side)) for side in Side)  # of the current run
        self._written: tuple[list[Block], ...] = ([], [])  # the part of them that a snapshot has written
        self._met = [0, 0]  # how many of them have been joined with each other
        self._meeting: Iterator[Matches] = iter(())  # the rest of an interrupted join of the run,
        self._before = [0, 0]  # the rows joined before it,
        self._yielded = 0  # and how many of its pieces have been emitted
        # When to join the first rows; None: not before memory is full.
        self._next_meeting: int | None = workspace.parameters.get("first_rows", FIRST_ROWS)
        self._tally = EarlyPairCounts.none()  # of the joins of the current run
        self._first = [0, 0]  # rows of each side that arrived before them
        self._dead: list[tuple[Side, pa.RecordBatch]] = []  # rows that match nothing and are emitted for that reason
        meets = MergedPairs(
            self._condition,
            self._order,
            self._giving,
            self._pages,
            self._budget,
            self._estimator,
            early=self._strictness == "progressive",
            sorts=self._sorts,
        )
        self._merging: MergeScheduler[Matches] = MergeScheduler(workspace, meets, self._pages, self._strictness)
        self._version = 0

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        condition = graph.condition
        if SweepOrder.exists(condition):
            return None
        return "a merge join needs an order: an equality, inequality, band, overlap or distance between the sides"

    @staticmethod
    def approach(graph: Graph) -> Approach:
        order = SweepOrder(graph.condition)
        return Approach(f"progressive merge join; {order.text}; spills what does not fit", order.predicates)

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        yield from self._meeting
        more = batch.num_rows, int(batch.nbytes) + self._order.index_bytes * batch.num_rows
        if self._merging.held and not self._fits(self._merging.held, *more):
            yield from self._merging.rest_of_step()
            self._merging.sleep()
        if not self._fits(0, *more):
            fitting = self._fitting(*more)
            self._keep(side, batch.slice(0, fitting))
            batch = batch.slice(fitting)
            yield from self._meet()
            self._close_run()
        yield from self._alone()
        if self._limit is None or (self._budget.limit is not None and self._limit > self._budget.limit):
            self._budget.limit = self._limit
        self._keep(side, batch)
        self._budget.release(BUFFER)
        self._hold()
        if self._next_meeting is not None and self._unmet >= self._next_meeting:
            self._next_meeting *= 2
            yield from self._meet()

    def adopt(self, rows: tuple[Iterable[pa.RecordBatch], Iterable[pa.RecordBatch]], matches: int) -> None:
        """Take over rows of both sides that have been joined with each other and fit in memory."""
        for side in Side:
            for batch in rows[side]:
                self._keep(side, batch)
                self._hold()
        self._met = [len(store) for store in self._rows]
        self._before, self._next_meeting = list(self._met), None
        self._tally = EarlyPairCounts(matches, NO_WORDS)

    def _keep(self, side: Side, batch: pa.RecordBatch) -> None:
        self._rows[side].append(batch)
        self._giving.partnered.grow(side, self._first[side] + len(self._rows[side]))

    def resize(self, limit: int | None) -> None:
        """Change the memory limit. An oversized run is closed at the next arrival; an open merge is completed."""
        Shares(Budget(limit, self._budget.unit), self._block_rows)  # raises if the memory is too small
        self._merging.resize(limit)
        self._limit = limit

    def react(self) -> Iterator[Matches]:
        """Joins the rows that have arrived since the last join of the run, then merges run pairs."""
        # Not `yield from`: when this generator is dropped, the inner generators must stay open for the next call.
        for pairs in self._meeting:
            yield pairs
        if self._unmet:
            for pairs in self._meet():
                yield pairs
        while self._can_merge():
            yield from self._alone()
            yield from self._merging.react()

    def clean_up(self) -> Iterator[Matches]:
        yield from self._meeting
        yield from self._alone()
        if self._merging.is_done and self._strictness == "progressive":
            yield from self._meet()  # all rows have been in memory together
            if self._giving.pairs_only:
                self._estimator.add(self._met[0], self._met[1], self._tally.matches, sums=self._tally.sums)
            for side in Side:
                yield from self._giving.alone(side, self._rows[side].view(), self._numbers(side))
            return
        yield from self._meet()
        self._close_run()
        yield from self._alone()
        yield from self._merging.finish()

    def snapshot(self) -> Manifest:
        self._version += 1
        stem = f"{self._version:08d}"
        resident = [self._write_residents(side, f"{stem}-{side.alias}") for side in Side]
        watched = [side for side in Side if self._giving.partnered.watches(side)]
        partnered = [
            self._store.write(self._giving.partnered.to_batch(side), f"{stem}-{side.alias}") for side in watched
        ]
        dead = [(side, self._store.write(batch, f"{stem}-{side.alias}")) for side, batch in self._dead]
        state = {
            "met": list(self._met),
            "before": list(self._before),
            "yielded": self._yielded,
            "next_meeting": self._next_meeting,
            "tally": [self._tally.matches, self._tally.diagonal.tolist(), dict(self._tally.sums)],
            "order": self._order.to_json(),
            "estimator": self._estimator.to_json(),
            "merging": self._merging.to_json(),
            "dead": [[side, block.to_json()] for side, block in dead],
            "first": list(self._first),
            "partnered": [block.to_json() for block in partnered],
            "resident": [[block.to_json() for block in side] for side in resident],
        }
        blocks = [*partnered, *(block for side in resident for block in side), *(block for _, block in dead)]
        blocks += self._merging.blocks
        return Manifest(self._version, state, tuple(block.name for block in blocks))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        state = manifest.state
        self._merging.restore(state["merging"])
        self._dead = [(Side(side), self._store.read(Block.from_json(fields))) for side, fields in state["dead"]]
        self._next_meeting = state["next_meeting"]
        for side in Side:
            for fields in state["resident"][side]:
                self._written[side].append(Block.from_json(fields))
                self._rows[side].append(self._store.read(self._written[side][-1]))
        self._first = list(state["first"])
        watched = [side for side in Side if self._giving.partnered.watches(side)]
        for side, fields in zip(watched, state["partnered"], strict=True):
            self._giving.partnered.restore(side, self._store.read(Block.from_json(fields)))
        self._hold()
        self._order.restore(state["order"])
        self._estimator.restore(state["estimator"])
        self._before, self._met = list(state["before"]), list(state["met"])
        matches, diagonal, sums = state["tally"]
        self._tally = EarlyPairCounts(matches, np.array(diagonal, np.int64), sums)
        self._yielded = state["yielded"]
        self._meeting = self._join_run(self._yielded)

    def _write_residents(self, side: Side, stem: str) -> list[Block]:
        """Write the rows that have arrived since the last snapshot; all rows, if they are in too many blocks."""
        written = self._written[side]
        if len(written) >= MOST_BLOCKS:
            written.clear()
        new = self._rows[side].view().slice(sum(block.rows for block in written))
        written += [self._store.write(batch, stem) for batch in slices(new, self._block_rows)]
        return written

    @property
    def usage(self) -> Usage:
        rows, nbytes = self._size()
        return Usage(rows, nbytes, *self._merging.spilled)

    # Runs.

    def _meet(self) -> Iterator[Matches]:
        """Join the rows of the current run with each other, except those joined before."""
        self._before, self._met = self._met, [len(rows) for rows in self._rows]
        self._meeting, self._yielded = self._join_run(0), 0
        return self._meeting

    def _join_run(self, done: int) -> Iterator[Matches]:
        """The join of the current run from a given piece on, so that it can be interrupted and resumed."""
        if self._strictness != "progressive" or self._before == self._met:
            return
        tally = self._tally
        for count, (pairs, noted) in enumerate(self._new_pairs(), start=1):
            tally = tally.with_(noted)
            if count > done:
                self._yielded = count
                yield pairs
        self._tally = tally
        if self._next_meeting is not None and self._giving.pairs_only:
            self._estimate_early()
        self._before = self._met

    def _new_pairs(self) -> Iterator[tuple[Matches, EarlyPairCounts]]:
        left, right = (self._rows[side].view().slice(0, self._met[side]) for side in Side)
        old_left, new_left = left.slice(0, self._before[0]), left.slice(self._before[0])
        new_right = right.slice(self._before[1])
        for mine, first_left, theirs, first_right in (
            (new_left, self._before[0], right, 0),
            (old_left, 0, new_right, self._before[1]),
        ):
            if mine.num_rows and theirs.num_rows:
                numbers = self._numbers(Side.LEFT)[first_left:], self._numbers(Side.RIGHT)[first_right:]
                for results in self._giving.meet(mine, theirs, numbers):
                    yield results, self._count_early(results, first_left, first_right)
        yield (
            no_matches(self._condition.schemas),
            EarlyPairCounts.none(),
        )  # yields at least once

    def _numbers(self, side: Side) -> Words:
        """Numbers of the current run's rows among all rows of their side; empty if the join type does not need them."""
        first = self._first[side]
        return np.arange(first, first + len(self._rows[side])) if self._giving.partnered.watches(side) else NO_WORDS

    def _count_early(self, results: Matches, first_left: int, first_right: int) -> EarlyPairCounts:
        if not results.is_complete or not self._giving.pairs_only:
            return EarlyPairCounts.none()
        sums = self._measures.sum_pairs(results)
        if self._next_meeting is None:
            return EarlyPairCounts(results.size, NO_WORDS, sums)
        return EarlyPairCounts.from_pairs(results.left_rows + first_left, results.right_rows + first_right, sums)

    def _estimate_early(self) -> None:
        """Estimate from parts of the first run while it is built."""
        left, right = self._met
        self._learn()
        keys = [self._order.lines(side, self._rows[side].view().slice(self._before[side])).codes for side in Side]
        if self._before == [0, 0]:
            self._compare_places()
        diagonal = self._tally.complete(min(left, right))
        self._estimator.grow(left, right, self._tally.matches, diagonal=diagonal, chunk=CHUNK, keys=(keys[0], keys[1]))

    def _compare_places(self) -> None:
        """Test whether partners are at similar positions of a run; the first few runs are enough."""
        left, right = (rows.view() for rows in self._rows)
        if left.num_rows and right.num_rows and len(self._estimator.blocks) < COMPARED:
            self._estimator.compare(PlacedMatches.of_first_rows(self._condition, left, right))

    def _close_run(self) -> None:
        """Write the resident rows, which have been joined, as a run pair."""
        if not any(len(rows) for rows in self._rows):
            return
        self._learn()
        page = self._merging.page
        left, right = (
            write_run(
                self._order,
                self._pages,
                side,
                self._rows[side].view(),
                self._numbers(side),
                page,
                self._giving.needed_rows,
            )
            for side in Side
        )
        for side, written in ((Side.LEFT, left), (Side.RIGHT, right)):
            if self._giving.partnered.watches(side) and self._giving.partnered.gives_alone and len(written.dead):
                self._dead.append((side, take_rows(self._rows[side].view(), written.dead)))
        arrived = len(self._rows[0]), len(self._rows[1])
        self._merging.groups.append(RunGroup((left.run, right.run), arrived))
        if self._sorts:
            self._tally = EarlyPairCounts(
                build_matcher(self._condition, *(rows.view() for rows in self._rows)).count(), NO_WORDS
            )
        if self._giving.pairs_only and (self._sorts or self._strictness == "progressive"):
            self._compare_places()
            keys = None if self._next_meeting is not None else (left.codes, right.codes)
            self._estimator.add(*arrived, self._tally.matches, sums=self._tally.sums, keys=keys)
        self._rows = tuple(RowStore(self._condition.schema(side)) for side in Side)
        self._written = ([], [])
        self._first = [self._first[side] + arrived[side] for side in Side]
        self._met, self._before = [0, 0], [0, 0]
        self._tally, self._next_meeting = EarlyPairCounts.none(), None
        self._hold()
        if not self._merging.held:
            self._budget.limit = self._limit

    def _can_merge(self) -> bool:
        """Whether there are runs to merge. Rows in memory are written if they are in the way, or only they remain."""
        share = self._merging.share
        is_last = share is None and self._strictness == "progressive" and bool(self._merging.groups)
        if is_last or (share is not None and not self._fits(share, 0, 0)):
            self._close_run()
        return self._merging.share is not None

    def _learn(self) -> None:
        self._order.learn(self._rows[0].view(), self._rows[1].view())

    def _alone(self) -> Iterator[Matches]:
        while self._dead:
            side, batch = self._dead.pop()
            yield Matches.single(side, batch, np.arange(batch.num_rows))

    # Memory.

    @property
    def _unmet(self) -> int:
        return sum(len(self._rows[side]) - self._met[side] for side in Side)

    def _fits(self, held: int, rows: int, nbytes: int) -> bool:
        """Whether the current run can grow by these rows and bytes, besides other memory and arriving rows."""
        if self._limit is None:
            return True
        mine = self._size()
        wanted = self._budget.measure(mine[0] + rows, mine[1] + nbytes) + held
        return wanted <= self._limit - arriving_memory(Budget(self._limit, self._budget.unit), self._block_rows)

    def _fitting(self, rows: int, nbytes: int) -> int:
        """How many of these rows the current run can still take; with a budget in rows, they are not split."""
        if self._limit is None or self._budget.unit == "rows":
            return 0
        free = self._limit - arriving_memory(Budget(self._limit), self._block_rows) - self._size()[1]
        return max(0, min(rows, free * rows // max(1, nbytes)))

    def _size(self) -> tuple[int, int]:
        """Rows and bytes of the current run, whose sides are sorted one after the other, and of the marks."""
        rows = [len(store) for store in self._rows]
        marks = self._giving.partnered.nbytes
        return sum(rows), sum(store.nbytes for store in self._rows) + self._order.index_bytes * max(rows) + marks

    def _hold(self) -> None:
        self._budget.hold("residents", *self._size())
