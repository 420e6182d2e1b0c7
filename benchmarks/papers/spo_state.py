"""SPO-Join's claims about its state and about delayed messages: counts of operations, and simulations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.baselines import ordering
from benchmarks.baselines.bplus_tree import bplus_tree_join
from benchmarks.baselines.ordering import Network, simulate_predicates
from benchmarks.baselines.pim_tree import pim_tree_join
from benchmarks.baselines.po_join import offset, permute, po_join
from benchmarks.baselines.state_strategies import DistributedCache, Partitioner, simulate_state
from benchmarks.baselines.two_part import Span
from benchmarks.baselines.windowed import WindowJoin
from benchmarks.baselines.work import Work
from benchmarks.papers.spo_workloads import Workload, racks, rides
from dovetail.core.rows import Side


def load(join: WindowJoin, workload: Workload) -> None:
    for side, keys in zip(workload.sides, workload.keys, strict=True):
        join.load(Side(side), keys)


class Merges(NamedTuple):
    """The largest work of a merge: slides merged whole divided by slides merged in parts."""

    work_ratio: float
    largest_mutable: int  # rows, if merged in parts
    delta: int


def divided_slides(slide: int, elements: int) -> Merges:
    """Figure 10c: a slide merged at once, or in one part per element."""
    data = rides(3 * slide)
    joins = [po_join(data.query, 10 * slide, delta) for delta in (slide, slide // elements)]
    for join in joins:
        load(join, data)
    whole, parts = (join.indexes[0] for join in joins)
    return Merges(whole.largest_merge / parts.largest_merge, parts.largest_mutable, parts.delta)


def insertion(window: int) -> dict[str, float]:
    """Figure 12: key comparisons per inserted row, once the window is full; for PIM without rebuilds."""
    data = racks(window + window // 10)
    joins = {
        "SPO": po_join(data.query, window, window // 10),
        "B+-tree": bplus_tree_join(data.query, window),
        "PIM": pim_tree_join(data.query, window, share=0.1),
    }
    full, rest = (data._replace(sides=data.sides[part], keys=data.keys[part]) for part in _halves(window))
    comparisons = {}
    for name, join in joins.items():
        load(join, full)
        before = join.inserting.comparisons
        load(join, rest)
        comparisons[name] = (join.inserting.comparisons - before) / len(rest.keys)
    return comparisons


def _halves(window: int) -> tuple[slice, slice]:
    return slice(None, window), slice(window, None)


def memory(windows: Iterable[int]) -> list[float]:
    """Figure 13: bytes declared by PIM-trees per byte of SPO-Join, mean over a slide of full windows."""
    ratios = []
    for window in windows:
        data = racks(window + window // 10)
        joins = pim_tree_join(data.query, window, share=0.1), po_join(data.query, window, window // 10)
        full, rest = (data._replace(sides=data.sides[part], keys=data.keys[part]) for part in _halves(window))
        needed = []
        for join in joins:
            load(join, full)
            samples = []
            for row, (side, keys) in enumerate(zip(rest.sides, rest.keys, strict=True)):
                join.load(Side(side), keys)
                if row % max(1, window // 100) == 0:
                    samples.append(join.declared_bytes)
            needed.append(np.mean(samples))
        ratios.append(float(needed[0] / needed[1]))
    return ratios


class Waits(NamedTuple):
    moved_per_row: list[float]  # keys moved by merges, for growing deltas
    queued_probes: int
    arrivals_during_merges: int
    results_agree: bool


def merging(deltas: Sequence[int]) -> Waits:
    """Figure 20: merges that take as long as delta / 4 arrivals."""
    moved = []
    for delta in deltas:
        data = racks(4 * delta)
        join = po_join(data.query, 8 * delta, delta)
        load(join, data)
        moved.append(join.merging.total / (3 * delta))
    delta = deltas[0]
    data = racks(4 * delta, noise=0.05)
    results = []
    for waiting in (0, delta // 4):
        join = po_join(data.query, 2 * delta, delta, merge_arrivals=waiting)
        pairs = [join.arrive(Side(side), keys) for side, keys in zip(data.sides, data.keys, strict=True)]
        results.append({pair for each in (*pairs, join.finish()) for pair in zip(*each, strict=True)})
    return Waits(moved, join.queued_probes, 3 * (delta // 4), results[0] == results[1])


def mutable_shares(window: int, shares: Sequence[float]) -> list[float]:
    """Figure 21: operations per row in the mutable part, over two windows."""
    data = rides(2 * window)
    work = []
    for share in shares:
        join = po_join(data.query, window, int(share * window))
        for side, keys in zip(data.sides, data.keys, strict=True):
            join.arrive(Side(side), keys)
        work.append(join.indexes[0].mutable_work.total / len(data.keys))
    return work


def orderings(rows: int) -> dict[str, ordering.Outcome]:
    """Figure 18: 5,000 rows/s on 10 elements, 200 rows/s on 40."""
    data = racks(rows, noise=2.0)
    fast, slow = Network(5000, and_elements=10), Network(200, and_elements=40)
    cases = {
        "no table": (fast, False, False),
        "no table, 200/s": (slow, False, False),
        "table": (fast, True, False),
        "table and order": (fast, True, True),
    }
    return {
        name: simulate_predicates(*data, rows // 4, network, table=table, ordered=ordered)
        for name, (network, table, ordered) in cases.items()
    }


class Expiry(NamedTuple):
    differences: list[float]  # lag of the elements with a partitioner, divided by the lag with a cache
    false: dict[str, int]
    false_filtered: dict[str, int]
    lost: int


def expiry(slides: Sequence[int], rates: Sequence[int], delay_ms: float, rows: int) -> Expiry:
    """Figure 19: messages take `delay_ms`; false results are counted in a small window."""
    differences = []
    for slide in slides:
        for rate in rates:
            lag = int(rate * delay_ms / 1000)
            partitioner, cache = (kind(10 * slide, slide, 4, lag) for kind in (Partitioner, DistributedCache))
            behind = [each.mean_difference(12 * slide, step=97) for each in (partitioner, cache)]
            differences.append(behind[0] / behind[1])
    window, data = rows // 3, racks(rows, noise=2.0)
    strategies = {
        "partitioner": Partitioner(window, window // 10, 4, lag=5),
        "cache": DistributedCache(window, window // 10, 4, lag=5, publish_every=1, poll_every=5),
    }
    coarse = {name: simulate_state(*data, each, exact=False) for name, each in strategies.items()}
    exact = {name: simulate_state(*data, each, exact=True) for name, each in strategies.items()}
    return Expiry(
        differences,
        {name: outcome.false for name, outcome in coarse.items()},
        {name: outcome.false for name, outcome in exact.items()},
        sum(outcome.lost for outcome in (*coarse.values(), *exact.values())),
    )


def linear_passes(rows: int, others: int) -> tuple[int, int]:
    """Section 3: operations of the permutation and of the offsets."""
    rng = np.random.default_rng(0)
    permuting, offsetting = Work(), Work()
    permute(rng.permutation(rows), rng.permutation(rows), Span(0, rows), permuting.counts)
    offset(np.sort(rng.random(rows)), np.sort(rng.random(others)), offsetting.counts)
    return permuting.total, offsetting.total
