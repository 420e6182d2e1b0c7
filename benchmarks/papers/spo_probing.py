"""SPO-Join's claims about probes, compared with trees, hash sets, nested loops and a hash join.

Times are ratios of CPU seconds in one run, medians of several rounds; counts come from `Work`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.bchj import bchj
from benchmarks.baselines.bplus_tree import Trees
from benchmarks.baselines.chain_index import chain_index_join
from benchmarks.baselines.css_tree import CssBatch
from benchmarks.baselines.hash_join import hash_join
from benchmarks.baselines.ie_join import ie_join_at_rest
from benchmarks.baselines.nested_loop import nested_loop_at_rest
from benchmarks.baselines.po_join import PoBatch, po_join
from benchmarks.baselines.predicates import Floats, Query, Words
from benchmarks.baselines.split_join import split_join
from benchmarks.baselines.two_part import Batch, Build, Span
from benchmarks.baselines.windowed import Pairs, WindowJoin
from benchmarks.baselines.work import Work
from benchmarks.papers.spo_workloads import Q1, Workload, codes, racks, rides
from dovetail.core.rows import Side

ROUNDS = 5
PERCENTILES = (50, 75, 95)  # of probes


def _seconds(contenders: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """CPU seconds of each contender, measured in turn; the first round is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS + 1):
        for name, contender in contenders.items():
            started = time.process_time()
            contender()
            times[name].append(time.process_time() - started)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


# At rest.


def at_rest(rows: int) -> tuple[dict[str, float], dict[str, tuple[int, int]]]:
    """Section 1: seconds of each join of two tables by Q1, and its answer: the number of pairs and a digest."""
    left, right = (racks(rows, seed=seed).keys for seed in (0, 1))
    joins: dict[str, Callable[[], Pairs]] = {
        "IE-Join": lambda: ie_join_at_rest(Q1, left, right, Work()),
        "B+-tree": lambda: _trees_at_rest(left, right),
        "CSS-tree": lambda: _css_at_rest(left, right),
        "nested loop": lambda: nested_loop_at_rest(Q1, left, right, Work()),
    }
    answers = {name: _digest(join()) for name, join in joins.items()}
    return _seconds(joins), answers


def _trees_at_rest(left: Floats, right: Floats) -> Pairs:
    trees, work, tests = Trees(Q1, 4, "bit"), Work(), Q1.tests(left_probes=True)
    for row, keys in enumerate(right):
        trees.insert(row, keys, work.counts)
    return _probe_all(left, lambda keys: trees.find(keys, tests, 0, len(right), work.counts))


def _css_at_rest(left: Floats, right: Floats) -> Pairs:
    work, tests = Work(), Q1.tests(left_probes=True)
    batch = CssBatch(Span(0, len(right)), sorted_keys(right, 0), work.counts, order=4, intersection="bit")
    return _probe_all(left, lambda keys: batch.probe(keys, tests, work.counts))


def _probe_all(left: Floats, probe: Callable[[Floats], Words]) -> Pairs:
    found = [probe(keys) for keys in left]
    return Pairs(np.repeat(np.arange(len(left)), [len(rows) for rows in found]), np.concatenate(found))


def _digest(pairs: Pairs) -> tuple[int, int]:
    return len(pairs.left), int((pairs.left * 2654435761 ^ pairs.right).sum())


# One part of a window.


class Ratios(NamedTuple):
    """The time of the other structure divided by ours."""

    css_hash_over_po: float
    css_bit_over_po: float
    hash_over_bit: float  # in the mutable part


def probe_ratios(workload: Workload, batches: int, probes: int) -> Ratios:
    """Figures 7 to 9: the last rows probe all others in batches of equal size, and the first batch also in trees."""
    query, stored, probing = workload.query, workload.keys[:-probes], workload.keys[-probes:]
    tests = query.tests(left_probes=True)
    parts = {
        "po": _batches(stored, batches, PoBatch),
        "css bit": _batches(stored, batches, _build_css("bit")),
        "css hash": _batches(stored, batches, _build_css("hash")),
    }
    delta = len(stored) // batches
    trees = {name: _filled_trees(query, stored[:delta], name) for name in ("bit", "hash")}
    work = Work()

    def probe_batches(name: str) -> list[int]:
        return [sum(len(batch.probe(keys, tests, work.counts)) for batch in parts[name]) for keys in probing]

    def probe_trees(name: str) -> list[int]:
        return [len(trees[name].find(keys, tests, 0, delta, work.counts)) for keys in probing]

    if not probe_batches("po") == probe_batches("css bit") == probe_batches("css hash"):
        raise AssertionError("the immutable parts find different partners")
    seconds = _seconds({name: partial(probe_batches, name) for name in parts})
    mutable = _seconds({name: partial(probe_trees, name) for name in trees})
    return Ratios(
        seconds["css hash"] / seconds["po"], seconds["css bit"] / seconds["po"], mutable["hash"] / mutable["bit"]
    )


