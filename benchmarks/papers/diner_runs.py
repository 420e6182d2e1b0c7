"""DINER's experiments, at the printed size or a fraction of it: the same shares of memory, fewer rows.

All operators have the same total memory. The hash joins divide values into 20 partitions, by value modulo 20 as in
RPJ's paper: keys are replaced, preserving order, by keys that our hash function assigns to these partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.datasets import read_columns
from benchmarks.papers import progressive_workloads as workloads
from benchmarks.papers.clairvoyant import online_bound
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Shares, Spread
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, Side
from dovetail.execution.driver import Driver
from dovetail.kernels.hashing import hash_codes, partitions_of
from dovetail.operators.diner.diner import Diner
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import arrival_times
from dovetail.testing.clock import ClockedRun, play
from dovetail.testing.workload import Workload

Words = NDArray[np.int64]

PARTITIONS = 20
CANDIDATES = 1000  # keys tried to find one with the right partition
HASHED = ("xjoin", "hmj", "rpj")
ROW_BYTES = 200  # as printed


class Contender(NamedTuple):
    """An operator and its parameters."""

    title: str
    operator: str
    parameters: Mapping[str, Any] = MappingProxyType({})


DINER = Contender("DINER", "diner", {"ageing": False, "reload": False})  # as printed
OURS = Contender("diner with ageing and reload", "diner")
MERGING = Contender("diner_merge", "diner_merge")
AUTO = Contender("auto", "adaptive")
HMJ = Contender("HMJ", "hmj")
RPJ = Contender("RPJ", "rpj", {"n_flush": 0.1})  # the amount flushed at once is not printed
XJOIN = Contender("XJoin", "xjoin")


class Setting(NamedTuple):
    rows: int = 10_000  # per relation: a tenth of the paper's
    memory: float = 0.05  # share of both relations
    blocks: int = 40  # that memory is divided into

    @property
    def memory_rows(self) -> int:
        return int(2 * self.rows * self.memory)

    @property
    def block_rows(self) -> int:
        return max(1, self.memory_rows // self.blocks)

    @property
    def residents(self) -> int:
        """All memory except one block for the input."""
        return self.memory_rows - self.block_rows


TENTH = Setting()
WHOLE = Setting(rows=100_000, blocks=200)


def setting_of(scale: Scale) -> Setting:
    """Relation sizes and numbers of memory blocks for this scale."""
    return scale.pick(Setting(10_000, blocks=20), Setting(20_000), WHOLE)


def run_of(contender: Contender, line: Workload, setting: Setting = TENTH, **parameters: Any) -> ClockedRun:
    return _play(contender.operator, line, setting, clean_up=False, **contender.parameters, **parameters)


def online(operator: str, line: Workload, setting: Setting = TENTH, **parameters: Any) -> ClockedRun:
    """A run up to the last arrival."""
    return _play(operator, line, setting, clean_up=False, **parameters)


def whole(contender: Contender, line: Workload, setting: Setting = TENTH, **parameters: Any) -> ClockedRun:
    """A complete run."""
    return _play(contender.operator, line, setting, **contender.parameters, **parameters)


def share_in_bytes(
    contender: Contender, line: Workload, setting: Setting = TENTH, on: str = "l.k = r.k", **parameters: Any
) -> float:
    """The share of results found online, with rows of 200 bytes and a budget that is a share of these bytes.

    Everything that an operator holds counts, including indexes and buffers: this is the share reached with `memory=`.
    """
    rows = sum(table.num_rows for table in line.tables)
    limit = int(setting.memory * rows * ROW_BYTES)
    block = setting.block_rows
    run = play(
        contender.operator,
        Workload(tuple(_widen(table) for table in line.tables), line.seconds),
        on,
        memory_bytes=limit,
        block_rows=block,
        batch_rows=block,
        clean_up=False,
        **contender.parameters,
        **parameters,
    )
    return run.share


def shares_of(
    when: str,
    line: Workload,
    setting: Setting,
    *,
    printed: Contender = DINER,
    ours: Contender = OURS,
    auto: Contender = AUTO,
    in_random_order: bool = False,
    **parameters: Any,
) -> Shares:
    """The paper's operator, ours, and `auto`, with budgets in rows and in bytes."""
    in_rows = [run_of(each, line, setting, **parameters).share for each in (printed, ours)]
    in_bytes = [share_in_bytes(each, line, setting, **parameters) for each in (printed, ours, auto)]
    return Shares(when, bound(line, setting) if in_random_order else None, *in_rows, *in_bytes)


