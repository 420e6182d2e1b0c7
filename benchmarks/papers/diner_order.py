"""DINER with partially sorted rows (Fig. 14), and with one small relation (Fig. 18)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

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
    shares: dict[str, list[list[float]]] = {each.title: [] for each in contenders}  # by size and seed
    for size in sizes:
        lines = [unequal(size, seed, setting) for seed in scale.seeds]
        for each in contenders:
            shares[each.title].append([run_of(each, line, setting).share for line in lines])
        for other in (HMJ.title, RPJ.title):
            diner, theirs = shares["DINER"][-1], shares[other][-1]
            finding.judge(
                f"second relation {size:.0%}, at least {other}",
                f"{Spread.of(diner)} and {Spread.of(theirs)}",
                all(a >= b for a, b in zip(diner, theirs, strict=True)),
            )
        if scale.with_shares:
            finding.shares.append(shares_of(f"second relation {size:.0%}", unequal(size, 0, setting), setting))
    finding.judge(
        "the share does not fall",
        ", ".join(str(Spread.of(of_seeds)) for of_seeds in shares["DINER"]),
        all(a <= b for more, fewer in pairwise(shares["DINER"]) for a, b in zip(more, fewer, strict=True)),
    )
    curves = {
        name: [(100 * size, Spread.of(of_seeds).mean) for size, of_seeds in zip(sizes, of_sizes, strict=True)]
        for name, of_sizes in shares.items()
    }
    finding.plots.append(Plot("Fig. 18", "rows of the second relation, % of the first", "share online", curves))
    yield finding
