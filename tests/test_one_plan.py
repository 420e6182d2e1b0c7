"""The command line, `explain` and what runs have one plan: every class of condition, join type and engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.test_planner import CONDITIONS, HOW, LEFT, RIGHT, ids
from typer.testing import CliRunner

import dovetail
from dovetail import api
from dovetail.cli import app
from dovetail.errors import DovetailError
from dovetail.plan import JoinPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED = ("nested_loop", "shj", "xjoin", "diner", "pmj", "spo", "diag")


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
    return run.stdout.rstrip()


def outcome(of: Callable[[], Any]) -> Any:
    """What it gives, or what is said against it."""
    try:
        return of()
    except DovetailError as error:
        return str(error)


class Spy:
    """The plans that reach the functions that run them."""

    def __init__(self) -> None:
        self.plans: list[JoinPlan] = []

    def on(self, monkeypatch: pytest.MonkeyPatch, where: str, plan_of: Callable[..., JoinPlan]) -> None:
        module, _, name = where.rpartition(".")
        run = getattr(pytest.importorskip(module), name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self.plans.append(plan_of(*arguments))
            return run(*arguments, **options)

        monkeypatch.setattr(where, watched)

    def ran(self, run: Callable[[], Any]) -> JoinPlan:
        """The plan of what runs; of several passes, the first."""
        self.plans.clear()
        run()
        return self.plans[0]


def first(plan: JoinPlan, *_: Any) -> JoinPlan:
    return plan


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    for name in ("join_tables", "join_along_diagonal", "join_progressively"):
        spy.on(monkeypatch, f"dovetail.api.{name}", first)
    return spy


def essence(plan: JoinPlan) -> tuple[Any, ...]:
    """All that decides on what is done."""
    chosen = (plan.operator, plan.at_rest, plan.diagonal, plan.router, plan.cells, plan.tasks, plan.memory_bytes)
    return (*chosen, plan.condition.text, plan.driven, plan.checked, plan.parameters)


@pytest.mark.parametrize("name", CONDITIONS)
def test_in_process(name: str, files: tuple[str, str], in_process: Spy) -> None:
    on = CONDITIONS[name]
    for how in HOW:
        for algorithm in ("auto", *NAMED):
            said = outcome(lambda: by_command(files, on, how, algorithm, "--in-process"))  # noqa: B023
            plan = outcome(lambda: dovetail.explain(*files, on, how, algorithm=algorithm))  # noqa: B023
            assert said == str(plan)
            ran = outcome(lambda: in_process.ran(lambda: dovetail.join(*files, on, how, algorithm=algorithm)))  # noqa: B023
            if isinstance(plan, str):
                assert ran == plan
            else:
                assert essence(ran) == essence(plan)
                assert ran.how == plan.how == how


@pytest.mark.parametrize("name", CONDITIONS)
def test_as_rows_come(name: str, files: tuple[str, str], in_process: Spy) -> None:
    on = CONDITIONS[name]
    for how in HOW:
        for algorithm in ("auto", *NAMED):
            said = outcome(lambda: by_command(files, on, how, algorithm, "--progressive"))  # noqa: B023
            plan = outcome(lambda: dovetail.explain(*files, on, how, algorithm=algorithm, progressive=True))  # noqa: B023
            assert said == str(plan)
            ran = outcome(
                lambda: in_process.ran(lambda: api.progressive(*files, on, how, algorithm=algorithm))  # noqa: B023
            )
            if isinstance(plan, str):
                assert ran == plan
            else:
                assert essence(ran) == essence(plan)


def test_a_join_that_is_recorded(files: tuple[str, str], tmp_path: Path) -> None:
    """`dovetail join --record` takes what `dovetail explain --progressive` says, also with little memory."""
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
def on_spark(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    spy.on(monkeypatch, "dovetail.spark.joins.joined_tables", lambda inputs, bound, routed, output: routed.plan)
    spy.on(monkeypatch, "dovetail.spark.joins.remember_join", lambda frame, join: join.sliced.plan)
    return spy


@pytest.mark.spark
@pytest.mark.parametrize("name", CONDITIONS)
def test_on_spark(name: str, files: tuple[str, str], on_spark: Spy, spark: SparkSession) -> None:
    on, frames = CONDITIONS[name], [spark.read.parquet(path) for path in files]
    for how, algorithm in cases():
        plan = outcome(lambda: dovetail.explain(*frames, on, how, algorithm=algorithm))  # noqa: B023
        assert outcome(lambda: by_command(files, on, how, algorithm)) == str(plan)  # noqa: B023
        ran = outcome(lambda: on_spark.ran(lambda: dovetail.join(*frames, on, how, algorithm=algorithm)))  # noqa: B023
        if isinstance(plan, str):
            assert ran == plan
        else:
            assert essence(ran) == essence(plan)
            assert plan.how == how


def cases() -> Iterator[tuple[str, str]]:
    """Join types by auto and diag, which give all of them; inner joins by all algorithms; one that is refused."""
    yield from ((how, algorithm) for how in HOW for algorithm in ("auto", "diag"))
    yield from (("inner", algorithm) for algorithm in NAMED if algorithm != "diag")
    yield "left", "pmj"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("on", "how", "algorithm"),
    [*(("l.x < r.x - 50 AND l.y > r.y + 45", how, "auto") for how in HOW), ("l.k = r.k", "left", "diag")],
)
def test_the_command_line_joins_as_the_api_does(
    on: str, how: str, algorithm: str, files: tuple[str, str], tmp_path: Path, spark: SparkSession
) -> None:
    words = ["join", "--left", files[0], "--right", files[1], "--on", on, "--how", how, "--algorithm", algorithm]
    run = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert run.exit_code == 0, run.stderr
    found = ids(pa.Table.from_batches(pq.read_table(tmp_path / "out").to_batches()).to_batches())
    assert found == ids(dovetail.join(LEFT, RIGHT, on, how).to_batches())
    assert spark.range(3).count() == 3  # the session is not its own to stop


@pytest.mark.spark
def test_waves(files: tuple[str, str], spark: SparkSession) -> None:
    frames = [spark.read.parquet(path) for path in files]
    plan = dovetail.explain(*frames, "abs(l.x - r.x) <= 0.1", progressive=True, cells=8)
    assert plan.operator.name == "waves"
    assert "in a cell band: " in plan.operator.why
    assert plan.rows == (LEFT.num_rows, RIGHT.num_rows)
    assert plan.router is not None
    assert plan.router.name == "range"
    assert Counter(type(step).__name__ for step in dovetail.progressive(*frames, "l.k = r.k", cells=8))["Step"]
    diag = dovetail.explain(*frames, "l.k = r.k", progressive=True, algorithm="diag")
    assert diag.diagonal is not None
