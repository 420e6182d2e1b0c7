"""The flushing policies: the examples of the papers, and optimality by exhaustive search."""

from itertools import product

import numpy as np
import pytest

from dovetail.core.rows import Side
from dovetail.kernels.hashing import hash_codes
from dovetail.operators.hashing.flushing import (
    ArrivalRates,
    DistinctKeys,
    ResidentCounts,
    Victim,
    adaptive_pair,
    flush_all,
    optimal_flush,
    policy,
)

L, R = Side.LEFT, Side.RIGHT


def held(
    rows: list[list[int]], arrival: list[list[float]] | None = None, spilled: list[list[int]] | None = None
) -> ResidentCounts:
    nothing = np.zeros_like(rows)
    return ResidentCounts(
        np.array(rows),
        np.array(nothing if arrival is None else arrival),
        np.array(nothing if spilled is None else spilled),
    )


def test_the_example_of_rpj() -> None:
    """Section 4.1, with 30 % for the second value of the second relation, which is printed as the first."""
    memory = held([[10, 10], [10, 10]], [[0.35, 0.25], [0.10, 0.30]])
    assert optimal_flush(memory, 15) == [Victim(L, 0, 10), Victim(R, 1, 5)]


def test_nothing_left_to_flush_for_the_least_likely_arrival() -> None:
    """A side has ended, so rows that wait for it are flushed first; when these are gone, the next ones follow."""
    memory = held([[0, 3], [4, 4]], [[0.5, 0.5], [0.0, 0.0]])
    assert optimal_flush(memory, 5) == [Victim(L, 1, 3), Victim(R, 0, 2)]
    assert optimal_flush(memory, 100) == [Victim(L, 1, 3), Victim(R, 0, 4), Victim(R, 1, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_leaves_more_expected_results(seed: int) -> None:
    """Lemma 1: eta = sum of n1 p2 + p1 n2 is the maximum over all ways to flush that number of rows."""
    rng = np.random.default_rng(seed)
    rows, arrival = rng.integers(0, 4, (2, 3)), rng.random((2, 3))
    need = int(rng.integers(0, rows.sum() + 1))
    left = rows.copy()
    for side, j, count in optimal_flush(ResidentCounts(rows, arrival, rows), need):
        left[side, j] -= count
    assert rows.sum() - left.sum() == need

    def eta(kept: np.ndarray) -> float:
        return float((kept[0] * arrival[1] + arrival[0] * kept[1]).sum())

    choices = product(*(range(n + 1) for n in rows.ravel()))
    best = max(eta(np.array(kept).reshape(2, 3)) for kept in choices if sum(kept) == rows.sum() - need)
    assert eta(left) == pytest.approx(best)


@pytest.mark.parametrize(("acceptable", "tolerance", "chosen"), [(10, 0.25, 1), (10, 0.10, 2), (1, 0.10, 4)])
def test_the_example_of_hmj(acceptable: int, tolerance: float, chosen: int) -> None:
    rows = np.array([[4, 11, 13, 6, 25], [12, 13, 10, 4, 2]])
    assert adaptive_pair(rows, acceptable, tolerance) == chosen


def test_adaptive_never_takes_an_empty_pair() -> None:
    assert adaptive_pair(np.array([[0, 0, 1], [0, 0, 0]]), 0, 0.25) == 2
    assert adaptive_pair(np.array([[0, 2], [0, 2]]), 10, 0.5) == 1


def test_partitions_by_size() -> None:
    memory = held([[5, 0, 2], [1, 7, 3]])
    assert policy("largest")(memory, 1) == [Victim(R, 1, 7)]
    assert policy("largest")(memory, 9) == [Victim(R, 1, 7), Victim(L, 0, 5)]
    assert policy("smallest")(memory, 2) == [Victim(R, 0, 1), Victim(L, 2, 2)]
    assert policy("largest", paired=True)(memory, 1) == [Victim(R, 1, 7)]
    assert policy("smallest", paired=True)(memory, 1) == [Victim(L, 2, 2), Victim(R, 2, 3)]
    assert sum(victim.rows for victim in flush_all(memory, 1)) == 18
    assert policy("largest")(held([[0], [0]]), 1) == []


def test_partitions_that_have_left_before_go_first() -> None:
    memory = held([[5, 1], [4, 0]], spilled=[[0, 9], [0, 0]])
    assert policy("symmetric")(memory, 1) == [Victim(L, 1, 1)]
    assert policy("symmetric")(memory, 2) == [Victim(L, 1, 1), Victim(L, 0, 5), Victim(R, 0, 4)]


def test_probabilities_are_shares_of_partitions_times_recent_rates() -> None:
    arrivals = ArrivalRates(2, decay=0.5, unit_rows=1000)
    arrivals.record_arrivals(L, np.array([6, 2]))
    arrivals.record_arrivals(R, np.array([1, 1]))
    assert arrivals.probabilities() == pytest.approx(np.array([[0.6, 0.2], [0.1, 0.1]]))
    arrivals.end_unit()  # recent: 8 and 2
    arrivals.record_arrivals(R, np.array([0, 6]))
    arrivals.end_unit()  # recent: 4 and 1 + 3
    assert arrivals.probabilities() == pytest.approx(np.array([[0.375, 0.125], [0.0625, 0.4375]]))
    assert arrivals.probabilities().sum() == pytest.approx(1)


def test_a_unit_ends_after_so_many_rows() -> None:
    arrivals = ArrivalRates(1, decay=0.0, unit_rows=4)
    for rows in (3, 3):
        arrivals.record_arrivals(L, np.array([rows]))
    arrivals.record_arrivals(R, np.array([4]))  # a new unit; the previous one is forgotten
    assert arrivals.probabilities().tolist() == [[0.0], [1.0]]


def test_after_a_long_stall_the_last_rates_stand() -> None:
    arrivals = ArrivalRates(1, decay=0.0, unit_rows=1000)
    arrivals.record_arrivals(L, np.array([3]))
    arrivals.record_arrivals(R, np.array([1]))
    for _ in range(3):
        arrivals.end_unit()
    assert arrivals.probabilities().tolist() == [[0.75], [0.25]]


def test_a_side_that_has_ended_is_not_expected() -> None:
    arrivals = ArrivalRates(2, decay=0.5, unit_rows=10)
    arrivals.record_arrivals(L, np.array([5, 5]))
    arrivals.record_arrivals(R, np.array([5, 5]))
    arrivals.ended[L] = True
    assert arrivals.probabilities()[L].tolist() == [0, 0]
    assert arrivals.probabilities()[R].all()


def test_it_goes_on_from_its_state() -> None:
    arrivals, again = ArrivalRates(2), ArrivalRates(2)
    arrivals.record_arrivals(L, np.array([1000, 500]))
    arrivals.record_arrivals(R, np.array([7, 0]))
    again.restore(arrivals.to_json())
    assert (again.probabilities() == arrivals.probabilities()).all()


@pytest.mark.parametrize("keys", [1, 50, 5000])
def test_different_keys_are_counted_about_right(keys: int) -> None:
    sketch = DistinctKeys(2)
    hashes = hash_codes(np.arange(keys))
    for _ in range(3):
        sketch.add(hashes, np.zeros(keys, np.int64))
    assert sketch.counts()[0] == pytest.approx(keys, rel=0.2)
    assert sketch.counts()[1] == 1
    again = DistinctKeys(2)
    again.restore(sketch.to_json())
    assert (again.counts() == sketch.counts()).all()