def _build_css(intersection: str) -> Build:
    return lambda span, leaves, counts: CssBatch(span, leaves, counts, order=4, intersection=intersection)


def _batches(keys: Floats, count: int, build: Build) -> list[Batch]:
    size = len(keys) // count
    spans = [Span(first, first + size) for first in range(0, size * count, size)]
    return [build(span, sorted_keys(keys[span.first : span.end], span.first), Work().counts) for span in spans]


def sorted_keys(keys: Floats, first: int) -> list[tuple[Floats, Words]]:
    orders = [np.argsort(column, kind="stable") for column in keys.T]
    return [(column[order], order + first) for column, order in zip(keys.T, orders, strict=True)]


def _filled_trees(query: Query, keys: Floats, intersection: str) -> Trees:
    trees, work = Trees(query, 4, intersection), Work()
    for row, each in enumerate(keys):
        trees.insert(row, each, work.counts)
    return trees


# Work of whole windows.


def probing_work(join: WindowJoin, workload: Workload, probes: int) -> Work:
    """Load all rows except the last `probes`. Returns the work of these to find their results."""
    sides = [Side(side) for side in workload.sides]
    for side, keys in zip(sides[:-probes], workload.keys[:-probes], strict=True):
        join.load(side, keys)
    for side, keys in zip(sides[-probes:], workload.keys[-probes:], strict=True):
        join.arrive(side, keys)
    return join.probing


def touched_by_probes(join: WindowJoin, workload: Workload, probes: int) -> list[int]:
    """The number of keys, bits, words and entries that each of the last rows touches to find its results."""
    sides = [Side(side) for side in workload.sides]
    for side, keys in zip(sides[:-probes], workload.keys[:-probes], strict=True):
        join.load(side, keys)
    upto = [join.probing.touched]
    for side, keys in zip(sides[-probes:], workload.keys[-probes:], strict=True):
        join.arrive(side, keys)
        upto.append(join.probing.touched)
    return np.diff(upto).tolist()


def chain_over_po(window: int, probes: int, workload: Callable[[int], Workload] = rides) -> dict[str, float]:
    """Figure 11a, c: percentiles of items touched per probe, chain index divided by PO-Join; parts of equal size."""
    data = workload(window + probes)
    po = touched_by_probes(po_join(data.query, window, window // 10), data, probes)
    chains = {
        name: touched_by_probes(chain_index_join(data.query, window, window // 10, intersection=name), data, probes)
        for name in ("hash", "bit")
    }
    return {
        f"{name}, {percentile} %": float(np.percentile(chain, percentile) / np.percentile(po, percentile))
        for name, chain in chains.items()
        for percentile in PERCENTILES
    }


def loops_over_po(window: int, probes: int, workload: Callable[[int], Workload] = rides) -> dict[str, float]:
    """Figure 11b, d: operations of a split join and of a broadcast join, divided by those of PO-Join."""
    data = workload(window + probes)
    po = probing_work(po_join(data.query, window, window // 10), data, probes)
    loops = {"split join": split_join(data.query, window), "BCHJ": bchj(data.query, window)}
    return {name: probing_work(join, data, probes).total / po.total for name, join in loops.items()}


def hash_over_po(windows: Iterable[int], domain: int, probes: int) -> list[float]:
    """Figures 22, 23: operations of PO-Join per operation of a hash join, for one equality."""
    ratios = []
    for window in windows:
        data = codes(window + probes, domain)
        by_hash = probing_work(hash_join(data.query, window), data, probes)
        by_po = probing_work(po_join(data.query, window, window // 10), data, probes)
        ratios.append(by_po.total / by_hash.total)
    return ratios
