"""SPO-Join scaled out (Figs. 10a, 14 to 17): elements are measured one by one in a process, then queues are simulated.

router --every row--> element 1: its batches          the time of an element for a probe, and for building a batch, is
                 \\-> element 2: its batches           measured; waiting times of rows are computed from it (Lindley's
                  \\-> ...                             recursion); a row is done when the last element is done
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.css_tree import CssBatch
from benchmarks.baselines.po_join import PoBatch
from benchmarks.baselines.two_part import Batch, Build, Span
from benchmarks.baselines.work import Work
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.spo_probing import sorted_keys
from benchmarks.papers.spo_workloads import Workload, racks, rides
from benchmarks.papers.verdicts import Finding, Plot, figures

Seconds = NDArray[np.float64]

ROUNDS = 3  # the fastest counts: slower ones were delayed by something else
BUSY = 0.9  # utilisation of the slower structure's elements
SIMULATED = 20_000  # arriving rows
PERCENTILES = (50, 75, 95)
SLIDES = ((25, 1, 15e6), (50, 1, 62e6), (75, 5, 140e6), (100, 5, 249e6))  # thousand rows, parts, printed matches
THROUGHPUT = {1: 419, 20: 6167}  # printed rows/s, by elements


def build_css(
    span: Span, leaves: list[tuple[NDArray[np.float64], NDArray[np.int64]]], counts: NDArray[np.int64]
) -> Batch:
    return CssBatch(span, leaves, counts, order=4, intersection="bit")


class Element(NamedTuple):
    """One processing element: the seconds to probe all its batches with each of some rows, and to build a batch."""

    probe_s: Seconds
    build_s: float
    operations: Seconds  # per probe


def measure_element(data: Workload, batches: int, rows: int, build: Build, probes: int) -> Element:
    """Measure an element with this many batches of this many rows, probed by the last rows of the data."""
    tests, probing = data.query.tests(left_probes=True), data.keys[-probes:]
    built, build_s = [], []
    for number in range(batches):
        span = Span(number * rows, (number + 1) * rows)
        leaves = sorted_keys(data.keys[span.first : span.end], span.first)
        built.append(build(span, leaves, Work().counts))  # not timed: the first one loads the kernels
        started = time.process_time()
        build(span, leaves, Work().counts)
        build_s.append(time.process_time() - started)
    seconds, operations = np.full(probes, np.inf), np.zeros(probes)
    for _ in range(ROUNDS):
        for i, keys in enumerate(probing):
            work = Work()
            started = time.process_time()
            for batch in built:
                batch.probe(keys, tests, work.counts)
            seconds[i] = min(seconds[i], time.process_time() - started)
            operations[i] = work.total
    return Element(seconds, float(np.median(build_s)), operations)


def latencies(elements: int, element: Element, rate: float, merge_every: int, rng: np.random.Generator) -> Seconds:
    """Seconds from the arrival of a row until all elements have probed with it; batches are built in turn."""
    arrivals = np.cumsum(rng.exponential(1 / rate, SIMULATED))
    done = np.zeros(SIMULATED)
    for number in range(elements):
        service = rng.choice(element.probe_s, SIMULATED)
        service[number * merge_every :: elements * merge_every] += element.build_s
        done = np.maximum(done, finish_times(arrivals, service))
    return done - arrivals


def finish_times(arrivals: Seconds, service: Seconds) -> Seconds:
    """Finish times of a single server, first come, first served."""
    upto = np.cumsum(service)
    finished: Seconds = upto + np.maximum.accumulate(arrivals - (upto - service))
    return finished


@experiment("C-SP-6", timed=True)
def event_latency(scale: Scale) -> Iterator[Finding]:
    windows = scale.pick((50_000,), (10_000, 50_000, 100_000), (100_000, 500_000, 1_000_000))
    finding = Finding("C-SP-6", f"Q1, 10 elements with a batch each, {BUSY:.0%} of CSS's capacity arrives")
    finding.unsized = "queues are simulated, with the times that probes take in one process"
    lines: dict[str, list[tuple[float, float]]] = {}
    for window in windows:
        data = racks(window + 200)
        parts = {
            name: measure_element(data, 1, window // 10, build, 200)
            for name, build in (("PO-Join", PoBatch), ("CSS", build_css))
        }
        rate = BUSY / float(parts["CSS"].probe_s.mean())
        waits = {
            name: latencies(10, part, rate, window // 10, np.random.default_rng(0)) for name, part in parts.items()
        }
        for percentile in PERCENTILES:
            po, css = (float(np.percentile(waits[name], percentile)) for name in ("PO-Join", "CSS"))
            finding.judge(
                f"{window:,}: {percentile} %", f"{1e3 * po:.2f} and {1e3 * css:.2f} ms, {css / po:.1f} times", po <= css
            )
            for name, value in (("PO-Join", po), ("CSS", css)):
                lines.setdefault(f"{name}, {percentile} %", []).append((window / 1000, 1e3 * value))
    finding.plots.append(Plot("Fig. 10a", "window, thousand rows", "latency, ms", lines, log_y=True))
    yield finding


@experiment("C-SP-13", timed=True)
def match_rates(scale: Scale) -> Iterator[Finding]:
    shrink = scale.pick(5, 2, 1)
    finding = Finding("C-SP-13", f"Q3, slides of 25,000 to 100,000 over {shrink}, the last two in 5 parts")
    finding.unsized = "the work of one element's probe, immutable part only; print has a cluster's rows per second"
    most, matches = [], []
    for thousand, parts, _ in SLIDES:
        slide = thousand * 1000 // shrink
        data = rides(slide + 200)
        most.append(float(measure_element(data, 1, slide // parts, PoBatch, 200).operations.max()))
        matches.append(_matches(data, slide))
    for (thousand, parts, _), work, count in zip(SLIDES[1:], most[1:], matches[1:], strict=True):
        grown, by = work / most[0], count / matches[0]
        finding.judge(
            f"slide of {thousand},000 in {parts}", f"work {grown:.2f} times, matches {by:.1f} times", grown < by
        )
    printed = [count / SLIDES[0][2] for _, _, count in SLIDES]
    finding.beside.append(
        f"matches over the first: {figures([m / matches[0] for m in matches])}, in print {figures(printed)}"
    )
    yield finding


def _matches(data: Workload, slide: int) -> float:
    """The number of pairs of a slide, estimated from a few rows."""
    return float(slide) ** 2 * _selectivity(data, slide)


def _selectivity(data: Workload, slide: int) -> float:
    distance, fare = data.keys[:slide].T
    found = [np.mean((keys[0] > distance) & (keys[1] < fare)) for keys in data.keys[-200:]]
    return float(np.mean(found))


@experiment("C-SP-14", timed=True)
def scale_out(scale: Scale) -> Iterator[Finding]:
    window = scale.pick(200_000, 500_000, 1_000_000)
    tried = scale.pick((1, 2, 5, 10, 20), (1, 2, 3, 5, 9, 10, 15, 20), (1, 2, 3, 5, 9, 10, 15, 20))
    data = rides(window + 100)
    finding = Finding("C-SP-14", f"Q3, window of {window:,} = 10 slides, each divided among the elements; one measured")
    finding.unsized = "one element is measured at a time; print has a cluster's latencies"
    cells = {count: measure_element(data, 10, window // 10 // count, PoBatch, 100) for count in tried}
    whole = float(cells[1].operations.mean())
    for count, cell in cells.items():
        if count > 1:
            ratio = float(cell.operations.mean()) * count / whole
            finding.judge(f"{count} elements: 1 / {count} of the work", f"{ratio:.2f} of it", 0.8 <= ratio <= 1.2)
    rate = {count: 1 / float(cell.probe_s.mean()) for count, cell in cells.items()}
    lines = {
        "rows/s, one element at a time": [(float(count), value) for count, value in rate.items()],
        "in print": [(float(count), float(value)) for count, value in THROUGHPUT.items()],
    }
    finding.plots.append(Plot("Figs. 16, 17", "elements", "rows/s", lines, log_y=True))
    grown = rate[tried[-1]] / rate[1]
    finding.beside.append(f"capacity grows {grown:.1f} times from 1 to {tried[-1]} elements, 14.7 times in print")
    waits = {
        count: float(
            np.percentile(latencies(count, cell, 0.8 * rate[1], window // 10 // count, np.random.default_rng(0)), 95)
        )
        for count, cell in cells.items()
    }
    finding.beside.append(
        "95 % latency at 80 % of one element's capacity: "
        + ", ".join(f"{n}: {1e3 * w:.2f} ms" for n, w in waits.items())
    )
    yield finding
