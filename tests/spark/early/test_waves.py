"""Progressive joins of DataFrames: all rows, each once, early, with bounds; stopping and continuing."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import some
from tests.patience import wait_until
from tests.spark.early.waves_job import CELLS, ON
from tests.spark.streaming.killing import Job

import dovetail
from dovetail.errors import DovetailError, InputError, PlanError
from dovetail.execution.in_process import Step
from dovetail.execution.stop_rule import Until
from dovetail.routing.routers import Visits
from dovetail.spark.early.blocks import by_visits
from dovetail.spark.early.first_results import is_repeated

WAVES_JOB = Path(__file__).with_name("waves_job.py")


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with tables in files."""
    place = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    for name, rows in (("l", 3000), ("r", 2000)):
        x = rng.random(rows)
        table = pd.DataFrame(
            {"id": np.arange(rows), "k": rng.integers(0, 300, rows), "x": x, "y": x + rng.random(rows) / 5, "name": "é"}
        )
        table.loc[::50, "x"] = None
        spark.createDataFrame(table).repartition(3).write.parquet(str(place / name))
    return place


@pytest.fixture(scope="module")
def frames(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    return spark.read.parquet(str(place / "l")), spark.read.parquet(str(place / "r"))


def pairs(steps: list[Step]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for step in steps:
        found.update(zip(step.batch["id"].to_pylist(), step.batch["id_right"].to_pylist(), strict=True))
    return found


@pytest.fixture(scope="module")
def truth(frames: tuple[DataFrame, DataFrame]) -> Counter[tuple[int, int]]:
    return expected(frames, ON)


def expected(frames: tuple[DataFrame, DataFrame], on: str) -> Counter[tuple[int, int]]:
    joined = dovetail.join(*frames, on).select("id", "id_right").toArrow()
    return Counter(zip(joined["id"].to_pylist(), joined["id_right"].to_pylist(), strict=True))


@pytest.mark.spark
@pytest.mark.parametrize(
    "on",
    [
        ON,
        *(
            pytest.param(on, marks=pytest.mark.slow)
            for on in ("abs(l.x - r.x) <= 0.001", "l.k = r.k", "l.k = r.k OR l.x > r.y")
        ),
    ],
)
def test_the_same_rows_as_the_join(frames: tuple[DataFrame, DataFrame], on: str) -> None:
    steps = list(dovetail.progressive(*frames, on, cells=30))
    truth = expected(frames, on)
    assert pairs(steps) == truth
    assert [step.results for step in steps][-1] == truth.total()
    assert steps[-1].estimate == (truth.total(),) * 3 + (0.95,)
    assert steps[0].batch.schema.names == [f"{n}{s}" for s in ("", "_right") for n in ("id", "k", "x", "y", "name")]
    between = [step.estimate for step in steps if step.estimate is not None and step.estimate.low < step.estimate.high]
    assert between
    assert all(e.low <= e.total <= e.high for e in between)


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_aggregates_with_bounds(frames: tuple[DataFrame, DataFrame]) -> None:
    wanted = {"n": "count(*)", "mean": "avg(l.x)", "sum": "sum(r.k)"}
    steps = list(dovetail.progressive(*frames, ON, cells=30, aggregate=wanted))
    truth = dovetail.aggregate(*frames, ON, wanted).collect()[0].asDict()
    last = steps[-1].aggregates
    assert last is not None
    for name, value in truth.items():
        estimate = last[name]
        assert estimate is not None
        assert estimate.total == pytest.approx(float(value))
        assert estimate.low == estimate.high
    assert all(step.batch.num_rows == 0 for step in steps)


@pytest.mark.spark
def test_stopped_and_gone_on_with(
    frames: tuple[DataFrame, DataFrame], truth: Counter[tuple[int, int]], tmp_path: Path
) -> None:
    work = str(tmp_path / "work")
    first = []
    for step in dovetail.progressive(*frames, ON, cells=30, work_dir=work):
        first.append(step)
        if step.results > 1000:
            break
    second = list(dovetail.progressive(*frames, ON, cells=30, work_dir=work, until=first[-1].results + 1))
    third = list(dovetail.progressive(*frames, ON, cells=30, work_dir=work))
    assert 0 < pairs(first).total() < truth.total()
    assert pairs([*first, *second, *third]) == truth
    assert third[-1].results == truth.total()
    with pytest.raises(DovetailError, match="belongs to another"):
        list(dovetail.progressive(*frames, "l.x < r.x", work_dir=work))


@pytest.mark.spark
@pytest.mark.slow
def test_killed_and_gone_on_with(
    place: Path, frames: tuple[DataFrame, DataFrame], truth: Counter[tuple[int, int]]
) -> None:
    """kill -9 while a wave writes results that are not in the log yet: only these are computed again."""
    work, job = place / "work", Job(place, WAVES_JOB)
    while True:
        with job.started("local[2]") as process:
            wait_until(lambda: process.poll() is not None or (steps_taken(place) and unnoted(work)), "a wave at work")
            assert process.poll() is None, f"it ended by itself:\n{(place / 'job.log').read_text()[-3000:]}"
            job.end()
            assert process.wait() == -signal.SIGKILL
        if unnoted(work):  # otherwise the wave ended before the kill, and the job continues from there
            break
    first = Counter(pair for pairs in steps_taken(place) for pair in pairs)
    rest = pairs(list(dovetail.progressive(*frames, ON, cells=CELLS, work_dir=str(work))))
    assert 0 < first.total() < truth.total()
    assert first + rest == truth


def steps_taken(place: Path) -> list[list[tuple[int, int]]]:
    """The pairs of each step that the job has taken."""
    return [[(i, j) for i, j in json.loads(file.read_text())] for file in sorted(place.glob("taken/*.json"))]


def unnoted(work: Path) -> set[str]:
    """Result files that are not in the log; none before the first wave is in it."""
    results = {file.name for file in work.glob("results-*.arrow")}
    if not (work / "done.json").exists():
        return set()
    log = json.loads((work / "done.json").read_text())
    noted = {given["block"]["name"] for given in (*log["found"], *log["done"]) if given["block"]}
    return results - noted if log["done"] else set()


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_scouts_find_results_before_anything_is_written(
    frames: tuple[DataFrame, DataFrame], truth: Counter[tuple[int, int]], tmp_path: Path
) -> None:
    """Stop at the first step, before there are blocks, and continue."""
    work = tmp_path / "work"
    first = list(dovetail.progressive(*frames, ON, cells=30, work_dir=str(work), until=1))
    assert [(step.done, step.estimate) for step in first] == [(0.0, None)]
    assert first[0].results > 100
    assert not list(work.glob("**/l-*"))
    rest = list(dovetail.progressive(*frames, ON, cells=30, work_dir=str(work)))
    assert pairs([*first, *rest]) == truth


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_a_table_that_changes_is_noticed(frames: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    left, right = frames
    place, work = str(tmp_path / "r"), str(tmp_path / "work")
    right.write.parquet(place)
    assert list(dovetail.progressive(left, left.sparkSession.read.parquet(place), ON, work_dir=work, until=1))
    right.limit(10).write.mode("append").parquet(place)
    with pytest.raises(DovetailError, match="tables changed"):
        list(dovetail.progressive(left, left.sparkSession.read.parquet(place), ON, work_dir=work))


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_tables_that_may_differ_each_time_have_no_scouts(
    frames: tuple[DataFrame, DataFrame], truth: Counter[tuple[int, int]]
) -> None:
    left, right = frames
    assert is_repeated(left.where("k > 3").withColumn("z", F.col("x") + 1).repartition(2))
    assert not is_repeated(left.limit(1000))
    assert not is_repeated(left.withColumn("z", F.rand()))
    drawn = left.withColumn("z", F.rand())
    steps = list(dovetail.progressive(drawn, right, ON, cells=30))
    assert all((step.done or 0) > 0 for step in steps)
    assert pairs(steps) == truth


@pytest.mark.spark
@pytest.mark.slow
def test_rows_that_occur_often_are_scouts_all_or_none(spark: SparkSession) -> None:
    """Equal rows have equal hashes."""
    left = spark.range(4000).selectExpr("id % 50 AS k", "map('a', id % 50) AS m")
    right = spark.range(500).selectExpr("id % 100 AS k", "id AS n")
    steps = list(dovetail.progressive(left, right, "l.k = r.k", cells=8))
    assert steps[0].done == 0.0
    assert sum(step.batch.num_rows for step in steps) == 4000 * 5
    keys = Counter(key for step in steps for key in step.batch["k"].to_pylist())
    assert keys == dict.fromkeys(range(50), 400)


@pytest.mark.spark
def test_nothing_is_left_behind(frames: tuple[DataFrame, DataFrame], tmp_path: Path, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        for step in dovetail.progressive(*frames, ON, cells=30):
            if step.results:
                break
        assert not list(tmp_path.glob("dovetail-state/waves-*"))
        assert list(dovetail.progressive(*frames, ON, cells=30, until=1))[-1].results >= 1
        assert not list(tmp_path.glob("dovetail-state/waves-*"))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_no_pairs_and_no_rows(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    for other in some((right.where("id < 0"), right.where("x IS NULL")), 1, of=2):
        (step,) = dovetail.progressive(left, other, "l.x < r.x AND l.y > r.y")
        assert (step.results, step.estimate) == (0, (0.0, 0.0, 0.0, 0.95))
        assert step.batch.num_rows == 0


@pytest.mark.spark
def test_what_cannot_be_done_is_refused_at_once(frames: tuple[DataFrame, DataFrame]) -> None:
    for given, error, said in (
        ({"algorithm": "diner"}, PlanError, "joined in waves"),
        ({"aggregate": {"m": "max(l.x)"}}, PlanError, "no bounds"),
        ({"until": 1.5}, InputError, "relative error"),
        ({"cells": 0}, InputError, "cells must be an integer, 1 or more"),
        ({"seeds": 0}, InputError, "Did you mean 'seed'"),
        ({"sample": False}, InputError, "sample= is for DataFrames with `order_by`"),
    ):
        with pytest.raises(error, match=said):
            dovetail.progressive(*frames, ON, **given)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="only Spark"):
        dovetail.progressive(*frames, "levenshtein(l.name, r.name) < 3")


@pytest.mark.parametrize("given", [0, -3, 1.0, 0.0, True, "soon", [0]])
def test_until_has_to_make_sense(given: Any) -> None:
    with pytest.raises(InputError):
        Until.read(given)


def test_until_whatever_comes_first() -> None:
    assert Until.read([10, "2 seconds", 0.5]) == Until(10, 0.5, 2.0)


def test_rows_that_visit_the_same_cells_share_a_block() -> None:
    visits = Visits(np.array([3, 0, 0, 1, 3, 2]), np.array([7, 1, 2, 5, 8, 1], np.int32))
    names = np.random.default_rng(0).integers(0, 2**64, 10, dtype=np.uint64)
    found = {cells: rows.tolist() for cells, rows in by_visits(visits, names)}
    assert found == {(7, 8): [3], (1, 2): [0], (5,): [1], (1,): [2]}
    twice = Visits(np.array([0, 1, 0, 1]), np.array([4, 6, 6, 4], np.int32))
    assert {cells: rows.tolist() for cells, rows in by_visits(twice, names)} == {(4, 6): [0, 1]}
    assert not list(by_visits(Visits(np.empty(0, np.int64), np.empty(0, np.int32)), names))
