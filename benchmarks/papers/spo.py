"""The claims of the SPO-Join paper (distributed stream inequality join) beside what its structures do here.

The printed figures belong to a cluster of ten machines; here are ratios in one process and counts of operations, at a
tenth of the size or less. Whether a claim holds is judged by its direction, not by its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.papers.claims import Claim
from benchmarks.papers.spo_probing import at_rest, chain_over_po, hash_over_po, loops_over_po, probe_ratios
from benchmarks.papers.spo_state import (
    divided_slides,
    expiry,
    insertion,
    linear_passes,
    memory,
    merging,
    mutable_shares,
    orderings,
)
from benchmarks.papers.spo_workloads import places, racks, rides

TITLE = "SPO-Join"


def claims() -> Iterator[Claim]:
    yield from _probes()
    yield from _whole_windows()
    yield from _state()
    yield from _messages()


def _probes() -> Iterator[Claim]:
    seconds, answers = at_rest(20_000)
    ratios = [seconds[name] / seconds["IE-Join"] for name in ("B+-tree", "CSS-tree", "nested loop")]
    yield Claim(
        "section 1: batch, Q1: B+-tree, CSS-tree, nested loop over IE-Join",
        "5.3, 4.65, 21.25",
        f"{_list(ratios)}; {answers['IE-Join'][0] / 1e6:.1f} M results",
        min(ratios) >= 1 and ratios[2] >= 5 and len(set(answers.values())) == 1,
    )
    q3 = [probe_ratios(rides(rows + 200), 10, 200) for rows in (60_000, 70_000, 80_000, 90_000, 100_000)]
    by_hash, by_bit, mutable = ([each[k] for each in q3] for k in range(3))
    yield Claim(
        "Fig. 7: Q3, probes, CSS-hash and CSS-bit over PO-Join",
        "35/16, 25/12, 43/22, 49/22, 57/31 (some of them upper limits)",
        f"{_list(by_hash)}; {_list(by_bit)}",
        all(h >= 2 and h > b >= 1 for h, b in zip(by_hash, by_bit, strict=True)),
    )
    yield Claim("Fig. 7: Q3, mutable part, hash over bit", "19, 9, 12, 17, 44", _list(mutable), min(mutable) >= 1.5)
    q2 = [probe_ratios(places(rows + 200), 10, 200) for rows in (20_000, 60_000, 100_000)]
    _, by_bit, mutable = ([each[k] for each in q2] for k in range(3))
    yield Claim(
        "Fig. 8: Q2, CSS-bit over PO-Join; hash over bit",
        "1.5, 1.3, 1.6, 1.3, 1.5; 7, 4.9, 5, 5.5, 4.9",
        f"{_list(by_bit)}; {_list(mutable)}",
        min(by_bit) >= 1 and min(mutable) >= 1.5,
    )
    q1 = [probe_ratios(racks(10 * slide + 100), 10, 100) for slide in (10_000, 30_000, 50_000)]
    _, by_bit, mutable = ([each[k] for each in q1] for k in range(3))
    yield Claim(
        "Fig. 9: Q1, CSS-bit over PO-Join; hash over bit",
        "12, 19, 2, 5.38, 2.6; 4.6, 5.2, 2, 2.6, 2.23",
        f"{_list(by_bit)}; {_list(mutable)}",
        min(by_bit) >= 1 and min(mutable) >= 1,
    )


def _whole_windows() -> Iterator[Claim]:
    chains = [chain_over_po(window, 200) for window in (10_000, 20_000, 50_000)]
    yield Claim(
        "Fig. 11a: Q3, keys and bits touched, chain index (hash; bit) over PO-Join",
        "latency 3.2 to 23",
        f"{_list([each['hash'] for each in chains])}; {_list([each['bit'] for each in chains])}",
        min(min(each.values()) for each in chains) >= 1,
    )
    chains = [chain_over_po(window, 200, racks) for window in (10_000, 50_000)]
    yield Claim(
        "Fig. 11c: Q1, the same",
        "latency 11.4 to 74",
        f"{_list([each['hash'] for each in chains])}; {_list([each['bit'] for each in chains])}",
        min(min(each.values()) for each in chains) >= 1,
    )
    loops = loops_over_po(50_000, 200)
    yield Claim(
        "Fig. 11b, d: split join and BCHJ over PO-Join",
        "latency 32 to 90",
        f"{loops.comparisons_per_word:.0f} comparisons per word of bits, "
        f"but {loops.comparisons_per_operation:.1f} per single operation",
        loops.comparisons_per_word >= 20,
    )
    hashed = hash_over_po((10_000, 20_000, 50_000), 1000, 500)
    yield Claim(
        "Fig. 22, 23: equality, operations, SPO-Join over a hash join",
        "1.14 to 6.8: the hash join is better",
        _list(hashed),
        min(hashed) >= 1,
    )


def _state() -> Iterator[Claim]:
    merges = divided_slides(10_000, 10)
    yield Claim(
        "Fig. 10c: a slide in 10 parts: longest merge, whole over part; largest mutable part",
        "latency 70 and 44.6 (immutable), 1.5 and 1.7 (mutable)",
        f"{merges.work_ratio:.1f}; {merges.largest_mutable:,} rows = delta",
        merges.work_ratio >= 5 and merges.largest_mutable == merges.delta,
    )
    compared = insertion(50_000)
    yield Claim(
        "Fig. 12: comparisons per insert: SPO-Join, B+-tree, PIM-tree",
        "SPO 1.15 to 1.7 better than B+; PIM 1.3 better than SPO, or SPO 1.5 better than PIM",
        _list(compared.values()),
        compared["SPO"] < compared["B+-tree"],
    )
    bytes_ratio = memory((20_000, 40_000))
    yield Claim(
        "Fig. 13: Q1, memory, PIM-tree over SPO-Join", "1.5, 1.5, then 2.5", _list(bytes_ratio), min(bytes_ratio) > 1
    )
    waits = merging((2000, 4000, 8000))
    yield Claim(
        "Fig. 20: merge work per row for delta 1, 2, 4; queued rows probe a new batch once",
        "merge 10-15 s, queue 1-2 s",
        f"{_list(waits.moved_per_row)}; {waits.queued_probes} of {waits.arrivals_during_merges}",
        max(waits.moved_per_row) <= 1.05 * min(waits.moved_per_row)
        and waits.queued_probes == waits.arrivals_during_merges
        and waits.results_agree,
    )
    shares = mutable_shares(10_000, (0.1, 0.2, 0.3, 0.4, 0.5))
    yield Claim(
        "Fig. 21: operations per row in a mutable part of 10, 20 ... 50 %",
        "249 -> 96 rows/s",
        ", ".join(f"{share:,.0f}" for share in shares),
        shares == sorted(shares),
    )
    permuting, offsetting = linear_passes(10_000, 7_000)
    yield Claim(
        "section 3: permutation O(n), offsets O(n + m); n = 10,000, m = 7,000",
        "linear",
        f"{permuting:,}; {offsetting:,}",
        permuting == 20_000 and offsetting <= 17_000,
    )


def _messages() -> Iterator[Claim]:
    outcomes = orderings(2000)
    slow, mixed, table, ordered = (
        outcomes[name] for name in ("no table, 200/s", "no table", "table", "table and order")
    )
    yield Claim(
        "Fig. 18: rows correctly combined without a hash table, 5,000/s and 200/s",
        "0.3 %, 98 %",
        f"{mixed.combined:.1%}, {slow.combined:.1%}",
        mixed.combined < 0.1 and slow.combined > 0.9,
    )
    yield Claim(
        "Fig. 18: pairs found with the hash table",
        "100 %",
        f"{1 - table.lost / table.expected:.1%}",
        table.lost == 0,
    )
    yield Claim(
        "Fig. 18: pairs found with the hash table and in the router's order",
        "(not in print)",
        f"{1 - ordered.lost / ordered.expected:.0%}, {ordered.false} false",
        ordered.lost == ordered.false == 0,
    )
    late = expiry((25_000, 100_000), (5000, 7000), 20, 3000)
    yield Claim(
        "Fig. 19: how far elements are behind, partitioner over distributed cache",
        "13, 38, 82, 94",
        _list(late.differences),
        min(late.differences) > 1,
    )
    yield Claim(
        "Fig. 19: false results by whole batches; filtered by position",
        "accepted",
        f"partitioner {late.false['partitioner']:,}, cache {late.false['cache']:,}; "
        f"{sum(late.false_filtered.values())}",
        late.false["cache"] <= late.false["partitioner"] and not any(late.false_filtered.values()) and not late.lost,
    )


def _list(figures: Iterable[float]) -> str:
    return ", ".join(f"{figure:.3g}" for figure in figures)
