"""SPO-Join: windowed joins of streams on inequalities, or on any other condition.

    left  batch --> probe right runs --> in the window? --> results
                \\-> a new left run
    runs of a side     [ slide 1 ][ slide 2 ] … [ slide k ] [new][n]        (operators/spo/runs.py)
                       immutable parts, sorted once          mutable: small runs, merged as they grow
                       expire as a whole                     merged into a part when they make up a slide, or less
                       oldest first: to disk, when memory is full             (operators/spo/run.py)

Guarantee: exactly the pairs that are in the window together when the later row arrives, each once, at that moment.
Outer joins emit a row without a partner when its window has closed; left_semi emits a row at its first partner,
left_anti when its window has closed without one. In a self-join, each row is joined with others in both roles, and
never with itself.

Windows count rows of both streams together or of each, or use event time; then rows behind the watermark are late: they
are counted, not joined. If the condition bounds event time, its bounds are the window. Without a window, all rows are
kept. A batch of probes reads each spilled part at most once, one at a time, unless its zone map excludes it, so results
are not deferred.

Based on SPO-Join, a stream inequality join with mutable and immutable parts, permutation and offset arrays.

Deviations: batches of probes are merged with sorted parts instead of looking up tuples one by one; runs instead of
B+-trees hold the newest rows; probes search the opposite stream's keys directly (the offsets of neighbours in their own
stream only bound the position); comparison operators decide about ties; expiry is coarse in memory and exact in the
results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.taking import take_rows
from dovetail.condition.evaluate import passing
from dovetail.condition.graph import Graph
from dovetail.condition.mirror import mirrored
from dovetail.condition.predicates import Condition
from dovetail.condition.select import Aggregate
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Rows, Side
from dovetail.matching.sorted_part import PartBuilder, ProbeBatch, SortedPart, ZoneMaps
from dovetail.matching.window_positions import (
    LEAST,
    Extent,
    Flags,
    Placement,
    WindowPositions,
    closed,
    event_times,
    gone_rows,
    late_flags,
    may_close,
    never,
    sure_rows,
    surely,
    within,
)
from dovetail.operators.protocol import EVERY, Approach, Manifest, OperatorSpec, Usage, WindowedOperator, Workspace
from dovetail.operators.spo.run import Run
from dovetail.operators.spo.runs import NO_LIMIT, RunCosts, Runs, RunShares
from dovetail.operators.spo.window_aggregate import WindowAggregate
from dovetail.window import Window

MOST_PAIRS, FEWEST_PAIRS = 1 << 20, 1 << 12  # per yield
PAIRS_SHARE = 64  # with a budget in bytes, 1 / this of it for listed pairs: they are not counted, but should be few
FEW_ROWS = 1 << 10  # of a run at the edge of the window: checking all pairs costs less than two lists of them
PROBES = "probes"  # holder of memory
PROBE_BYTES = 8 + 2 * (8 + 4)  # per row: its number, two codes and its position by each
EVERYTHING = Window(2**62, 2**62)


class Mine(NamedTuple):
    """The probing rows."""

    places: WindowPositions
    extent: Extent
    partnered: Flags


class Spo(WindowedOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(
        name="spo",
        join_types=EVERY,
        parameters={"window": Window | None, "delta": int | None, "self_join": bool},
        emits_at_arrival=True,
        windows=True,
    )

    def __init__(self, workspace: Workspace) -> None:
        self._window: Window = workspace.parameters.get("window") or EVERYTHING
        self._how = workspace.how
        self._self_join: bool = workspace.parameters.get("self_join", False)
        self._budget = workspace.budget
        self._counters = workspace.counters
        condition = workspace.condition
        self._filters = condition.filters
        self._builders, self._zones = _keeping(condition)
        self._costs = RunCosts()
        if self._budget.limit is not None:
            _ = workspace.shares  # refuses a budget that is too small
        limit = self._budget.limit or NO_LIMIT
        self._most_pairs = min(MOST_PAIRS, max(FEWEST_PAIRS, limit // PAIRS_SHARE))
        self._shares = RunShares.of(self._budget, workspace.block_rows)
        self._runs = tuple(
            Runs(
                side,
                self._builders[side],
                self._zones[side],
                workspace,
                self._window,
                self._costs,
                self._shares,
                tracked=side in self._how.tracked,
            )
            for side in Side
        )
        for runs in self._runs:
            runs.free_memory = self._free_memory
        self._arrived = [0, 0]
        self._horizon = LEAST  # future rows are not before it
        self._version = 0

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        return None

    @staticmethod
    def approach(graph: Graph) -> Approach:
        condition = graph.condition
        strategies = [one.strategy for one in (*condition.alternatives, condition)]
        driving = [p for strategy in strategies for p in (*strategy.equal, *strategy.predicates)]
        return Approach("sorted runs of both sides; spills the oldest", tuple(dict.fromkeys(driving)))

    def arrive(self, side: Side, batch: pa.RecordBatch, placement: Placement | None = None) -> Iterator[Matches]:
        """New rows, next in order, or placed among arrivals of which this operator sees only some.

        With placements, rows only expire through `expire`.
        """
        if placement is not None:
            yield from self._admit(side, batch, *placement)
            return
        if self._self_join:
            yield from self._arrive_twice(side, batch)
            return
        own = np.arange(self._arrived[side], self._arrived[side] + batch.num_rows)
        other = np.full(batch.num_rows, self._arrived[side.other])
        self._arrived[side] += batch.num_rows
        yield from self._admit(side, batch, WindowPositions(own + other, own, other))
        if not self._window.by_time:
            yield from self.expire(sum(self._arrived))

    def _arrive_twice(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        """A self-join: the left stream is also the right one. A row has both roles, and is never its own partner."""
        if side is Side.RIGHT:
            return
        first = self._arrived[side]
        self._arrived = [first + batch.num_rows] * 2
        numbers = np.arange(first, first + batch.num_rows)
        for role in Side:
            yield from self._admit(role, batch, WindowPositions(numbers, numbers, numbers))
        if not self._window.by_time:
            yield from self.expire(self._arrived[0])

    def _admit(
        self, side: Side, batch: pa.RecordBatch, places: WindowPositions, stores: Flags | None = None
    ) -> Iterator[Matches]:
        """Probe with rows, then store them. With a time window, positions are read from the rows."""
        batch, places, stores = self._on_time(side, batch, places, stores)
        matchable = self._matchable(side, batch, places)
        if matchable is not None and not matchable.all():
            if side in self._how.preserved:
                yield Matches.single(side, batch, np.flatnonzero(~matchable))
            batch, places, stores = _some(batch, places, stores, matchable)
        most = self._probes_at_once(batch)
        for start in range(0, batch.num_rows, most):
            rows = np.arange(start, min(start + most, batch.num_rows))
            some = None if stores is None else stores[rows]
            yield from self._probe_and_store(side, batch.slice(start, most), places.of(rows), some)

    def _probes_at_once(self, batch: pa.RecordBatch) -> int:
        """How many of the arriving rows fit in their share of the budget."""
        rows: int = batch.num_rows
        size = self._budget.measure(rows, batch.nbytes + PROBE_BYTES * rows)
        return max(1, rows * self._shares.arriving // max(1, size))

    def _probe_and_store(
        self, side: Side, batch: pa.RecordBatch, places: WindowPositions, stores: Flags | None
    ) -> Iterator[Matches]:
        self._budget.hold(PROBES, 0, PROBE_BYTES * batch.num_rows)
        partnered = np.zeros(batch.num_rows, np.bool_)
        yield from self._probe(side, batch, places, partnered)
        reported = partnered.copy() if self._how is JoinType.LEFT_SEMI else np.zeros(batch.num_rows, np.bool_)
        if side is self._how.only and reported.any():
            yield Matches.single(side, batch, np.flatnonzero(reported))
        rows = np.arange(batch.num_rows) if stores is None else np.flatnonzero(stores)
        if len(rows):
            flags = (partnered[rows], reported[rows])
            example = self._runs[side.other].newest if self._builders[side].has_choice else None
            self._runs[side].add(take_rows(batch, rows), places.of(rows), flags, example)
        self._budget.release(PROBES)

    # Metrics of the kept rows.

    @property
    def window(self) -> Window:
        return self._window

    @property
    def window_rows(self) -> int:
        """The number of rows kept, in memory and on disk."""
        return sum(runs.rows for runs in self._runs)

    @property
    def horizon(self) -> int:
        """Future rows are not before this, or they are late."""
        return self._horizon

    @property
    def costs(self) -> RunCosts:
        return self._costs

    def runs(self, side: Side) -> Runs:
        return self._runs[side]

    def runs_to_probe(self, side: Side, batch: pa.RecordBatch, extent: Extent) -> Iterator[Run]:
        """Runs of the other side that can hold partners of arriving rows; spilled parts are loaded one at a time."""

        def wanted(other: Extent) -> bool:
            return not never(self._window, *_orient(side, extent, other))

        return self._runs[side.other].scan(wanted, lambda: self._zones[side.other].reach(batch))

    def probing(self, side: Side, batch: pa.RecordBatch) -> ProbeBatch:
        return self._builders[side.other].probing(batch)

    def keep_some(self, side: Side, kept: SortedPart, rows: Rows) -> SortedPart:
        """Some of the kept rows, sorted by the same keys."""
        return self._builders[side].keep_some(kept, rows)

    def in_time(
        self, side: Side, batch: pa.RecordBatch, places: WindowPositions
    ) -> tuple[pa.RecordBatch, WindowPositions]:
        """Rows that have a time and are not late, positioned by the window."""
        batch, places, _ = self._on_time(side, batch, places, None)
        return (batch, places) if self._window.on is None else _some(batch, places, None, places.at != LEAST)[:2]

    def clean_up(self) -> Iterator[Matches]:
        """Close all windows."""
        for side in self._how.preserved:
            for run in self._runs[side].open_rows(lambda _: True):
                yield from self._close_windows(side, run, np.ones(run.rows, np.bool_))

    def aggregate(
        self, aggregates: Sequence[Aggregate], schema: pa.Schema, batch: pa.RecordBatch, places: WindowPositions
    ) -> pa.RecordBatch:
        return WindowAggregate(self, aggregates, schema).over(batch, places)

    def expire(self, watermark: int, arrived: tuple[int, int] | None = None) -> Iterator[Matches]:
        """Future rows are at or after the watermark, which is in arrivals or microseconds.

        `arrived`: the number of rows of each side that have arrived anywhere, if some of them were not seen here.
        """
        if arrived is not None:
            self._arrived = list(arrived)
        self._horizon = max(self._horizon, watermark)
        for side in Side:
            runs = self._runs[side]
            preserved = side in self._how.preserved
            for run in runs.pop_over(self._oldest(side), wants_open_rows=preserved):
                if preserved:
                    yield from self._close_windows(side, run, np.ones(run.rows, np.bool_))
            if preserved:
                may = partial(may_close, self._window, side, horizon=self._horizon, own_count=self._arrived[side])
                for run in runs.open_rows(may):
                    over = closed(self._window, side, run.places, self._horizon, self._arrived[side])
                    yield from self._close_windows(side, run, over)

    def snapshot(self) -> Manifest:
        self._version += 1
        runs = [runs.write() for runs in self._runs]
        state: dict[str, Any] = {
            "arrived": list(self._arrived),
            "horizon": self._horizon,
            "runs": runs,
            "costs": self._costs.to_json(),
        }
        names = tuple(block["name"] for side in runs for run in side for block in run["blocks"].values())
        return Manifest(self._version, state, names)

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        self._arrived = list(manifest.state["arrived"])
        self._horizon = manifest.state["horizon"]
        self._costs.remember(manifest.state["costs"])
        for side, runs in zip(Side, manifest.state["runs"], strict=True):
            self._runs[side].read(runs)

    @property
    def usage(self) -> Usage:
        return Usage(
            sum([runs.resident_rows for runs in self._runs]),
            sum([runs.nbytes for runs in self._runs]),
            sum([runs.spilled_rows for runs in self._runs]),
            sum([runs.spilled_bytes for runs in self._runs]),
        )

    # Probing.

    def _probe(self, side: Side, batch: pa.RecordBatch, places: WindowPositions, partnered: Flags) -> Iterator[Matches]:
        mine = Mine(places, places.extent(), partnered)
        probing = self.probing(side, batch)
        self._counters.probes += batch.num_rows
        for run in self.runs_to_probe(side, batch, mine.extent):
            yield from self._match_run(side, probing, mine, run)

    def _match_run(self, side: Side, probing: ProbeBatch, mine: Mine, run: Run) -> Iterator[Matches]:
        """The pairs of the probes and a run. Only rows at the edge of the window are checked against it."""
        itself = self._self_join and _overlap(mine.extent.own, run.extent.own)
        sure = self._window.limits is not None or surely(self._window, *_orient(side, mine.extent, run.extent))
        if sure and not itself:
            yield from self._list_pairs(side, probing, mine, run, run.kept, all_in=True)
        elif run.kept.part is None:
            yield from self._list_pairs(side, probing, mine, run, run.kept, all_in=False)
        else:
            certain = sure_rows(self._window, side, mine.extent, run.places)
            if itself:
                certain &= (run.places.own < mine.extent.own[0]) | (run.places.own > mine.extent.own[1])
            doubtful = ~gone_rows(self._window, side, mine.extent, run.places)
            if run.rows <= FEW_ROWS and self._how.emits_pairs:
                certain = np.zeros(run.rows, np.bool_)
            else:
                doubtful &= ~certain
            if certain.any():
                yield from self._list_pairs(side, probing, mine, run, run.kept.only(certain), all_in=True)
            if doubtful.any():
                yield from self._list_pairs(side, probing, mine, run, run.kept.only(doubtful), all_in=False)

    def _list_pairs(
        self, side: Side, probing: ProbeBatch, mine: Mine, run: Run, kept: SortedPart, all_in: bool
    ) -> Iterator[Matches]:
        started = time.perf_counter()
        matcher = probing.match(kept)
        self._costs.probed(1, time.perf_counter() - started)
        if all_in and not self._how.emits_pairs:
            if side is Side.LEFT:
                mine.partnered[matcher.partnered(Side.LEFT)] = True
            else:
                yield from self._mark_partners(run, np.flatnonzero(matcher.partnered(Side.RIGHT)))
            return
        for my_rows, their_rows in matcher.pairs(self._most_pairs):
            if not all_in:
                places = (mine.places, my_rows), (run.places, their_rows)
                left, right = _orient(side, *places)
                good = within(self._window, *left, *right)
                if self._self_join:
                    good &= mine.places.own[my_rows] != run.places.own[their_rows]
                my_rows, their_rows = my_rows[good], their_rows[good]
            if side in self._how.tracked:
                mine.partnered[my_rows] = True
            if self._how.emits_pairs:
                yield Matches.oriented(side, probing.batch, my_rows, run.kept.batch, their_rows)
            if side.other in self._how.tracked:
                yield from self._mark_partners(run, their_rows)

    def _mark_partners(self, run: Run, rows: NDArray[Any]) -> Iterator[Matches]:
        """Mark kept rows as partnered; a semi join emits those that had no partner before."""
        run.partnered[rows] = True
        if self._how is JoinType.LEFT_SEMI:
            new = np.flatnonzero(run.partnered & ~run.reported)
            run.reported[new] = True
            if len(new):
                yield Matches.single(Side.LEFT, run.kept.batch, new)

    def _close_windows(self, side: Side, run: Run, over: Flags) -> Iterator[Matches]:
        """Emit rows of a side whose windows have closed without a partner."""
        alone = np.flatnonzero(over & ~run.partnered & ~run.reported)
        run.reported |= over
        if len(alone):
            yield Matches.single(side, run.kept.batch, alone)

    # Keeping.

    def _on_time(
        self, side: Side, batch: pa.RecordBatch, places: WindowPositions, stores: Flags | None
    ) -> tuple[pa.RecordBatch, WindowPositions, Flags | None]:
        """With a time window: the rows that are not late, positioned by their time."""
        if self._window.on is None:
            return batch, places, stores
        places = places._replace(at=event_times(batch.column(self._window.on[side])))
        late = late_flags(self._window, side, batch, self._horizon)
        if not late.any():
            return batch, places, stores
        self._counters.late_rows += int(late.sum())
        return _some(batch, places, stores, ~late)

    def _matchable(self, side: Side, batch: pa.RecordBatch, places: WindowPositions) -> Flags | None:
        """Which rows can have a partner: they have a time, and pass the filters of the condition. None: all.

        In an outer join within a window, all rows without a partner are emitted when the window closes.
        """
        waits = self._window.limits is None and side in self._how.preserved
        flags = None if waits else passing(self._filters[side], side, batch)
        if self._window.on is None:
            return flags
        timed: Flags = places.at != LEAST
        return timed if flags is None else flags & timed

    def _oldest(self, side: Side) -> int:
        """The first position of its rows that can still be in a window."""
        if self._window.by_own:
            return self._arrived[side] - self._window.size
        return self._horizon + self._window.expiry(side)

    def _free_memory(self, rows: int, nbytes: int) -> None:
        """Spill the oldest runs of both sides until the given rows and bytes fit in memory."""
        while self._budget.limit is not None and self._resident(rows, nbytes) > self._shares.residents:
            filled = [runs for runs in self._runs if runs.oldest is not None]
            if not filled:
                return
            min(filled, key=lambda runs: runs.oldest or 0).spill()

    def _resident(self, rows: int, nbytes: int) -> int:
        """The size of runs in memory and zone maps with these additional rows and bytes."""
        rows += sum(runs.resident_rows for runs in self._runs)
        nbytes += sum(runs.nbytes + runs.parts_nbytes for runs in self._runs)
        return self._budget.measure(rows, nbytes)


@lru_cache(maxsize=64)
def _keeping(condition: Condition) -> tuple[tuple[PartBuilder, PartBuilder], tuple[ZoneMaps, ZoneMaps]]:
    """How to keep rows of each side: as the right side of a condition whose left side are the probes.

    All cells and micro-batches of a stream have the same condition, so this is cached.
    """
    left, right = mirrored(condition), condition
    return (PartBuilder(left), PartBuilder(right)), (ZoneMaps(left), ZoneMaps(right))


def _some(
    batch: pa.RecordBatch, places: WindowPositions, stores: Flags | None, chosen: Flags
) -> tuple[pa.RecordBatch, WindowPositions, Flags | None]:
    rows = np.flatnonzero(chosen)
    return take_rows(batch, rows), places.of(rows), None if stores is None else stores[rows]


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _orient(side: Side, mine: Any, theirs: Any) -> tuple[Any, Any]:
    return (mine, theirs) if side is Side.LEFT else (theirs, mine)
