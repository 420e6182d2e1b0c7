"""The claims of the RPJ paper (SIGMOD 2005) beside what comes out here, at a tenth of its size.

Rows arrive in the paper's order of partitions and rates; what is compared is counted in results and pages, or on a
simulated clock, so that no figure depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from benchmarks.papers.claims import Claim
from benchmarks.papers.rpj_runs import SETTINGS, online, unreliable, watched, workload
from dovetail.core.metrics import Counters

TITLE = "RPJ"
ROWS = 200_000
CLOCKED_ROWS = 10_000
COMPETITORS = ("hmj", "xjoin")
HANDOVERS = {"rpj": "bucket", "rpj_dd": "bucket", "rpj_md": "bucket", "hmj": "all", "xjoin": "bucket"}
POLICIES = ("smallest", "largest", "all", "adaptive")


def claims(rows: int = ROWS, clocked_rows: int = CLOCKED_ROWS) -> Iterator[Claim]:
    yield from _flushing(rows)
    yield from _expectations(rows)
    yield from _reactive(clocked_rows)


def _flushing(rows: int) -> Iterator[Claim]:
    shares = {s: {name: online(name, *s, rows).share for name in ("rpj", *COMPETITORS)} for s in SETTINGS}
    leads = [of["rpj"] / max(of[name] for name in COMPETITORS) for of in shares.values()]
    yield Claim(
        "Fig. 8: online share of RPJ, HMJ, XJoin; harmony 1:1, 5:1, reverse 1:1, 5:1",
        "RPJ delivers most while rows arrive",
        "; ".join("/".join(f"{share:.3f}" for share in of.values()) for of in shares.values()),
        min(leads) >= 1.3,
    )
    fine = [online("rpj", *s, rows, n_flush=0.01) for s in SETTINGS]
    yield Claim(
        "Lemma 1: share of the partition-level bound with n_flush 1 %",
        "optimal for eq. 4",
        _list(run.share / run.bound for run in fine),
        all(0.97 * run.bound <= run.share <= run.bound + 0.01 for run in fine),
    )
    flushed = {
        s: {flush: online("rpj", *s, rows, flush=flush, n_flush=0.0).share for flush in POLICIES} for s in SETTINGS
    }
    in_harmony, in_reverse = flushed["harmony", 1], flushed["reverse", 1]
    relative = [flushed["harmony", ratio]["adaptive"] / shares["harmony", ratio]["rpj"] for ratio in (1, 5)]
    yield Claim(
        "section 4.3: flush smallest/largest/all/adaptive, same settings",
        "smallest good on harmony, largest on reverse, adaptive only for equal speeds, all worst",
        "; ".join("/".join(f"{share:.3f}" for share in of.values()) for of in flushed.values()),
        in_harmony["smallest"] > in_harmony["largest"]
        and in_reverse["largest"] > in_reverse["smallest"]
        and relative[1] < relative[0]
        and all(run.share >= max(of.values()) for run, of in zip(fine, flushed.values(), strict=True)),
    )


def _expectations(rows: int) -> Iterator[Claim]:
    line = workload("harmony", 1, rows)
    cycles = watched(line, rows // 20).cycles
    ratio = float(np.mean(np.array(cycles.actual[1:]) / np.array(cycles.predicted[1:])))
    yield Claim(
        f"eq. 2, 4: results between two flushes, actual over expected, mean of {len(cycles.actual) - 1}",
        "1",
        f"{ratio:.3f}",
        0.95 <= ratio <= 1.05,
    )
    executed = watched(line, rows // 20, stall_every=300, handover="bucket").executed
    ratio = sum(executed.predicted) / sum(executed.actual)
    yield Claim(
        f"section 5.3: expected over actual results of {len(executed.actual)} tasks",
        "1",
        f"{ratio:.3f}",
        0.8 <= ratio <= 1.25 and min(executed.predicted) >= 0,
    )


def _reactive(rows: int) -> Iterator[Claim]:
    """Tasks are finished once they are begun, HMJ's for all partitions, as the paper has it."""
    runs = {s: {name: unreliable(name, *s, rows, handover=HANDOVERS[name]) for name in HANDOVERS} for s in SETTINGS}
    shares = [
        {name: run.results_at(run.last_arrival_s) / run.total for name, run in of.items()} for of in runs.values()
    ]
    yield Claim(
        "Fig. 10, 11: share at the last arrival, unreliable network: RPJ, RPJ-dd, RPJ-md, HMJ, XJoin",
        "RPJ has most, the others about 20 %; RPJ > RPJ-dd > RPJ-md, HMJ > XJoin",
        "; ".join("/".join(f"{share:.3f}" for share in of.values()) for of in shares),
        all(of["rpj"] >= 1.5 * max(of[name] for name in COMPETITORS) for of in shares),
    )
    pages = [[_pages(of[name].counters) for name in ("rpj", *COMPETITORS)] for of in runs.values()]
    ratios = [max(of) / min(of) for of in pages]
    yield Claim(
        "Fig. 8a: pages read and written in all, the largest over the smallest of RPJ, HMJ and XJoin",
        "similar",
        _list(ratios),
        max(ratios) <= 1.3 / 0.7,
    )


def _pages(counters: Counters) -> int:
    return counters.pages_written + counters.pages_read_random + counters.pages_read_sequential


def _list(figures: Iterable[float]) -> str:
    return ", ".join(f"{figure:.3f}" for figure in figures)
