"""The workloads have the sizes, frequencies and times given in the papers."""

import numpy as np
import pytest

from benchmarks.papers import progressive_workloads as workloads
from dovetail.testing.workload import Workload


def keys(workload: Workload, side: int) -> np.ndarray:
    return np.asarray(workload.tables[side].column("k"))


def matches(workload: Workload) -> int:
    left, right = keys(workload, 0), keys(workload, 1)
    size = int(max(left.max(), right.max())) + 1
    return int(np.bincount(left, minlength=size) @ np.bincount(right, minlength=size))


@pytest.mark.parametrize(
    ("kind", "ratio", "millions"),
    [("harmony", 1, 123.58), ("reverse", 1, 76.42), ("harmony", 5, 68.65), ("reverse", 5, 42.46)],
)
def test_the_full_results_of_rpj_have_their_size(kind: str, ratio: float, millions: float) -> None:
    workload = workloads.rpj_keys(kind, ratio)  # type: ignore[arg-type]
    assert matches(workload) / 1e6 == pytest.approx(millions, rel=0.005)
    assert workload.end_s == pytest.approx(2000)
    left, right = (len(seconds) for seconds in workload.seconds)
    assert left / right == pytest.approx(ratio, rel=0.01)
    for side in (0, 1):
        assert keys(workload, side).min() == 1
        assert keys(workload, side).max() == 10_000


def test_the_partitions_of_rpj_have_their_shares() -> None:
    workload = workloads.rpj_keys("reverse", rows=400_000)
    rising = 0.01 + 0.08 / 19 * np.arange(20)
    for side, expected in ((0, rising), (1, rising[::-1])):
        shares = np.bincount((keys(workload, side) - 1) % 20) / len(workload.seconds[side])
        assert shares == pytest.approx(expected, abs=0.002)


def test_the_unreliable_network_stalls_now_and_then() -> None:
    _, seconds = workloads.rpj_keys("harmony", rows=400_000, reliable=False).merged()
    gaps = np.diff(seconds)
    assert seconds[-1] == pytest.approx(14_000 / 5, rel=0.02)
    assert np.mean(gaps > 0.0255) == pytest.approx(0.04, abs=0.005)
    assert gaps.min() > 0.0005
    assert gaps.max() < 0.0305


def test_zipf_keys_have_the_first_value_most_often_and_arrive_every_millisecond() -> None:
    workload = workloads.zipf_keys(skew=2)
    counts = np.bincount(keys(workload, 0), minlength=1000)
    assert counts[1] / counts[2] == pytest.approx(4, rel=0.05)
    assert workload.end_s == pytest.approx(100, rel=0.02)


def test_unequal_sizes_arrive_at_one_rate() -> None:
    workload = workloads.zipf_keys(rows=(20_000, 2_000))
    assert [table.num_rows for table in workload.tables] == [20_000, 2_000]
    assert workload.seconds[0][-1] == pytest.approx(10 * workload.seconds[1][-1], rel=0.1)


def test_normal_keys_differ_in_mean_or_variance() -> None:
    left, right = (keys(workloads.normal_keys(shift=20, extra_variance=150), side) for side in (0, 1))
    assert (left.mean(), left.var()) == pytest.approx((500, 50), rel=0.02)
    assert (right.mean(), right.var()) == pytest.approx((520, 200), rel=0.02)


def test_sorted_intervals_fall_only_between_two_of_them() -> None:
    for same_order in (True, False):
        workload = workloads.sorted_intervals(7, rows=10_000, seed=1, same_order=same_order)
        falls = [np.flatnonzero(np.diff(keys(workload, side)) < 0) for side in (0, 1)]
        assert all(1 <= len(f) <= 6 for f in falls)
        assert (len(falls[0]) == len(falls[1]) and bool(np.all(falls[0] == falls[1]))) == same_order


def test_the_mean_shifts_from_period_to_period() -> None:
    workload = workloads.shifting_means(shift=10)
    first, last = (workload.seconds[0] < 10), (workload.seconds[0] > 90)
    assert keys(workload, 0)[first].mean() == pytest.approx(75, abs=0.5)
    assert keys(workload, 0)[last].mean() == pytest.approx(165, abs=0.5)


def test_each_fragment_is_followed_by_a_silence() -> None:
    seconds = workloads.fragments(silence=0.5, rows=10_000).seconds[0]
    gaps = np.diff(seconds)
    assert np.flatnonzero(gaps > 0.2).tolist() == [999 + 1000 * i for i in range(9)]
    assert gaps[gaps > 0.2] == pytest.approx(0.5, rel=0.2)
    assert seconds[999] == pytest.approx(1, rel=0.2)


def test_the_outer_relations_of_a_chain_do_not_change_its_result() -> None:
    workload = workloads.chain(rows=10_000, domain=1_000)
    for side in (0, 3):
        assert sorted(workload.tables[side].column(0).to_pylist()) == list(range(1_000))
    ends = [seconds[-1] for seconds in workload.seconds]
    assert max(ends) / min(ends) < 1.2


def test_a_seed_repeats_it() -> None:
    for make in (workloads.zipf_keys, workloads.normal_keys, workloads.chain):
        first, again, other = make(seed=1), make(seed=1), make(seed=2)
        assert first.tables == again.tables
        assert first.tables != other.tables
        assert all(np.array_equal(a, b) for a, b in zip(first.seconds, again.seconds, strict=True))
