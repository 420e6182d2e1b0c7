from math import log2

from dovetail.operators.spo.runs import RunCosts


def known(merge_row: float, probe_run: float) -> RunCosts:
    costs = RunCosts()
    for _ in range(50):
        costs.merged(1000, 1000 * merge_row)
        costs.probed(10, 10 * probe_run)
    return costs


def test_nothing_is_cut_before_anything_is_known() -> None:
    assert RunCosts().cuts(batch_rows=10, slide_rows=1000, window_rows=10_000) == 0


def test_dear_merges_make_small_runs_and_dear_probes_large_ones() -> None:
    assert known(1.0, 1e-9).cuts(10, 10_000, 100_000) == 9  # down to the size of a batch
    assert known(1e-9, 1.0).cuts(10, 10_000, 100_000) == 0
    between = known(1e-5, 1e-4).cuts(1000, 100_000, 1_000_000)
    assert 0 < between < 6


def test_the_choice_costs_least_of_all() -> None:
    """Compared with the formula itself, over powers of two."""
    costs = known(1e-5, 1e-4)
    batch, slide, window = 1000, 100_000, 1_000_000
    total = [
        batch * log2(slide / 2**k / batch) * 1e-5 + (window * 2**k / slide + log2(slide / 2**k / batch)) * 1e-4
        for k in range(7)
    ]
    assert costs.cuts(batch, slide, window) == total.index(min(total))


def test_old_costs_are_forgotten() -> None:
    costs = known(1.0, 1e-9)
    for _ in range(2000):
        costs.merged(1000, 1e-6)
        costs.probed(10, 10.0)
    assert costs.cuts(10, 10_000, 100_000) == 0


def test_costs_survive_a_restart_but_not_the_seconds_of_this_process() -> None:
    costs, again = known(1e-7, 1e-4), RunCosts()
    again.remember(costs.to_json())
    assert again.cuts(1000, 100_000, 1_000_000) == costs.cuts(1000, 100_000, 1_000_000)
    assert (again.merge_seconds, again.probe_seconds) == (0, 0)
    assert costs.merge_seconds > 0 < costs.probe_seconds
