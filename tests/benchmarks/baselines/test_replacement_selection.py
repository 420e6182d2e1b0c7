"""Replacement selection: runs are sorted and twice as long as memory, and runs of the same number are joined early."""

import numpy as np
import pytest
from benchmarks.baselines.replacement_selection import early_results, replacement_selection


@pytest.mark.parametrize("sizes", [(3000, 3000), (3000, 1000), (1000, 0)])
def test_runs_of_random_rows_are_twice_as_long_as_memory(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 10**6, size) for size in sizes)
    runs = replacement_selection(left, right, 200)
    lengths = np.bincount(np.concatenate(runs))
    assert lengths.sum() == sum(sizes)
    assert lengths[1:-2].mean() == pytest.approx(400, rel=0.1)


def test_sorted_rows_are_one_run_and_rows_in_descending_order_runs_of_memory() -> None:
    rows = np.arange(100)
    assert replacement_selection(rows, rows, 10).run_pairs == 1
    descending = replacement_selection(rows[::-1], rows[::-1], 10)
    assert set(np.bincount(np.concatenate(descending)).tolist()) == {10}


def test_early_results_are_pairs_of_one_run() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 20, 200), rng.integers(0, 20, 150)
    runs = replacement_selection(left, right, 30)
    together = (left[:, None] == right[None, :]) & (runs.left[:, None] == runs.right[None, :])
    assert early_results(left, right, runs) == int(together.sum())
