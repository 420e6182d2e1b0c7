"""Estimates of a join's size: coverage of both intervals, aggregates, non-random order, restarts."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.papers.pmj_estimates import AFTER, BLOCKS, KEYS, VALUES, Held, distributions, intervals

import dovetail
from dovetail.core.metrics import Estimate
from dovetail.errors import InputError
from dovetail.estimation.estimate import (
    Estimator,
    Interval,
    _Region,
    _Spread,
    chi_squared_quantile,
    chi_squared_tail,
    student_t,
)

Z = 1.959964  # of 95 %


def is_tight(held: Held, errors: float) -> bool:
    """Whether half the interval is about as wide as this many standard errors."""
    return 0.75 < held.width / (errors * held.error) < 1.33


def students_errors(blocks: int) -> float:
    """The median width of intervals from this many blocks, in standard errors."""
    return student_t(blocks - 1, 0.95) * math.sqrt(chi_squared_quantile(0.5, blocks - 1) / (blocks - 1))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("after", [(2, 3), pytest.param(AFTER, marks=pytest.mark.slow)], ids=["few", "all"])
@pytest.mark.parametrize("keys", KEYS)
def test_the_interval_by_blocks_covers_the_truth_and_is_tight(keys: str, after: tuple[int, ...]) -> None:
    for blocks, held in intervals(keys, after).items():
        assert 0.93 <= held.coverage <= 0.97, blocks
        if blocks < BLOCKS / 2:
            assert is_tight(held, students_errors(blocks)), blocks
        elif blocks == BLOCKS:
            assert is_tight(held, Z), blocks


@pytest.mark.one_in(2)
@pytest.mark.parametrize("blocks", [2, 3, *(pytest.param(count, marks=pytest.mark.slow) for count in AFTER[2:])])
@pytest.mark.parametrize("keys", KEYS)
def test_it_does_when_all_rows_have_come(keys: str, blocks: int) -> None:
    held = intervals(keys, [blocks], blocks)[blocks]
    assert 0.93 <= held.coverage <= 0.97
    assert is_tight(held, Z)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("keys", ["uniform", "Zipf 1"])
def test_the_printed_interval_is_for_uniform_keys_or_all_rows(keys: str) -> None:
    held = intervals(keys, [2, 5, 10], interval="printed", runs=400)
    assert all((0.92 <= one.coverage <= 0.98) is (keys == "uniform") for one in held.values())
    assert 0.92 <= intervals(keys, [2], 2, "printed", 400)[2].coverage <= 0.98


def test_the_error_after_ten_of_fifty_blocks() -> None:
    assert intervals("uniform", [10], runs=100)[10].error <= 0.06


@pytest.mark.parametrize("interval", ["printed", "blocks"])
def test_where_all_rows_have_come_the_interval_is_that_of_equation_4(interval: Interval) -> None:
    estimator = Estimator()
    estimator.add(50, 40, 110)
    estimator.add(50, 40, 90)
    estimate = estimator.estimate(100, 80, interval=interval)  # half of the 8000 pairs are known
    assert estimate is not None
    half = 8000 * Z * math.sqrt(4000 / 3999 * 0.05 * 0.95 * (1 - 4000 / 8000) / 4000)
    assert estimate == pytest.approx((400, 400 - half, 400 + half, 0.95), rel=1e-6)


def test_while_most_rows_are_to_come_the_interval_is_that_of_student() -> None:
    estimator = Estimator()
    for matches in (95, 105, 100):
        estimator.add(50, 40, matches)
    estimate = estimator.estimate(10**9, 10**9)
    assert estimate is not None
    half = 10**18 * 4.302653 * math.sqrt(25 / 3) / 2000
    assert estimate == pytest.approx((0.05 * 10**18, 0.05 * 10**18 - half, 0.05 * 10**18 + half, 0.95), rel=1e-6)


@pytest.mark.parametrize("groups", [[(10, 10)] * 4, [(25, 5), (5, 25), (9, 9), (1, 1)], [(20, 39), (20, 0), (0, 1)]])
def test_rows_count_by_how_many_of_their_pairs_are_known(groups: list[tuple[int, int]]) -> None:
    """The error of a share of pairs: rows are weighted by the number of known pairs they are in."""
    estimator, rng = Estimator(), np.random.default_rng(0)
    lefts, rights = rng.normal(size=(2, 20_000, 40))
    known = np.zeros((40, 40))
    at = [0, 0]
    for left, right in groups:
        known[at[0] : at[0] + left, at[1] : at[1] + right] = 1
        at = [at[0] + left, at[1] + right]
        estimator.add(left, right, 3)
    weights = known / known.sum() - 1 / 1600
    spread = _Spread(1.0, 1, _Region.from_rows(1, 1))  # one pair: its left row counts once, and so does its right row
    by_left, by_right = (lefts @ weights.sum(axis=1)).var(), (rights @ weights.sum(axis=0)).var()
    assert spread.to_come(estimator._known, 40, 40) == pytest.approx(max(by_left, by_right), rel=0.05, abs=1e-9)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("keys", ["Zipf 0.5", "Zipf 1"])
def test_where_all_rows_that_came_have_met_the_last_ones_are_uncertain_too(keys: str) -> None:
    rng, inside = np.random.default_rng(0), 0
    for _ in range(200):
        left, right = (rng.multinomial([200] * 50, each) for each in distributions(keys))
        estimator = Estimator()
        for matches in (left * right).sum(axis=1)[:48].tolist():
            estimator.add(200, 200, matches, looked_at=False)
        estimator.know(9600, 9600, int(left[:48].sum(axis=0) @ right[:48].sum(axis=0)))
        estimate = estimator.estimate(10_000, 10_000)
        assert estimate is not None
        inside += estimate.low <= left.sum(axis=0) @ right.sum(axis=0) <= estimate.high
    assert inside / 200 >= 0.93


def test_no_more_is_expected_than_there_are_pairs_nor_less_than_is_known() -> None:
    estimator = Estimator()
    for matches in (99, 80):
        estimator.add(10, 10, matches)
    estimate = estimator.estimate(100, 100)
    assert estimate is not None
    assert (estimate.low, estimate.high) == (179, 10_000 - 21)


def test_what_is_known_narrows_the_interval_to_nothing() -> None:
    estimator = Estimator()
    for matches in (20, 24, 22, 18):
        estimator.add(10, 10, matches)
    widths = []
    for groups, found in (([(10, 10)] * 2, 42), ([(10, 10)] * 2, 40), ([(20, 20)] * 2, 170)):
        estimate = estimator.estimate(40, 40)
        assert estimate is not None
        widths.append(estimate.high - estimate.low)
        assert 84 <= estimate.low <= estimate.total <= estimate.high <= 1600
        estimator.merge(groups, found)
    assert widths == sorted(widths, reverse=True)
    assert estimator.estimate(40, 40) == Estimate(336, 336, 336, 0.95)


def test_blocks_of_unequal_sizes_count_by_their_pairs() -> None:
    estimator = Estimator()
    for left, right in ((10, 10), (20, 5), (5, 5), (40, 40)):
        estimator.add(left, right, left * right // 5)
    estimator.add(100, 0, 0)  # one side is empty: no information
    estimate = estimator.estimate(1000, 1000)
    assert estimate is not None
    assert estimate.total == 200_000
    half = 200_000 - estimate.low
    assert estimate.high - 200_000 == pytest.approx(half)
    assert 0 < half < 10**6 * Z * math.sqrt(0.16 / 1825)  # blocks agree, so less than for pairs drawn independently


@pytest.mark.parametrize(
    "report",
    [
        lambda e: None,
        lambda e: e.add(100, 100, 50),  # one block has no variance
        lambda e: [e.add(100, 100, 1) for _ in range(5)],  # too few matches
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
    for freedom, value in ((1, 3.841), (4, 9.488), (49, 66.339)):
        assert chi_squared_quantile(0.95, freedom) == pytest.approx(value, rel=0.03)


@pytest.mark.one_in(2)
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


@pytest.mark.parametrize("memory", ["1MB", "2MB", "4MB"])
def test_an_operator_that_has_changed_knows_only_what_has_met(memory: str) -> None:
    """After the switch, rows wait in memory for their partners, so none of their results are known yet."""
    rng = np.random.default_rng(0)
    left, right = (pa.table({"zone": rng.integers(0, 500, 60_000), "fare": rng.random(60_000)}) for _ in range(2))
    on = "l.zone = r.zone AND l.fare < r.fare"
    total = dovetail.count(left, right, on)
    inside, operators = [], set()
    for step in dovetail.progressive(left, right, on, memory=memory):
        operators.add(step.operator)
        if step.estimate is not None:
            inside.append(step.estimate.low <= total <= step.estimate.high)
            assert step.estimate.high > step.estimate.low or step.results == total
    assert operators in ({"shj", "pmj"}, {"shj", "diner"})
    assert len(inside) > 10
    assert sum(inside) >= 0.9 * len(inside)


def test_inputs_that_come_at_once_and_spill_have_an_estimate() -> None:
    left, right = (pa.table({"k": np.random.default_rng(seed).integers(0, 100, 4000)}) for seed in (0, 1))
    steps = dovetail.progressive(left, right, "l.k = r.k", algorithm="xjoin", memory="70KB")
    first = next(step for step in steps if step.phase == "cleanup")
    assert first.estimate is not None
    assert first.results < first.estimate.low <= dovetail.count(left, right, "l.k = r.k") <= first.estimate.high


@pytest.mark.slow
def test_intervals_by_the_way_cover_the_truth() -> None:
    """The intervals of an operator that spills, with skewed keys, for many inputs."""
    inside = told = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        left, right = (pa.table({"k": np.minimum(rng.zipf(1.6, 4000), 300)}) for _ in range(2))
        total = dovetail.count(left, right, "l.k = r.k")
        for step in dovetail.progressive(left, right, "l.k = r.k", algorithm="xjoin", memory="70KB"):
            if step.phase == "cleanup":
                assert step.estimate is not None
                told += 1
                inside += step.estimate.low <= total <= step.estimate.high
                break
    assert told == 100
    assert 93 <= inside <= 99


def sorted_tables() -> list[pa.Table]:
    rng = np.random.default_rng(0)
    return [pa.table({"k": np.sort(rng.integers(0, 500, 8000))}) for _ in range(2)]


def files_of(tables: list[pa.Table], directory: Path) -> list[str]:
    """Write files: unlike tables, these cannot be sampled randomly."""
    for number, table in enumerate(tables):
        pq.write_table(table, directory / f"{number}.parquet")
    return [str(directory / f"{number}.parquet") for number in range(len(tables))]


@pytest.mark.parametrize("algorithm", ["pmj", "shj", "rpj"])
def test_order_that_is_not_random_is_told(algorithm: str, tmp_path: Path) -> None:
    left, right = files_of(sorted_tables(), tmp_path)
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, memory="2MB"))
    assert all(step.estimate is None for step in steps[2:-1])
    assert any(step.objection is not None and "order" in step.objection for step in steps)


@pytest.mark.parametrize("algorithm", ["pmj", "shj", "rpj"])
def test_tables_have_estimates_in_any_order(algorithm: str) -> None:
    left, right = sorted_tables()
    total = dovetail.count(left, right, "l.k = r.k")
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, memory="2MB"))
    told = [step.estimate for step in steps[:-1] if step.estimate is not None]
    assert told
    assert all(estimate.low <= total <= estimate.high for estimate in told)


def test_order_without_a_key_is_told_by_a_column(tmp_path: Path) -> None:
    table = pa.table({"k": np.arange(5000) // 10})
    steps = dovetail.progressive(*files_of([table, table], tmp_path), "l.k = r.k OR l.k = r.k + 1")
    assert any(step.objection is not None for step in steps)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("algorithm", "memory"),
    [("pmj", "120KB"), pytest.param("xjoin", "120KB", marks=pytest.mark.slow), ("shj", "256MB")],
)
def test_aggregates_with_bounds(algorithm: str, memory: str) -> None:
    """Bounds of one run stay right or wrong for many steps, so coverage is measured over several runs."""
    wanted = {"n": "count(*)", "values": "count(l.v)", "total": "sum(r.v * 2)", "mean": "avg(l.v)"}
    covered: dict[str, list[float]] = {name: [] for name in wanted}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        left, right = (
            pa.table({"k": rng.integers(0, 200, 8000), "v": pa.array(rng.random(8000), mask=rng.random(8000) < 0.2)})
            for _ in range(2)
        )
        truth = dovetail.aggregate(left, right, "l.k = r.k", wanted).to_pylist()[0]
        running = dovetail.progressive(left, right, "l.k = r.k", algorithm=algorithm, memory=memory, aggregate=wanted)
        steps = list(running)
        assert all(step.batch.num_rows == 0 for step in steps)
        middle = [
            step.aggregates for step in steps if step.results < truth["n"] / 2 and None not in step.aggregates.values()
        ]
        assert middle
        for name, value in truth.items():
            covered[name].append(np.mean([found[name].low <= value <= found[name].high for found in middle]))
            assert steps[-1].aggregates[name].low == steps[-1].aggregates[name].high == pytest.approx(value)
    for name, shares in covered.items():
        assert np.mean(shares) >= 0.8, name
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