def _widen(table: pa.Table) -> pa.Table:
    filler = b"." * (ROW_BYTES - 8)  # in addition to the key
    return table.append_column("filler", pa.array([filler] * table.num_rows, pa.binary(len(filler))))


def _play(operator: str, line: Workload, setting: Setting, on: str = "l.k = r.k", **parameters: Any) -> ClockedRun:
    block = setting.block_rows
    limit = setting.memory_rows
    if operator in HASHED:
        parameters = {"partitions": PARTITIONS, **parameters}
    return play(operator, line, on, memory_rows=limit, block_rows=block, batch_rows=block, **parameters)


def bound(line: Workload, setting: Setting = TENTH) -> float:
    """The largest share that this number of residents can reach if arrivals are in random order."""
    left, right = (np.asarray(table.column("k")) for table in line.tables)
    keys = np.unique(np.concatenate([left, right]))
    counts = [np.bincount(np.searchsorted(keys, side), minlength=len(keys)) for side in (left, right)]
    return online_bound(counts[0], counts[1], setting.residents)


def gains(line: Workload, others: Iterable[Contender], setting: Setting = TENTH) -> list[float]:
    """Online results of DINER divided by those of others."""
    ours = run_of(DINER, line, setting).online
    return [ours / max(1, run_of(other, line, setting).online) for other in others]


def gains_over_seeds(
    make: Callable[[int], Workload], others: Sequence[Contender], seeds: Iterable[int], setting: Setting = TENTH
) -> dict[str, Spread]:
    found = [gains(make(seed), others, setting) for seed in seeds]
    return {other.title: Spread.of(values) for other, values in zip(others, zip(*found, strict=True), strict=True)}


def flushing(n_flush: float, title: str) -> Contender:
    return Contender(f"RPJ that flushes {title}", "rpj", {"n_flush": n_flush})


def one_block(setting: Setting) -> Contender:
    """RPJ with the smallest flushes."""
    return flushing(setting.block_rows / setting.residents, "a block")


# The workloads, with keys that are partitioned by value modulo 20.


def skewed(skew: float, seed: int, setting: Setting = TENTH) -> Workload:
    """Fig. 10."""
    return placed(workloads.zipf_keys(skew, (setting.rows, setting.rows), seed))


def shifted(x: float, seed: int, setting: Setting = TENTH) -> Workload:
    """Fig. 11."""
    return placed(workloads.normal_keys(shift=x, rows=setting.rows, seed=seed))


def widened(x: float, seed: int, setting: Setting = TENTH) -> Workload:
    """Fig. 12."""
    return placed(workloads.normal_keys(extra_variance=x, rows=setting.rows, seed=seed))


def drifting(shift: float, seed: int, setting: Setting = TENTH) -> Workload:
    """Fig. 15."""
    return placed(workloads.shifting_means(shift, setting.rows, seed))


def in_intervals(count: int, seed: int, setting: Setting = TENTH, *, same_order: bool = True) -> Workload:
    """Fig. 14."""
    return placed(workloads.sorted_intervals(count, setting.rows, seed, same_order=same_order))


def unequal(share: float, seed: int, setting: Setting = TENTH) -> Workload:
    """Fig. 18: the second relation has this share of the rows of the first."""
    return placed(workloads.zipf_keys(1.0, (setting.rows, int(share * setting.rows)), seed))


def in_fragments(silence: float, seed: int, setting: Setting = TENTH) -> Workload:
    """Fig. 16."""
    return placed(workloads.fragments(silence, setting.rows, seed))


def weather_like(rows: int, seed: int, *, place: bool = True) -> Workload:
    """Simulated hourly temperatures of two stations: year, day, shared and local weather. The paper's link is dead."""
    rng = np.random.default_rng(seed)
    hours = np.arange(rows)
    seasons = 50 + 14 * np.sin(2 * np.pi * hours / 8766) + 8 * np.sin(2 * np.pi * hours / 24)
    common = _autoregressive(rng, rows, 0.97, 1.5)
    stations = [seasons + common + _autoregressive(rng, rows, 0.9, 1.0) + 2 * k for k in range(2)]
    return _at_random_times([np.rint(station).astype(np.int64) for station in stations], rng, place=place)


