"""The command line, `explain` and the executed join have the same plan, for every class, join type and engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.effort import some
from tests.planning.test_planner import CONDITIONS, HOW, ids, table
from typer.testing import CliRunner

import dovetail
from dovetail.cli import app
from dovetail.errors import DovetailError
from dovetail.planning.plan import JoinPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT, RIGHT = table(1).slice(0, 400), table(2).slice(0, 400)
NAMED = ("nested_loop", "shj", "xjoin", "diner", "pmj", "spo", "diag")
IN_PROCESS = tuple(product(HOW, ("auto", *NAMED)))
# All join types with auto and diag, which support them; inner joins with all algorithms; one unsupported case.
ON_SPARK = (*product(HOW, ("auto", "diag")), *(("inner", name) for name in NAMED if name != "diag"), ("left", "pmj"))


def cases(name: str, among: tuple[tuple[str, str], ...]) -> Iterable[tuple[str, str]]:
    """Join types and algorithms, in turn; more for an equality, which most algorithms support."""
    return some(among, list(CONDITIONS).index(name), **({"of": 3} if name == "equality" else {}))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    place = tmp_path_factory.mktemp("files")
    paths = [str(place / name) for name in ("l.parquet", "r.parquet")]
    for path, rows in zip(paths, (LEFT, RIGHT), strict=True):
        pq.write_table(rows, path)
    return paths[0], paths[1]


def by_command(files: tuple[str, str], on: str, how: str, algorithm: str, *flags: str) -> str:
    words = ["explain", "--left", files[0], "--right", files[1], "--on", on, "--how", how, "--algorithm", algorithm]
    run = CliRunner().invoke(app, [*words, *flags], catch_exceptions=False)
    return re.sub(r"\nwhere .*$", "", run.stdout.rstrip())


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call, or its error message without the condition."""
    try:
        return call(*arguments, **options)
    except DovetailError as error:
        return re.sub("cannot run .*: ", "cannot run it: ", str(error))


class Spy:
    """Records the plans passed to the functions that execute them."""

    def __init__(self) -> None:
        self.plans: list[JoinPlan] = []

    def on(self, monkeypatch: pytest.MonkeyPatch, where: str, plan_of: Callable[..., JoinPlan]) -> None:
        module, _, name = where.rpartition(".")
        run = getattr(pytest.importorskip(module), name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self.plans.append(plan_of(*arguments))
            return run(*arguments, **options)

        monkeypatch.setattr(where, watched)

    def ran(self, run: Callable[..., Any], *arguments: Any, **options: Any) -> JoinPlan:
        """The executed plan; with several passes, that of the first."""
        self.plans.clear()
        run(*arguments, **options)
        return self.plans[0]


def first(plan: JoinPlan, *_: Any) -> JoinPlan:
    return plan


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    for name in ("join_tables", "join_along_diagonal", "join_progressively"):
        spy.on(monkeypatch, f"dovetail.calls.{name}", first)
    return spy


def essence(plan: JoinPlan) -> tuple[Any, ...]:
    """Everything in a plan that determines its execution."""
    chosen = (plan.operator, plan.at_rest, plan.diagonal, plan.router, plan.cells, plan.tasks, plan.memory_bytes)
    return (*chosen, plan.condition.text, plan.driven, plan.checked, plan.parameters)


def check(said: Any, plan: Any, ran: Any) -> None:
    """Check that all have the same plan, or the same error."""
    assert said == str(plan)
    if isinstance(plan, str):
        assert ran == plan
    else:
        assert essence(ran) == essence(plan)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONDITIONS)
def test_in_process(name: str, files: tuple[str, str], in_process: Spy) -> None:
    on = CONDITIONS[name]
    for how, algorithm in cases(name, IN_PROCESS):
        check(
            outcome(by_command, files, on, how, algorithm, "--in-process"),
            outcome(dovetail.explain, *files, on, how, algorithm=algorithm),
            outcome(in_process.ran, dovetail.join, *files, on, how, algorithm=algorithm),
        )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONDITIONS)
def test_as_rows_come(name: str, files: tuple[str, str], in_process: Spy) -> None:
    on = CONDITIONS[name]
    for how, algorithm in cases(name, IN_PROCESS):
        check(
            outcome(by_command, files, on, how, algorithm, "--progressive"),
            outcome(dovetail.explain, *files, on, how, algorithm=algorithm, progressive=True),
            outcome(in_process.ran, dovetail.progressive, *files, on, how, algorithm=algorithm),
        )


