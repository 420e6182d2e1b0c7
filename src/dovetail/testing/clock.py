"""Runs a workload on a simulated clock: every unit of work takes the time given in a table of costs.

    next arrival near      it is joined; the clock advances to its arrival, then by the cost of the work
    further than wait_ms   the operator reacts; each yield costs time; rows that have arrived are joined
    clock overruns         rows that arrived meanwhile are the backlog, and its peak is counted

The outcome depends only on the operator's counters, not on the machine. The threshold of 25 ms is that of the
experiments with DINER (TKDE 2010: WaitThresh) and RPJ (SIGMOD 2005); `hand_over_rows` is DINER's MaxNewArr. The run
never waits for a source that has ended: it counts as stalled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from operator import attrgetter, mul
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Phase, Side, Stall
from dovetail.errors import InputError
from dovetail.execution.at_rest import count_at_rest
from dovetail.execution.driver import Driver
from dovetail.operators.protocol import Workspace
from dovetail.planning.planner import plan_operator
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing.workload import Workload


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds per unit of work, by the name of its counter. The defaults are for a disk with pages of 10 KB."""

    rows_received: float = 1e-6
    probes: float = 1e-6
    pairs_tested: float = 1e-8
    results: float = 1e-7
    pages_read_sequential: float = 1e-3
    pages_read_random: float = 1e-2
    pages_written: float = 1e-3
    pages_merged: float = 0.0  # in addition; RPJ's paper charges every page of a merge as random

    def total_cost(self, counters: Counters) -> float:
        """The cost of all counted work."""
        return float(sum(map(mul, CHARGED(self), CHARGED(counters))))


CHARGED = attrgetter(*(f.name for f in fields(Costs)))

PAGES_ONLY = Costs(0, 0, 0, 0, 1, 1, 1)
"""One unit per page, nothing else."""


@dataclass(slots=True)
class ClockedRun:
    """Results over time. At `seconds[i]` there were `results[i]`, found in `phases[i]` after `spent_s[i]` of work."""

    total: int = 0  # results of the whole join
    online: int = 0  # results once the last row had arrived and was joined
    last_arrival_s: float = 0.0
    end_s: float = 0.0
    seconds: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    spent_s: list[float] = field(default_factory=list)  # time spent on work, up to each result
    counters: Counters = field(default_factory=Counters)
    online_counters: Counters = field(default_factory=Counters)  # when the last row had arrived

    @property
    def share(self) -> float:
        """The share of all results that was found online."""
        return self.online / self.total if self.total else 1.0

    @property
    def max_buffer_rows(self) -> int:
        """The largest number of arrived rows that were waiting."""
        return self.counters.peak_buffer_rows

    def results_at(self, second: float) -> int:
        at = bisect_right(self.seconds, second)
        return self.results[at - 1] if at else 0

    def cost_at(self, second: float) -> float:
        """Seconds of work per result, up to this time."""
        at = bisect_right(self.seconds, second)
        return self.spent_s[at - 1] / self.results[at - 1] if at else 0.0


def play(
    operator: str,
    workload: Workload,
    on: Any,
    *,
    memory_rows: int | None = None,
    memory_bytes: int | None = None,
    block_rows: int = 50,
    batch_rows: int = 1,
    wait_ms: float = 25.0,
    hand_over_rows: int = 1,
    costs: Costs | None = None,
    clean_up: bool = True,
    seed: int = 0,
    **parameters: Any,
) -> ClockedRun:
    """Run an operator over a workload and report the number of results over time.

    Up to `batch_rows` arrivals, and never more than a block, are passed at once, when the last of them has arrived: 1
    is exact, more is faster. Reactive work goes on until it is done or `hand_over_rows` rows wait. Without `clean_up`
    the run ends with the last arrival, and a kernel counts all results. The budget is in rows or in bytes.
    """
    if memory_rows is not None and memory_bytes is not None:
        raise InputError("memory_rows and memory_bytes are two units of one budget: give one of them.")
    if len(workload.tables) != 2:
        raise InputError(f"a join of two inputs needs a workload with two tables; got {len(workload.tables)}.")
    left, right = (one_batch(table.combine_chunks(), table.schema) for table in workload.tables)
    condition = parse(on, left.schema, right.schema, in_process=True)
    graph = Graph.of(condition)
    plan = plan_operator(operator, graph, parameters=parameters)
    run = ClockedRun(last_arrival_s=workload.end_s)
    blocks = BlockStore(counters=run.counters)
    in_bytes = memory_bytes is not None
    budget = Budget(memory_bytes if in_bytes else memory_rows, "bytes" if in_bytes else "rows", run.counters)
    workspace = Workspace.of(plan, budget, blocks, block_rows, run.counters, seed=seed)
    player = _Player(run, Driver(plan.make_operator(workspace), workspace), workload, costs or Costs(), wait_ms / 1000)
    try:
        player.end_what_is_empty()
        for chunk in player.chunks(min(batch_rows, block_rows)):
            player.wait_for(chunk.start, hand_over_rows)
            player.join(chunk, (left, right))
        run.online = run.counters.results
        run.online_counters = replace(run.counters)
        if clean_up:
            player.end_the_last()
        run.end_s = player.now
    finally:
        blocks.close()
    run.total = run.counters.results if clean_up else count_at_rest(condition, left, right)
    return run


