"""The formulas compared with counts."""

from math import erf, sqrt

import numpy as np
import pytest
from benchmarks.papers.diag_costs import normal_between, normal_mishits

from dovetail.diag.clusteredness import expected_mishits, sufficient_rows


def counted(tables: int, table_rows: int, deviations: np.ndarray) -> float:
    """Count mishits over each deviation at each position of the middle table."""
    before = tables // 2 * table_rows
    after = ((tables + 1) // 2) * table_rows
    places = np.arange(table_rows)
    hits = [np.mean((places + d >= -before) & (places + d < after)) for d in deviations]
    return 1 - float(np.mean(hits))


def test_the_normal_distribution() -> None:
    low, high = np.array([-1.0, 0.0, -3.0]), np.array([1.0, 2.5, np.inf])
    exact = [(erf(b / 2 / sqrt(2)) - erf(a / 2 / sqrt(2))) / 2 for a, b in zip(low, high, strict=True)]
    assert normal_between(low, high, 2.0) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(("tables", "table_rows"), [(1, 9), (3, 7), (5, 20), (4, 10), (6, 3), (2, 50)])
def test_expected_mishits_are_those_counted(tables: int, table_rows: int) -> None:
    deviations = np.random.default_rng(0).normal(0, 20, 3000).round().astype(np.int64)
    assert expected_mishits(tables, table_rows, deviations) == pytest.approx(counted(tables, table_rows, deviations))
    if tables % 2:
        assert normal_mishits(tables, table_rows, 20) == pytest.approx(
            counted(tables, table_rows, deviations), abs=0.02
        )


def test_the_window_is_the_smallest_that_suffices() -> None:
    deviations = np.random.default_rng(1).integers(-400, 401, 5000)
    rows = sufficient_rows(5, deviations, 0.01)
    assert expected_mishits(5, rows, deviations) <= 0.01 < expected_mishits(5, rows - 1, deviations)
    assert sufficient_rows(5, np.zeros(3, np.int64), 0.01) == 1
    assert sufficient_rows(5, np.empty(0, np.int64), 0.01) == 1


def test_small_windows_have_mishits_below_one() -> None:
    assert 0 < normal_mishits(1, 1, 100.0) < 1
    assert normal_mishits(5, 1, 0.001) == pytest.approx(0)
