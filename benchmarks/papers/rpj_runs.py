"""RPJ's experiments at a fraction of the printed size: the same shares of partitions, memory and rates, fewer rows."""

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
from dovetail.core.rows import Arrival, End, Matches, Side, Stall
from dovetail.execution.driver import Driver
from dovetail.kernels.hashing import hash_codes, partitions_of
from dovetail.operators.hashing.spilling import SpillingHash, Task
from dovetail.operators.hashing.spilling_joins import Promise, Rpj
from dovetail.operators.protocol import Workspace
from dovetail.operators.registry import operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing.clock import ClockedRun, Costs, play
from dovetail.testing.workload import Workload

PARTITIONS = 20
HASHED = ("rpj", "hmj", "xjoin")
VALUES = 50  # per partition
MEMORY_SHARE = 20  # one in this many rows of the input is resident
BATCHES = 25  # number of batches that make up the residents
STALLED_PAGES = 80  # memory pages on the unreliable network
ROW_BYTES = 10  # as printed
PRINTED_PAGES, PRINTED_S = 20_000, 14_000  # both relations, and their transmission over the unreliable network

Kind = Literal["harmony", "reverse"]
SETTINGS: tuple[tuple[Kind, float], ...] = (("harmony", 1), ("harmony", 5), ("reverse", 1), ("reverse", 5))


class Online(NamedTuple):
    """Shares of all results found while rows arrived."""

    share: float
    bound: float  # for any policy that only distinguishes partitions


def online(
    operator: str, kind: Kind, ratio: float, rows: int, seed: int = 0, block_rows: int | None = None, **parameters: Any
) -> Online:
    """A run over the reliable network, up to the last arrival."""
    line = workload(kind, ratio, rows, seed)
    run = _play(operator, line, rows, block_rows, clean_up=False, **parameters)
    counts = [np.bincount(_partitions(table), minlength=PARTITIONS) for table in line.tables]
    return Online(run.share, online_bound(counts[0], counts[1], rows // MEMORY_SHARE))


def named(setting: tuple[Kind, float]) -> str:
    return f"{setting[0]} {setting[1]:g}:1"


def unreliable(
    operator: str,
    kind: Kind,
    ratio: float,
    rows: int,
    seed: int = 0,
    slower: float = 1.0,
    *,
    merges_at_random: bool = False,
    **parameters: Any,
) -> ClockedRun:
    """A complete run over the unreliable network, with reactive work.

    A page takes the same share of the transmission as 10 ms (random) and 1 ms (sequential) at the printed size; the
    paper charges merges for every page at random, read and written. Memory has more pages than otherwise, because RPJ
    spills small pieces (see `reliable`).
    """
    line = workload(kind, ratio, rows, seed, reliable=False)
    block = max(1, rows // MEMORY_SHARE // STALLED_PAGES)
    page_s = 1e-2 * slower * (PRINTED_PAGES / PRINTED_S) / (rows / block / line.end_s)
    costs = Costs(
        pages_read_sequential=page_s / 10,
        pages_read_random=page_s,
        pages_written=page_s / 10,
        pages_merged=0.9 * page_s if merges_at_random else 0.0,
    )
    return _play(operator, line, rows, block, costs=costs, **parameters)


class Course(NamedTuple):
    """A complete run over the reliable network."""

    places: list[float]  # positions in the sequence of arrivals, as shares, after the first overflow
    costs: list[float]  # seconds per result so far, at these positions
    peak: float  # the position of the largest
    cleaning_pages: int  # read and written after the last arrival


OVERFLOW = 1 / MEMORY_SHARE  # the position at which memory is first full


def reliable(
    operator: str, kind: Kind, ratio: float, rows: int, pages: int, points: int, seed: int = 0, **parameters: Any
) -> Course:
    """A run with memory of this many pages, which are smaller than the batches that arrive.

    A flush of RPJ spills a piece of nearly every partition. In the paper, with 1000 pages, a piece has 2.6 pages if a
    tenth of memory is flushed; with fewer pages, more of memory must be flushed, or most pages are nearly empty.
    """
    residents = rows // MEMORY_SHARE
    block = max(1, residents // BATCHES)
    counters, costs, line = Counters(), Costs(), workload(kind, ratio, rows, seed)
    left, right = (table.schema for table in line.tables)
    blocks = BlockStore(counters=counters)
    budget = Budget(memory_rows(residents, block), "rows", counters)
    condition = parse("l.k = r.k", left, right, in_process=True)
    parameters = {"partitions": PARTITIONS, **parameters}
    space = Workspace(Graph.of(condition), budget, blocks, block, counters, parameters=parameters)
    kept = operator_class(operator)(space)
    assert isinstance(kept, SpillingHash)
    kept._memory._page_rows = max(1, residents // pages)
    driver = Driver(kept, space)
    seen: list[tuple[float, float]] = []
    try:
        for side, batch in _in_line(line, block):
            for _ in driver.handle(Arrival(side, batch)):
                pass
            seen.append((counters.rows_received / rows, costs.total_cost(counters) / max(1, counters.results)))
        online_pages = pages_of(counters)
        for side in Side:
            for _ in driver.handle(End(side)):
                pass
    finally:
        blocks.close()
    after = [(place, cost) for place, cost in seen if place > OVERFLOW]
    chosen = [after[i] for i in np.linspace(len(after) / points, len(after) - 1, points).astype(int)]
    peak = max(after, key=lambda point: point[1])[0]
    return Course([x for x, _ in chosen], [y for _, y in chosen], peak, pages_of(counters) - online_pages)


def pages_of(counters: Counters) -> int:
    return counters.pages_written + counters.pages_read_random + counters.pages_read_sequential


LEAST_ROWS = 150_000  # of ten bytes: a twentieth of them is more than the smallest budget


def share_in_bytes(operator: str, kind: Kind, ratio: float, rows: int) -> float:
    """The share found online with rows of ten bytes and a budget, including indexes, of a twentieth of these bytes."""
    rows = max(rows, LEAST_ROWS)
    line = workload(kind, ratio, rows)
    tables = tuple(table.append_column("n", pa.array(np.zeros(table.num_rows, np.int16))) for table in line.tables)
    block = max(1, rows // MEMORY_SHARE // BATCHES)
    limit: dict[str, Any] = {"memory_bytes": rows * ROW_BYTES // MEMORY_SHARE, "block_rows": block, "batch_rows": block}
    return play(operator, Workload(tables, line.seconds), "l.k = r.k", clean_up=False, **limit).share


@cache
def workload(kind: Kind, ratio: float, rows: int, seed: int = 0, reliable: bool = True) -> Workload:
    """The paper's keys with fewer values per partition, each replaced by a value that our hash function puts there."""
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
    if operator in HASHED:
        parameters["partitions"] = PARTITIONS
    return play(operator, line, "l.k = r.k", **limit, **parameters)


def memory_rows(residents: int, block_rows: int) -> int:
    """The budget that leaves this much to residents while rows arrive; one block is for the input."""
    return residents + block_rows


def _partitions(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return partitions_of(hash_codes(np.asarray(table.column("k"))), PARTITIONS)


# Predicted and actual results of RPJ.


@dataclass
class Expected:
    """Predicted and actual results, one entry per flush cycle or task."""

    predicted: list[float] = field(default_factory=list)
    actual: list[float] = field(default_factory=list)


class _Watched(Rpj):
    """Compares predicted with actual results: between two flushes (eq. 4), and for each task (section 5.3)."""

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
    """Let all rows arrive in turn, with a stall after each run of batches. Returns the operator with its records."""
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
