import numpy as np
import pytest

from dovetail.estimation.weighted_sample import WeightedSample


def test_all_units_are_drawn_once_and_the_heavy_ones_early() -> None:
    weights = np.r_[np.full(50, 1.0), np.full(50, 20.0)]
    places = np.zeros(100)
    for seed in range(100):
        order = WeightedSample(weights, seed).order
        assert sorted(order.tolist()) == list(range(100))
        places[order] += np.arange(100)
    assert places[50:].mean() < places[:50].mean() / 2


def test_the_first_draw_follows_the_weights() -> None:
    firsts = np.bincount([WeightedSample([1.0, 2.0, 7.0], seed).order[0] for seed in range(4000)], minlength=3) / 4000
    assert firsts == pytest.approx([0.1, 0.2, 0.7], abs=0.03)


def test_the_whole_is_exact_and_little_says_nothing() -> None:
    draws = WeightedSample([1.0, 1.0, 1.0, 1.0])
    assert draws.total([5.0, 6.0]) is None
    assert draws.total([5.0, 6.0, 7.0, 8.0]) == (26.0, 26.0, 26.0, 0.95)
    assert draws.count([0.0, 0.0, 0.0, 0.0]) == (0.0, 0.0, 0.0, 0.95)
    assert draws.count([0.0, 0.0, 0.0]) is None  # the frequency of unseen values cannot be known
    assert draws.ratio([2.0] * 4, [1.0] * 4) == (2.0, 2.0, 2.0, 0.95)


def test_expectations_that_are_right_need_three_draws() -> None:
    truth = np.random.default_rng(0).random(50)
    draws = WeightedSample(3 * truth)
    estimate = draws.total(truth[draws.order[:3]])
    assert estimate is not None
    assert estimate.total == pytest.approx(truth.sum())
    assert estimate.high - estimate.low < 0.3 * truth.sum()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("wrong", "least"), [(0.1, 0.9), (0.3, 0.92), (1.0, 0.86)])
@pytest.mark.parametrize("done", [8, 25, 60])
def test_bounds_hold_the_truth_nearly_as_often_as_they_say(wrong: float, least: float, done: int) -> None:
    """Expectations are off by a typical factor of e^wrong; a factor of e has long tails, which few draws miss."""
    rng = np.random.default_rng(7)
    truth = rng.exponential(size=200) ** 2 * 1000
    held, totals, runs = 0, [], 600
    for seed in range(runs):
        expected = truth * np.exp(wrong * rng.standard_normal(200))
        draws = WeightedSample(expected + 0.05 * expected.mean(), seed)
        first = draws.order[:done]
        estimate = draws.count(truth[first])
        assert estimate is not None
        held += estimate.low <= truth.sum() <= estimate.high
        totals.append(estimate.total)
    assert np.mean(totals) == pytest.approx(truth.sum(), rel=0.08)
    assert held / runs >= least


def test_averages() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 100, 300).astype(float)
    sums = counts * (10 + rng.standard_normal(300))
    truth, held = sums.sum() / counts.sum(), 0
    for seed in range(400):
        draws = WeightedSample(counts, seed)
        first = draws.order[:20]
        average = draws.ratio(sums[first], counts[first])
        assert average is not None
        held += average.low <= truth <= average.high
    assert held / 400 >= 0.9
