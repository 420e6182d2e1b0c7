"""Estimates if the orders of both inputs depend on each other: correct, or none at all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.estimate_orders import KEYS, OPERATORS, ORDERS, Tally, Words, Workload, draw_keys, places, run
from tests.effort import ALL, repeat

import dovetail
from dovetail.condition import parse
from dovetail.estimation.drawn_sample import DrawnSample
from dovetail.estimation.estimate import Estimator
from dovetail.estimation.order import PlacedMatches
from dovetail.estimation.weighted_sample import WeightedSample

WORKLOADS = 300


def tally_of(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(Workload.draw(seed))
    return tally


def check(tally: Tally, least: float) -> None:
    assert tally.flat == 0, "no interval without width before the end"
    inside, told = tally.coverage("all")
    assert inside >= least * told
    assert told >= 0.9 * tally.asked


def test_intervals_hold_the_truth_in_any_order() -> None:
    check(tally_of(range(repeat(WORKLOADS))), 0.93)


@pytest.mark.slow
def test_they_do_in_many_workloads() -> None:
    tally = tally_of(range(WORKLOADS))
    check(tally, 0.93)
    for order in ORDERS:
        inside, told = tally.coverage(order)
        assert inside >= 0.9 * told, order


@pytest.mark.parametrize("algorithm", OPERATORS)
def test_equal_ids_in_equal_order(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"id": rng.permutation(20_000)})
    told = [
        step.estimate
        for step in dovetail.progressive(table, table, "l.id = r.id", algorithm=algorithm)
        if step.estimate is not None
    ]
    assert told
    for estimate in told:
        assert estimate.low <= 20_000 <= estimate.high
        assert estimate.low < estimate.high or estimate.total == 20_000


def test_the_stopping_rule_of_the_readme_is_safe() -> None:
    table = pa.table({"id": np.random.default_rng(0).permutation(200_000)})
    for step in dovetail.progressive(table, table, "l.id = r.id"):
        total = step.estimate
        if total and total.high - total.low < 0.04 * total.total:
            break
    assert total is not None
    assert total.low <= 200_000 <= total.high


def test_aggregates_in_any_order() -> None:
    wanted = {"n": "count(*)", "total": "sum(r.v)", "mean": "avg(l.v)"}
    inside: dict[str, list[float]] = {name: [] for name in wanted}
    for seed in range(repeat(WORKLOADS // 2)):
        workload = Workload.draw(seed, algorithm=OPERATORS[seed % len(OPERATORS)])
        truth = dovetail.aggregate(workload.left, workload.right, workload.on, wanted).to_pylist()[0]
        steps = [step.aggregates for read, step in run(workload, wanted) if read < 1]
        for name, value in truth.items():
            told = [found[name] for found in steps if found is not None and found[name] is not None]
            assert all(estimate.low < estimate.high for estimate in told)
            if told:  # bounds stay right or wrong for many steps
                inside[name].append(np.mean([estimate.low <= value <= estimate.high for estimate in told]))
    for name, shares in inside.items():
        assert len(shares) >= 0.8 * repeat(WORKLOADS // 2), name  # the smallest tables arrive at once
        assert np.mean(shares) >= (0.93 if ALL else 0.85), name  # one of eight may be wrong


@pytest.mark.parametrize("order", ["same", "near"])
@pytest.mark.parametrize("algorithm", ["auto", "pmj", "xjoin"])
def test_of_rows_that_cannot_be_drawn_there_is_no_estimate(tmp_path: Path, algorithm: str, order: str) -> None:
    rng = np.random.default_rng(0)
    ids = rng.permutation(30_000)
    later = ids[np.argsort(np.arange(30_000) + rng.normal(0, 5, 30_000))] if order == "near" else ids
    for name, keys in (("l", ids), ("r", later)):
        pq.write_table(pa.table({"id": keys}), tmp_path / f"{name}.parquet")
    paths = str(tmp_path / "l.parquet"), str(tmp_path / "r.parquet")
    steps = list(dovetail.progressive(*paths, "l.id = r.id", algorithm=algorithm, memory="1MB"))
    for step in steps[:-1]:
        assert step.estimate is None or step.estimate.low <= 30_000 <= step.estimate.high
    assert any(step.objection is not None and "depend on each other" in step.objection for step in steps)


def matches_of(left: Words, right: Words, drawn: int, seed: int) -> PlacedMatches:
    """The matches of randomly drawn rows."""
    rng = np.random.default_rng(seed)
    there = rng.choice(len(left), drawn, replace=False), rng.choice(len(right), drawn, replace=False)
    batches = (
        pa.RecordBatch.from_pydict({"k": left[there[0]]}),
        pa.RecordBatch.from_pydict({"k": right[there[1]]}),
    )
    condition = parse("l.k = r.k", batches[0].schema, batches[1].schema, in_process=True)
    return PlacedMatches.between(condition, batches, there, (len(left), len(right)))


@pytest.mark.parametrize("order", ORDERS)
def test_orders_that_depend_are_told_from_others(order: str) -> None:
    for seed in range(repeat(200)):
        rng = np.random.default_rng(seed)
        keys = draw_keys(rng, "unique", 20_000)
        found = matches_of(keys, keys[places(rng, order, 20_000)], 4096, seed)
        assert found.depend is (order != "independent")


@pytest.mark.parametrize("keys", KEYS)
def test_independent_orders_are_hardly_ever_taken_for_others(keys: str) -> None:
    for seed in range(repeat(400)):
        rng = np.random.default_rng(seed)
        left = draw_keys(rng, keys, 12_000)
        assert not matches_of(left, rng.permutation(left), 4096, seed).depend


@pytest.mark.parametrize("keys", KEYS)
def test_the_interval_of_drawn_rows_is_tight(keys: str) -> None:
    """An interval that always contains the true number could be useless: its half-width is about two errors."""
    errors, widths, inside = [], [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        left = draw_keys(rng, keys, 40_000)
        total = int((np.unique(left, return_counts=True)[1] ** 2).sum())
        estimate = DrawnSample(matches_of(left, left, 4096, seed)).estimate(0.95)
        assert estimate is not None
        errors.append(estimate.total / total - 1)
        widths.append((estimate.high - estimate.low) / 2 / total)
        inside.append(estimate.low <= total <= estimate.high)
    assert np.mean(inside) >= 0.9
    assert 1.5 < np.median(widths) / np.sqrt(np.mean(np.square(errors))) < 2.8


@pytest.mark.parametrize("keys", [np.zeros(9000, np.int64), np.arange(9000) % 2])
def test_no_interval_is_without_width_while_rows_are_to_come(keys: Words) -> None:
    table = pa.table({"k": keys})
    for read, step in run(Workload("same", "few", table, table, "l.k = r.k", "shj", "256MB")):
        if read < 1 and step.estimate is not None:
            assert step.estimate.low < step.estimate.high


@pytest.mark.parametrize(
    ("value", "told"),
    [(5.0, True), (0.0, False)],
)
def test_values_that_are_all_the_same(value: float, told: bool) -> None:
    estimator = Estimator()
    for _ in range(4):
        estimator.add(100, 100, 50, sums={"x": 50 * value})
    for estimate in (estimator.sum("x", 1000, 1000), estimator.average("x")):
        assert (estimate is not None) is told
        assert estimate is None or estimate.low < estimate.high


@pytest.mark.parametrize("ask", [lambda s, g: s.total(g), lambda s, g: s.ratio(g, np.ones(len(g)))])
def test_cells_without_anything_say_nothing_about_the_others(
    ask: Callable[[WeightedSample, np.ndarray], object],
) -> None:
    assert ask(WeightedSample([1.0] * 10), np.zeros(5)) is None
