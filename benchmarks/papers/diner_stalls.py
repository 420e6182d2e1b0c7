"""DINER with sources that stall (Figs. 16, 17, 19, Table 3), on a simulated clock, with one table of costs.

The papers print no costs. Here a page takes the same share of the transmission time as a page of 10 ms at the printed
size: 4,000 pages of 50 rows, which arrive in 100 s. Other disks are also tried, because the outcome depends on them.
HMJ yields after each merge of F segments, as in the paper; RPJ finishes the task it has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks.papers.diner_runs import (
    DINER,
    HMJ,
    MERGING,
    RPJ,
    WHOLE,
    Contender,
    Setting,
    in_fragments,
    run_of,
    shares_of,
    silenced,
    skewed,
    stock_like,
    whole,
)
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, Spread
from dovetail.operators.diner.sides import MOST_PAIRS
from dovetail.testing.clock import ClockedRun, Costs
from dovetail.testing.workload import Workload

PAGES_PER_S = 40  # at the printed size
SLOWER = (1, 10)  # factors on 10 ms per random page
HANDOVERS = {"hmj": "merge", "rpj": "bucket"}
OUTER = (9, 19, 29, 39, 49, 59)  # MaxOuterMem, of 200 blocks


def stalled(scale: Scale) -> Setting:
    """Enough memory blocks for a merge of F = 10 segments, which needs 22 blocks in a quarter of the memory."""
    return scale.pick(Setting(5000, blocks=100), Setting(10_000, blocks=100), WHOLE)


def outer_blocks_of(setting: Setting) -> int:
    """MaxOuterMem, in proportion to 19 of 200 blocks."""
    return max(1, round(setting.blocks * 19 / 200))


def disk(setting: Setting, slower: float = 1.0) -> Costs:
    """Page costs with the same share of the transmission time as at the printed size."""
    pages_per_s = 2 * setting.rows / setting.block_rows / (1e-3 * setting.rows)
    page_s = 1e-2 * slower * PAGES_PER_S / pages_per_s
    return Costs(pages_read_sequential=page_s / 10, pages_read_random=page_s, pages_written=page_s / 10)


def run_stalled(contender: Contender, line: Workload, setting: Setting, **parameters: Any) -> ClockedRun:
    if contender.operator in HANDOVERS:
        parameters["handover"] = HANDOVERS[contender.operator]
    if contender.operator == "diner":
        parameters.setdefault("outer_blocks", outer_blocks_of(setting))
    hand_over_rows = setting.memory_rows // 10
    return run_of(contender, line, setting, hand_over_rows=hand_over_rows, **parameters)


@experiment("C-DN-11", "C-DN-12", long=True)
def silences(scale: Scale) -> Iterator[Finding]:
    """Results and waiting rows, from the same runs."""
    setting = stalled(scale)
    tried = scale.pick((0.1, 1.0), (0.1, 0.25, 0.5, 1.0), (0.1, 0.25, 0.5, 1.0))
    finding = Finding("C-DN-11", _said(setting, scale))
    lines = {silence: [in_fragments(silence, seed, setting) for seed in scale.seeds] for silence in tried}
    slower_by = scale.pick(SLOWER[:1], SLOWER, SLOWER)  # with 100 ms per page, the same settings fail
    runs = {slower: _compare(finding, "Fig. 16", lines, setting, slower, scale.with_shares) for slower in slower_by}
    for other, printed in (("RPJ", 1.83), ("HMJ", 8.65)):
        best = max(_gain(of, "DINER", other).least for done in runs.values() for of in done.values())
        finding.judge_size(f"up to {printed} times {other}", f"{best:.2f}", best >= printed)
    yield finding
    yield _waiting_rows(runs[1], lines, setting, scale)


@experiment("C-DN-13")
def silences_of_prices(scale: Scale) -> Iterator[Finding]:
    setting = stalled(scale)
    finding = Finding("C-DN-13", _said(setting, scale))
    tried = scale.pick((1.0,), (0.1, 1.0), (0.1, 1.0))  # with short silences, the same settings fail
    lines = {silence: [silenced(stock_like(setting.rows, seed), silence) for seed in scale.seeds] for silence in tried}
    for slower in scale.pick(SLOWER[:1], SLOWER, SLOWER):
        _compare(finding, "Fig. 17", lines, setting, slower, scale.with_shares)
    yield finding


def _said(setting: Setting, scale: Scale) -> str:
    return f"2 x {setting.rows:,} rows, memory 5 % in {setting.blocks} blocks, {scale.seed_count} seeds"


def _compare(
    finding: Finding,
    figure: str,
    lines: dict[float, list[Workload]],
    setting: Setting,
    slower: float,
    with_shares: bool,
) -> dict[float, dict[str, list[ClockedRun]]]:
    """The runs by silence and contender, one per seed."""
    costs, page = disk(setting, slower), f"{10 * slower:g} ms a page"
    done: dict[float, dict[str, list[ClockedRun]]] = {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for silence, workloads in lines.items():
        contenders = [DINER, RPJ, HMJ, *([MERGING] if with_shares else [])]
        runs = done[silence] = {each.title: [] for each in contenders}
        for line in workloads:
            for each in contenders:
                runs[each.title].append(run_stalled(each, line, setting, costs=costs))
        found = {name: Spread.of(run.share for run in of) for name, of in runs.items()}
        for name, spread in found.items():
            shares.setdefault(name, []).append((100 * silence, spread.mean))
        for other, times in (("RPJ", 1.0), ("HMJ", 2.0)):
            gain = _gain(runs, "DINER", other)
            overflow = max(run.max_buffer_rows for run in runs[other]) > setting.memory_rows
            finding.judge(
                f"silences of {silence:.0%}, {page}, {'at least' if times == 1 else 'twice'} {other}",
                f"{gain}{', whose buffer overflows' if overflow else ''}; share {found['DINER'].mean:.2f}",
                gain.least >= times,
            )
        if with_shares:
            when = f"silences of {silence:.0%}, {page}"
            limits: dict[str, Any] = {"hand_over_rows": setting.memory_rows // 10, "costs": costs}
            finding.shares.append(shares_of(when, workloads[0], setting, ours=MERGING, **limits))
    finding.plots.append(Plot(f"{figure}: {page}", "silence, % of a fragment", "share online", shares))
    return done


def _gain(runs: dict[str, list[ClockedRun]], one: str, other: str) -> Spread:
    return Spread.of(a.online / max(1, b.online) for a, b in zip(runs[one], runs[other], strict=True))


class HandOver(NamedTuple):
    """The largest number of rows that wait while an operator works on disk."""

    longest_buffer: int
    allowed: float  # rows that trigger the hand-over, plus those that arrive during one step


def hand_over(run: ClockedRun, line: Workload, silence: float, setting: Setting) -> HandOver:
    costs = disk(setting)
    pages = outer_blocks_of(setting) + 1
    step_s = pages * costs.pages_read_random + MOST_PAIRS * (costs.pairs_tested + costs.results)
    rows_per_s = 2 * setting.rows / (line.end_s / (1 + silence))
    return HandOver(run.max_buffer_rows, setting.memory_rows // 10 + 1.5 * rows_per_s * step_s)


def _waiting_rows(
    runs: dict[float, dict[str, list[ClockedRun]]],
    lines: dict[float, list[Workload]],
    setting: Setting,
    scale: Scale,
) -> Finding:
    finding = Finding(
        "C-DN-12", f"2 x {setting.rows:,} rows, memory for {setting.memory_rows:,}, {scale.seed_count} seeds"
    )
    for silence in (0.1, 1.0):
        diner, rpj = (
            [
                hand_over(run, line, silence, setting)
                for run, line in zip(runs[silence][each.title], lines[silence], strict=True)
            ]
            for each in (DINER, RPJ)
        )
        finding.judge(
            f"silences of {silence:.0%}: DINER hands over",
            f"{max(each.longest_buffer for each in diner):,} rows, allowed {diner[0].allowed:,.0f}",
            all(each.longest_buffer <= each.allowed for each in diner),
        )
        finding.judge(
            f"silences of {silence:.0%}: RPJ has more waiting",
            f"{max(each.longest_buffer for each in rpj):,} rows",
            all(a.longest_buffer > b.longest_buffer for a, b in zip(rpj, diner, strict=True)),
        )
        if silence == 0.1:
            queues = Spread.of(each.longest_buffer / setting.memory_rows for each in rpj)
            finding.judge("RPJ: more than memory holds", f"{queues} times memory", queues.least > 1)
            finding.judge_size("RPJ: 4 times memory", str(queues), queues.least >= 4)
    return finding


@experiment("C-DN-15")
def outer_blocks(scale: Scale) -> Iterator[Finding]:
    setting = stalled(scale)
    lines = [in_fragments(0.5, seed, setting) for seed in scale.seeds]
    counts = sorted(
        {max(1, round(outer * setting.blocks / 200)) for outer in scale.pick((OUTER[0], OUTER[-1]), OUTER, OUTER)}
    )
    finding = Finding("C-DN-15", f"{_said(setting, scale)}, silences of 50 %, outer blocks {counts}")
    shown: dict[str, list[tuple[float, float]]] = {}
    for slower in scale.pick(SLOWER[:1], SLOWER, SLOWER):
        costs, page = disk(setting, slower), f"{10 * slower} ms a page"
        found = [
            [run_stalled(DINER, line, setting, outer_blocks=n, costs=costs).online for line in lines] for n in counts
        ]
        spread = Spread.of(max(of_counts) / min(of_counts) for of_counts in zip(*found, strict=True))
        finding.judge(f"{page}: at most 1.10", str(spread), spread.most <= 1.1)
        shown[page] = [(100 * n / setting.blocks, Spread.of(of).mean) for n, of in zip(counts, found, strict=True)]
    finding.plots.append(Plot("Fig. 19", "outer blocks, % of memory", "online results", shown))
    yield finding


@experiment("C-DN-16")
def completion(scale: Scale) -> Iterator[Finding]:
    setting = scale.pick(Setting(5000), Setting(10_000, blocks=100), WHOLE)
    finding = Finding("C-DN-16", _said(setting, scale))
    makes: dict[str, Callable[..., Workload]] = {
        "Zipf 1": partial(skewed, 1, setting=setting),
        "CSCO": partial(stock_like, setting.rows),
    }
    for name in scale.pick(("Zipf 1",), tuple(makes), tuple(makes)):
        lines = [makes[name](seed=seed) for seed in scale.seeds]
        ends = {
            each.title: [whole(each, line, setting, costs=disk(setting)).end_s for line in lines]
            for each in (DINER, HMJ, RPJ)
        }
        for other in ("HMJ", "RPJ"):
            ratio = Spread.of(a / b for a, b in zip(ends["DINER"], ends[other], strict=True))
            finding.judge(f"{name}: at most 1.5 times {other}'s time", str(ratio), ratio.most <= 1.5)
        apart = Spread.of(max(of_seed) / min(of_seed) for of_seed in zip(*ends.values(), strict=True))
        finding.judge(f"{name}: the slowest at most 1.5 times the fastest", str(apart), apart.most <= 1.5)
    yield finding
