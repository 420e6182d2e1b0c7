"""DINER where rows come in an order of their own (Fig. 14), and where one relation is small (Fig. 18)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.papers.diner_runs import (
    DINER,
    HMJ,
    RPJ,
    gains_over_seeds,
    in_intervals,
    run_of,
    setting_of,
    shares_of,
    unequal,
)
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, Spread


@experiment("C-DN-9")
def intervals(scale: Scale) -> Iterator[Finding]:
    setting = setting_of(scale)
    counts = scale.pick((5, 50), (5, 10, 20, 50, 100, 200), (5, 10, 20, 50, 100, 200))
    others = [HMJ, RPJ]
    finding = Finding("C-DN-9", f"2 x {setting.rows:,} rows, memory 5 %, {scale.seed_count} seeds")
    for same_order, order in ((True, "both sides alike"), (False, "each side by itself")):
        lines: dict[str, list[tuple[float, float]]] = {other.title: [] for other in others}
        for k in counts:
            make = partial(in_intervals, k, setting=setting, same_order=same_order)
            found = gains_over_seeds(make, others, scale.seeds, setting)
            for name, spread in found.items():
                lines[name].append((k, spread.mean))
                finding.judge(f"{k} intervals, {order}, over {name}", str(spread), spread.least >= 1.2)
            if scale.with_shares:
                finding.shares.append(shares_of(f"{k} intervals, {order}", make(0), setting))
        finding.plots.append(Plot(f"Fig. 14: {order}", "intervals", "DINER's results over theirs", lines))
    yield finding


@experiment("C-DN-14")
def unequal_sizes(scale: Scale) -> Iterator[Finding]:
    setting = setting_of(scale)
    sizes = scale.pick((1.0, 0.1), (1.0, 0.5, 0.3, 0.1), (1.0, 0.5, 0.3, 0.1))
    contenders = [DINER, HMJ, RPJ]
    finding = Finding(
        "C-DN-14",
        f"{setting.rows:,} rows and a part of it, memory {setting.memory_rows:,} rows, {scale.seed_count} seeds",
    )
    shares: dict[str, list[Spread]] = {each.title: [] for each in contenders}
    for size in sizes:
        runs = [
            [run_of(each, unequal(size, seed, setting), setting).share for each in contenders] for seed in scale.seeds
        ]
        for each, values in zip(contenders, zip(*runs, strict=True), strict=True):
            shares[each.title].append(Spread.of(values))
        if scale.with_shares:
            finding.shares.append(shares_of(f"second relation {size:.0%}", unequal(size, 0, setting), setting))
    diner = [spread.mean for spread in shares["DINER"]]
    for i, size in enumerate(sizes):
        for other in (HMJ.title, RPJ.title):
            finding.judge(
                f"second relation {size:.0%}, at least {other}",
                f"{shares['DINER'][i]} and {shares[other][i]}",
                diner[i] >= shares[other][i].mean,
            )
    finding.judge("the share does not fall", " ".join(f"{share:.3f}" for share in diner), diner == sorted(diner))
    lines = {
        name: [(100 * size, spread.mean) for size, spread in zip(sizes, of, strict=True)] for name, of in shares.items()
    }
    finding.plots.append(Plot("Fig. 18", "rows of the second relation, % of the first", "share online", lines))
    yield finding
