import pytest
from benchmarks.baselines.ordering import Network, Outcome, simulate_predicates
from benchmarks.baselines.predicates import Query
from tests.seed import generator

FAST, SLOW = Network(5000, and_elements=10), Network(1, and_elements=40)


def simulate(network: Network, *, table: bool, ordered: bool, seed: int = 0) -> Outcome:
    rng = generator(seed)
    sides, keys = rng.integers(0, 2, 300), rng.random((300, 2))
    return simulate_predicates(Query.of("<", ">"), sides, keys, 100, network, table=table, ordered=ordered, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_table_and_the_order_give_everything(seed: int) -> None:
    outcome = simulate(FAST, table=True, ordered=True, seed=seed)
    assert outcome.expected > 1000
    assert outcome == Outcome(outcome.expected, 0, 0, 1.0)


def test_the_table_alone_loses_pairs() -> None:
    outcome = simulate(FAST, table=True, ordered=False)
    assert outcome.lost > 0 == outcome.false
    assert outcome.combined == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_without_the_table_rows_are_mixed_up(ordered: bool) -> None:
    outcome = simulate(FAST, table=False, ordered=ordered)
    assert min(outcome.lost, outcome.false) > 0
    assert outcome.combined < 0.3


@pytest.mark.parametrize("table", [False, True])
def test_nothing_goes_wrong_when_rows_are_far_apart(table: bool) -> None:
    outcome = simulate(SLOW, table=table, ordered=False)
    assert outcome == Outcome(outcome.expected, 0, 0, 1.0)
