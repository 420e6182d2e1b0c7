"""Orders and their items in the order of creation, as in the paper, and with other deviations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.baselines.paged import Paged
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Side
from dovetail.diag.join import DiagonalJoin, Tally
from dovetail.execution.output import output_schema
from dovetail.planning.plan import Choice, Diagonal, JoinPlan
from dovetail.sources.protocol import Scan, TableScan

DAYS = 2406  # with orders; items are shipped 1 to 121 days after the order
ORDER_PAGES, LINEITEM_PAGES = 44_475, 189_635  # of 4 KB, for 1.5 million orders
WINDOWS = (300, 400, 500, 600, 800, 1000, 1500, 2000, 2500, 3000, 3500, 4000)  # pages of orders

Scans = tuple[Scan, Scan]


def orders_and_items(orders: int, seed: int = 0) -> Scans:
    """Orders sorted by date, and one to seven items each, sorted by shipping date (TPC-D, section 5.1)."""
    rng = np.random.default_rng(seed)
    day = np.sort(rng.integers(0, DAYS, orders))
    keys = rng.permutation(orders)
    of = np.repeat(np.arange(orders), rng.integers(1, 8, orders))
    order = np.argsort(day[of] + rng.integers(1, 122, len(of)), kind="stable")
    return TableScan(pa.table({"k": keys})), TableScan(pa.table({"k": keys[of[order]]}))


def deviating(orders: int, ratio: int, sigma: float, seed: int = 0) -> Scans:
    """Partners at normally distributed deviations from their expected position, none beyond the ends."""
    rng = np.random.default_rng(seed)
    expected = np.arange(orders * ratio) // ratio
    at = expected + rng.normal(0, sigma, len(expected)).round().astype(np.int64)
    inside = (at >= 0) & (at < orders)
    keys = rng.permutation(orders)
    return TableScan(pa.table({"k": keys})), TableScan(pa.table({"k": keys[np.where(inside, at, expected)]}))


def shuffled(orders: int, seed: int = 0) -> Scans:
    one, many = orders_and_items(orders, seed)
    table = many.to_table()
    return one, TableScan(table.take(np.random.default_rng(seed + 1).permutation(table.num_rows)))


def paged(scans: Scans) -> tuple[Paged, Paged]:
    """The keys, in the printed number of pages of Order and Lineitem, however few rows per page that gives."""
    one, many = (
        Paged(np.asarray(scan.to_table()["k"]), scan.rows / pages)
        for scan, pages in zip(scans, (ORDER_PAGES, LINEITEM_PAGES), strict=True)
    )
    return one, many


class Run(NamedTuple):
    """The counters of a Diag-Join; `first`: rows of R1 and RN that had been read at the first result."""

    rows: int
    tally: Tally
    counters: Counters
    first: list[int]

    @property
    def mishits(self) -> float:
        return self.tally.mishits / max(1, self.rows)


def run(scans: Scans, window: float, tables: int = 5) -> Run:
    """A join with a window of this many rows."""
    table_rows = max(1, round(window / tables))
    condition = parse("l.k = r.k", scans[0].schema, scans[1].schema)
    diagonal = Diagonal(Side.LEFT, tables, table_rows, scans[0].rows)
    plan = JoinPlan(Graph.of(condition), JoinType.INNER, Choice("diag", ""), diagonal=diagonal)
    join = DiagonalJoin(plan, scans, output_schema(scans[0].schema, scans[1].schema, "_right"))
    first: list[int] = []
    for _ in join.results():
        first = first or list(join.tally.passes)
    return Run(scans[1].rows, join.tally, join.counters, first)
