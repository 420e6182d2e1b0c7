import numpy as np
import pytest

from dovetail.core.rows import Side
from dovetail.kernels.hashing import hash_codes
from dovetail.operators.hashing.arrival_rates import ArrivalRates, DistinctKeys

L, R = Side.LEFT, Side.RIGHT


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
    arrivals.record_arrivals(R, np.array([4]))  # a unit of its own; nothing of the one before is remembered
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
