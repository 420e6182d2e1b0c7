"""The building blocks of MINER's experiments."""

import pytest
from benchmarks.papers.clairvoyant_chain import chain_bound
from benchmarks.papers.miner import chain_bounds
from benchmarks.papers.miner_delays import waiting_rows, with_silences
from benchmarks.papers.miner_runs import chain_of, in_bytes

from dovetail.testing.values import zipf_shares

SMALL, TENTH = 1000, 10_000


def test_the_bound_of_four_inputs() -> None:
    """The bound grows with memory up to 1, and is below that of two inputs."""
    bounds = chain_bounds(4, TENTH)
    assert bounds == sorted(bounds)
    assert all(four < two for four, two in zip(bounds, chain_bounds(2, TENTH), strict=True))
    assert chain_bound(zipf_shares(1000, 1.0), TENTH, 10 * TENTH) == pytest.approx(1, abs=0.01)
    assert bounds == pytest.approx([0.242, 0.465, 0.626, 0.750], abs=0.005)


def test_a_budget_in_bytes_says_what_indexes_take() -> None:
    weighed = in_bytes(chain_of(4, 2 * SMALL, 0), 0.20, 10)
    assert 0 < weighed.share < 1
    assert 0 < weighed.indexes <= 0.25


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_few_rows_wait_while_blocks_are_joined(seed: int) -> None:
    """At most the rows that trigger the hand-over plus those that arrive during one step, which reads few blocks."""
    setting = with_silences(chain_of(4, 200, seed), 4.0)
    seen = waiting_rows(setting, 44, 4, hand_over=20)
    assert seen.steps > 5
    assert seen.most_rows <= 20 + seen.most_rows_in_a_step
    assert seen.most_pages_in_a_step <= 2 + 3  # outer blocks, and one of each other input
