"""DINER on prices and temperatures (Figs. 7, 8, 9, 13, Table 4), with similar data: the paper's links are dead.

Where available, real prices and temperatures of other days are shown for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from unittest import SkipTest

import numpy as np
import pyarrow as pa

from benchmarks.papers.diner_runs import (
    DINER,
    HMJ,
    OURS,
    RPJ,
    XJOIN,
    Contender,
    Setting,
    prices,
    run_of,
    shares_of,
    stock_like,
    temperatures,
    weather_like,
)
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, Spread
from dovetail.testing.clock import ClockedRun, Costs
from dovetail.testing.workload import Workload

MEMORY = (0.05, 0.10, 0.15, 0.20)
TABLE_4 = ((0.49, 0.58), (0.72, 0.82), (0.24, 0.29))  # with 15 and 20 % memory
FREE = Costs(0, 0, 0, 0, 0, 0, 0)  # work takes no time: results are compared by arrivals
POINTS = 10
BAND = "abs(l.k - r.k) < 5"
PMJ = Contender("PMJ", "pmj", {"first_rows": None})

Make = Callable[[int], Workload]


def surrogates(scale: Scale) -> dict[str, tuple[Make, int]]:
    """By name: a function from a seed to the data, and the number of rows per side."""
    sizes = scale.pick((9000, 5000, 0), (9000, 10_355, 22_784), (45_000, 10_355, 22_784))
    found: dict[str, tuple[Make, int]] = {
        "weather": (partial(weather_like, sizes[0]), sizes[0]),
        "CSCO": (partial(stock_like, sizes[1]), sizes[1]),
    }
    if sizes[2]:
        found["IPIX"] = partial(stock_like, sizes[2], step=0.35), sizes[2]
    return found


@experiment("C-DN-1")
def over_time(scale: Scale) -> Iterator[Finding]:
    finding = Finding("C-DN-1", f"data like the paper's, memory 5 %, {scale.seed_count} seeds")
    contenders = [DINER, XJOIN, HMJ, RPJ]
    for name, (make, rows) in surrogates(scale).items():
        setting = Setting(rows, blocks=_blocks(scale))
        behind = dict.fromkeys((each.title for each in contenders[1:]), 0)  # number of points, for the worst seed
        courses = []
        for seed in scale.seeds:
            curves = {each.title: _curve(each, make(seed), setting) for each in contenders}
            for other in behind:
                points = sum(a < b for a, b in zip(curves["DINER"], curves[other], strict=True))
                behind[other] = max(behind[other], points)
            courses.append((curves["RPJ"], curves["XJoin"]))
            if seed == 0:
                lines = {each: _points(curve) for each, curve in curves.items()}
                finding.plots.append(Plot(f"Figs. 7, 8: {name}", "% of arrivals", "results", lines))
        for other, points in behind.items():
            finding.judge(f"{name}, over {other}", f"behind at {points} of {POINTS} points at most", points == 0)
        if name == "CSCO":
            start, end = (Spread.of(rpj[at] / xjoin[at] for rpj, xjoin in courses) for at in (1, -1))
            finding.judge("CSCO, RPJ starts behind XJoin", f"{start} of it at 20 %", start.most < 1)
            finding.judge("CSCO, RPJ reaches XJoin at the end", f"{end} of it", end.least >= 0.95)
    yield finding


def _curve(contender: Contender, line: Workload, setting: Setting) -> list[int]:
    """Results after a tenth, two tenths … of all arrivals. Memory overflows before the first of these points."""
    run = run_of(contender, line, setting, costs=FREE)
    _, times = line.merged()
    return [run.results_at(float(times[len(times) * part // POINTS - 1])) for part in range(1, POINTS + 1)]


def _points(curve: list[int]) -> list[tuple[float, float]]:
    return [(100 * (i + 1) / POINTS, float(results)) for i, results in enumerate(curve)]


@experiment("C-DN-2", "C-DN-3")
def by_memory(scale: Scale) -> Iterator[Finding]:
    gains = Finding("C-DN-2", f"data like the paper's, {scale.seed_count} seeds")
    shares = Finding("C-DN-3", gains.setting)
    gain_memory = scale.pick((0.05, 0.20), MEMORY, MEMORY)
    best: dict[str, float] = {}
    for name, (make, rows) in surrogates(scale).items():
        settings = {memory: Setting(rows, memory, _blocks(scale)) for memory in MEMORY}
        lines = [make(seed) for seed in scale.seeds]
        ours = {m: [run_of(DINER, line, settings[m]) for line in lines] for m in MEMORY}
        found = {
            m: {other.title: _gain(ours[m], lines, other, settings[m]) for other in (HMJ, RPJ)} for m in gain_memory
        }
        for other in (HMJ.title, RPJ.title):
            spreads = {memory: Spread.of(found[memory][other]) for memory in gain_memory}
            for memory, spread in spreads.items():
                gains.judge(f"{name}, {memory:.0%}, over {other}", str(spread), spread.least >= 1.1)
            more = all(a > b for a, b in zip(found[0.05][other], found[0.20][other], strict=True))
            listed = f"{spreads[0.05]}, {spreads[0.20]}"
            gains.judge(f"{name}, over {other}: more at 5 % than at 20 %", listed, more)
            best[other] = max(best.get(other, 0.0), *(spread.least for spread in spreads.values()))
        curves = {
            other: [(100 * m, Spread.of(found[m][other]).mean) for m in gain_memory] for other in (HMJ.title, RPJ.title)
        }
        gains.plots.append(Plot(f"Fig. 9: {name}", "memory, %", "DINER's results over theirs", curves))
        of_seeds = [[run.share for run in each] for each in zip(*(ours[m] for m in MEMORY), strict=True)]
        spreads_of = [Spread.of(each) for each in zip(*of_seeds, strict=True)]
        grow = all(a < b for each in of_seeds for a, b in pairwise(each))
        shares.judge(f"{name}: grows with memory", ", ".join(map(str, spreads_of)), grow)
        if name == "weather":
            twice = Spread.of(each[3] / each[0] for each in of_seeds)
            shares.guard("weather: at 20 % twice that at 5 %", str(twice), twice.least >= 2)
        near = [
            row for row in TABLE_4 if all(abs(each[2] - row[0]) <= 0.05 >= abs(each[3] - row[1]) for each in of_seeds)
        ]
        shares.judge(f"{name}: a row of the table", f"{spreads_of[2]}, {spreads_of[3]}", bool(near))
        if scale.with_shares:
            shares.shares += [shares_of(f"{name}, {m:.0%}", make(0), settings[m]) for m in gain_memory]
    for other, least in best.items():
        gains.judge_size(f"up to 2.5 times {other}", f"{least:.2f}", least >= 2.5)
    if scale.name != "ci":
        gains.beside += list(_real_data())
    yield gains
    yield shares


def _gain(ours: list[ClockedRun], lines: list[Workload], other: Contender, setting: Setting) -> list[float]:
    """Results of DINER divided by those of another operator on the same arrivals."""
    theirs = (run_of(other, line, setting).online for line in lines)
    return [run.online / max(1, results) for run, results in zip(ours, theirs, strict=True)]


def _real_data() -> Iterator[str]:
    sources: dict[str, Callable[[], Workload]] = {
        "AAPL orders, buyers and sellers": prices,
        "NOAA degrees, Boston and Corpus Christi": temperatures,
    }
    for name, read in sources.items():
        try:
            line = read()
        except SkipTest as reason:
            yield f"{name}: skipped, {reason}"
            continue
        rows = sum(table.num_rows for table in line.tables) // 2
        for memory in (0.05, 0.20):
            setting = Setting(rows, memory, blocks=100)
            runs = {each.title: run_of(each, line, setting).share for each in (DINER, OURS, XJOIN, HMJ, RPJ)}
            listed = ", ".join(f"{each} {share:.3f}" for each, share in runs.items())
            yield f"{name}, memory {memory:.0%}, share online: {listed}"


@experiment("C-DN-8")
def band(scale: Scale) -> Iterator[Finding]:
    finding = Finding("C-DN-8", f"{BAND}, memory 5 %, {scale.seed_count} seeds")
    makes: dict[str, Make] = {
        "weather": partial(weather_like, scale.pick(3000, 9000, 45_000), place=False),
        "CSCO": partial(stock_like, scale.pick(3000, 10_355, 10_355), place=False),
    }
    for name, make in makes.items():
        setting = Setting(make(0).tables[0].num_rows, blocks=20)
        runs = [{each.title: _banded(each, make(seed), setting) for each in (DINER, PMJ)} for seed in scale.seeds]
        diner, pmj = (Spread.of(run[each].share for run in runs) for each in ("DINER", "PMJ"))
        finding.judge(
            f"{name}: more than PMJ", f"{diner} and {pmj}", all(r["DINER"].share > r["PMJ"].share for r in runs)
        )
        if scale.with_shares and scale.name != "ci":  # at ci, 5 % of the bytes are less than the smallest budget
            finding.shares.append(shares_of(f"{name}, {BAND}", make(0), setting, auto=PMJ, on=BAND))
        shuffled = _banded(PMJ, _shuffled(make(0)), setting)
        pairs = 1 / setting.memory
        finding.guard(
            f"{name}, shuffled: PMJ has 1 / run pairs",
            f"{shuffled.share * pairs:.2f}",
            abs(shuffled.share * pairs - 1) <= 0.2,
        )
    yield finding


def _banded(contender: Contender, line: Workload, setting: Setting) -> ClockedRun:
    return run_of(contender, line, setting, on=BAND)


def _shuffled(line: Workload) -> Workload:
    rng = np.random.default_rng(0)
    keys = [rng.permutation(np.asarray(table.column("k"))) for table in line.tables]
    return Workload(tuple(pa.table({"k": side}) for side in keys), line.seconds)


def _blocks(scale: Scale) -> int:
    """The number of blocks that memory is divided into."""
    return scale.pick(20, 40, 200)
