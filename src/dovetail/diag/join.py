"""Diag-Join: joins two tables that are clustered alike along the diagonal, in one pass over each.

    R1   ....[ k-2 | k-1 |  k  | k+1 | k+2 ]....    arriving: a ring of hash tables slides over R1 with the position
                    \\   |   /                                 in RN; each row of RN is looked up, middle first
    RN   ............[batch]....................
                        \\--> mishits, by hash       cleanup:  mishits are joined with all of R1, by partition

Guarantee: every matching pair exactly once, for every join type and any data. Clustering only determines how many rows
are mishits. First results are emitted when half a window of R1 and a batch of RN have been read. Without mishits, each
input is read once and nothing is written.

Helmer, Westmann and Moerkotte, Diag-Join: an opportunistic join algorithm for 1:N relationships, VLDB 1998; Figures 3
and 5, sections 3.1 to 3.4.

Deviations: batches instead of tuples: all rows of RN between two slides are looked up together. The window follows
floor(i |R1| / |RN|), since the ratio is not an integer; the next table is always loaded, and none is cleared once R1
has ended. Mishits are written to their partitions at once, not to a temporary file first (section 5). If they fit in
memory, R1 is streamed past them and not partitioned. Repeated keys of R1 are detected instead of excluded by assumption
(`Repeats` in diag/ring.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import matching
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters, Observer, Progress
from dovetail.core.rows import Matches, Phase, Rows, Side
from dovetail.core.threads import in_order
from dovetail.diag.choice import DiagMemory
from dovetail.diag.partitions import EXTRA, Aside, Partitions, set_aside
from dovetail.diag.ring import KeyedRows, Met, Positions, Repeats, Ring, RingTable, cut_tables
from dovetail.errors import BudgetError
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import drop_last_columns, result_batches, row_batches
from dovetail.execution.steps import Step
from dovetail.matching.equal_keys import HashKeys
from dovetail.planning.plan import JoinPlan
from dovetail.sources.protocol import Place, Scan
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import BUFFER, Budget
from dovetail.storage.hash_table import HashTable

AHEAD = 2  # batches of pairs that wait until those before them are taken

Flags = NDArray[np.bool_]
Task = Callable[[], Iterator[pa.RecordBatch]]


class Meeting:
    """Rows of RN and of R1 with equal hashes, the latter with their positions."""

    __slots__ = ("many", "many_rows", "one", "one_positions", "one_rows")

    def __init__(
        self, many: pa.RecordBatch, many_rows: Rows, one: pa.RecordBatch, one_rows: Rows, one_positions: Positions
    ) -> None:
        self.many, self.many_rows = many, many_rows
        self.one, self.one_rows, self.one_positions = one, one_rows, one_positions

    def only(self, chosen: Flags) -> Meeting:
        if chosen.all():
            return self
        return Meeting(self.many, self.many_rows[chosen], self.one, self.one_rows[chosen], self.one_positions[chosen])


class Partners:
    """Turns pairs into results, and records which rows of R1 have a partner if the join type needs it."""

    def __init__(self, plan: JoinPlan, one: Side, one_rows: int, schema: pa.Schema) -> None:
        self._how, self._schema = plan.how, schema
        self._one, self._many = one, one.other
        self._checks = HashKeys(plan.condition).checks
        self._work = Joining(plan.condition, plan.how, schema)
        self._lists = plan.how.emits_pairs
        self.asks_one, self.asks_many = one in plan.how.tracked, one.other in plan.how.tracked
        self.partnered: Flags = np.zeros(one_rows if self.asks_one else 0, np.bool_)

    def check_pairs(self, met: Meeting) -> Meeting:
        """The pairs that satisfy the whole condition."""
        if not self._checks:
            return met
        pairs = self._pairs(met)
        return met.only(matching(self._checks, pairs.left, pairs.left_rows, pairs.right, pairs.right_rows))

    def resolve(self, met: Meeting, drop: tuple[int, int] = (0, 0)) -> Task:
        """Record which rows have a partner. The returned task emits the pairs' immediate results, at any time.

        `drop`: the number of columns to omit at the end of RN and of R1.
        """
        new = np.empty(0, np.int64)
        if self.asks_one:
            new = np.unique(met.one_rows[~self.partnered[met.one_positions]])
            self.partnered[met.one_positions] = True
        return partial(self._emit, met, new, drop)

    def _emit(self, met: Meeting, new: Rows, drop: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        if self._how is JoinType.LEFT_SEMI:
            yield from row_batches(self._one, drop_last_columns(met.one, drop[1]), new, self._schema)
        if self._lists:
            mine = drop if self._many is Side.LEFT else drop[::-1]
            yield from result_batches(self._pairs(met), self._schema, None, mine)

    def at_once(self, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        """Rows of RN that are results because they have a partner."""
        return self.verdict(batch, partnered) if self._how is JoinType.LEFT_SEMI else iter(())

    def verdict(self, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        """The rows of RN that are results alone, from a batch that has been joined completely."""
        return self._work.leave(self._many, batch, partnered)

    def last(self, batch: pa.RecordBatch, position: int) -> Iterator[pa.RecordBatch]:
        """The same for R1, at the end. Left semi joins have already emitted their rows."""
        if self._how is not JoinType.LEFT_SEMI:
            yield from self._work.leave(self._one, batch, self.partnered[position : position + batch.num_rows])

    def _pairs(self, met: Meeting) -> Matches:
        return Matches.oriented(self._many, met.many, met.many_rows, met.one, met.one_rows)


MOST_PAIRS = 1 << 18  # per piece


class DiagResults(NamedTuple):
    """New results, and the phase they were found in."""

    phase: Phase
    batch: pa.RecordBatch


@dataclass(slots=True)
class Tally:
    """Counts for probing with the rows of RN that have a key."""

    hits: int = 0  # partner found in the ring
    mishits: int = 0
    lookups: int = 0  # one per row and table probed
    repeats: int = 0  # keys of R1 that repeat, or seem to
    passes: list[int] = field(default_factory=lambda: [0, 0])  # rows read of R1 and RN


class DiagonalJoin:
    """One join. `results` runs it; its counts so far can be read at any time."""

    def __init__(self, plan: JoinPlan, scans: tuple[Scan, Scan], schema: pa.Schema, threads: int = 1) -> None:
        assert plan.diagonal is not None
        self._threads = threads if plan.memory_bytes is None else 1  # waiting batches take memory
        self._one, self._many = plan.diagonal.one, plan.diagonal.one.other
        self._scan = {0: scans[self._one], 1: scans[self._many]}
        self._keys = HashKeys(plan.condition)
        self.tally = Tally()
        self.counters = Counters()
        self._budget = Budget(plan.memory_bytes, "bytes", self.counters)
        self._memory = DiagMemory.divide(plan.memory_bytes, plan.diagonal, scans[self._one], scans[self._many])
        self._store = BlockStore(counters=self.counters)
        self._partners = Partners(plan, self._one, scans[self._one].rows, schema)
        self._repeats = Repeats(scans[self._one].rows)
        read = (keyed for _, keyed in self._read(0))
        waiting = partial(self._budget.hold, "next table")
        window = plan.diagonal
        tables = cut_tables(read, scans[self._one].rows, window.table_rows, self._memory.table_bytes, waiting)
        self.ring = Ring(window.tables, tables)
        self._mishits = self._set_apart(self._many, "mishits")

    def results(self) -> Iterator[DiagResults]:
        """All results. Leaving the loop early frees memory and files."""
        try:
            for phase, work in ((Phase.ARRIVING, self._arrive()), (Phase.CLEANUP, self._clean_up())):
                for batch in work:
                    self.counters.results += batch.num_rows
                    yield DiagResults(phase, batch)
        except BudgetError as error:
            raise self._explain_budget(error) from None
        finally:
            self._store.close()

    def _explain_budget(self, error: BudgetError) -> BudgetError:
        if not len(self._repeats):
            return error
        return BudgetError(
            f"{error} {len(self._repeats):,} keys of the {self._one.name.lower()} side repeat, and each is "
            "registered in memory: give it more memory, or choose another algorithm."
        )

    # Phase 1: along the diagonal.

    def _arrive(self) -> Iterator[pa.RecordBatch]:
        """Lookups are sequential; meanwhile threads materialise the pairs found."""
        return in_order(self._look_up(), self._threads, AHEAD)

    def _look_up(self) -> Iterator[Task]:
        rows, of = self._scan[0].rows, self._scan[1].rows
        for place, keyed in self._read(1):
            if self._partners.asks_many:
                yield partial(self._keyless, place, keyed)
            for piece in self.ring.follow(keyed, rows, of, self._note):
                yield from self._probe(piece)
        if of:  # a key in the rest of R1 may repeat an earlier one
            for table in self.ring.drain(of):
                self._note(table, of)

    def _note(self, table: RingTable, now: int) -> None:
        self._budget.hold("ring", self.ring.rows, self.ring.nbytes)
        again = self._repeats.note(table.hashes, now)
        self._budget.hold("keys", 0, self._repeats.nbytes + self._partners.partnered.nbytes)
        if len(again):
            self.tally.repeats = len(self._repeats)
            for each in (*self.ring.resident, table):
                each.forget(again)

    def _probe(self, keyed: KeyedRows) -> Iterator[Task]:
        hits, missing = self.ring.search(keyed.hashes)
        self.tally.hits += len(keyed.hashes) - len(missing)
        self.tally.mishits += len(missing)
        self.tally.lookups = self.counters.probes = self.ring.searched
        partnered = np.zeros(len(keyed.hashes), np.bool_)
        for table, probing, rows in hits:
            met = self._partners.check_pairs(Meeting(keyed.batch, probing, table.batch, rows, table.positions[rows]))
            partnered[met.many_rows] = True
            yield self._partners.resolve(met)
        if self._partners.asks_many:  # a row that fails the check is not resolved yet: its key may repeat
            missing = np.flatnonzero(~partnered)
            yield partial(self._partners.at_once, keyed.batch, partnered)
        self._mishits.add(_aside(keyed, missing))
        self._budget.hold("mishits", self._mishits.buffered_rows, self._mishits.nbytes)

    def _keyless(self, place: Place, keyed: KeyedRows) -> Iterator[pa.RecordBatch]:
        """Rows with a null key, or that fail a filter; they match nothing."""
        others = np.ones(place.batch.num_rows, np.bool_)
        others[keyed.positions - place.position] = False
        rows = np.flatnonzero(others)
        return self._partners.verdict(take_rows(place.batch, rows), np.zeros(len(rows), np.bool_))

    # Reading.

    def _read(self, which: int, start: int = 0) -> Iterator[tuple[Place, KeyedRows]]:
        """All rows of R1 (0) or RN (1), and those of them that can match."""
        side = self._many if which else self._one
        for place in self._scan[which].places(self._memory.batch_rows[which], start=start):
            rows, hashes = self._keys.hash(side, place.batch)
            self.tally.passes[which] += place.batch.num_rows
            self.counters.rows_received += place.batch.num_rows
            batch = place.batch if rows is None else take_rows(place.batch, rows)
            positions = place.position + (np.arange(batch.num_rows) if rows is None else rows)
            self._budget.hold(f"{BUFFER} {which}", place.batch.num_rows, place.batch.nbytes + 16 * len(hashes))
            yield place, KeyedRows(batch, hashes, positions)

    # Phase 2: mishits and all of R1.

    def _clean_up(self) -> Iterator[pa.RecordBatch]:
        again, met = self._met_again()
        self.ring.clear()
        self._budget.release("ring")
        for partitions in (self._mishits, again):
            partitions.close()
        whole = not (self._mishits.spilled or again.spilled)
        if self._mishits.rows + again.rows:
            ones = None if whole else self._partitioned_one()
            for number in [None] if whole else range(self._memory.partitions):
                yield from self._join_partition(number, again, met, ones)
        if self._partners.asks_one:
            for place, _ in self._read(0):
                yield from self._partners.last(place.batch, place.position)

    def _met_again(self) -> tuple[Partitions, Met]:
        """Rows of RN already joined with the first row of a repeated key; its other rows are still missing."""
        again = self._set_apart(self._many, "again")
        if not len(self._repeats):
            return again, Met.nothing()
        for _, keyed in self._read(0):
            self._repeats.look(keyed.hashes, keyed.positions)
        met = self._repeats.resolved_probes(self.ring.stays)
        for _, keyed in self._read(1, start=met.earliest):
            again.add(_aside(keyed, np.flatnonzero(met.position_of(keyed.hashes, keyed.positions) >= 0)))
            self._budget.hold("again", again.buffered_rows, again.nbytes)
        return again, met

    def _partitioned_one(self) -> Partitions:
        ones = self._set_apart(self._one, "ones")
        for _, keyed in self._read(0):
            ones.add(set_aside(*keyed))
            self._budget.hold("ones", ones.buffered_rows, ones.nbytes)
        ones.close()
        return ones

    def _join_partition(
        self, number: int | None, again: Partitions, met: Met, ones: Partitions | None
    ) -> Iterator[pa.RecordBatch]:
        for rows, has_met in self._chunks(number, again, met):
            table = HashTable()
            table.insert(rows.hashes)
            self._budget.hold("chunk", rows.batch.num_rows, rows.batch.nbytes + table.nbytes)
            partnered = np.zeros(rows.batch.num_rows, np.bool_)
            resolved = partnered.copy()
            pages = self._ones() if ones is None else ones.pages(number)
            for page in pages:
                self.counters.probes += len(page.hashes)
                for their, mine in table.find(page.hashes, MOST_PAIRS):
                    found = Meeting(rows.batch, mine, page.batch, their, page.positions[their])
                    found = self._partners.check_pairs(found)
                    partnered[found.many_rows] = True
                    known = has_met[found.many_rows] == found.one_positions
                    resolved[found.many_rows[known]] = True
                    yield from self._partners.resolve(found.only(~known), (EXTRA, EXTRA))()
            if self._partners.asks_many:
                open_rows = np.flatnonzero(~resolved)
                batch = take_rows(rows.rows, open_rows)
                yield from self._partners.verdict(batch, partnered[open_rows])
            self._budget.release("chunk")

    def _ones(self) -> Iterator[Aside]:
        for _, keyed in self._read(0):
            yield set_aside(*keyed)

    def _chunks(self, number: int | None, again: Partitions, met: Met) -> Iterator[tuple[Aside, Positions]]:
        """Rows of RN in chunks that fit in memory, each with the position of the row of R1 it was joined with, or -1.

        Mishits are excluded from the second read.
        """
        waiting: list[pa.RecordBatch] = []
        marks: list[Positions] = []
        nbytes = 0
        for partitions in (self._mishits, again):
            for page in partitions.pages(number):
                marked = met.position_of(page.hashes, page.positions)
                batch = page.batch
                if partitions is self._mishits and (marked >= 0).any():
                    batch = take_rows(batch, np.flatnonzero(marked < 0))
                    marked = marked[marked < 0]
                waiting.append(batch)
                marks.append(marked)
                nbytes += batch.nbytes
                if nbytes > self._memory.chunk_bytes:
                    yield Aside(one_batch(waiting, batch.schema)), np.concatenate(marks)
                    waiting, marks, nbytes = [], [], 0
        if waiting:
            yield Aside(one_batch(waiting, waiting[0].schema)), np.concatenate(marks)

    def _set_apart(self, side: Side, stem: str) -> Partitions:
        memory = self._memory
        schema = self._scan[int(side is self._many)].schema
        return Partitions(schema, self._store, stem, memory.partitions, memory.aside_bytes)


def _aside(keyed: KeyedRows, rows: Rows) -> Aside:
    return set_aside(take_rows(keyed.batch, rows), keyed.hashes[rows], keyed.positions[rows])


def join_along_diagonal(
    plan: JoinPlan, scans: tuple[Scan, Scan], schema: pa.Schema, observer: Observer | None = None, threads: int = 1
) -> Iterator[Step]:
    """Results as they are found, while both inputs are read and the window slides."""
    join = DiagonalJoin(plan, scans, schema, threads)
    for phase, batch in join.results():
        yield Step(batch, phase, join.counters.results, None)
        if observer is not None:
            observer(Progress("joining", join.counters.results))
