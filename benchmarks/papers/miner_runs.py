"""MINER and MJoin on the workloads of their paper: the number of results found while rows still arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.papers.progressive_workloads import chain
from dovetail.columns.batches import one_batch
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event
from dovetail.execution.driver import Driver
from dovetail.operators.multiway.miner import Miner
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.operators.registry import operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import arrival_times, values
from dovetail.testing.workload import Workload

EDGES = ("r1.a = r2.a", "r2.b = r3.b", "r3.c = r4.c")
CHAINS = {2: (1, 2), 3: (0, 1, 2), 4: (0, 1, 2, 3)}  # which of the four inputs
BLOCK_ROWS = 50
ROW_BYTES = 200  # as printed


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs with the arrival time of each row, a condition, and the number of its results."""

    aliases: tuple[str, ...]
    on: str
    workload: Workload
    results: int

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.workload.tables)

    @property
    def graph(self) -> Graph:
        return parse_graph(self.on, dict(zip(self.aliases, (t.schema for t in self.workload.tables), strict=True)))


def chain_of(inputs: int, rows: int, seed: int) -> Setting:
    """Part of the chain r1 - r2 - r3 - r4, all inputs at one rate: with two inputs r2 and r3, with three also r1."""
    whole = chain(rows, seed, rows // 10).tables
    chosen = CHAINS[inputs]
    tables = tuple(whole[i] for i in chosen)
    rng = np.random.default_rng(seed)
    times = tuple(arrival_times.exponential(table.num_rows, rng) for table in tables)
    on = " AND ".join(edge for i, edge in enumerate(EDGES) if {i, i + 1} <= set(chosen))
    counts = [np.bincount(table["b"].to_numpy(), minlength=rows // 10) for table in (whole[1], whole[2])]
    return Setting(tuple(f"r{i + 1}" for i in chosen), on, Workload(tables, times), int(counts[0] @ counts[1]))


def star_of(inputs: int, rows: int, seed: int, domain: int, skew: float) -> Setting:
    """All inputs joined on one attribute with Zipf keys."""
    rng = np.random.default_rng(seed)
    tables = tuple(pa.table({"k": values.zipf(rows, rng, skew=skew, low=0, high=domain - 1)}) for _ in range(inputs))
    times = tuple(arrival_times.exponential(rows, rng) for _ in tables)
    aliases = tuple(f"r{i + 1}" for i in range(inputs))
    counts = [np.bincount(table["k"].to_numpy(), minlength=domain).astype(np.float64) for table in tables]
    on = " AND ".join(f"r1.k = {alias}.k" for alias in aliases[1:])
    return Setting(aliases, on, Workload(tables, times), int(np.prod(counts, axis=0).sum()))


def printed_star(rows: int, seed: int) -> Setting:
    """The four inputs of the chain, joined on one attribute: r1 and r4 have every key once, r2 and r3 Zipf keys."""
    whole = chain(rows, seed, rows // 10).tables
    keys = (whole[0]["a"], whole[1]["b"], whole[2]["b"], whole[3]["c"])
    rng = np.random.default_rng(seed)
    tables = tuple(pa.table({"k": column}) for column in keys)
    times = tuple(arrival_times.exponential(table.num_rows, rng) for table in tables)
    counts = [np.bincount(column.to_numpy(), minlength=rows // 10) for column in keys[1:3]]
    on = "r1.k = r2.k AND r1.k = r3.k AND r1.k = r4.k"
    return Setting(("r1", "r2", "r3", "r4"), on, Workload(tables, times), int(counts[0] @ counts[1]))


def events(setting: Setting, window: int) -> Iterator[Event]:
    """Rows in the order of arrival, a few at a time; all inputs end except the last."""
    inputs, _ = setting.workload.merged()
    batches = [one_batch(table.combine_chunks(), table.schema) for table in setting.workload.tables]
    taken, ended = [0] * len(batches), 0
    for start in range(0, len(inputs), window):
        counts = np.bincount(inputs[start : start + window], minlength=len(batches)).tolist()
        for i, count in enumerate(counts):
            if not count:
                continue
            yield Arrival(i, batches[i].slice(taken[i], count))
            taken[i] += count
            if taken[i] == batches[i].num_rows and (ended := ended + 1) < len(batches):
                yield End(i)


def online_share(
    operator: str, setting: Setting, memory_rows: int, block_rows: int = BLOCK_ROWS, **parameters: Any
) -> float:
    """The share of all results found when the last row has arrived; the rest is not joined."""
    kind = operator_class(operator, len(setting.aliases))
    counters = Counters()
    _arrive(kind, setting, Budget(memory_rows, "rows", counters), counters, block_rows, parameters)
    assert counters.peak_rows_in_memory <= memory_rows
    return counters.results / setting.results


class InBytes(NamedTuple):
    """With rows of 200 bytes and a budget that includes indexes and buffers."""

    share: float  # share of all results found online
    indexes: float  # bytes of all indexes, as a share of the budget


class _Weighed(Miner):
    @property
    def index_bytes(self) -> int:
        return sum(residents.index_bytes for residents in self._state.residents.values())


def in_bytes(setting: Setting, memory: float, block_rows: int = BLOCK_ROWS, **parameters: Any) -> InBytes:
    """A run with memory for a share of the bytes of all inputs."""
    wide = replace(setting, workload=Workload(tuple(map(_widen, setting.workload.tables)), setting.workload.seconds))
    counters = Counters()
    budget = Budget(int(memory * setting.rows * ROW_BYTES), "bytes", counters)
    operator = _arrive(_Weighed, wide, budget, counters, block_rows, parameters)
    assert isinstance(operator, _Weighed)
    return InBytes(counters.results / setting.results, operator.index_bytes / (budget.limit or 1))


def _widen(table: pa.Table) -> pa.Table:
    filler = b"." * (ROW_BYTES - table.nbytes // table.num_rows)
    return table.append_column("filler", pa.array([filler] * table.num_rows, pa.binary(len(filler))))


def _arrive(
    kind: type[JoinOperator],
    setting: Setting,
    budget: Budget,
    counters: Counters,
    block_rows: int,
    parameters: dict[str, Any],
) -> JoinOperator:
    """Let all rows arrive."""
    blocks = BlockStore(counters=counters)
    space = Workspace(setting.graph, budget, blocks, block_rows, counters, parameters=parameters)
    operator = kind(space)
    driver = Driver(operator, space)
    try:
        for event in events(setting, 2 * block_rows):
            for _ in driver.handle(event):
                pass
    finally:
        blocks.close()
    return operator
