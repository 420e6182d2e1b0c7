import numpy as np

from dovetail.kernels.compact_table import mark_seen
from dovetail.kernels.hashing import hash_codes


def test_what_came_before_is_said_once_it_comes_again() -> None:
    slots = np.zeros(64, np.uint32)
    first = hash_codes(np.arange(20))
    assert not mark_seen(slots, first).any()
    again = mark_seen(slots, hash_codes(np.array([100, 3, 100, 19])))
    assert again.tolist() == [False, True, True, True]


def test_places_wrap_around() -> None:
    slots = np.zeros(4, np.uint32)
    last = np.array([-1, -3, -5], np.int64)  # all of them belong in the last slot
    assert not mark_seen(slots, last).any()
    assert mark_seen(slots, last).all()
    assert np.count_nonzero(slots) == 3


def test_many_hashes() -> None:
    slots = np.zeros(2800, np.uint32)
    assert not mark_seen(slots, hash_codes(np.arange(2000))).any()
    assert mark_seen(slots, hash_codes(np.arange(1000, 2000))).all()
