"""The curves on the pages of operators: each operator on a small workload, compared with one or two others.

Two inputs send rows and stall. Operators run on the simulated clock, so a curve depends only on the algorithms and the
costs below, not on the machine. Joins of three inputs, and diag, which reads at its own pace, have a curve over memory.
`python -m benchmarks.operator_curves` draws docs/images/operators/*.svg and prints a line for each curve.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.papers.diag_workloads import Scans, deviating, orders_and_items, run, shuffled
from benchmarks.papers.miner_runs import online_share, star_of
from benchmarks.papers.plots import draw
from benchmarks.papers.verdicts import Plot
from dovetail.testing import arrival_times, values
from dovetail.testing.clock import ClockedRun, Costs, play
from dovetail.testing.workload import Workload

PICTURES = Path(__file__).parents[1] / "docs" / "images" / "operators"

ROWS = 10_000  # per input
KEYS = 2_500
FRAGMENTS = 4  # each is followed by a stall of the same length
MEMORY = 0.1  # share of the rows of both inputs
BLOCK_ROWS = 50
PAGE_S = 1e-3
DISK = Costs(pages_read_sequential=PAGE_S, pages_read_random=PAGE_S, pages_written=PAGE_S)
BUDGET_BYTES = 64 << 10  # for the join with a budget in bytes
POINTS = 80  # up to the last arrival; the curve goes on for a tenth of that time
MEMORIES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
ORDERS = 20_000
WINDOWS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1)  # shares of the orders
SEED = 0

SHARE = "share of all"
EQUAL = "l.k = r.k"
BAND = "abs(l.k - r.k) <= 1"


class Line(NamedTuple):
    """One curve over time: an operator with memory for a share of the rows, or for a number of bytes."""

    operator: str
    label: str = ""
    memory: float | None = MEMORY
    memory_bytes: int | None = None


class Race(NamedTuple):
    """Operators compared on the workload with stalls."""

    lines: tuple[Line, ...]
    skew: float = 0.5
    on: str = EQUAL


def _race(*operators: str, **setting: Any) -> Race:
    return Race(tuple(Line(name) for name in operators), **setting)


RACES = {
    "adaptive": _race("adaptive", "diner", "xjoin"),
    "diner": _race("diner", "pmj", "xjoin", skew=1.0),
    "diner_merge": _race("diner_merge", "diner", "pmj", skew=1.0),
    "dphj": _race("dphj", "xjoin", "hmj"),
    "hmj": _race("hmj", "xjoin", "pmj"),
    "nested_loop": _race("nested_loop", "pmj", "diner", on=BAND),
    "pmj": _race("pmj", "diner", "hmj"),
    "rpj": _race("rpj", "hmj", "xjoin"),
    "shj": Race((Line("shj", "shj, all rows in memory", None), Line("adaptive", "adaptive, memory for 10 %"))),
    "spo": Race(tuple(Line(name, "", None, BUDGET_BYTES) for name in ("spo", "pmj", "diner")), on=BAND),
    "xjoin": _race("xjoin", "dphj", "rpj"),
}


@cache
def stalling(skew: float) -> Workload:
    """Zipf keys; both inputs send and stall at about the same time."""
    rng = np.random.default_rng(SEED)
    times = [
        arrival_times.with_silences(arrival_times.exponential(ROWS, rng), fragments=FRAGMENTS, silence=1.0)
        for _ in range(2)
    ]
    tables = [pa.table({"k": values.zipf(ROWS, rng, skew=skew, high=KEYS)}) for _ in times]
    return Workload(tuple(tables), tuple(times))


def stalls(workload: Workload, least_s: float = 0.5) -> list[tuple[float, float]]:
    """Spans in which no row arrives."""
    _, times = workload.merged()
    gaps = np.flatnonzero(np.diff(times) > least_s)
    return [(float(times[i]), float(times[i + 1])) for i in gaps]


@cache
def _play(line: Line, skew: float, on: str) -> ClockedRun:
    memory_rows = None if line.memory is None else int(2 * ROWS * line.memory)
    return play(
        line.operator,
        stalling(skew),
        on,
        memory_rows=memory_rows,
        memory_bytes=line.memory_bytes,
        block_rows=BLOCK_ROWS,
        batch_rows=BLOCK_ROWS,
        hand_over_rows=4 * BLOCK_ROWS,
        costs=DISK,
        seed=SEED,
    )


def over_time(name: str) -> Plot:
    race = RACES[name]
    runs = {line.label or line.operator: _play(line, race.skew, race.on) for line in race.lines}
    (total,) = {run.total for run in runs.values()}
    seconds = stalling(race.skew).end_s * np.arange(POINTS + POINTS // 10 + 1) / POINTS
    lines = {label: [(float(s), run.results_at(s) / total) for s in seconds] for label, run in runs.items()}
    spans = stalls(stalling(race.skew))
    return Plot(f"{name}: results over time", "seconds", SHARE, lines, shaded=spans, shaded_as="no row arrives")


def over_memory(name: str) -> Plot:
    """Three inputs joined on one attribute, without stalls: results found when the last row has arrived."""
    others = [other for other in ("miner", "mjoin", "pmj") if other != name]
    lines = {operator: _shares(operator) for operator in (name, *others)}
    return Plot(f"{name}: results at the last arrival", "memory, % of the rows", SHARE, lines)


@cache
def _shares(operator: str) -> list[tuple[float, float]]:
    setting = star_of(3, 3_000, SEED, domain=1_000, skew=0.5)
    limits = [(share, int(share * setting.rows)) for share in MEMORIES]
    return [(100 * share, online_share(operator, setting, limit, block_rows=20)) for share, limit in limits]


def over_windows() -> Plot:
    """The share of rows that find their partner in the window."""
    inputs: dict[str, Scans] = {
        "by date, items 1 to 121 of 2,406 days later": orders_and_items(ORDERS),
        "about as far apart, normally distributed": deviating(ORDERS, 4, ORDERS * 121 / 2406 / 12**0.5),
        "items shuffled": shuffled(ORDERS),
    }
    lines = {
        name: [(100 * share, 1 - run(scans, share * ORDERS).mishits) for share in WINDOWS]
        for name, scans in inputs.items()
    }
    return Plot("diag: items joined in the first pass", "window, % of the orders", SHARE, lines)


CURVES: dict[str, Callable[[], Plot]] = {
    **{name: partial(over_time, name) for name in RACES},
    **{name: partial(over_memory, name) for name in ("miner", "mjoin")},
    "diag": over_windows,
}


def _figures(name: str, plot: Plot) -> Iterator[str]:
    for label, points in plot.lines.items():
        if name in RACES:
            last = float(stalling(RACES[name].skew).end_s)
            points = [(at, next(y for x, y in reversed(points) if x <= at)) for at in (last / 4, last / 2, last)]
        yield f"{name}: {label}: " + ", ".join(f"{x:.3g} {y:.2f}" for x, y in points)


def main(names: list[str]) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in names or CURVES:
        plot = CURVES[name]()
        (PICTURES / f"{name}.svg").write_text(f"{draw(plot)}\n")
        print(*_figures(name, plot), sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
