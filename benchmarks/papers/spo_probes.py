"""SPO-Join's probes compared with trees, hash sets, loops and a hash join (Figs. 7 to 9, 11, 22, 23).

Ratios of CPU time in one process, medians of several rounds, and counts of operations.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.spo_probing import Ratios, at_rest, chain_over_po, hash_over_po, loops_over_po, probe_ratios
from benchmarks.papers.spo_workloads import places, racks, rides
from benchmarks.papers.verdicts import Finding, Plot, figures

FIG_7 = {600: (35, 16), 700: (25, 12), 800: (43, 22), 900: (49, 22), 1000: (57, 31)}  # thousands: CSS-hash, CSS-bit


@experiment("C-SP-1", timed=True)
def batch(scale: Scale) -> Iterator[Finding]:
    rows = scale.pick(4000, 20_000, 20_000)
    seconds, answers = at_rest(rows)
    finding = Finding("C-SP-1", f"2 x {rows:,} rows, {answers['IE-Join'][0] / 1e6:.1f} million results, CPU time")
    for name, asked in (("B+-tree", 1), ("CSS-tree", 1), ("nested loop", 5)):
        ratio = seconds[name] / seconds["IE-Join"]
        finding.judge(f"{name}: at least {asked}", f"{ratio:.2f}", ratio >= asked)
    ratios = {name: seconds[name] / seconds["IE-Join"] for name in seconds}
    slowest = max(ratios, key=lambda name: ratios[name])
    finding.judge("a nested loop takes longest", f"{slowest} does", slowest == "nested loop")
    for name, printed in (("B+-tree", 5.3), ("CSS-tree", 4.65), ("nested loop", 21.25)):
        finding.judge_size(f"{name}: {printed} times", f"{ratios[name]:.2f}", ratios[name] >= printed)
    finding.guard("equal results", f"{answers['IE-Join'][0]:,}", len(set(answers.values())) == 1)
    yield finding


@experiment("C-SP-2", "C-SP-3", timed=True)
def rides_of_taxis(scale: Scale) -> Iterator[Finding]:
    windows = scale.pick((60_000, 100_000), (60_000, 70_000, 80_000, 90_000, 100_000), (600_000, 1_000_000))
    probes = scale.pick(100, 200, 200)
    immutable, mutable = (
        Finding("C-SP-2", f"windows of {windows[0]:,} to {windows[-1]:,}, CPU time"),
        Finding("C-SP-3", "the same"),
    )
    found = {window: probe_ratios(rides(window + probes), 10, probes) for window in windows}
    for window, ratios in found.items():
        css_hash, css_bit = ratios.css_hash_over_po, ratios.css_bit_over_po
        immutable.judge(f"{window:,}: CSS-hash twice", f"{css_hash:.2f}", css_hash >= 2)
        immutable.judge(f"{window:,}: CSS-bit once", f"{css_bit:.2f}", css_bit >= 1)
        immutable.judge(f"{window:,}: CSS-hash slower than CSS-bit", f"{css_hash / css_bit:.2f}", css_hash > css_bit)
        mutable.judge(f"{window:,}: bits 1.5 times", f"{ratios.hash_over_bit:.2f}", ratios.hash_over_bit >= 1.5)
    least = Ratios(*(min(each) for each in zip(*found.values(), strict=True)))
    immutable.judge_size("CSS-hash 25 times", f"{least.css_hash_over_po:.2f}", least.css_hash_over_po >= 25)
    immutable.judge_size("CSS-bit 12 times", f"{least.css_bit_over_po:.2f}", least.css_bit_over_po >= 12)
    mutable.judge_size("9 times", f"{least.hash_over_bit:.2f}", least.hash_over_bit >= 9)
    lines: dict[str, list[tuple[float, float]]] = {
        "CSS-hash": [(window / 1000, r.css_hash_over_po) for window, r in found.items()],
        "CSS-bit": [(window / 1000, r.css_bit_over_po) for window, r in found.items()],
        "CSS-hash, printed at ten times the window": [(window / 10, r[0]) for window, r in FIG_7.items()],
        "CSS-bit, printed at ten times the window": [(window / 10, r[1]) for window, r in FIG_7.items()],
    }
    immutable.plots.append(Plot("Fig. 7", "window, thousand rows", "over PO-Join", lines, log_y=True))
    yield immutable
    yield mutable


@experiment("C-SP-4", timed=True)
def near_places(scale: Scale) -> Iterator[Finding]:
    windows = scale.pick((100_000,), (60_000, 100_000, 200_000), (60_000, 100_000, 300_000))
    finding = Finding("C-SP-4", f"windows of {windows[0]:,} to {windows[-1]:,}, CPU time")
    for window in windows:
        ratios = probe_ratios(places(window + 200), 10, 200)
        finding.judge(f"{window:,}: CSS once", f"{ratios.css_bit_over_po:.2f}", ratios.css_bit_over_po >= 1)
        finding.judge(f"{window:,}: bits 1.5 times", f"{ratios.hash_over_bit:.2f}", ratios.hash_over_bit >= 1.5)
        finding.judge_size(f"{window:,}: CSS 1.3 times", f"{ratios.css_bit_over_po:.2f}", ratios.css_bit_over_po >= 1.3)
        finding.judge_size(f"{window:,}: bits 4.9 times", f"{ratios.hash_over_bit:.2f}", ratios.hash_over_bit >= 4.9)
    yield finding


@experiment("C-SP-5", timed=True)
def racks_and_coolers(scale: Scale) -> Iterator[Finding]:
    slides = scale.pick((10_000,), (10_000, 30_000, 50_000), (100_000, 300_000, 500_000))
    finding = Finding("C-SP-5", f"slides of {slides[0]:,} to {slides[-1]:,}, windows of ten slides, CPU time")
    for slide in slides:
        ratios = probe_ratios(racks(10 * slide + 100), 10, 100)
        finding.judge(f"{slide:,}: CSS once", f"{ratios.css_bit_over_po:.2f}", ratios.css_bit_over_po >= 1)
        finding.judge(f"{slide:,}: bits once", f"{ratios.hash_over_bit:.2f}", ratios.hash_over_bit >= 1)
        finding.judge_size(f"{slide:,}: CSS twice", f"{ratios.css_bit_over_po:.2f}", ratios.css_bit_over_po >= 2)
        finding.judge_size(f"{slide:,}: bits twice", f"{ratios.hash_over_bit:.2f}", ratios.hash_over_bit >= 2)
    yield finding


@experiment("C-SP-8", "C-SP-9", "C-SP-10", "C-SP-19")
def operations(scale: Scale) -> Iterator[Finding]:
    windows = scale.pick((10_000,), (10_000, 20_000, 50_000), (50_000, 100_000))
    probes = scale.pick(50, 200, 200)
    for claim, make in (("C-SP-8", rides), ("C-SP-9", racks)):
        chain = Finding(claim, f"windows of {windows[0]:,} to {windows[-1]:,}, percentiles of operations, equal parts")
        chain.unsized = "print has percentiles of latency, of which these are the operations"
        for window in windows:
            for name, ratio in chain_over_po(window, probes, make).items():
                chain.judge(f"{window:,}, {name}", f"{ratio:.2f}", ratio >= 1)
        yield chain
    window = scale.pick(10_000, 50_000, 50_000)
    loops = Finding("C-SP-10", f"window of {window:,}, operations of all workers together")
    loops.unsized = "operations are counted, print has percentiles of latency"
    for name, make in (("Q3", rides), ("Q1", racks)):
        for join, ratio in loops_over_po(window, probes, make).items():
            loops.judge(f"{name}, {join}", f"{ratio:.2f}", ratio >= 1)
    yield loops
    windows = scale.pick((10_000, 20_000), (10_000, 20_000, 50_000), (10_000, 20_000, 50_000))
    hashed = hash_over_po(windows, 1000, probes)
    honest = Finding("C-SP-19", f"windows of {windows[0]:,} to {windows[-1]:,}, one equality, operations")
    for window, ratio in zip(windows, hashed, strict=True):
        honest.judge(f"{window:,}", f"SPO-Join {ratio:.2f} times", ratio >= 1)
    honest.judge("more with a larger window", figures(hashed), hashed == sorted(hashed))
    honest.unsized = "operations are counted, print has throughput"
    honest.beside.append("`auto` takes a hash table for equalities")
    yield honest
