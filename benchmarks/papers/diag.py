"""The claims of the Diag-Join paper beside what comes out here.

Mishits, lookups and rows read are counted in runs on data like the paper's, at a tenth of its size; pages follow from
them by the model of `dovetail.diag.choice`, with the sizes in print. Times in print belong to another century.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from benchmarks.papers.claims import Claim
from benchmarks.papers.diag_workloads import (
    LINEITEM_PAGES,
    ORDER_PAGES,
    WINDOWS,
    Run,
    Scans,
    deviating,
    orders_and_items,
    run,
    shuffled,
)
from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.diag.choice import break_even, diag_transfers, grace_transfers, nested_loop_transfers
from dovetail.diag.clusteredness import measure, normal_mishits
from dovetail.sources.protocol import TableScan

TITLE = "Diag-Join"
ORDERS = 150_000


def claims(orders: int = ORDERS) -> Iterator[Claim]:
    scans = orders_and_items(orders)
    runs = {pages: run(scans, pages / ORDER_PAGES * orders) for pages in WINDOWS}
    yield from _against_grace(runs)
    yield from _tables(scans)
    yield from _theory(min(orders, 100_000))
    yield from _work(scans, runs)
    yield from _windows(orders)


def _against_grace(runs: dict[int, Run]) -> Iterator[Claim]:
    mishits = {pages: run.mishits for pages, run in runs.items()}
    ratios = {pages: _ratio(share) for pages, share in mishits.items()}
    yield Claim(
        "Table 6: all joined in phase 1 from 3000 pages (6.7 % of Order) on; GRACE over Diag-Join",
        "yes; 2.38, “up to two and a half”",
        f"mishits {mishits[2500]:.2%} at 2500, {mishits[3000]:.2%} at 3000; page transfers {ratios[3000]:.3g}",
        mishits[2500] > 0 == mishits[3000] == mishits[4000] and ratios[3000] >= 2,
    )
    yield Claim(
        "Table 6: slower than GRACE below, faster above",
        "1000 pages (in the table: between 1000 and 1500)",
        f"{_list(ratios.values())}; as good at {break_even(ORDER_PAGES, LINEITEM_PAGES):.1%} mishits",
        ratios[1000] < 1 < ratios[1500] and list(ratios.values()) == sorted(ratios.values()),
    )
    nested = [nested_loop_transfers(ORDER_PAGES, LINEITEM_PAGES, p) / _pages(mishits[p]) for p in (3000, 4000)]
    yield Claim(
        "Table 6: block-wise nested loop over Diag-Join, 3000 and 4000 pages", "9.9", _list(nested), min(nested) >= 4
    )
    coupled = [grace_transfers(ORDER_PAGES, LINEITEM_PAGES) / _pages(mishits[p], coupled=True) for p in (800, 1000)]
    share = break_even(ORDER_PAGES, LINEITEM_PAGES, coupled=True)
    yield Claim(
        "section 5: mishits straight into partitions: GRACE over Diag-Join, 800 and 1000 pages",
        "(future work)",
        f"{_list(coupled)} instead of {_list([ratios[800], ratios[1000]])}; as good at {share:.0%} mishits",
        coupled[1] > 1 > ratios[1000],
    )


def _tables(scans: Scans) -> Iterator[Claim]:
    shares = {
        tables: {pages: run(scans, pages / ORDER_PAGES * scans[0].rows, tables).mishits for pages in (1000, 2500)}
        for tables in (1, 5, 21)
    }
    yield Claim(
        "Fig. 9, 10: mishits with 1, 5, 21 tables: 1000 pages; 2500 pages",
        "no difference; one table hurts, five are a good compromise",
        "; ".join(", ".join(f"{share[pages]:.1%}" for share in shares.values()) for pages in (1000, 2500)),
        abs(shares[1][1000] - shares[21][1000]) <= 0.01
        and shares[1][2500] - shares[21][2500] >= 0.1
        and all(shares[5][pages] - shares[21][pages] <= 0.02 for pages in (1000, 2500)),
    )


def _theory(orders: int) -> Iterator[Claim]:
    cases = [(500, 1000, 5), (500, 1000, 1), (500, 2000, 5), (1500, 4000, 5)]
    data: dict[float, Scans] = {sigma: deviating(orders, 4, sigma) for sigma in (500, 1500)}
    pairs = [
        (run(data[sigma], window, tables).mishits, normal_mishits(tables, window // tables, sigma))
        for sigma, window, tables in cases
    ]
    yield Claim(
        "eq. 18: mishits, measured and expected, deviations normal (sigma 500, 500, 500, 1500; 1 to 4 thousand rows)",
        "they agree",
        ", ".join(f"{measured:.1%} {expected:.1%}" for measured, expected in pairs),
        max(abs(measured - expected) for measured, expected in pairs) <= 0.013,
    )


def _work(scans: Scans, runs: dict[int, Run]) -> Iterator[Claim]:
    ones, many = scans[0].rows, scans[1].rows
    mixed = run(shuffled(ones), 0.1 * ones)
    hits = 1 - mixed.mishits
    yield Claim(
        "section 4.3: rows in no order: hits are the window's share",
        "equal",
        f"{hits:.1%} of 10 %",
        0.08 <= hits <= 0.12,
    )
    per_row = [each.tally.lookups / many for each in runs.values()]
    yield Claim(
        "Table 8: CPU of phase 1 for 300 to 4000 pages: lookups per row",
        "60 to 76 s: nearly constant",
        _list(per_row),
        max(per_row) <= 5 and per_row[-1] <= 1.5 * per_row[0],
    )
    operations = [
        ones + each.tally.lookups + (ones + 2 * each.tally.mishits) * (each.mishits > 0) for each in runs.values()
    ]
    yield Claim(
        "Table 7: CPU of GRACE constant, that of Diag-Join falls: hash operations, over those of GRACE",
        "falls",
        _list(operation / (2 * (ones + many)) for operation in operations),
        operations == sorted(operations, reverse=True),
    )
    large = [runs[pages] for pages in (3000, 3500, 4000)]
    yield Claim(
        "Table 9: from 3000 pages on, both relations are read once and nothing is written",
        "yes",
        f"rows read {large[0].tally.passes}, pages written {sum(each.counters.pages_written for each in large)}",
        all(each.tally.passes == [ones, many] and each.counters.pages_written == 0 for each in large),
    )
    first = runs[4000].first
    half = 3 * round(4000 / ORDER_PAGES * ones / 5)
    yield Claim(
        "section 1: output without interrupting the pipeline: rows read before the first result",
        "half a window of Order and a page of Lineitem",
        f"{first[0]:,} of {ones:,} and {first[1]:,} of {many:,}; GRACE: all",
        first[0] <= half + 1024 and first[1] <= 1 << 15,
    )


def _windows(orders: int) -> Iterator[Claim]:
    shares = []
    for shape in ("normal", "uniform", "skewed"):
        scans = _shaped(shape, orders)
        condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
        shares.append(run(scans, 5 * measure(condition, scans, Side.LEFT).table_rows(5, accept=0.01)).mishits)
    yield Claim(
        "section 3.5: the window that the histogram gives for 1 % of mishits: normal, uniform, skewed deviations",
        "the smallest that suffices",
        ", ".join(f"{share:.2%}" for share in shares),
        all(0.001 <= share <= 0.01 for share in shares),
    )


def _shaped(shape: str, orders: int) -> Scans:
    rng = np.random.default_rng(3)
    rows, spread = 4 * orders, orders / 100
    deviations = {
        "normal": rng.normal(0, spread, rows),
        "uniform": rng.uniform(-2 * spread, 2 * spread, rows),
        "skewed": rng.exponential(spread, rows),
    }[shape]
    keys = rng.permutation(orders)
    at = np.clip(np.arange(rows) // 4 + deviations.round().astype(np.int64), 0, orders - 1)
    return TableScan(pa.table({"k": keys})), TableScan(pa.table({"k": keys[at]}))


def _pages(mishits: float, *, coupled: bool = False) -> float:
    return diag_transfers(ORDER_PAGES, LINEITEM_PAGES, mishits, coupled=coupled)


def _ratio(mishits: float) -> float:
    return grace_transfers(ORDER_PAGES, LINEITEM_PAGES) / _pages(mishits)


def _list(figures: Iterable[float]) -> str:
    return ", ".join(f"{figure:.3g}" for figure in figures)
