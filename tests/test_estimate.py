"""Estimates of a join's size: coverage of both intervals, aggregates, order that is not random, restarts."""

import json
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.papers.pmj_estimates import VALUES, coverage, median_error

import dovetail
from dovetail.errors import InputError
from dovetail.estimate import Estimate, Estimator, chi_squared_tail, student_t


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "blocks", [pytest.param(5, marks=pytest.mark.slow), 10, pytest.param(20, marks=pytest.mark.slow)]
)
def test_the_interval_by_blocks_covers_the_truth(exponent: float, blocks: int) -> None:
    assert 0.92 <= coverage(exponent, blocks, "blocks") <= 0.99


def test_the_printed_interval_is_for_uniform_keys_only() -> None:
    assert 0.92 <= coverage(0.0, 5, "printed") <= 0.98
    assert coverage(1.0, 10, "printed", 100) < 0.6


def test_the_error_after_ten_of_fifty_blocks() -> None:
    assert median_error(10) <= 0.06


def test_what_is_known_narrows_the_interval_to_nothing() -> None:
    estimator = Estimator()
    for matches in (20, 24, 22, 18):
        estimator.add(10, 10, matches)
    widths = []
    for _ in range(6):
        estimate = estimator.estimate(40, 40)
        assert estimate is not None
        widths.append(estimate.high - estimate.low)
        assert 0 <= estimate.low <= estimate.total <= estimate.high <= 1600
        estimator.learn(200, 42)
    assert widths == sorted(widths, reverse=True)
    assert estimator.estimate(40, 40) == Estimate(336, 336, 336, 0.95)


def test_blocks_of_unequal_sizes_count_by_their_pairs() -> None:
    estimator = Estimator()
    for left, right in ((10, 10), (20, 5), (5, 5), (40, 40)):
        estimator.add(left, right, left * right // 5)
    estimator.add(100, 0, 0)  # one side is empty: it says nothing
    estimate = estimator.estimate(1000, 1000)
    assert estimate is not None
    assert estimate.total == estimate.low == estimate.high == 200_000


@pytest.mark.parametrize(
    "report",
    [
        lambda e: None,
        lambda e: e.add(100, 100, 50),  # one block has no variance
        lambda e: [e.add(100, 100, 1) for _ in range(5)],  # hardly any match
    ],
)
def test_no_estimate_while_it_cannot_be_honest(report: Callable[[Estimator], object]) -> None:
    estimator = Estimator()
    report(estimator)
    assert estimator.estimate(10_000, 10_000) is None


@pytest.mark.parametrize("rows", [100, 4000])
def test_order_that_is_not_random_is_refused(rows: int) -> None:
    rng = np.random.default_rng(0)
    shuffled = rng.integers(0, VALUES, 10 * rows)
    drifting = shuffled + np.arange(10 * rows) * VALUES // (10 * rows)
    for keys, random in ((shuffled, True), (np.sort(shuffled), False), (drifting, False)):
        estimator = Estimator()
        for b in range(10):
            codes = keys[b * rows : (b + 1) * rows]
            estimator.add(rows, rows, 40, keys=(codes, shuffled[:rows]))
        assert (estimator.objection is None) is random
        assert (estimator.estimate(10 * rows, 10 * rows) is not None) is random


def test_order_is_hardly_ever_refused_by_mistake() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        estimator = Estimator()
        for _ in range(20):
            estimator.add(200, 200, 40, keys=(rng.zipf(1.5, 200), rng.integers(0, 3, 200)))
        assert estimator.objection is None


def test_sums_and_averages() -> None:
    rng = np.random.default_rng(2)
    inside = [0, 0]
    for _ in range(200):
        left = rng.integers(0, 100, 5000)
        right, amounts = rng.integers(0, 100, 5000), rng.exponential(10, 5000)
        estimator = Estimator()
        for b in range(10):
            mine, theirs = left[b * 100 : (b + 1) * 100], right[b * 100 : (b + 1) * 100]
            matches = np.bincount(mine, minlength=100)[theirs]
            total = float(matches @ amounts[b * 100 : (b + 1) * 100])
            estimator.add(100, 100, int(matches.sum()), sums={"amount": total})
        matches = np.bincount(left, minlength=100)[right]
        true = float(matches @ amounts)
        for k, (estimate, value) in enumerate(
            ((estimator.sum("amount", 5000, 5000), true), (estimator.average("amount"), true / matches.sum()))
        ):
            assert estimate is not None
            inside[k] += estimate.low <= value <= estimate.high
    assert min(inside) >= 0.9 * 200


def test_a_growing_block_gives_estimates_by_its_parts() -> None:
    estimator = Estimator()
    estimator.grow(4000, 4000, 16_000, diagonal=[250, 240, 260, 250], chunk=500)
    estimate = estimator.estimate(40_000, 40_000)
    assert estimate is not None
    assert estimate.total == pytest.approx(1_600_000)
    assert estimate.low < 1_600_000 < estimate.high
    sorted_keys = np.arange(4000)
    estimator.grow(4000, 4000, 16_000, diagonal=[250] * 4, chunk=500, keys=(sorted_keys, sorted_keys))
    assert estimator.estimate(40_000, 40_000) is None


def test_it_goes_on_elsewhere() -> None:
    rng = np.random.default_rng(0)
    estimator, other = Estimator(), Estimator()
    estimator.grow(600, 600, 30, diagonal=[30], chunk=512)
    for _ in range(6):
        estimator.add(100, 100, 30, sums={"x": 2.0}, keys=(rng.integers(0, 9, 100), rng.integers(0, 9, 100)))
    other.restore(json.loads(json.dumps(estimator.to_json())))
    for each in (estimator, other):
        each.add(100, 100, 35, sums={"x": 1.0}, keys=(rng.integers(0, 9, 100), rng.integers(0, 9, 100)))
    assert other.estimate(900, 900) == estimator.estimate(900, 900)
    assert other.sum("x", 900, 900) == estimator.sum("x", 900, 900)


def test_quantiles_agree_with_tables() -> None:
    for freedom, value in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (49, 2.010), (1000, 1.962)):
        assert student_t(freedom, 0.95) == pytest.approx(value, abs=1e-3)
    assert student_t(3, 0.99) == pytest.approx(5.841, abs=1e-3)
    assert chi_squared_tail(24.996, 15) == pytest.approx(0.05, abs=1e-3)
    assert chi_squared_tail(0, 3) == 1.0
    assert math.isclose(chi_squared_tail(124.342, 100), 0.05, abs_tol=1e-3)


