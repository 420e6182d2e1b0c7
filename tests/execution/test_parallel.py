"""Progressive joins by several workers: the same rows, balanced cells, estimates, and threads that end."""

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.errors import BudgetError, InputError, PlanError
from dovetail.execution.parallel import plan_workers
from dovetail.planning.planner import plan_join
from dovetail.testing import CONDITIONS, definition, random_table

RNG = np.random.default_rng(0)
LEFT, RIGHT = (
    pa.table(
        {
            "k": pa.array(RNG.integers(0, 700, 2500), mask=RNG.random(2500) < 0.05),
            "x": RNG.exponential(30, 2500),
            "y": RNG.random(2500) * 100,
            "row": np.arange(2500),
        }
    )
    for _ in range(2)
)

ON = (
    "l.k = r.k",
    "abs(l.x - r.x) <= 0.1",
    "l.x < r.x AND l.x + 0.2 > r.x",
    "abs(l.x - r.x) <= 1 AND abs(l.y - r.y) <= 1",
    "l.x <= r.x + 0.1 AND l.x + 0.1 >= r.x AND l.y <= r.y + 1 AND l.y + 2 >= r.y",
    "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) < 0.5",
    "l.x < r.x - 100 AND l.y > r.y",
)


def pairs(steps: Any) -> Counter[tuple[int, int]]:
    batches = [step.batch for step in steps]
    if not batches:
        return Counter()
    table = pa.Table.from_batches(batches)
    return Counter(zip(table["row"].to_pylist(), table["row_right"].to_pylist(), strict=True))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_class_of_conditions(on: str, workers: int) -> None:
    steps = dovetail.progressive(LEFT, RIGHT, on, algorithm="pmj", memory="2MB", workers=workers)
    assert pairs(steps) == Counter(definition(LEFT, RIGHT, on))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("algorithm", ["auto", "diner", "rpj", "nested_loop"])
def test_other_algorithms(algorithm: str) -> None:
    steps = dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm=algorithm, memory="2MB", workers=2)
    assert pairs(steps) == Counter(definition(LEFT, RIGHT, "l.k = r.k"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", CONDITIONS)
def test_random_tables(on: str) -> None:
    rng = random.Random(on)
    for _ in range(2):
        left, right = (
            table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
            for table in (random_table(rng), random_table(rng))
        )
        assert pairs(dovetail.progressive(left, right, on, workers=3)) == Counter(definition(left, right, on))


def test_skewed_keys_are_balanced() -> None:
    rng = np.random.default_rng(1)
    left, right = (
        pa.table({"k": np.minimum(rng.zipf(1.3, 20_000), 5000), "x": rng.exponential(5, 20_000)}) for _ in "lr"
    )
    for on in ("l.k = r.k", "abs(l.x - r.x) <= 0.01"):
        plan, cells = plan_workers(plan_join(parse(on, left.schema, right.schema), algorithm="pmj"), (left, right), 4)
        found = [0] * 4
        batches = [table.combine_chunks().to_batches()[0] for table in (left, right)]
        visits = [cells.router.route(side, batches[side], np.arange(20_000)) for side in Side]
        for cell in range(cells.router.cells):
            sides = [batches[side].take(pa.array(visits[side].rows[visits[side].cells == cell])) for side in Side]
            tables = [pa.Table.from_batches([side]) for side in sides]
            found[cells.workers[cell]] += dovetail.count(*tables, on)
        assert sum(found) == dovetail.count(left, right, on)
        assert max(found) <= 0.3 * sum(found), (on, found)
        assert plan.router is not None


def test_a_worker_has_one_cell_where_work_is_even_and_more_where_it_is_not() -> None:
    rng = np.random.default_rng(2)
    even, on = [pa.table({"x": rng.random(20_000)}) for _ in "lr"], "abs(l.x - r.x) <= 0.0001"
    plan, cells = plan_workers(plan_join(parse(on, even[0].schema, even[1].schema), algorithm="pmj"), tuple(even), 3)
    assert sorted(cells.workers) == [0, 1, 2]
    uneven = [pa.table({"x": np.where(rng.random(20_000) < 0.4, 0.5, rng.random(20_000))}) for _ in "lr"]
    plan, cells = plan_workers(plan_join(plan.condition, algorithm="pmj"), tuple(uneven), 3)
    assert plan.cells == len(cells.workers) > 3


def test_explain_says_that_workers_share_the_memory() -> None:
    table = pa.table({"x": np.random.default_rng(3).random(50_000)})

    def explain(memory: str) -> str:
        options: dict[str, Any] = {"algorithm": "pmj", "memory": memory, "workers": 2, "progressive": True}
        return str(dovetail.explain(table, table, "abs(l.x - r.x) <= 0.0001", **options))

    assert "compare with workers=1" in explain("400KB")
    assert "workers=1" not in explain("1MB")


def test_estimates_and_aggregates_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"k": rng.integers(0, 500, 30_000), "v": rng.random(30_000)}) for _ in range(2))
    truth = dovetail.aggregate(left, right, "l.k = r.k", {"n": "count(*)", "v": "sum(r.v)"}).to_pylist()[0]
    steps = list(dovetail.progressive(left, right, "l.k = r.k", algorithm="pmj", memory="1MB", workers=2))
    estimates = [step.estimate for step in steps if step.estimate is not None]
    assert estimates[-1].low == estimates[-1].high == truth["n"] == steps[-1].results
    assert sum(e.low <= truth["n"] <= e.high for e in estimates) >= 0.8 * len(estimates)
    assert any(step.estimate is not None and step.results < truth["n"] / 2 for step in steps)
    wanted = {"n": "count(*)", "v": "sum(r.v)"}
    *_, last = dovetail.progressive(left, right, "l.k = r.k", algorithm="pmj", workers=2, aggregate=wanted)
    assert last.batch.num_rows == 0
    assert {name: value.total for name, value in last.aggregates.items()} == pytest.approx(truth)


def test_leaving_stops_threads_and_frees_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, right = (pa.table({"k": RNG.integers(0, 100, 20_000)}) for _ in range(2))  # 4 million pairs
    steps = dovetail.progressive(left, right, "l.k = r.k", algorithm="pmj", memory="300KB", workers=2)
    while next(steps).phase != "cleanup":
        pass
    assert list(tmp_path.iterdir())
    assert any(thread.name.startswith("dovetail-worker") for thread in threading.enumerate())
    steps.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("dovetail-worker") for thread in threading.enumerate())
    assert not list(tmp_path.iterdir())
    dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="pmj", workers=2)  # never started
    assert not any(thread.name.startswith("dovetail-worker") for thread in threading.enumerate())


def test_an_error_in_a_worker_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.operators.pmj.pmj.Pmj.clean_up", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="pmj", workers=2))
    assert not any(thread.name.startswith("dovetail-worker") for thread in threading.enumerate())


def test_what_it_refuses() -> None:
    with pytest.raises(InputError, match="workers must be an integer, 1 or more; got 0"):
        dovetail.progressive(LEFT, RIGHT, "l.k = r.k", workers=0)
    with pytest.raises(PlanError, match="workers= supports inner joins only"):
        dovetail.progressive(LEFT, RIGHT, "l.k = r.k", "left", workers=2)
    with pytest.raises(InputError, match="workers= is for two tables in process"):
        dovetail.progressive(LEFT.to_reader(), RIGHT, "l.k = r.k", workers=2)
    with pytest.raises(BudgetError, match="65,536 bytes or more"):
        dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="pmj", memory="100KB", workers=2)
    with pytest.raises(InputError, match="fan_in must be at least 4"):
        dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="pmj", fan_in=2, workers=2)
