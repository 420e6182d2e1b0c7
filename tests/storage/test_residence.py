"""The residence rule against its definition: a stay lasts from the tick of arrival to the one before eviction."""

from itertools import product

import numpy as np

from dovetail.storage.residence import NEVER, ArrivalTicks, Clock, met_in_memory

TICKS = 6


def test_rows_met_if_they_were_in_memory_at_one_tick() -> None:
    """Covers the borders: rows that arrive together, or just before and just after the other is evicted."""
    stays = [(came, left) for came in range(TICKS) for left in (*range(came + 1, TICKS + 1), NEVER)]
    pairs = list(product(stays, repeat=2))
    ticks = (np.array(column) for column in zip(*((*a, *b) for a, b in pairs), strict=True))
    expected = [any(a[0] <= tick < a[1] and b[0] <= tick < b[1] for tick in range(TICKS)) for a, b in pairs]
    assert met_in_memory(*ticks).tolist() == expected


def test_no_two_events_have_one_tick() -> None:
    clock = Clock(3)
    assert [clock.tick() for _ in range(3)] == [4, 5, 6]
    assert Clock(clock.now).tick() == 7


def test_ticks_of_rows_that_come_in_batches_and_go() -> None:
    rng = np.random.default_rng(0)
    ticks, expected = ArrivalTicks(), np.empty(0, np.int64)
    for tick in range(100):
        rows = int(rng.integers(0, 6))
        arrived = np.sort(rng.integers(tick, tick + 3, rows)) if tick % 3 == 0 else tick
        ticks.append(arrived, rows)
        expected = np.concatenate([expected, np.broadcast_to(arrived, rows)])
        gone = rng.random(len(expected)) < 0.1
        ticks.remove(gone)
        expected = expected[~gone]
        assert len(ticks) == len(expected)
        assert ticks[np.arange(len(expected))].tolist() == expected.tolist()
    few = ArrivalTicks()
    few.append(7, 10**6)
    assert few[999_999] == 7
    assert few.nbytes < 100
