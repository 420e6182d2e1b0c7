"""DINER with skewed, shifted or drifting values (Figs. 10, 11, 12, 15): counts of results up to the last arrival.

The least favourable seed decides. DINER is as printed; our variant is shown for comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.papers.diner_runs import (
    DINER,
    HMJ,
    OURS,
    RPJ,
    WHOLE,
    Setting,
    bound,
    drifting,
    flushing,
    gains_over_seeds,
    one_block,
    run_of,
    setting_of,
    shares_of,
    shifted,
    skewed,
    victims,
    widened,
)
from benchmarks.papers.registry import experiment
from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding, Plot, Spread, figures

ABOVE = 0.01  # random excess over the bound that is allowed


@experiment("C-DN-4", "C-DN-5")
def skew(scale: Scale) -> Iterator[Finding]:
    setting = setting_of(scale)
    skews = scale.pick((1, 3), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    others = [HMJ, one_block(setting), flushing(0.1, "10 %"), flushing(0.5, "50 %")]
    found = {s: gains_over_seeds(partial(skewed, s, setting=setting), others, scale.seeds, setting) for s in skews}
    lines = {other.title: [(s, found[s][other.title].mean) for s in skews] for other in others}
    plot = Plot("Fig. 10", "skew", "DINER's results over theirs", lines)
    hmj = Finding("C-DN-4", _said(setting, scale), plots=[plot])
    for s in skews:
        hmj.judge(f"skew {s}", str(found[s]["HMJ"]), found[s]["HMJ"].least >= 2)
        if scale.with_shares:
            hmj.shares.append(shares_of(f"skew {s}", skewed(s, 0, setting), setting, in_random_order=True))
    yield hmj
    rpj = Finding("C-DN-5", _said(setting, scale))
    for s in skews:
        for other, asked in zip(others[1:], (1.1, 1.1, 1.4), strict=True):
            gain = found[s][other.title]
            rpj.judge(f"skew {s}, {other.title}", str(gain), gain.least >= asked)
    least = min(spread.least for each in found.values() for name, spread in each.items() if name != "HMJ")
    rpj.guard("never below .98", f"{least:.3f}", least >= 0.98)
    yield rpj


@experiment("C-DN-5b")
def share_of_bound(scale: Scale) -> Iterator[Finding]:
    setting = scale.pick(Setting(20_000, blocks=40), Setting(20_000, blocks=40), WHOLE)  # blocks of 50 rows, as printed
    lines = [skewed(1, seed, setting) for seed in scale.seeds]
    bounds = [bound(line, setting) for line in lines]
    finding = Finding("C-DN-5b", _said(setting, scale))
    contenders = [DINER, *([OURS] if scale.with_shares else [])]
    shares = {each.title: [run_of(each, line, setting).share for line in lines] for each in contenders}
    scores = {name: Spread.of(s / b for s, b in zip(of, bounds, strict=True)) for name, of in shares.items()}
    score = scores[DINER.title]
    finding.judge("at least .95", str(score), score.least >= 0.95)
    most = max(s - b for of in shares.values() for s, b in zip(of, bounds, strict=True))
    finding.guard("never above the bound", f"{most:+.3f} at most", most <= ABOVE)
    finding.beside += [f"ours: {scores[each.title]} of the bound" for each in contenders[1:]]
    finding.beside.append(f"share online {figures(shares[DINER.title], '.3f')}; bound {figures(bounds, '.3f')}")
    yield finding


@experiment("C-DN-6", "C-DN-7", "C-DN-18")
def divergence(scale: Scale) -> Iterator[Finding]:
    setting = setting_of(scale)
    apart_by = scale.pick((0, 20), (0, 10, 20, 30), (0, 10, 20, 30))
    wider_by = scale.pick((200,), (100, 200), (100, 200))
    others = [HMJ, RPJ]
    apart = {x: gains_over_seeds(partial(shifted, x, setting=setting), others, scale.seeds, setting) for x in apart_by}
    wide = {x: gains_over_seeds(partial(widened, x, setting=setting), others, scale.seeds, setting) for x in wider_by}
    makes = {"same": partial(shifted, 0), "apart": partial(shifted, 20), "wide": partial(widened, 200)}
    blocks = {name: [victims(make(seed, setting), setting) for seed in scale.seeds] for name, make in makes.items()}
    middle = {name: Spread.of(float(each[1] / each.sum()) for each in of) for name, of in blocks.items()}
    far = Finding("C-DN-6", _said(setting, scale))
    near = Finding("C-DN-7", _said(setting, scale))
    for other in others:
        name, same, at_20, at_200 = other.title, apart[0][other.title], apart[20][other.title], wide[200][other.title]
        far.judge(f"over {name}, 20 apart", f"{at_20}, together {same}", at_20.least >= 2 and at_20.least > same.most)
        near.judge(
            f"over {name}, variance 250",
            f"{at_200}; equal {same}; Fig. 11 {at_20}",
            same.most < at_200.least and at_200.most < at_20.least,
        )
        far.plots.append(Plot("Fig. 11", "x", f"DINER over {name}", {name: [(x, apart[x][name].mean) for x in apart]}))
    far.judge(
        "blocks of the middle: more than together",
        f"{middle['apart']} of them ({middle['same']})",
        middle["apart"].least > middle["same"].most,
    )
    if scale.with_shares:
        for x in (0, 20):
            far.shares.append(shares_of(f"{x} apart", shifted(x, 0, setting), setting, in_random_order=True))
        near.shares.append(shares_of("variance 250", widened(200, 0, setting), setting, in_random_order=True))
    near.judge("blocks mostly from the edges", f"{middle['wide']} of them from the middle", middle["wide"].most < 0.5)
    yield far
    yield near
    most = {"RPJ": apart[20]["RPJ"]}
    most |= gains_over_seeds(partial(skewed, 1, setting=setting), [HMJ], scale.seeds, setting)
    best = Finding("C-DN-18", _said(setting, scale))
    for name, figure in (("RPJ", "Fig. 11, 20 apart"), ("HMJ", "Fig. 10, skew 1")):
        best.judge(f"over {name}: 3 times ({figure})", str(most[name]), most[name].least >= 3)
    yield best


@experiment("C-DN-10")
def change(scale: Scale) -> Iterator[Finding]:
    setting = setting_of(scale)
    shifts = scale.pick((0, 10), (0, 5, 10, 15, 20), (0, 5, 10, 15, 20))
    others = [HMJ, RPJ]
    found = {x: gains_over_seeds(partial(drifting, x, setting=setting), others, scale.seeds, setting) for x in shifts}
    lines = {other.title: [(x, found[x][other.title].mean) for x in shifts] for other in others}
    finding = Finding("C-DN-10", _said(setting, scale), plots=[Plot("Fig. 15", "shift", "DINER over", lines)])
    for x in shifts:
        if x >= 10:
            for name, asked in (("RPJ", 2.0), ("HMJ", 1.3)):
                finding.judge(f"over {name}, shift {x}", str(found[x][name]), found[x][name].least >= asked)
    for name in ("RPJ", "HMJ"):
        finding.judge(
            f"over {name}, more than at shift 0",
            f"{found[10][name]} ({found[0][name]})",
            found[10][name].least > found[0][name].most,
        )
        best = max((found[x][name] for x in shifts), key=lambda spread: spread.least)
        finding.judge_size(f"up to 3 times {name}", str(best), best.least >= 3)
    if scale.with_shares:
        finding.shares.append(shares_of("shift 10", drifting(10, 0, setting), setting))
    yield finding


@experiment("C-DN-17")
def counters(scale: Scale) -> Iterator[Finding]:
    """Workloads that evict many blocks from the middle region, where bits and counters matter."""
    setting = setting_of(scale)
    finding = Finding("C-DN-17", _said(setting, scale))
    for name, make in (
        ("Zipf 1", partial(skewed, 1, setting=setting)),
        ("means 20 apart", partial(shifted, 20, setting=setting)),
        ("means that move by 10", partial(drifting, 10, setting=setting)),
    ):
        runs = [
            [run_of(DINER, make(seed), setting, counted=counted) for counted in (True, False)] for seed in scale.seeds
        ]
        ratio = Spread.of(counter.online / bit.online for counter, bit in runs)
        finding.judge(f"{name}: within 5 %", str(ratio), ratio.least >= 0.95 and ratio.most <= 1.05)
    yield finding


def _said(setting: Setting, scale: Scale) -> str:
    return (
        f"2 x {setting.rows:,} rows, memory {setting.memory:.0%} in {setting.blocks} blocks, {scale.seed_count} seeds"
    )