class _Player:
    """The clock, and the position in the sequence of arrivals."""

    def __init__(self, run: ClockedRun, driver: Driver, workload: Workload, costs: Costs, wait_s: float) -> None:
        self.now = 0.0
        self._run = run
        self._driver = driver
        self._costs = costs
        self._wait_s = wait_s
        self._sides, times = workload.merged()
        self._gaps = np.diff(times, prepend=0.0)
        self._times: list[float] = times.tolist()
        self._left = [table.num_rows for table in workload.tables]  # rows of each side still to come
        self._ended = [False, False]
        self._taken = 0  # arrivals taken so far
        self._paid = 0.0

    def chunks(self, batch_rows: int) -> Iterator[range]:
        """The arrivals in portions that are not split by a stall."""
        stalls = np.flatnonzero(self._gaps > self._wait_s)
        bounds = [0, *stalls[stalls > 0].tolist(), len(self._times)]
        for first, last in pairwise(bounds):
            for start in range(first, last, batch_rows):
                yield range(start, min(start + batch_rows, last))

    def wait_for(self, arrival: int, hand_over_rows: int) -> None:
        """Advance the clock to this arrival, with reactive work if that takes longer than the threshold."""
        due = self._times[arrival]
        if self._gaps[arrival] > self._wait_s:
            self.now = max(self.now, due - float(self._gaps[arrival]) + self._wait_s)
            enough = min(hand_over_rows, len(self._times) - self._taken)
            if self.now < due:
                self.handle(Stall(None, lambda: self._backlog() >= enough))
        self.now = max(self.now, due)

    def join(self, chunk: range, rows: tuple[pa.RecordBatch, pa.RecordBatch]) -> None:
        """Join a batch of each side in the portion, starting with the side of its first row."""
        self.now = max(self.now, self._times[chunk[-1]])
        self._taken = chunk.stop
        sides = self._sides[chunk.start : chunk.stop]
        first = Side(int(sides[0]))
        for side in (first, first.other):
            count = int(np.count_nonzero(sides == side))
            if count:
                self.handle(Arrival(side, rows[side].slice(rows[side].num_rows - self._left[side], count)))
                self._left[side] -= count
                self._end_if_over(side)

    def end_what_is_empty(self) -> None:
        for side in Side:
            self._end_if_over(side)

    def end_the_last(self) -> None:
        for side in Side:
            if not self._ended[side]:
                self._ended[side] = True
                self.handle(End(side))

    def _end_if_over(self, side: Side) -> None:
        """A side ends with its last row, but the end of the whole join waits until online results are counted."""
        if not self._left[side] and not self._ended[side] and not self._ended[side.other]:
            self._ended[side] = True
            self.handle(End(side))

    def handle(self, event: Event) -> None:
        """Run the operator, and advance the clock by the cost of its work."""
        run = self._run
        for found in self._driver.handle(event):
            self._advance()
            if found.results.size:
                run.seconds.append(self.now)
                run.results.append(run.counters.results)
                run.phases.append(found.phase)
                run.spent_s.append(self._paid)
        self._advance()

    def _advance(self) -> None:
        cost = self._costs.total_cost(self._run.counters)
        self.now += cost - self._paid
        self._paid = cost
        waiting = self._backlog()
        if waiting > self._run.counters.peak_buffer_rows:
            self._run.counters.peak_buffer_rows = waiting

    def _backlog(self) -> int:
        return bisect_right(self._times, self.now, self._taken) - self._taken
