"""Progressive merge join: a sort-merge join that joins while it sorts, on any condition with a sweep order.

    arriving   rows of both sides --> memory full: sort both, join them, write them as a pair of sorted runs
    cleanup    merge up to F/2 run pairs into one, joining rows of different pairs on the way, until one is left

        (L1 R1) (L2 R2) (L3 R3) (L4 R4)        joined when the runs are made: Li with Ri
            \\      /        \\      /
           (L12   R12)      (L34   R34)         L1 R2, L2 R1, and L3 R4, L4 R3
                  \\            /
                 (not written: the last)        the rest

Guarantee: every matching pair exactly once, at the lowest node of the merge tree that has both rows; no result is
remembered. The sweep order (matchers/sweep_order.py) covers equalities, bands, overlaps, rectangles, distances and
inequalities. Merges stream (state/run_merge.py); sweep areas that outgrow memory spill (state/sweep_area.py).

Dittrich, Seeger, Taylor, Widmayer, Progressive merge join, VLDB 2002, sections 3.1-3.6.

Deviations: batches. Rows that the sweep has reached are joined with an area by the kernel of the condition's class, not
one by one; partners from the same run pair are found again there and dropped. Runs are made by load and sort, never by
replacement selection. The last merge is not written. The first rows that arrive meet before memory is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.batch import Pairs, Rows, Side, slices, take_rows
from dovetail.condition import Condition
from dovetail.errors import InputError
from dovetail.kernels.apart import apart
from dovetail.kernels.sorting import sort_codes
from dovetail.matchers import build_matcher
from dovetail.matchers.cubes import COPIES
from dovetail.matchers.sweep_order import SweepOrder
from dovetail.operators.protocol import Manifest, Usage, Workspace
from dovetail.state.blocks import Block
from dovetail.state.budget import BUFFER
from dovetail.state.row_store import RowStore
from dovetail.state.run_merge import Merge, divide
from dovetail.state.runs import NO_WORDS, Items, Pages, Run, RunPair, RunWriter, Words

ROOM = 1 << 18  # pairs in one yield
FAN_IN = 40  # runs that are merged at once, of both sides together; fewer where memory is short
FIRST_ROWS = 1 << 12  # that meet before memory is full; then twice as many, and so on, while the first run is made
INTERVAL_BYTES = 16  # of each row in a run
INDEX_BYTES = INTERVAL_BYTES + 4  # for each row of a side that is sorted: its interval and its place

CHUNK = 512  # rows of each side that stand for a block of the estimator while the first run is made

STRICTNESS = ("progressive", "semi_strict", "strict")
"""When results may come: always; in the last merge; after it (the sort-merge joins that PMJ is compared with)."""


class _Written(NamedTuple):
    run: Run
    codes: Words  # of its rows, as they arrived


class _Tally(NamedTuple):
    """Pairs found, and those among the first CHUNK rows of both sides, among the next ones, and so on."""

    matches: int
    diagonal: Words

    @classmethod
    def none(cls) -> _Tally:
        return cls(0, NO_WORDS)

    @classmethod
    def of(cls, lefts: Rows, rights: Rows) -> _Tally:
        chunks = lefts // CHUNK
        return cls(len(lefts), np.bincount(chunks[chunks == rights // CHUNK]))

    def with_(self, other: _Tally) -> _Tally:
        total = np.zeros(max(len(self.diagonal), len(other.diagonal)), np.int64)
        for part in (self, other):
            total[: len(part.diagonal)] += part.diagonal
        return _Tally(self.matches + other.matches, total)


class Pmj:
    name: ClassVar[str] = "pmj"
    spills: ClassVar[bool] = True

    def __init__(self, workspace: Workspace) -> None:
        self._condition = workspace.condition
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._estimator = workspace.estimator
        self._store = workspace.blocks
        self._block_rows = workspace.block_rows
        workspace.shares  # noqa: B018  refuses a budget that is too small
        self._order = SweepOrder(workspace.condition, workspace.parameters.get("copies", COPIES))
        self._pages = Pages(workspace.blocks, workspace.budget, workspace.condition.schemas)
        self._fan_in: int = workspace.parameters.get("fan_in", FAN_IN)
        self._strictness: str = workspace.parameters.get("strictness", STRICTNESS[0])
        if self._fan_in < 4:
            raise InputError(f"fan_in must be at least 4, two runs of each side; got {self._fan_in}.")
        if self._strictness not in STRICTNESS:
            raise InputError(f"strictness must be one of {', '.join(STRICTNESS)}; got {self._strictness!r}.")
        self._rows = tuple(RowStore(workspace.condition.schema(side)) for side in Side)  # of the run that is being made
        self._met = [0, 0]  # how many of them have met each other
        self._meeting: Iterator[Pairs] = iter(())  # what is still to come of a meeting that was broken off,
        self._before = [0, 0]  # who had met before it,
        self._yielded = 0  # and how much of it is out
        self._next_meeting: int | None = FIRST_ROWS  # None: not before memory is full
        self._tally = _Tally.none()  # of the meetings of the run that is being made
        self._runs: list[RunPair] = []
        self._version = 0

    @staticmethod
    def refuses(condition: Condition) -> str | None:
        if SweepOrder.exists(condition):
            return None
        return "a merge join needs an order: an equality, inequality, band, overlap or distance between the sides"

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Pairs]:
        yield from self._meeting
        rows, nbytes = self._size()
        more = int(batch.nbytes) + INDEX_BYTES * batch.num_rows
        if rows and self._budget.measure(rows + batch.num_rows, nbytes + more) > self._capacity:
            yield from self._close_run()
        self._rows[side].append(batch)
        self._budget.release(BUFFER)
        self._hold()
        if self._next_meeting is not None and self._unmet >= self._next_meeting:
            self._next_meeting *= 2
            yield from self._meet()

    def end(self, side: Side) -> None:
        pass

    def react(self) -> Iterator[Pairs]:
        """Sources stall: what has arrived since the last meeting meets."""
        # Not `yield from`: when this generator is dropped, the meeting must stay open for the next call.
        for pairs in self._meeting:
            yield pairs
        if self._unmet:
            for pairs in self._meet():
                yield pairs

    def clean_up(self) -> Iterator[Pairs]:
        yield from self._meeting
        if not self._runs and self._strictness == "progressive":
            yield from self._meet()  # all of it has been in memory together
            self._estimator.add(self._met[0], self._met[1], self._tally.matches)
            return
        yield from self._close_run()
        yield from self._merge_runs()

    def expire(self, watermark: int) -> Iterator[Pairs]:
        return iter(())

    def snapshot(self) -> Manifest:
        self._version += 1
        stem = f"{self._version:08d}"
        resident = []
        for side in Side:
            batches = slices(self._rows[side].view(), self._block_rows)
            resident.append([self._store.write(batch, f"{stem}-{side.alias}") for batch in batches])
        state = {
            "met": list(self._met),
            "before": list(self._before),
            "yielded": self._yielded,
            "next_meeting": self._next_meeting,
            "tally": [self._tally.matches, self._tally.diagonal.tolist()],
            "order": self._order.to_json(),
            "estimator": self._estimator.to_json(),
            "runs": [pair.to_json() for pair in self._runs],
            "resident": [[block.to_json() for block in side] for side in resident],
        }
        blocks = [block for side in resident for block in side]
        blocks += [block for pair in self._runs for block in pair.blocks]
        return Manifest(self._version, state, tuple(block.name for block in blocks))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        state = manifest.state
        self._runs = [RunPair.from_json(pair) for pair in state["runs"]]
        self._next_meeting = state["next_meeting"]
        for side in Side:
            for fields in state["resident"][side]:
                self._rows[side].append(self._store.read(Block.from_json(fields)))
        self._hold()
        self._order.restore(state["order"])
        self._estimator.restore(state["estimator"])
        self._before, self._met = list(state["before"]), list(state["met"])
        self._tally = _Tally(state["tally"][0], np.array(state["tally"][1], np.int64))
        self._yielded = state["yielded"]
        self._meeting = self._counted(self._yielded)

    @property
    def usage(self) -> Usage:
        rows, nbytes = self._size()
        blocks = [block for pair in self._runs for block in pair.blocks]
        return Usage(rows, nbytes, sum(block.rows for block in blocks), sum(block.nbytes for block in blocks))

    # Runs.

    def _meet(self) -> Iterator[Pairs]:
        """Rows of the run that is being made meet, those that have met before excepted."""
        self._before, self._met = self._met, [len(rows) for rows in self._rows]
        self._meeting, self._yielded = self._counted(0), 0
        return self._meeting

    def _counted(self, done: int) -> Iterator[Pairs]:
        """The meeting from some piece on, so that it can be broken off and go on elsewhere."""
        if self._strictness != "progressive" or self._before == self._met:
            return
        tally = self._tally
        for count, (pairs, noted) in enumerate(self._new_pairs(), start=1):
            tally = tally.with_(noted)
            if count > done:
                self._yielded = count
                yield pairs
        self._tally = tally
        if self._next_meeting is not None:
            self._estimate_early()
        self._before = self._met

    def _new_pairs(self) -> Iterator[tuple[Pairs, _Tally]]:
        left, right = (self._rows[side].view().slice(0, self._met[side]) for side in Side)
        old_left, new_left = left.slice(0, self._before[0]), left.slice(self._before[0])
        new_right = right.slice(self._before[1])
        for mine, first_left, theirs, first_right in (
            (new_left, self._before[0], right, 0),
            (old_left, 0, new_right, self._before[1]),
        ):
            if mine.num_rows and theirs.num_rows:
                self._counters.probes += mine.num_rows + theirs.num_rows
                for lefts, rights in build_matcher(self._condition, mine, theirs).pairs(ROOM):
                    by_chunk = self._next_meeting is not None
                    tally = (
                        _Tally.of(lefts + first_left, rights + first_right)
                        if by_chunk
                        else _Tally(len(lefts), NO_WORDS)
                    )
                    yield Pairs(mine, lefts, theirs, rights), tally
        yield Pairs.none(self._condition.schemas), _Tally.none()  # a meeting gives control back once at least

    def _estimate_early(self) -> None:
        """While the first run is made, parts of it say what to expect."""
        left, right = self._met
        self._learn()
        matches, diagonal = self._tally
        complete = np.zeros(min(left, right) // CHUNK, np.int64)
        complete[: len(diagonal)] = diagonal[: len(complete)]
        keys = [self._order.lines(side, self._rows[side].view().slice(self._before[side])).codes for side in Side]
        self._estimator.grow(left, right, matches, diagonal=complete.tolist(), chunk=CHUNK, keys=(keys[0], keys[1]))

    def _close_run(self) -> Iterator[Pairs]:
        """Memory is full: what is in it meets and becomes a run pair."""
        yield from self._meet()
        self._learn()
        page = divide(self._budget, self._block_rows, self._fan_in).page
        left, right = (self._write_run(side, page) for side in Side)
        arrived = len(self._rows[0]), len(self._rows[1])
        self._runs.append(RunPair((left.run, right.run), arrived))
        if self._strictness == "progressive":
            keys = None if self._next_meeting is not None else (left.codes, right.codes)
            self._estimator.add(*arrived, self._tally.matches, keys=keys)
        self._rows = tuple(RowStore(self._condition.schema(side)) for side in Side)
        self._met, self._before = [0, 0], [0, 0]
        self._tally, self._next_meeting = _Tally.none(), None
        self._hold()

    def _learn(self) -> None:
        self._order.learn(self._rows[0].view(), self._rows[1].view())

    def _write_run(self, side: Side, page: int) -> _Written:
        batch = self._rows[side].view()
        lines = self._order.lines(side, batch)
        order = sort_codes(lines.starts).order
        rows = order if lines.rows is None else lines.rows[order]
        writer = RunWriter(self._pages, side, page)
        width = self._budget.measure(1, -(-int(batch.nbytes) // max(1, batch.num_rows)) + INTERVAL_BYTES)
        step = max(1, page // width)
        for start in range(0, len(rows), step):
            chosen, places = rows[start : start + step], order[start : start + step]
            writer.add_page(Items(take_rows(batch, chosen), lines.starts[places], lines.ends[places]))
        return _Written(writer.finish(), lines.codes)

    # Merges.

    def _merge_runs(self) -> Iterator[Pairs]:
        while len(self._runs) > 1:
            room = divide(self._budget, self._block_rows, self._fan_in)
            count = _group_size(len(self._runs), room.pairs)
            group, self._runs = self._runs[:count], self._runs[count:]
            last = not self._runs
            merge = Merge(
                self._pages,
                self._budget,
                self._condition.schemas,
                group,
                room,
                writes=not last or self._strictness == "strict",
            )
            early = self._strictness == "progressive"
            yield from self._joined(merge, joins=early or (last and self._strictness == "semi_strict"))
            if merge.merged is not None:
                self._runs.append(merge.merged)
        if self._runs and self._strictness != "progressive":
            room = divide(self._budget, self._block_rows, self._fan_in)
            whole = Merge(self._pages, self._budget, self._condition.schemas, self._runs, room, writes=False)
            yield from self._joined(whole, joins=True)
        self._runs = []

    def _joined(self, merge: Merge, *, joins: bool) -> Iterator[Pairs]:
        """The pairs of a merge; if results came early, those from one run pair have been found."""
        early, found = self._strictness == "progressive", 0
        for left, right in merge.steps():
            if not joins:
                continue
            self._counters.probes += left.size + right.size
            for lefts, rights in build_matcher(self._condition, left.batch, right.batch).pairs(ROOM):
                self._counters.pairs_tested += len(lefts)
                if early:
                    lefts, rights = apart(lefts, rights, left.sources, right.sources)
                here = self._order.belongs(left, right, lefts, rights)
                if here is not None:
                    lefts, rights = lefts[here], rights[here]
                if len(lefts):
                    found += len(lefts)
                    yield Pairs(left.batch, lefts, right.batch, rights)
        self._counters.merges += 1
        if early:
            self._estimator.learn(merge.new_pairs, found)

    # Memory.

    @property
    def _unmet(self) -> int:
        return sum(len(self._rows[side]) - self._met[side] for side in Side)

    @property
    def _capacity(self) -> int:
        """Of the run that is being made, in the unit of the budget: all but the input buffer and a page."""
        limit = self._budget.limit
        if limit is None:
            return 2**62
        return limit - self._block_rows if self._budget.unit == "rows" else limit - limit // 8

    def _size(self) -> tuple[int, int]:
        """Rows and bytes of the run that is being made. Its sides are sorted one after the other."""
        rows = [len(store) for store in self._rows]
        return sum(rows), sum(store.nbytes for store in self._rows) + INDEX_BYTES * max(rows)

    def _hold(self) -> None:
        self._budget.hold("residents", *self._size())


def _group_size(runs: int, most: int) -> int:
    """How many of the oldest run pairs to merge, so that all merges but the first are full."""
    return runs if runs <= most else 2 + (runs - 2) % (most - 1)
