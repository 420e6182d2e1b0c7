"""RPJ over the unreliable network (Figs. 10, 11, 12), on a simulated clock.

The cost of a page is not printed, but it decides the outcome. A page takes the same share of the transmission as 10 ms
at the printed size, and at larger scales also ten and a hundred times as much. Merges are charged in two ways: as
printed, every page at random, read and written; and as in this implementation, where a merge reads many pages of a run
at once. Tasks are finished once begun, in HMJ for all partitions, as in the paper. Ours is RPJ with the cost of a merge
in this implementation instead of the printed estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from benchmarks.papers.registry import experiment
from benchmarks.papers.rpj_runs import OVERFLOW, SETTINGS, Kind, named, online, unreliable
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, Spread
from dovetail.testing.clock import ClockedRun

N_FLUSH = 0.5  # of memory, so that spilled pieces have about a page (2.6 in the paper)
PRINTED: dict[str, Any] = {"n_flush": N_FLUSH, "handover": "bucket", "passes": "pages"}
OURS = "rpj, ours"
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rpj": ("rpj", PRINTED),
    "rpj_dd": ("rpj", {**PRINTED, "tasks": "dd"}),
    "rpj_md": ("rpj", {**PRINTED, "tasks": "md"}),
    "hmj": ("hmj", {"handover": "all"}),
    "xjoin": ("xjoin", {"handover": "bucket"}),
    OURS: ("rpj", {**PRINTED, "passes": "runs"}),
}
COMPETITORS = ("hmj", "xjoin")
LEADERS = ("rpj", *COMPETITORS)
ORDERS = (("rpj", "rpj_dd"), ("rpj_dd", "rpj_md"), ("hmj", "xjoin"))
CHARGES = {"merges at random": True, "merges in sequence": False}
SLOWER = (1, 10, 100)  # factors on 10 ms per random page
POINTS = 20


def _rows(scale: Scale) -> int:
    return scale.pick(4800, 50_000, 2_000_000)


@experiment("C-RP-6", "C-RP-7", "C-RP-8", long=True)
def unreliable_network(scale: Scale) -> Iterator[Finding]:
    rows = _rows(scale)
    said = f"{rows:,} rows, memory 5 %, n_flush {N_FLUSH:.0%}, {scale.seed_count} seeds"
    ahead, order = Finding("C-RP-6", said), Finding("C-RP-7", said)
    tried = scale.pick(SETTINGS[::3], SETTINGS, SETTINGS)
    before = {setting: [_lead(_reliable(setting, rows, seed)) for seed in scale.seeds] for setting in tried}
    cases = [(charge, slower) for slower in scale.pick((1,), SLOWER, SLOWER) for charge in CHARGES]
    contenders = [name for name in CONTENDERS if name != OURS or scale.with_shares]
    for charge, slower in cases:
        # At scale ci all four were run once: each order holds in all of them, or in none.
        settings = tried if CHARGES[charge] else scale.pick(tried[:1], tried, tried)
        page, held = _named(charge, slower), dict.fromkeys(ORDERS, len(settings))
        for setting in settings:
            runs = [
                {name: _run(name, setting, rows, seed, charge, slower) for name in contenders} for seed in scale.seeds
            ]
            shares = [{name: run.results_at(run.last_arrival_s) / run.total for name, run in of.items()} for of in runs]
            listed = ", ".join(f"{name} {Spread.of(of[name] for of in shares).mean:.3f}" for name in contenders)
            gains = [_lead(of) for of in shares]
            ahead.judge(
                f"{named(setting)}, {page}",
                f"{Spread.of(gains)}, {Spread.of(before[setting])} on the reliable network; {listed}",
                all(gain >= 1.5 and gain > reliable for gain, reliable in zip(gains, before[setting], strict=True)),
            )
            for more, less in ORDERS:
                held[more, less] -= any(of[more] <= of[less] for of in shares)
            if setting == SETTINGS[0]:
                lines = {name: _over_time(run) for name, run in runs[0].items()}
                ahead.plots.append(Plot(f"Figs. 10, 11: harmony 1:1, {page}", "% of the transmission", "share", lines))
        for (more, less), count in held.items():
            order.judge(
                f"{more} > {less}, {page}", f"in {count} of {len(settings)} settings", 4 * count >= 3 * len(settings)
            )
    yield ahead
    yield order
    yield _costs(rows, scale.seeds, cases)


def _lead(shares: dict[str, float]) -> float:
    """RPJ's share divided by the larger share of the others."""
    return shares["rpj"] / max(shares[name] for name in COMPETITORS)


def _reliable(setting: tuple[Kind, float], rows: int, seed: int) -> dict[str, float]:
    flushes: dict[str, dict[str, Any]] = {"rpj": {"n_flush": N_FLUSH}}
    return {name: online(name, *setting, rows, seed, **flushes.get(name, {})).share for name in LEADERS}


def _named(charge: str, slower: int) -> str:
    return f"{10 * slower} ms a page, {charge}"


@cache
def _run(name: str, setting: tuple[Kind, float], rows: int, seed: int, charge: str, slower: int) -> ClockedRun:
    operator, parameters = CONTENDERS[name]
    return unreliable(operator, *setting, rows, seed, slower, merges_at_random=CHARGES[charge], **parameters)


def _over_time(run: ClockedRun) -> list[tuple[float, float]]:
    times = [run.last_arrival_s * (i + 1) / POINTS for i in range(POINTS)]
    return [(100 * t / run.last_arrival_s, run.results_at(t) / run.total) for t in times]


def _costs(rows: int, seeds: range, cases: list[tuple[str, int]]) -> Finding:
    finding = Finding("C-RP-8", f"{rows:,} rows, harmony 1:1, {len(seeds)} seeds")
    for charge, slower in cases:
        of_seeds = []
        for seed in seeds:
            runs = {name: _run(name, SETTINGS[0], rows, seed, charge, slower) for name in ("rpj", "rpj_dd", "rpj_md")}
            of_seeds.append({name: _cost_over_time(run) for name, run in runs.items()})
        above = [
            [dd > md for (_, dd), (_, md) in zip(each["rpj_dd"], each["rpj_md"], strict=True)] for each in of_seeds
        ]
        changes = [[pair for pair in pairwise(each) if pair[0] != pair[1]] for each in above]
        page = _named(charge, slower)
        finding.judge(
            f"RPJ-dd above RPJ-md early, below it later, {page}",
            f"above at {', '.join(str(sum(each)) for each in above)} of {POINTS} points",
            all(each == [(True, False)] for each in changes),
        )
        ends = [{name: line[-1][1] for name, line in each.items()} for each in of_seeds]
        listed = ", ".join(f"{name} {Spread.of(each[name] for each in ends)} ms" for name in ends[0])
        finding.judge(
            f"RPJ lowest at the end, {page}",
            listed,
            all(each["rpj"] <= min(each["rpj_dd"], each["rpj_md"]) for each in ends),
        )
        plot = Plot(f"Fig. 12: {page}", "% of the transmission", "ms per result", of_seeds[0], log_y=True)
        finding.plots.append(plot)
    return finding


def _cost_over_time(run: ClockedRun) -> list[tuple[float, float]]:
    """The cost over time from the first overflow on."""
    places = [OVERFLOW + (1 - OVERFLOW) * (i + 1) / POINTS for i in range(POINTS)]
    return [(100 * place, 1e3 * run.cost_at(place * run.last_arrival_s)) for place in places]