def stock_like(rows: int, seed: int, step: float = 0.6, *, place: bool = True) -> Workload:
    """Prices of buyers and sellers in cents: a random walk with some noise."""
    rng = np.random.default_rng(seed)
    walk = 5000 + np.cumsum(rng.normal(0, step, rows))
    prices = [np.rint(walk + rng.normal(0, 2, rows)).astype(np.int64) for _ in range(2)]
    return _at_random_times(prices, rng, place=place)


def temperatures(stations: tuple[str, str] = ("BOS", "CRP"), years: tuple[int, int] = (2008, 2017)) -> Workload:
    """Temperatures of two stations in whole degrees, in the order of measurement."""
    table = read_columns("noaa_isd_temp_3st", "station", "ts", "temp_c")
    year = pc.year(table["ts"])
    table = table.filter(pc.and_(pc.greater_equal(year, years[0]), pc.less_equal(year, years[1]))).sort_by("ts")
    keys = [np.rint(np.asarray(table.filter(pc.equal(table["station"], s))["temp_c"])) for s in stations]
    return _at_random_times([degrees.astype(np.int64) for degrees in keys], np.random.default_rng(0))


def prices() -> Workload:
    """AAPL: the prices of new buy and sell orders in cents."""
    table = read_columns("aapl_orders_20120621", "event_type", "price", "side").filter(pc.field("event_type") == 1)
    keys = [np.asarray(table.filter(pc.equal(table["side"], side))["price"]) for side in "BS"]
    return _at_random_times([np.rint(100 * price).astype(np.int64) for price in keys], np.random.default_rng(0))


def placed(line: Workload) -> Workload:
    """Replace keys, preserving order, so that our hash function puts value v into partition v modulo 20."""
    values = [np.asarray(table.column("k")) for table in line.tables]
    known = np.unique(np.concatenate(values))
    candidates = known[:, None] * CANDIDATES + np.arange(CANDIDATES)
    homes = partitions_of(hash_codes(candidates.ravel()), PARTITIONS).reshape(candidates.shape)
    first = (homes == (known % PARTITIONS)[:, None]).argmax(axis=1)
    keys = candidates[np.arange(len(known)), first]
    tables = tuple(pa.table({"k": keys[np.searchsorted(known, side)]}) for side in values)
    return Workload(tables, line.seconds)


def silenced(line: Workload, silence: float) -> Workload:
    """Ten fragments of each side, each followed by a silence of this many times its duration."""
    return Workload(line.tables, tuple(arrival_times.with_silences(times, silence=silence) for times in line.seconds))


def _at_random_times(keys: list[Words], rng: np.random.Generator, *, place: bool = True) -> Workload:
    """Both sides arrive over the same span of time."""
    longest = max(len(side) for side in keys)
    times = tuple(arrival_times.exponential(len(side), rng, 1e-3 * longest / len(side)) for side in keys)
    line = Workload(tuple(pa.table({"k": side}) for side in keys), times)
    return placed(line) if place else line


def _autoregressive(rng: np.random.Generator, rows: int, memory: float, deviation: float) -> NDArray[np.float64]:
    noise = rng.normal(0, deviation, rows)
    series = np.empty(rows)
    last = 0.0
    for i in range(rows):
        last = memory * last + noise[i]
        series[i] = last
    return series


def victims(line: Workload, setting: Setting = TENTH) -> Words:
    """The number of blocks evicted from the lower, the middle and the upper regions of both sides."""
    counters = Counters()
    left, right = (table.schema for table in line.tables)
    condition = parse("l.k = r.k", left, right, in_process=True)
    store = BlockStore(counters=counters)
    workspace = Workspace(
        Graph.of(condition), Budget(setting.memory_rows, "rows", counters), store, setting.block_rows, counters
    )
    workspace.parameters.update(DINER.parameters)
    operator = Diner(workspace)
    driver = Driver(operator, workspace)
    sides, _ = line.merged()
    rows = [one_batch(table.combine_chunks(), table.schema) for table in line.tables]
    taken = [0, 0]
    try:
        for chunk in np.split(sides, range(setting.block_rows, len(sides), setting.block_rows)):
            for side, count in zip(Side, np.bincount(chunk, minlength=2).tolist(), strict=True):
                for _ in driver.handle(Arrival(side, rows[side].slice(taken[side], count))):
                    pass
                taken[side] += count
    finally:
        store.close()
    flushed: Words = operator.flushed_from.sum(axis=0)
    return flushed
