"""RPJ's experiments at a fraction of their size: the same shares of partitions, memory and rates, fewer rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.papers.clairvoyant import online_bound
from benchmarks.papers.progressive_workloads import rpj_keys
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, Matches, Side, Stall
from dovetail.execution.driver import Driver
from dovetail.kernels.hashing import hash_codes
from dovetail.operators.hashing.partitions import partitions_of
from dovetail.operators.hashing.spilling import Task
from dovetail.operators.hashing.spilling_joins import Promise, Rpj
from dovetail.operators.protocol import Workspace
from dovetail.simulation.clock import ClockedRun, play
from dovetail.sources.workload import Workload
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

PARTITIONS = 20
VALUES = 50  # of a partition
MEMORY_SHARE = 20  # residents are one row in so many of the input
BATCHES = 50  # that residents consist of

Kind = Literal["harmony", "reverse"]
SETTINGS: tuple[tuple[Kind, float], ...] = (("harmony", 1), ("harmony", 5), ("reverse", 1), ("reverse", 5))


class Online(NamedTuple):
    """Shares of all results that came while rows arrived."""

    share: float
    bound: float  # no policy that knows partitions only can have more


def online(
    operator: str, kind: Kind, ratio: float, rows: int, seed: int = 0, block_rows: int | None = None, **parameters: Any
) -> Online:
    """A run over the reliable network, up to the last arrival."""
    line = workload(kind, ratio, rows, seed)
    run = _play(operator, line, rows, block_rows, clean_up=False, **parameters)
    counts = [np.bincount(_partitions(table), minlength=PARTITIONS) for table in line.tables]
    return Online(run.share, online_bound(counts[0], counts[1], rows // MEMORY_SHARE))


def unreliable(operator: str, kind: Kind, ratio: float, rows: int, seed: int = 0, **parameters: Any) -> ClockedRun:
    """A run over the unreliable network, with reactive work, to its end."""
    return _play(operator, workload(kind, ratio, rows, seed, reliable=False), rows, None, **parameters)


@cache
def workload(kind: Kind, ratio: float, rows: int, seed: int = 0, reliable: bool = True) -> Workload:
    """The paper's keys, fewer values to a partition, each value replaced by one that our hash puts there."""
    line = rpj_keys(kind, ratio, rows, seed, reliable=reliable)
    candidates = np.arange(100 * PARTITIONS * VALUES)
    homes = partitions_of(hash_codes(candidates), PARTITIONS)
    keys = np.array([candidates[homes == j][:VALUES] for j in range(PARTITIONS)])
    tables = []
    for table in line.tables:
        numbers = np.asarray(table.column("k")) - 1
        tables.append(pa.table({"k": keys[numbers % PARTITIONS, numbers // PARTITIONS % VALUES]}))
    return Workload(tuple(tables), line.seconds)


def _play(operator: str, line: Workload, rows: int, block_rows: int | None, **parameters: Any) -> ClockedRun:
    block = block_rows or max(1, rows // MEMORY_SHARE // BATCHES)
    limit: dict[str, Any] = {
        "memory_rows": memory_rows(rows // MEMORY_SHARE, block),
        "block_rows": block,
        "batch_rows": block,
    }
    return play(operator, line, "l.k = r.k", partitions=PARTITIONS, **limit, **parameters)


def memory_rows(residents: int, block_rows: int) -> int:
    """The budget that leaves so much to residents: a quarter of it is for tasks, a block for the input."""
    return -(-4 * (residents + block_rows) // 3)


def _partitions(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return partitions_of(hash_codes(np.asarray(table.column("k"))), PARTITIONS)


# What RPJ expects, and what comes.


@dataclass
class Expected:
    """Sums over all flush cycles or tasks."""

    predicted: list[float] = field(default_factory=list)
    actual: list[float] = field(default_factory=list)


class _Watched(Rpj):
    """Compares what is expected with what comes: between two flushes (eq. 4), and of each task (section 5.3)."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.cycles, self.executed = Expected(), Expected()
        self._linear = self._square = 0.0
        self._before: tuple[int, int] | None = None  # rows and results at the start of a cycle
        self._starts = False

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        if self._starts:
            left, right = (kept.sizes for kept in self._residents)
            p_left, p_right = self._arrivals.probabilities()
            values = self._keys_of_partitions()
            self._linear = float(((left * p_right + p_left * right) / values).sum())
            self._square = float((p_left * p_right / values).sum())
            self._before = self._counters.rows_received - batch.num_rows, self._counters.results
            self._starts = False
        yield from super().arrive(side, batch)

    def _flush(self, need: int, policy: Any = None) -> bool:
        if self._before is not None and not self._starts:
            rows = self._counters.rows_received - self._before[0]
            self.cycles.predicted.append(rows * self._linear + rows**2 * self._square)
            self.cycles.actual.append(self._counters.results - self._before[1])
        self._starts = True
        return super()._flush(need, policy)

    def _task(self, promises: list[Promise]) -> Task:
        self.executed.predicted.append(max(promises, key=lambda promise: promise.rate).results)
        self.executed.actual.append(0)
        for pairs in super()._task(promises):
            self.executed.actual[-1] += pairs.size
            yield pairs


def watched(line: Workload, residents: int, stall_every: int | None = None, **parameters: Any) -> _Watched:
    """Let all rows arrive in turn, with a stall after every so many batches; the operator knows what it saw."""
    block = max(1, residents // BATCHES)
    counters = Counters()
    left, right = (table.schema for table in line.tables)
    condition = parse("l.k = r.k", left, right, in_process=True)
    budget = Budget(memory_rows(residents, block), "rows", counters)
    blocks = BlockStore(counters=counters)
    parameters = {"partitions": PARTITIONS, "domain": PARTITIONS * VALUES, **parameters}
    workspace = Workspace(Graph.of(condition), budget, blocks, block, counters, parameters=parameters)
    operator = _Watched(workspace)
    driver = Driver(operator, workspace)
    try:
        for number, (side, batch) in enumerate(_in_line(line, block)):
            for _ in driver.handle(Arrival(side, batch)):
                pass
            if stall_every is not None and number % stall_every == stall_every - 1:
                for _ in driver.handle(Stall(None)):
                    pass
    finally:
        blocks.close()
    return operator


def _in_line(line: Workload, rows: int) -> Iterator[tuple[Side, pa.RecordBatch]]:
    sides, _ = line.merged()
    taken = [0, 0]
    for start in range(0, len(sides), rows):
        for side in Side:
            count = int((sides[start : start + rows] == side).sum())
            for batch in line.tables[side].slice(taken[side], count).to_batches():
                yield side, batch
            taken[side] += count
