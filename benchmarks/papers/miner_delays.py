"""MINER with sources that stall: the number of rows that wait while it works on blocks, on a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.miner_runs import Setting
from dovetail.columns.batches import one_batch
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival
from dovetail.execution.driver import Driver
from dovetail.operators.protocol import Workspace
from dovetail.operators.registry import operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import arrival_times
from dovetail.testing.clock import Costs
from dovetail.testing.workload import Workload

WAIT_S = 0.025  # without an arrival, before it works on blocks
HAND_OVER = 1000  # rows that may wait before it stops


@dataclass(slots=True)
class Waiting:
    """How many rows waited, and why."""

    most_rows: int = 0
    most_rows_in_a_step: int = 0  # that arrived during a single step of the work on blocks
    most_pages_in_a_step: int = 0
    blocks_allowed: int = 0  # blocks a step may load: outer blocks, and one of each other input
    steps: int = 0
    reactive_results: int = 0


def with_silences(setting: Setting, silence: float) -> Setting:
    """Ten fragments of each input, each followed by a silence of this many times its duration."""
    seconds = tuple(arrival_times.with_silences(times, silence=silence) for times in setting.workload.seconds)
    return replace(setting, workload=Workload(setting.workload.tables, seconds))


def waiting_rows(setting: Setting, memory_rows: int, block_rows: int, hand_over: int = HAND_OVER) -> Waiting:
    """Play the workload: rows are joined when they are due, blocks when no row is due."""
    counters, costs, seen = Counters(), Costs(), Waiting()
    blocks = BlockStore(counters=counters)
    space = Workspace(setting.graph, Budget(memory_rows, "rows", counters), blocks, block_rows, counters)
    seen.blocks_allowed = space.shares.outer_blocks + len(setting.graph.aliases) - 1
    operator = operator_class("miner", len(setting.graph.aliases))(space)
    driver = Driver(operator, space)
    inputs, due = setting.workload.merged()
    batches = [one_batch(table.combine_chunks(), table.schema) for table in setting.workload.tables]
    places = np.zeros(len(inputs), np.int64)
    for i in range(len(batches)):
        places[inputs == i] = np.arange(batches[i].num_rows)
    joined, now = 0, 0.0

    def pages() -> int:
        return counters.pages_read_random + counters.pages_read_sequential

    try:
        while joined < len(due):
            waiting = int(np.searchsorted(due, now, "right")) - joined
            seen.most_rows = max(seen.most_rows, waiting)
            before = costs.total_cost(counters)
            if waiting:
                row = int(places[joined])
                arrival = Arrival(int(inputs[joined]), batches[inputs[joined]].slice(row, 1))
                for _ in driver.handle(arrival):
                    pass
                joined += 1
                now += costs.total_cost(counters) - before
            elif due[joined] - now <= WAIT_S:
                now = float(due[joined])
            else:
                started, read = now, pages()
                for tuples in operator.react():
                    seen.reactive_results += tuples.size
                    seen.steps += 1
                    seen.most_pages_in_a_step = max(seen.most_pages_in_a_step, pages() - read)
                    came = np.searchsorted(due, [now, started + costs.total_cost(counters) - before], "right")
                    seen.most_rows_in_a_step = max(seen.most_rows_in_a_step, int(came[1] - came[0]))
                    now, read = started + costs.total_cost(counters) - before, pages()
                    if int(came[1]) - joined > hand_over:
                        break
                else:
                    now = max(now, float(due[joined]))  # all is joined: wait
    finally:
        blocks.close()
    return seen