def test_a_join_that_is_recorded(files: tuple[str, str], tmp_path: Path) -> None:
    """`dovetail join --record` uses the plan of `dovetail explain --progressive`, also with little memory."""
    for on, how, memory in (
        ("l.k = r.k", "inner", ()),
        ("l.k = r.k", "inner", ("--memory", "100KB")),
        ("abs(l.x - r.x) <= 0.1", "full", ("--memory", "100KB")),
    ):
        words = ["--left", files[0], "--right", files[1], "--on", on, "--how", how, *memory]
        record = ["--record", str(tmp_path / "run.jsonl"), "--out", str(tmp_path / "out"), "--overwrite"]
        run = CliRunner().invoke(app, ["join", *words, *record], catch_exceptions=False)
        assert run.exit_code == 0, run.stderr
        heading = dovetail.Recording.read(tmp_path / "run.jsonl").heading
        (tmp_path / "run.jsonl").unlink()
        assert heading is not None
        plan = dovetail.explain(*files, on, how, progressive=True, memory=memory[1] if memory else "auto")
        assert heading.plan == replace(plan, rows=None, pairs=None).explain()
        expected = ids(dovetail.join(LEFT, RIGHT, on, how).to_batches())
        assert ids(pq.read_table(tmp_path / "out").to_batches()) == expected


# On Spark.


@pytest.fixture
def on_spark(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[Spy]:
    """Plans with Python workers: for this few rows, Spark's own operators would be cheaper."""
    spy = Spy()
    monkeypatch.setattr("dovetail.spark.batch.tables.native_join", lambda *_: "not here")
    spark.conf.set("spark.dovetail.joinAtOnce", "true")
    spy.on(monkeypatch, "dovetail.spark.joins.remember_join", lambda frame, join: join.sliced.plan)
    # Does not record the rest of a join along the diagonal: that module has already imported the original function.
    spy.on(monkeypatch, "dovetail.spark.batch.tables.joined_tables", lambda inputs, bound, routed, *_: routed.plan)
    spy.on(monkeypatch, "dovetail.spark.batch.tables.join_by_spark", lambda asked, plan: plan)
    from tests.spark.samples import stub_samples  # imports PySpark

    stub_samples(monkeypatch, LEFT, RIGHT)
    yield spy
    spark.conf.unset("spark.dovetail.joinAtOnce")


@pytest.mark.one_in(2)
@pytest.mark.spark
@pytest.mark.parametrize("name", CONDITIONS)
def test_on_spark(name: str, files: tuple[str, str], on_spark: Spy, spark: SparkSession) -> None:
    on, frames = CONDITIONS[name], [spark.read.parquet(path) for path in files]
    for how, algorithm in cases(name, ON_SPARK):
        check(
            outcome(by_command, files, on, how, algorithm, "--spark"),
            outcome(dovetail.explain, *frames, on, how, algorithm=algorithm),
            outcome(on_spark.ran, dovetail.join, *frames, on, how, algorithm=algorithm),
        )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("on", "how", "algorithm"),
    [
        (CONDITIONS["two inequalities"], "full", "auto"),
        ("l.k = r.k", "left", "diag"),
        *(
            pytest.param(CONDITIONS["two inequalities"], how, "auto", marks=pytest.mark.slow)
            for how in HOW
            if how != "full"
        ),
    ],
)
def test_the_command_line_joins_as_the_api_does(
    on: str, how: str, algorithm: str, files: tuple[str, str], tmp_path: Path, spark: SparkSession
) -> None:
    words = ["join", "--left", files[0], "--right", files[1], "--on", on, "--how", how, "--algorithm", algorithm]
    run = CliRunner().invoke(app, [*words, "--spark", "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert run.exit_code == 0, run.stderr
    found = ids(pq.read_table(tmp_path / "out").to_batches())
    assert found == ids(dovetail.join(LEFT, RIGHT, on, how).to_batches())
    assert spark.range(3).count() == 3  # it must not stop the session, which it did not start


@pytest.mark.spark
def test_waves(files: tuple[str, str], spark: SparkSession) -> None:
    frames = [spark.read.parquet(path) for path in files]
    plan = dovetail.explain(*frames, "abs(l.x - r.x) <= 0.1", progressive=True, cells=8)
    assert plan.operator.name == "waves"
    assert "in a cell band: " in plan.operator.why
    assert plan.rows == (LEFT.num_rows, RIGHT.num_rows)
    assert plan.router is not None
    assert plan.router.name == "range"
    diag = dovetail.explain(*frames, "l.k = r.k", progressive=True, algorithm="diag")
    assert diag.diagonal is not None