@pytest.mark.parametrize("memory", ["200KB", pytest.param("256MB", marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", ["diner", "dphj", "hmj", "nested_loop", "rpj", "shj", "spo", "xjoin"])
def test_every_operator_tells_what_to_expect(algorithm: str, memory: str) -> None:
    rng = np.random.default_rng(1)
    left, right = (pa.table({"k": rng.integers(0, 500, 8000)}) for _ in range(2))
    total = dovetail.count(left, right, "l.k = r.k")
    memory = "256MB" if algorithm in ("shj", "spo") else memory
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, memory=memory))
    estimates = [(step.estimate, step.results) for step in steps if step.estimate is not None]
    assert estimates
    assert estimates[0][1] < 0.8 * total
    assert sum(estimate.low <= total <= estimate.high for estimate, _ in estimates) >= 0.9 * len(estimates)
    assert all(estimate.low >= results for estimate, results in estimates)
    assert estimates[-1][0].total == pytest.approx(total, rel=0.1)


@pytest.mark.slow
def test_intervals_by_the_way_cover_the_truth() -> None:
    """Of an operator that spills, with skewed keys, over many inputs."""
    inside = told = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        left, right = (pa.table({"k": np.minimum(rng.zipf(1.6, 4000), 300)}) for _ in range(2))
        total = dovetail.count(left, right, "l.k = r.k")
        for step in dovetail.progressive(left, right, "l.k = r.k", algorithm="xjoin", memory="70KB"):
            if step.phase == "cleanup":
                assert step.estimate is not None
                told += 1
                inside += step.estimate.low <= total <= step.estimate.high
                break
    assert told == 40
    assert inside >= 36


@pytest.mark.parametrize("algorithm", ["pmj", "shj", "rpj"])
def test_order_that_is_not_random_is_told(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"k": np.sort(rng.integers(0, 500, 8000))}) for _ in range(2))
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, memory="2MB"))
    assert all(step.estimate is None for step in steps[2:-1])
    assert any(step.objection is not None and "random order" in step.objection for step in steps)


def test_order_without_a_key_is_told_by_a_column() -> None:
    table = pa.table({"k": np.arange(5000) // 10})
    steps = dovetail.progressive(table, table, "l.k = r.k OR l.k = r.k + 1")
    assert any(step.objection is not None for step in steps)


@pytest.mark.parametrize("algorithm", ["pmj", "xjoin", "shj"])
def test_aggregates_with_bounds(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    left, right = (
        pa.table({"k": rng.integers(0, 200, 8000), "v": pa.array(rng.random(8000), mask=rng.random(8000) < 0.2)})
        for _ in range(2)
    )
    wanted = {"n": "count(*)", "values": "count(l.v)", "total": "sum(r.v * 2)", "mean": "avg(l.v)"}
    truth = dovetail.aggregate(left, right, "l.k = r.k", wanted).to_pylist()[0]
    memory = "256MB" if algorithm == "shj" else "200KB"
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, memory=memory, aggregate=wanted))
    assert all(step.batch.num_rows == 0 for step in steps)
    middle = [
        step.aggregates for step in steps if step.results < truth["n"] / 2 and None not in step.aggregates.values()
    ]
    assert middle
    for name, value in truth.items():
        good = [found[name].low <= value <= found[name].high for found in middle]
        assert sum(good) >= 0.8 * len(good), name
        assert steps[-1].aggregates[name].low == steps[-1].aggregates[name].high == pytest.approx(value)
    with pytest.raises(InputError, match="cannot be estimated"):
        dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, aggregate={"most": "max(l.v)"})


@pytest.mark.parametrize("memory", ["200KB", "256MB"])
def test_progressive_joins_tell_what_to_expect(memory: str) -> None:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"k": rng.integers(0, 500, 20_000)}) for _ in range(2))
    total = dovetail.count(left, right, "l.k = r.k")
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm="pmj", memory=memory))
    estimates = [step.estimate for step in steps if step.estimate is not None]
    assert len(estimates) > 2
    assert steps[-1].results == total
    assert estimates[-1] == Estimate(total, total, total, 0.95)
    assert all(step.estimate.low >= step.results for step in steps if step.estimate is not None)
    early = [step.estimate for step in steps if step.estimate is not None and step.results < total / 4]
    assert early
    assert all(estimate.low <= total <= estimate.high for estimate in early)
