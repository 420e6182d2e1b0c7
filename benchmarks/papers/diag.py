"""Diag-Join (Tables 6 to 9, Figs. 9, 10) compared with GRACE and nested loops that count their transfers.

Mishits, lookups and rows read are counted in runs on data like the paper's, with fewer rows in the printed number of
pages. Phase 2 is GRACE, as in the paper: mishits are written, then joined with all of R1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import numpy as np
import pyarrow as pa

from benchmarks.baselines.paged import Transfers, block_nested_loop, grace_join, index_nested_loop
from benchmarks.papers.diag_costs import DiagCosts, Machine, Relation, normal_mishits
from benchmarks.papers.diag_workloads import (
    LINEITEM_PAGES,
    ORDER_PAGES,
    WINDOWS,
    Run,
    Scans,
    deviating,
    orders_and_items,
    paged,
    run,
    shuffled,
)
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, figures
from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.diag.clusteredness import measure
from dovetail.sources.protocol import TableScan

TABLES = 5
ORDER, LINEITEM = Relation(1_500_000, ORDER_PAGES), Relation(6_001_215, LINEITEM_PAGES)  # as printed
MACHINES = {"with seeks": Machine(), "transfers only": Machine(seek=0.0)}  # the paper prints no costs
SECONDS = (  # Table 6: window, Diag-Join, GRACE
    (300, 557, 552), (400, 571, 544), (500, 441, 424), (600, 432, 424), (800, 396, 355), (1000, 333, 296),
    (1500, 284, 300), (2000, 231, 300), (2500, 194, 301), (3000, 129, 296), (3500, 127, 296), (4000, 126, 300),
)  # fmt: skip


def orders_of(scale: Scale) -> int:
    return scale.pick(60_000, 150_000, 1_500_000)


class _Experiment:
    """Diag-Join with one window size, and the other joins with the same memory."""

    def __init__(self, scans: Scans, pages: int) -> None:
        self.one, self.many = paged(scans)
        self.memory = pages
        self.diag: Run = run(scans, pages / ORDER_PAGES * scans[0].rows)
        self.grace = grace_join(self.one, self.many, self.memory)
        self.results = scans[1].rows

    def diag_pages(self, *, coupled: bool = False) -> int:
        """Phase 1 reads both once; mishits are written and read again, or written directly to their partitions."""
        read = sum(
            ceil(rows / relation.page_rows)
            for rows, relation in zip(self.diag.tally.passes, (self.one, self.many), strict=True)
        )
        phase_2 = self._phase_2()
        if phase_2 is None:
            return read
        mishits = self.many.part(self.many.keys[: self.diag.tally.mishits])
        written = 0 if coupled else mishits.pages
        first = self.one.pages + self.many.pages
        return first + written + phase_2.pages - (mishits.pages if coupled else 0)

    def diag_hashed(self) -> int:
        phase_2 = self._phase_2()
        return len(self.one.keys) + self.diag.tally.lookups + (0 if phase_2 is None else phase_2.hashed)

    def _phase_2(self) -> Transfers | None:
        """GRACE with as many rows as there were mishits; which ones does not matter."""
        if not self.diag.tally.mishits:
            return None
        return grace_join(self.one, self.many.part(self.many.keys[: self.diag.tally.mishits]), self.memory)


@experiment("C-DG-1", "C-DG-2", "C-DG-6", "C-DG-7", "C-DG-8", "C-DG-9", "C-DG-10", "C-DG-11")
def against_others(scale: Scale) -> Iterator[Finding]:
    scans = orders_and_items(orders_of(scale))
    said = f"{scans[0].rows:,} orders, {scans[1].rows:,} items, {TABLES} tables, windows in proportion"
    tried = {pages: _Experiment(scans, pages) for pages in WINDOWS}
    ratios = {"pages moved": {pages: each.grace.pages / each.diag_pages() for pages, each in tried.items()}}
    mishits = {pages: each.diag.mishits for pages, each in tried.items()}
    ratios |= {f"seconds by eqs. 1 to 9, {name}": _in_seconds(mishits, machine) for name, machine in MACHINES.items()}
    yield _first_phase(said, mishits, ratios)
    yield _crossing(said, mishits, ratios)
    yield from _processor(said, tried)
    yield _one_read(said, tried)
    yield _nested_loops(said, tried[4000])
    yield _first_result(said, tried[4000])
    yield _coupled(said, tried)


Ratios = dict[str, dict[int, float]]  # by unit and window: GRACE divided by Diag-Join


def _in_seconds(mishits: dict[int, float], machine: Machine) -> dict[int, float]:
    """The ratio in seconds, for the printed sizes and the measured mishits."""
    costs = {pages: DiagCosts(ORDER, LINEITEM, pages, TABLES, machine) for pages in mishits}
    return {pages: cost.grace() / cost.diag(mishits[pages]) for pages, cost in costs.items()}


def _first_phase(said: str, mishits: dict[int, float], ratios: Ratios) -> Finding:
    finding = Finding("C-DG-1", said)
    finding.judge(
        "no mishits from 3000 pages on",
        figures([mishits[p] for p in (3000, 3500, 4000)], ".2%"),
        mishits[3000] == mishits[3500] == mishits[4000] == 0,
    )
    finding.guard("some at 2500", f"{mishits[2500]:.2%}", mishits[2500] > 0)
    for unit, of in ratios.items():
        large = [of[p] for p in (3000, 3500, 4000)]
        finding.judge(f"GRACE more than twice from 3000 pages on, {unit}", figures(large), min(large) > 2)
    most = max(max(of.values()) for of in ratios.values())
    finding.judge_size("up to 2.5 times", f"{most:.2f}", most >= 2.5)
    return finding


def _crossing(said: str, mishits: dict[int, float], ratios: Ratios) -> Finding:
    finding = Finding("C-DG-2", said)
    for unit, of in ratios.items():
        finding.judge(f"slower at 1000 pages, faster at 1500, {unit}", figures(of.values()), of[1000] < 1 < of[1500])
    for name, machine in MACHINES.items():
        io = _in_seconds(mishits, replace(machine, hash=0.0, find=0.0))
        better = sum(ratio > 1 for ratio in io.values())
        finding.judge(
            f"less I/O at 11 of 12 sizes (Table 9), {name}", f"at {better}: {figures(io.values())}", better >= 11
        )
    lines = {
        **{unit: list(of.items()) for unit, of in ratios.items()},
        "seconds, printed": [(p, grace / diag) for p, diag, grace in SECONDS],
    }
    finding.plots.append(Plot("Table 6: GRACE over Diag-Join", "pages of memory", "ratio", lines))
    finding.beside.append(f"mishits {figures(mishits.values(), '.1%')}")
    return finding


def _processor(said: str, tried: dict[int, _Experiment]) -> Iterator[Finding]:
    first = Finding("C-DG-6", said)
    per_row = [each.diag.tally.lookups / each.results for each in tried.values()]
    first.judge("at most 5 lookups per row", figures(per_row), max(per_row) <= TABLES)
    per_hit = [each.diag.tally.lookups / max(1, each.results - each.diag.tally.mishits) for each in tried.values()]
    first.judge("lookups per hit grow at most 1.5 times", figures(per_hit), per_hit[-1] <= 1.5 * per_hit[0])
    work = [len(each.one.keys) + each.diag.tally.lookups for each in tried.values()]
    first.judge(
        "nearly constant",
        f"hash operations {figures([w / work[0] for w in work])} of the first",
        max(work) <= 1.5 * min(work),
    )
    yield first
    falls = Finding("C-DG-7", said)
    hashed = [each.diag_hashed() for each in tried.values()]
    grace = {each.grace.hashed for each in tried.values()}
    falls.judge("GRACE constant", f"{len(grace)} value", len(grace) == 1)
    falls.judge(
        "Diag-Join falls",
        figures([h / max(grace) for h in hashed]) + " of GRACE",
        hashed == sorted(hashed, reverse=True),
    )
    ratio = {pages: each.diag_hashed() / each.grace.hashed for pages, each in tried.items()}
    falls.judge(
        "above GRACE at 1000 pages, below at 1500",
        f"{ratio[1000]:.2f}, {ratio[1500]:.2f}",
        ratio[1000] > 1 > ratio[1500],
    )
    yield falls


def _one_read(said: str, tried: dict[int, _Experiment]) -> Finding:
    finding = Finding("C-DG-8", said)
    for pages in (3000, 3500, 4000):
        each = tried[pages]
        rows = [len(each.one.keys), len(each.many.keys)]
        written = each.diag.counters.pages_written
        finding.judge(
            f"{pages} pages",
            f"rows read {each.diag.tally.passes} of {rows}, {written} pages written",
            each.diag.tally.passes == rows and written == 0,
        )
    return finding


def _nested_loops(said: str, tried: _Experiment) -> Finding:
    finding = Finding("C-DG-9", said)
    block = block_nested_loop(tried.one, tried.many, tried.memory)
    index = index_nested_loop(tried.one, tried.many, tried.memory)
    pages = tried.diag_pages()
    formula = tried.one.pages + ceil(tried.one.pages / (tried.memory - 1)) * tried.many.pages
    finding.judge("block-wise: pages", f"{block.pages / pages:.2f} times", block.pages >= 4 * pages)
    finding.judge(
        "block-wise: as by the formula", f"{block.pages:,} of {formula:,}", abs(block.pages / formula - 1) <= 0.02
    )
    finding.judge_size(
        "block-wise: 9.9 times, in pages", f"{block.pages / pages:.2f}", abs(block.pages / pages / 9.9 - 1) <= 0.1
    )
    finding.judge_size(
        "index: 10.9 times, in pages", f"{index.pages / pages:.2f}", abs(index.pages / pages / 10.9 - 1) <= 0.1
    )
    lookups = tried.diag.tally.lookups
    finding.judge(
        "index: comparisons over lookups", f"{index.compared / lookups:.2f} times", index.compared >= 4 * lookups
    )
    finding.guard(
        "all find the same",
        f"{tried.results:,}",
        {tried.grace.results, block.results, index.results} == {tried.results},
    )
    finding.beside.append(f"index: pages {index.pages / pages:.2f} times (2.6 in print: 113 s of I/O over 43 s)")
    return finding


def _first_result(said: str, tried: _Experiment) -> Finding:
    finding = Finding("C-DG-10", said)
    read = tried.diag.first
    tables = ceil(TABLES / 2) * ceil(tried.memory / TABLES * tried.one.page_rows)
    chunk = 1 << 15  # rows that the join reads at once, as a page
    finding.judge("three tables of R1", f"{read[0]:,} of {len(tried.one.keys):,} rows", read[0] <= tables + 1024)
    finding.judge("one read of RN", f"{read[1]:,} of {len(tried.many.keys):,} rows", read[1] <= chunk)
    both = tried.one.pages + tried.many.pages
    finding.judge(
        "GRACE: after both",
        f"{tried.grace.read_before_first:,} of {both:,} pages",
        tried.grace.read_before_first == both,
    )
    return finding


def _coupled(said: str, tried: dict[int, _Experiment]) -> Finding:
    finding = Finding("C-DG-11", said)
    each = tried[1000]
    saved, mishits = each.diag_pages() - each.diag_pages(coupled=True), each.diag.tally.mishits / each.many.page_rows
    finding.judge(
        "1000 pages: saves twice the mishits",
        f"{saved:,} of {2 * mishits:,.0f} pages",
        abs(saved / (2 * mishits) - 1) <= 0.02,
    )
    coupled = {pages: each.grace.pages / each.diag_pages(coupled=True) for pages, each in tried.items()}
    finding.judge("1000 pages: better than GRACE", f"{coupled[1000]:.2f}", coupled[1000] > 1)
    worse = [each.diag.mishits for pages, each in tried.items() if coupled[pages] < 1]
    better = [each.diag.mishits for pages, each in tried.items() if coupled[pages] > 1]
    finding.judge(
        "as good at 88 % of mishits",
        f"better up to {max(better):.1%}",
        max(better) >= 0.85 and (not worse or min(worse) >= 0.85),
    )
    return finding


@experiment("C-DG-3", "C-DG-4", "C-DG-5")
def theory(scale: Scale) -> Iterator[Finding]:
    orders = orders_of(scale)
    scans = orders_and_items(orders)
    shares = {
        tables: {pages: run(scans, pages / ORDER_PAGES * orders, tables).mishits for pages in (500, 1000, 2500)}
        for tables in (1, 5, 21)
    }
    steps = Finding("C-DG-3", f"{orders:,} orders; 1, 5, 21 tables")
    for pages in (500, 1000):
        gap = shares[1][pages] - shares[21][pages]
        steps.judge(f"{pages} pages: 1 and 21 tables alike", f"{100 * gap:+.2f} points", abs(gap) <= 0.01)
    gap = shares[1][2500] - shares[21][2500]
    steps.judge("2500 pages: one table hurts", f"{100 * gap:.1f} points", gap >= 0.1)
    worst = max(shares[5][pages] - shares[21][pages] for pages in (500, 1000, 2500))
    steps.judge("five are a good compromise", f"at most {100 * worst:.2f} points more than 21", worst <= 0.02)
    yield steps
    agree = Finding("C-DG-4", "normal deviations: 100,000 rows, ratio 4; items as in TPC-D: uniform within 60.5 days")
    data = {sigma: deviating(100_000, 4, sigma) for sigma in (500.0, 1500.0)}
    for sigma, window, tables in ((500.0, 1000, 5), (500.0, 1000, 1), (500.0, 2000, 5), (1500.0, 4000, 5)):
        measured, expected = run(data[sigma], window, tables).mishits, normal_mishits(tables, window // tables, sigma)
        agree.judge(
            f"normal, sigma {sigma:.0f}, window {window}, {tables} tables",
            f"{measured:.1%}, {expected:.1%}",
            abs(measured - expected) <= 0.013,
        )
    deviation = 121 / 12**0.5 / 2406 * orders  # standard deviation of uniformly 1 to 121 days
    for pages in (1000, 3000):
        rows = pages / ORDER_PAGES * orders
        measured, expected = run(scans, rows).mishits, normal_mishits(TABLES, round(rows / TABLES), deviation)
        agree.judge(f"as in TPC-D, {pages} pages", f"{measured:.1%}, {expected:.1%}", abs(measured - expected) <= 0.013)
    yield agree
    mixed = Finding("C-DG-5", f"{orders:,} orders, items shuffled")
    for share in (0.05, 0.1):
        hits = 1 - run(shuffled(orders), share * orders).mishits
        mixed.judge(f"window {share:.0%}", f"{hits:.1%}", abs(hits / share - 1) <= 0.2)
    yield mixed


@experiment("C-DG-12")
def windows(scale: Scale) -> Iterator[Finding]:
    orders = orders_of(scale)
    finding = Finding("C-DG-12", f"{orders:,} orders, ratio 4, 1 % of mishits accepted")
    for shape in ("normal", "uniform", "skewed"):
        scans = _shaped(shape, orders)
        condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
        share = run(scans, 5 * measure(condition, scans, Side.LEFT).table_rows(5, accept=0.01)).mishits
        finding.judge(shape, f"{share:.2%}", 0.001 <= share <= 0.01)
    yield finding


def _shaped(shape: str, orders: int) -> Scans:
    rng = np.random.default_rng(3)
    rows, spread = 4 * orders, orders / 100
    deviations = {
        "normal": rng.normal(0, spread, rows),
        "uniform": rng.uniform(-2 * spread, 2 * spread, rows),
        "skewed": rng.exponential(spread, rows),
    }[shape]
    keys = rng.permutation(orders)
    at = np.clip(np.arange(rows) // 4 + deviations.round().astype(np.int64), 0, orders - 1)
    return TableScan(pa.table({"k": keys})), TableScan(pa.table({"k": keys[at]}))
