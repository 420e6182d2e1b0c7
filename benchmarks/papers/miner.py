"""MINER (Figs. 20, 22, Table 21, section 5.5): joins of four inputs, at a fraction of the printed size.

Shares are of the whole result, found when the last row has arrived; memory is a share of the four inputs. `benefit` is
the published flushing policy; `worth` is ours, whose counters are charged to the same memory. The bound is one that no
policy can exceed on this workload (clairvoyant.py, clairvoyant_chain.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from benchmarks.papers.clairvoyant import online_bound
from benchmarks.papers.clairvoyant_chain import chain_bound
from benchmarks.papers.miner_delays import HAND_OVER, waiting_rows, with_silences
from benchmarks.papers.miner_runs import BLOCK_ROWS, Setting, chain_of, in_bytes, online_share, printed_star
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, Shares, Spread
from dovetail.matching.expansion import MOST
from dovetail.testing.clock import Costs
from dovetail.testing.values import zipf_shares

PRINTED_ROWS = 100_000  # in each of the two larger inputs
MEMORY = (0.05, 0.10, 0.15, 0.20)
PRINTED = {0.05: 0.55, 0.20: 0.80}  # shares online
ABOVE = 0.01  # random excess over the bound that is allowed
MODEST = 0.25  # of the share with two inputs: a larger decrease is not modest


def chain_shares(inputs: int, policy: str, rows: int, memory: Iterable[float], seeds: Iterable[int]) -> list[Spread]:
    settings = [chain_of(inputs, rows, seed) for seed in seeds]
    block = max(1, min(BLOCK_ROWS, rows // 200))
    return [
        Spread.of(online_share("miner", s, int(part * 2.2 * rows), block, policy=policy) for s in settings)
        for part in memory
    ]


def chain_bounds(inputs: int, rows: int, memory: Iterable[float] = MEMORY) -> list[float]:
    """The bounds for two inputs or for four."""
    shares = zipf_shares(rows // 10, 1.0)
    if inputs == 2:
        return [online_bound(shares * rows, shares * rows, part * 2.2 * rows) for part in memory]
    return [chain_bound(shares, rows, part * 2.2 * rows) for part in memory]


@experiment("C-MN-1")
def chains(scale: Scale) -> Iterator[Finding]:
    """Smaller sizes cannot reach the printed shares: these are judged at the printed size, or by its bound."""
    rows = scale.pick(3000, 10_000, PRINTED_ROWS)
    memory = scale.pick((0.05, 0.20), MEMORY, MEMORY)
    tried = scale.pick((2, 4), (2, 3, 4), (2, 3, 4))
    published = {inputs: chain_shares(inputs, "benefit", rows, memory, scale.seeds) for inputs in tried}
    ours = chain_shares(4, "worth", rows, memory, scale.seeds)
    two, four = chain_bounds(2, rows, memory), chain_bounds(4, rows, memory)
    finding = Finding("C-MN-1", f"10 : 100 : 100 : 10, larger inputs {rows:,} rows, {scale.seed_count} seeds")
    at_printed_size = chain_bounds(4, PRINTED_ROWS, PRINTED)
    for (part, printed), bound in zip(PRINTED.items(), at_printed_size, strict=True):
        asked = f"four inputs, {part:.0%}: {printed:.0%}"
        share = published[4][memory.index(part)]
        if rows == PRINTED_ROWS:
            finding.judge(asked, f"{share}, bound {bound:.3f}", share.least >= printed)
        elif bound < printed:
            finding.judge(asked, f"no policy has more than {bound:.3f} at the printed size", False)
        else:
            at = memory.index(part)
            finding.beside.append(
                f"{asked}: not decided; here {share}, bound {four[at]:.3f}; in print bound {bound:.3f}"
            )
        if rows == PRINTED_ROWS:
            less = 1 - share.least / published[2][memory.index(part)].most
            finding.judge(f"{part:.0%}: a modest decrease", f"{less:.0%} less than two inputs", less <= MODEST)
    for inputs, shares in published.items():
        grows = all(a.most <= b.least for a, b in pairwise(shares))
        finding.guard(f"{inputs} inputs: grows with memory", ", ".join(map(str, shares)), grows)
    for at, part in enumerate(memory):
        of_inputs = [published[inputs][at] for inputs in tried]
        falls = all(a.least >= b.most for a, b in pairwise(of_inputs))
        finding.guard(f"{part:.0%}: falls with inputs", ", ".join(map(str, of_inputs)), falls)
        score = published[2][at].least / two[at]
        finding.guard(f"two inputs, {part:.0%}: .90 of the bound", f"{score:.3f}", score >= 0.90)
        above = max(published[2][at].mean - two[at], published[4][at].mean - four[at], ours[at].mean - four[at])
        finding.guard(f"{part:.0%}: not above the bound", f"{above:+.3f}", above <= 2 * ABOVE)
    for at, part in enumerate(memory) if scale.with_shares else ():
        if scale.name == "ci" and part < 0.20:  # less than the smallest budget in bytes
            continue
        weighed = {
            policy: in_bytes(chain_of(4, rows, 0), part, max(1, rows // 200), policy=policy).share
            for policy in ("benefit", "worth")
        }
        finding.shares.append(
            Shares(
                f"four inputs, {part:.0%}",
                four[at],
                published[4][at].mean,
                ours[at].mean,
                weighed["benefit"],
                weighed["worth"],
                weighed["worth"],  # `worth` is the policy that `auto` uses
            )
        )
    percents = [100 * part for part in memory]
    lines = {
        **{f"{inputs} inputs": _points(percents, shares) for inputs, shares in published.items()},
        "four, ours": _points(percents, ours),
        "bound of four": list(zip(percents, four, strict=True)),
        "printed": [(100 * part, share) for part, share in PRINTED.items()],
    }
    finding.plots.append(Plot("Fig. 20", "memory, %", "share online", lines))
    yield finding


def _points(xs: list[float], spreads: list[Spread]) -> list[tuple[float, float]]:
    return [(x, spread.mean) for x, spread in zip(xs, spreads, strict=True)]


@experiment("C-MN-2")
def indexes(scale: Scale) -> Iterator[Finding]:
    rows = scale.pick(10_000, 20_000, PRINTED_ROWS)
    weighed = in_bytes(chain_of(4, rows, 0), 0.20, policy="benefit")
    finding = Finding("C-MN-2", f"larger inputs {rows:,} rows of 200 bytes, memory 20 % in bytes")
    finding.judge("less than 2 % of memory", f"{weighed.indexes:.1%}", weighed.indexes < 0.02)
    finding.guard("at most a quarter", f"{weighed.indexes:.1%}", weighed.indexes <= 0.25)
    finding.beside.append(
        "a hash table in arrays of 32 bits; in print a Judy array of distinct keys, six for 44,000 rows"
    )
    yield finding


@experiment("C-MN-3")
def delays(scale: Scale) -> Iterator[Finding]:
    """The arrivals allowed during a step follow from the blocks that it may load and the costs, not from the run."""
    rows = scale.pick(600, 2000, 10_000)
    hand_over = HAND_OVER * rows // PRINTED_ROWS
    finding = Finding("C-MN-3", f"larger inputs {rows:,} rows, hand-over at {hand_over} rows, {scale.seed_count} seeds")
    costs = Costs()
    for silence in (0.5, 2.0):
        settings = [with_silences(chain_of(4, rows, seed), silence) for seed in scale.seeds]
        seen = [waiting_rows(setting, setting.rows // 10, max(1, rows // 100), hand_over) for setting in settings]
        step_s = seen[0].blocks_allowed * costs.pages_read_random + MOST * (costs.pairs_tested + costs.results)
        rates = [_fastest(setting.workload.merged()[1].tolist(), step_s) for setting in settings]
        most = max(each.most_rows for each in seen)
        finding.judge(
            f"silences of {silence:.0%}",
            f"{most} rows wait, allowed {hand_over} and {max(rates)} in {step_s * 1e3:.0f} ms",
            all(each.most_rows <= hand_over + rate for each, rate in zip(seen, rates, strict=True)),
        )
        finding.guard(
            f"silences of {silence:.0%}: blocks in a step",
            f"{max(each.most_pages_in_a_step for each in seen)} of {seen[0].blocks_allowed}",
            all(each.most_pages_in_a_step <= each.blocks_allowed for each in seen),
        )
    yield finding


def _fastest(times: list[float], window_s: float) -> int:
    """The largest number of arrivals in any window of this length."""
    first = most = 0
    for last, time in enumerate(times):
        while time - times[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


@experiment("C-MN-4")
def stars(scale: Scale) -> Iterator[Finding]:
    rows = scale.pick(2000, 10_000, PRINTED_ROWS)
    memory = (0.05, 0.10, 0.20)
    finding = Finding(
        "C-MN-4", f"10 : 100 : 100 : 10 on one attribute, larger inputs {rows:,} rows, {scale.seed_count} seeds"
    )
    settings = [printed_star(rows, seed) for seed in scale.seeds]
    policies = ("benefit", "worth") if scale.with_shares else ("benefit",)
    found = {policy: [gains_over_mjoin(settings, part, policy) for part in memory] for policy in policies}
    for part, gain, asked in zip(memory, found["benefit"], (20, 20, 5), strict=True):
        finding.judge(f"{part:.0%}: at least {asked} times", str(gain), gain.least >= asked)
    *less, most = found["benefit"]
    finding.guard("least with the most memory", str(most), all(most.most < gain.least for gain in less))
    finding.judge_size("5%: 60 times", str(less[0]), less[0].least >= 60)
    if "worth" in found:
        finding.beside.append(f"by worth (`auto`): {', '.join(map(str, found['worth']))}")
    yield finding


def gains_over_mjoin(settings: list[Setting], part: float, policy: str) -> Spread:
    """Online results of MINER divided by MJoin's, with memory for a part of the rows."""
    return Spread.of(
        online_share("miner", s, int(part * s.rows), s.rows // 400, policy=policy)
        / max(1 / s.results, online_share("mjoin", s, int(part * s.rows), s.rows // 400))
        for s in settings
    )
