"""A progressive join of tables on several threads: rows are routed to cells, and each cell has its own operator.

                       / worker 0: operators of its cells \\
    tables --> router -                                     --> steps, as they come
                       \\ worker 1: operators of its cells /

The router is chosen by samples such that the busiest worker has the least load, counted in rows and pairs: ranges of
keys, hashes with heavy keys split, pairs of blocks. Any two matching rows share one cell, so every pair is found once.
Kernels release the GIL, so workers run in parallel; each cell has its share of the memory. Estimates are for the whole
join, from blocks of rows as they come from the tables, and from rows drawn at random.

Based on PMJ (VLDB 2002), section 5, which names parallel joins with balanced results as an extension.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import empty_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Matches, Phase, Side
from dovetail.core.threads import BoundedQueue, QueueClosedError
from dovetail.errors import PlanError
from dovetail.estimation.measures import Measures
from dovetail.execution.drawing import Drawing
from dovetail.execution.driver import Driver
from dovetail.execution.output import MOST_BYTES, RESULTS_SHARE, SMALLEST_BATCH, result_batches
from dovetail.execution.sampling import Sampling
from dovetail.execution.steps import Sizes, Step, StepBuilder
from dovetail.operators.protocol import Workspace
from dovetail.planning.plan import JoinPlan
from dovetail.planning.statistics import Samples, sample_table
from dovetail.routing import Routing, Task, choose_router, in_tasks
from dovetail.routing.routers import Router
from dovetail.storage.allocator import GrowthWatch
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget, Shares

FINER = 2  # cells per worker, if one each would be unbalanced
EVEN = 1.2  # times the average load that a worker may have
SMALL_PAGES = (
    "the inputs are larger than memory, of which each worker has a part: it writes shorter pages, and one worker may "
    "be faster. Give more memory, or compare with workers=1."
)
WAITING = 2  # batches per worker
AHEAD = 8  # results of a worker that wait to be taken
UNDER_WAY = 5  # a fifth of the budget is for all of these; cells share the rest


class _Given(NamedTuple):
    """Results of a worker: rows, or sums over them if aggregates are requested."""

    phase: Phase
    size: int
    batch: pa.RecordBatch
    sums: Mapping[str, float]


class _Done:
    """A worker has emitted all its results."""


Item = Event | _Given | _Done | Exception


@dataclass(frozen=True, slots=True)
class CellAssignment:
    """The router, and the worker of each of its cells."""

    router: Router
    workers: list[int]


def plan_workers(plan: JoinPlan, tables: tuple[pa.Table, pa.Table], workers: int) -> tuple[JoinPlan, CellAssignment]:
    """Assigns cells to a number of workers, by samples of both tables."""
    if plan.how != "inner":
        raise PlanError(f"workers= supports inner joins only; how is {plan.how!r}.")
    samples = [sample_table(plan.condition, side, tables[side]) for side in Side]
    routing = _choose_cells(plan.condition, (samples[0], samples[1]), workers)
    cells = CellAssignment(routing.router, in_tasks(routing.loads, workers))
    whole = plan.memory_bytes
    memory = None if whole is None else (whole - whole // UNDER_WAY) // routing.router.cells
    Shares(Budget(memory), block_rows=1)  # raises before any work if the budget is too small for all of them
    if plan.memory_bytes is not None and sum(table.nbytes for table in tables) > plan.memory_bytes:
        plan = replace(plan, advice=(*plan.advice, SMALL_PAGES))
    plan = replace(plan, memory_bytes=memory, router=routing.choice, cells=routing.router.cells, tasks=workers)
    return plan, cells


def _choose_cells(condition: Condition, samples: Samples, workers: int) -> Routing:
    """One cell per worker, if that balances the load; else several, so that it can be balanced.

    Each cell has its share of the memory: more cells write more and shorter pages.
    """
    one_each = choose_router(Task(condition, samples, workers, finer=1))
    if one_each.router.cells <= workers and one_each.loads.max(initial=0.0) <= EVEN * one_each.loads.sum() / workers:
        return one_each
    # Grids have more cells anyway.
    return choose_router(Task(condition, samples, FINER * workers if condition.equalities else workers))


class ParallelJoin:
    """The threads of one join. Take its steps; close it to stop them."""

    def __init__(
        self,
        plan: JoinPlan,
        cells: CellAssignment,
        tables: tuple[pa.Table, pa.Table],
        schema: pa.Schema,
        batch_rows: int,
        sizes: Sizes,
        aggregates: Mapping[str, str],
    ) -> None:
        self._plan = plan
        self._growth = None if plan.memory_bytes is None else GrowthWatch(plan.memory_bytes * plan.cells)
        self._cells = cells
        self._schema = schema
        self._batch_rows = batch_rows
        self._aggregates = aggregates
        self.name = f"{plan.operator.name} in several workers"
        self._nothing = empty_batch(schema)
        share = MOST_BYTES if plan.memory_bytes is None else plan.memory_bytes // RESULTS_SHARE // AHEAD
        self._results_bytes = max(SMALLEST_BATCH, min(MOST_BYTES, share))
        workspace = self._workspace(BlockStore())
        plan.make_operator(workspace)  # raises at once if parameters are wrong
        self._outlook = StepBuilder(workspace, sizes, aggregates, pairs_only=True)
        rows = (sizes.rows[0], sizes.rows[1])
        self._sampling = Sampling(workspace, self._outlook.measures, rows, owned=False, all_meet=lambda: False)
        self._drawing = Drawing(workspace, self._outlook.measures, tables)
        workers = 1 + max(cells.workers)
        self._lines: list[BoundedQueue[tuple[int, Event]]] = [BoundedQueue(WAITING) for _ in range(workers)]
        self._found: BoundedQueue[Item] = BoundedQueue(AHEAD * workers)

    def steps(self, events: Iterable[Event]) -> Generator[Step, None, None]:
        """The steps. Leaving the loop early stops the threads and frees memory and files."""
        threads = [threading.Thread(target=self._feed, args=(events,), name="dovetail-router", daemon=True)]
        threads += [
            threading.Thread(target=self._work, args=(worker,), name=f"dovetail-worker-{worker}", daemon=True)
            for worker in range(len(self._lines))
        ]
        for thread in threads:
            thread.start()
        try:
            yield from self._take_steps()
        finally:
            self._found.close()
            for line in self._lines:
                line.close()
            for thread in threads:
                thread.join()

    def _take_steps(self) -> Iterator[Step]:
        results, working = 0, len(self._lines)
        last: Step | None = None  # held back, since the last step has the final figures
        while working:
            match self._found.take():
                case Exception() as error:
                    raise error
                case _Done():
                    working -= 1
                case _Given(phase, size, batch, sums):
                    results += size
                    self._outlook.add(sums)
                    if last is not None:
                        yield last
                    last = self._outlook.step(batch, phase, results)
                case event:
                    self._sampling.note(event)
                    self._drawing.note(event)
        if last is not None or self._outlook.measures:
            yield self._outlook.last(last, self._schema, results)

    # What the threads run.

    def _feed(self, events: Iterable[Event]) -> None:
        with suppress(QueueClosedError):
            try:
                position = [0, 0]
                for event in events:
                    self._found.put(event)
                    match event:
                        case Arrival(number, batch):
                            self._route(Side(number), batch, position[number])
                            position[number] += batch.num_rows
                        case End():
                            for cell, worker in enumerate(self._cells.workers):
                                self._lines[worker].put((cell, event))
            except Exception as error:
                self._found.put(error)

    def _route(self, side: Side, batch: pa.RecordBatch, first: int) -> None:
        rows, cells = self._cells.router.route(side, batch, np.arange(first, first + batch.num_rows))
        order = np.argsort(cells.astype(np.int16), kind="stable")  # numbers this short are sorted by counting
        ends = np.cumsum(np.bincount(cells, minlength=len(self._cells.workers)))
        for cell, (worker, start, end) in enumerate(zip(self._cells.workers, [0, *ends[:-1]], ends, strict=True)):
            if end > start:
                self._lines[worker].put((cell, Arrival(side, take_rows(batch, rows[order[start:end]]))))

    def _work(self, worker: int) -> None:
        """Run all cells of a worker, until both sides of each have ended."""
        blocks = BlockStore()
        measures = Measures(self._aggregates, self._plan.condition.schemas)
        with suppress(QueueClosedError):
            try:
                mine = [cell for cell, owner in enumerate(self._cells.workers) if owner == worker]
                drivers = {cell: self._driver(blocks) for cell in mine}
                ends = 0
                while ends < len(Side) * len(mine):
                    cell, event = self._lines[worker].take()
                    ends += isinstance(event, End)
                    for phase, results in drivers[cell].handle(event):
                        for given in self._emit_results(phase, results, measures):
                            self._found.put(given)
                self._found.put(_Done())
            except Exception as error:
                self._found.put(error)
            finally:
                blocks.close()

    def _emit_results(self, phase: Phase, results: Matches, measures: Measures) -> Iterator[_Given]:
        if not measures:
            for batch in result_batches(results, self._schema, most_bytes=self._results_bytes):
                yield _Given(phase, batch.num_rows, batch, {})
        elif results.size and results.is_complete:
            yield _Given(phase, results.size, self._nothing, measures.sum_pairs(results))

    def _driver(self, blocks: BlockStore) -> Driver:
        workspace = self._workspace(blocks)
        return Driver(self._plan.make_operator(workspace), workspace)

    def _workspace(self, blocks: BlockStore) -> Workspace:
        counters = Counters()
        look = None if self._growth is None else self._growth.look
        budget = Budget(self._plan.memory_bytes, "bytes", counters, look)
        return Workspace.of(self._plan, budget, blocks, self._batch_rows, counters)
