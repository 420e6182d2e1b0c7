import numpy as np
import pytest
from benchmarks.baselines.predicates import Query
from benchmarks.baselines.state_strategies import (
    DistributedCache,
    Outcome,
    Partitioner,
    Replacement,
    Strategy,
    simulate_state,
)

WINDOW, DELTA = 120, 20


def simulate(strategy: Strategy, exact: bool) -> Outcome:
    rng = np.random.default_rng(0)
    sides, keys = rng.integers(0, 2, 500), rng.random((500, 2))
    return simulate_state(Query.of("<", ">"), sides, keys, strategy, exact=exact)


@pytest.mark.parametrize(
    "strategy",
    [
        Partitioner(WINDOW, DELTA, 4),
        Partitioner(WINDOW, DELTA, 4, lag=25),
        DistributedCache(WINDOW, DELTA, 4, lag=25),
        Replacement(WINDOW, DELTA, queued=7),
    ],
)
def test_late_expiry_gives_false_results_unless_filtered(strategy: Strategy) -> None:
    coarse, exact = (simulate(strategy, each) for each in (False, True))
    assert coarse.false > 0 == coarse.lost
    assert exact == Outcome(coarse.expected, 0, 0)


def test_lag_makes_expiry_later() -> None:
    prompt, late = (simulate(Partitioner(WINDOW, DELTA, 4, lag), False) for lag in (0, 60))
    assert late.false > prompt.false


def test_a_replacement_that_overtakes_the_queue_loses_results() -> None:
    assert simulate(Replacement(WINDOW, DELTA, queued=7, drain=False), True).lost > 0


def test_what_elements_know() -> None:
    partitioner = Partitioner(WINDOW, DELTA, 4, lag=5)
    assert [partitioner.known(1, position) for position in (39, 40, 44, 45)] == [20, 40, 40, 40]
    assert [partitioner.known(2, position) for position in (39, 40, 44, 45)] == [20, 20, 20, 40]
    cache = DistributedCache(WINDOW, DELTA, 4, publish_every=3, poll_every=10)
    assert [cache.known(1, position) for position in (9, 10, 19, 20)] == [0, 9, 9, 18]
    assert cache.known(0, 17) == 17
    assert cache.mean_difference(500) < Partitioner(WINDOW, 50, 4).mean_difference(500)
