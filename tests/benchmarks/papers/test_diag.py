"""Diag-Join's window at a small size, and its benchmark on TPC-H."""

from pathlib import Path
from unittest import SkipTest

import duckdb
import pyarrow.parquet as pq
import pytest
from benchmarks.papers.diag_workloads import orders_and_items, run

import dovetail
from benchmarks import tpch


def test_the_window_has_to_cover_the_days_until_shipping() -> None:
    """121 of 2406 days around the diagonal, plus half a table on average: 6.3 % of the orders suffice."""
    scans = orders_and_items(60_000)
    assert run(scans, 0.0675 * 60_000).tally.mishits == 0
    assert run(scans, 0.0562 * 60_000).tally.mishits > 0


def joined(directory: Path, scale: float, share: float) -> None:
    try:
        orders, items = tpch.orders_and_items(scale)
    except SkipTest as reason:
        pytest.skip(str(reason))
    on = "l.o_orderkey = r.l_orderkey"
    steps = list(dovetail.progressive(orders, items, on, algorithm="diag", share=share))
    assert {step.phase for step in steps} == {"arriving"}  # no mishits
    keys = "o_orderkey, o_custkey, l_partkey, l_linenumber"
    digest = f"count(*), sum(hash({keys}) % 1000003)"
    found = duckdb.connect()
    found.register("found", dovetail.join(orders, items, on))
    expected = f"FROM '{orders}' JOIN '{items}' ON o_orderkey = l_orderkey"
    assert found.sql(f"SELECT {digest} FROM found").fetchall() == found.sql(f"SELECT {digest} {expected}").fetchall()
    assert steps[-1].results == pq.read_metadata(items).num_rows
    plan = dovetail.explain(orders, items, on)
    assert plan.operator.name == "diag"


def test_tpch(tmp_path: Path) -> None:
    joined(tmp_path, 0.01, share=0.09)  # few orders per day, so their number varies


@pytest.mark.slow
def test_tpch_at_a_larger_scale(tmp_path: Path) -> None:
    joined(tmp_path, 0.1, share=0.07)
