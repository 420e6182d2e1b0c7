import numpy as np

from dovetail.diag.repeated_keys import Met, Repeats
from dovetail.diag.ring import FOREVER, Stay


def test_who_has_met_the_first_of_a_repeated_key() -> None:
    repeats = Repeats(10)
    assert not len(repeats.note(np.array([10, 20, 30]), now=0))
    assert repeats.note(np.array([40, 20]), now=40).tolist() == [20]
    assert repeats.note(np.array([20, 30]), now=80).tolist() == [20, 30]
    assert len(repeats) == 2
    repeats.look(np.array([10, 20, 30, 40]), np.arange(4))
    repeats.look(np.array([20, 20, 30]), np.arange(4, 7))
    met = repeats.settled_probes([Stay(0, 0, 60), Stay(3, 40, 90), Stay(5, 80, FOREVER)])
    assert met.hashes.tolist() == [20, 30]
    assert met.first.tolist() == [1, 2]
    assert met.until.tolist() == [40, 60]  # seen again; or cleared, if that was before
    found = met.position_of(np.array([20, 20, 30, 30, 70]), np.array([39, 40, 59, 60, 0]))
    assert found.tolist() == [1, -1, 2, -1, -1]


def test_twice_in_one_table_is_never_found() -> None:
    repeats = Repeats(10)
    assert repeats.note(np.array([5, 5]), now=7).tolist() == [5]
    repeats.look(np.array([5, 5]), np.arange(2))
    met = repeats.settled_probes([Stay(0, 7, FOREVER)])
    assert met.position_of(np.array([5]), np.array([7])).tolist() == [-1]


def test_nothing_was_met() -> None:
    assert Met.nothing().position_of(np.array([1]), np.array([0])).tolist() == [-1]
