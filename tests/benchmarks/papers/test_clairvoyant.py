"""The bound against a simulation of its definition, and for the workloads of the papers."""

import numpy as np
import pytest
from benchmarks.papers.clairvoyant import online_bound

from dovetail.testing.values import harmony, reverse, zipf_shares


@pytest.mark.parametrize(("skew", "bound"), [(1, 0.392), (2, 0.146), (3, 0.115), (4, 0.105), (5, 0.101)])
def test_zipf_keys_and_memory_for_a_twentieth(skew: int, bound: float) -> None:
    counts = 100_000 * zipf_shares(999, skew)
    assert online_bound(counts, counts, 10_000) == pytest.approx(bound, abs=5e-4)


@pytest.mark.parametrize(
    ("memory", "bound"), [(10_000, 0.486), (11_000, 0.523), (22_000, 0.784), (33_000, 0.894), (44_000, 0.946)]
)
def test_a_larger_domain_and_any_memory(memory: int, bound: float) -> None:
    counts = 100_000 * zipf_shares(10_000, 1)
    assert online_bound(counts, counts, memory) == pytest.approx(bound, abs=5e-4)


@pytest.mark.parametrize(("ratio", "in_harmony", "in_reverse"), [(1, 0.138, 0.191), (5, 0.322, 0.364)])
def test_partitions_at_both_speeds(ratio: int, in_harmony: float, in_reverse: float) -> None:
    left, right = 2_000_000 * ratio / (ratio + 1), 2_000_000 / (ratio + 1)
    assert online_bound(left * harmony(), right * harmony(), 100_000) == pytest.approx(in_harmony, abs=5e-4)
    assert online_bound(left * harmony(), right * reverse(), 100_000) == pytest.approx(in_reverse, abs=5e-4)


def test_with_room_for_everything_all_results_are_online() -> None:
    assert online_bound([3, 0, 5], [2, 7, 1], 18) == pytest.approx(1)
    assert online_bound([3, 0, 5], [2, 7, 1], 0) == 0


def test_it_is_the_integral_of_the_greedy_content() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        left, right = rng.integers(0, 9, 6), rng.integers(1, 9, 6)
        left[0] += 1
        memory = float(rng.uniform(1, left.sum() + right.sum()))
        steps = (np.arange(20_000) + 0.5) / 20_000
        room, earned = np.full(len(steps), memory), np.zeros(len(steps))
        for worth, rows in sorted(zip([*right, *left], [*left, *right], strict=True), reverse=True):
            held = np.minimum(room, rows * steps)
            room, earned = room - held, earned + worth * held
        assert online_bound(left, right, memory) == pytest.approx(earned.mean() / (left @ right), rel=1e-6)
