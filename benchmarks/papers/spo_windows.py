"""SPO-Join's state, and delayed messages (Figs. 10c, 12, 13, 18 to 21, section 3): counts, and simulations."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.spo_state import (
    divided_slides,
    expiry,
    insertion,
    linear_passes,
    memory,
    merging,
    mutable_shares,
    orderings,
)
from benchmarks.papers.verdicts import Finding, Plot, figures

ELEMENTS = 10


@experiment("C-SP-7", "C-SP-11", "C-SP-12", "C-SP-17", "C-SP-18", "C-SP-20")
def state(scale: Scale) -> Iterator[Finding]:
    slide = scale.pick(3000, 10_000, 100_000)
    merges = divided_slides(slide, ELEMENTS)
    parts = Finding("C-SP-7", f"slide of {slide:,} in {ELEMENTS} parts")
    parts.unsized = "merges are counted, print has latencies"
    parts.judge(
        "longest merge falls by half the elements", f"{merges.work_ratio:.1f}", merges.work_ratio >= ELEMENTS / 2
    )
    parts.judge(
        "mutable part", f"{merges.largest_mutable:,} rows of {merges.delta:,}", merges.largest_mutable == merges.delta
    )
    yield parts
    window = scale.pick(10_000, 50_000, 500_000)
    compared = insertion(window)
    inserts = Finding("C-SP-11", f"window of {window:,}, comparisons per insertion")
    inserts.judge(
        "fewer than a B+-tree",
        f"{compared['SPO']:.1f}, {compared['B+-tree']:.1f}",
        compared["SPO"] < compared["B+-tree"],
    )
    pim = compared["SPO"] / compared["PIM"]
    inserts.judge("PIM-tree fewer than SPO, without its rebuilds", f"{pim:.2f} times", pim > 1)
    inserts.unsized = "comparisons are counted; windows of millions of rows are beyond these baselines"
    yield inserts
    windows = scale.pick((10_000,), (20_000, 40_000), (200_000, 400_000))
    needed = Finding("C-SP-12", f"windows {figures(windows, ',')}")
    for size, ratio in zip(windows, memory(windows), strict=True):
        needed.judge(f"{size:,}", f"PIM-trees {ratio:.2f} times", ratio > 1)
        needed.judge_size(f"{size:,}: 1.5 times", f"{ratio:.2f}", ratio >= 1.5)
    yield needed
    deltas = scale.pick((1000, 2000), (2000, 4000, 8000), (20_000, 40_000, 80_000))
    waits = merging(deltas)
    merge = Finding("C-SP-17", f"parts of {figures(deltas, ',')} rows")
    merge.unsized = "operations are counted, print has seconds"
    linear = max(waits.moved_per_row) <= 1.05 * min(waits.moved_per_row)
    merge.judge("linear", f"{figures(waits.moved_per_row)} operations per row", linear)
    merge.judge(
        "queued rows probe once",
        f"{waits.queued_probes} of {waits.arrivals_during_merges}",
        waits.queued_probes == waits.arrivals_during_merges,
    )
    merge.guard("the same results", str(waits.results_agree), waits.results_agree)
    yield merge
    shares = (0.1, 0.2, 0.3, 0.4, 0.5)
    work = mutable_shares(scale.pick(2000, 10_000, 50_000), shares)
    mutable = Finding("C-SP-18", "operations per row in the mutable part, 10 to 50 % of the window")
    mutable.unsized = "operations are counted, print has throughput"
    mutable.judge("grow with its share", figures(work, ",.0f"), work == sorted(work))
    mutable.plots.append(
        Plot(
            "Fig. 21",
            "mutable part, %",
            "operations per row",
            {"SPO-Join": [(100 * s, w) for s, w in zip(shares, work, strict=True)]},
        )
    )
    yield mutable
    n, m = 10_000, 7000
    permuting, offsetting = linear_passes(n, m)
    passes = Finding("C-SP-20", f"n = {n:,}, m = {m:,}")
    passes.judge("permutation 2n", f"{permuting:,}", permuting == 2 * n)
    passes.judge("offsets n + m + log m", f"{offsetting:,}", offsetting <= n + m + log2(m))
    yield passes


@experiment("C-SP-15", "C-SP-16")
def messages(scale: Scale) -> Iterator[Finding]:
    rows = scale.pick(600, 2000, 2000)
    outcomes = orderings(rows)
    table = Finding("C-SP-15", f"{rows:,} rows, simulated delays between elements")
    without, with_table, ordered = (outcomes[name] for name in ("no table", "table", "table and order"))
    table.judge(
        "without a table: wrong",
        f"{without.combined:.1%} correct, {without.false:,} false pairs",
        without.false > 0 and without.combined < 0.1,
    )
    table.judge("with it: all pairs", f"{1 - with_table.lost / with_table.expected:.1%}", with_table.lost == 0)
    table.guard(
        "with it and in the router's order: all pairs",
        f"{ordered.lost} lost, {ordered.false} false",
        ordered.lost == ordered.false == 0,
    )
    table.beside.append(
        "two elements see two streams in different orders: a table alone loses what each of them missed"
    )
    yield table
    slides, rates = (25_000, 100_000), (5000, 7000)
    late = expiry(slides, rates, 20, scale.pick(900, 3000, 3000))
    behind = Finding("C-SP-16", "4 elements, messages take 20 ms")
    cases = [(slide, rate) for slide in slides for rate in rates]
    for (slide, rate), ratio, printed in zip(cases, late.differences, (13, 38, 82, 94), strict=True):
        behind.judge(f"slide {slide:,}, {rate:,} rows/s", f"{ratio:.1f} times", ratio > 1)
        behind.judge_size(f"slide {slide:,}, {rate:,} rows/s: {printed} times", f"{ratio:.1f}", ratio >= printed)
    for first, slide in zip((0, 2), slides, strict=True):
        slow, fast = late.differences[first : first + 2]
        behind.judge(f"slide {slide:,}: more at the higher rate", f"{slow:.1f}, {fast:.1f} times", fast > slow)
    behind.guard(
        "exact filter: nothing false",
        f"{sum(late.false_filtered.values())} of {sum(late.false.values()):,}",
        not any(late.false_filtered.values()),
    )
    behind.guard("nothing lost", str(late.lost), late.lost == 0)
    yield behind
