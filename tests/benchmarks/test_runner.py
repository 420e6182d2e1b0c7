import json
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.runner import Check, Report, Scenario
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import runner, suite
from dovetail import cli
from dovetail.errors import InputError

SCENARIO = Scenario(
    name="lengths",
    title="Two ways to count",
    measure="cpu",
    repeat=3,
    prepare="builtins:dict",
    data={"a": 1, "b": 2},
    contenders={"ours": "builtins:len", "theirs": "benchmarks.runner:len"},
    expect=[
        {"ratio": ["theirs", "ours"], "at_least": 2.0},
        {"ratio": ["ours", "theirs"], "at_most": 0.4},
        {"peak_memory": "ours", "at_most_bytes": 10**9},
    ],
)


@pytest.fixture
def lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "len", len, raising=False)
    monkeypatch.setattr(runner, "SCENARIOS", tmp_path)


@pytest.mark.usefixtures("lengths")
def test_contenders_run_in_turn() -> None:
    report = runner.run(SCENARIO)
    assert {name: len(seconds) for name, seconds in report.seconds.items()} == {"ours": 3, "theirs": 3}
    assert report.peak_bytes["ours"] >= 0
    assert json.loads(json.dumps(report.to_json()))["checks"][2]["met"]


@pytest.mark.usefixtures("lengths")
def test_different_answers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "len", lambda data: 3)
    with pytest.raises(AssertionError, match="theirs answers 3, ours answers 2"):
        runner.run(SCENARIO)


def test_checks() -> None:
    report = Report(SCENARIO, {"ours": [1.0, 9.0, 2.0], "theirs": [4.0, 3.0, 5.0]}, {"ours": 2 * 10**9, "theirs": 0})
    assert list(report.checks()) == [
        Check("ours", "theirs", 2.0, "≥ 2", True),
        Check("ours", "theirs", 0.5, "≤ 0.4", False),
        Check("ours", None, 2 * 10**9, "≤ 1 GB", False),
    ]


@pytest.mark.parametrize(
    ("outcome", "met"),
    [
        ({"skipped": "no data"}, True),
        ({"failed": "ValueError: no"}, False),
        (Report(SCENARIO, {"ours": [1.0], "theirs": [2.0]}, {"ours": 0}).to_json(), False),
    ],
)
def test_outcomes(outcome: dict[str, object], met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "run_alone", lambda name: {"scenario": name} | outcome)
    console = Console(record=True, width=100, quiet=True)
    name = runner.known()[0]
    assert suite.bench([name], tmp_path / "new" / "figures.json", console) is met
    figures = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert figures["machine"]["versions"]["numba"]
    assert [scenario["scenario"] for scenario in figures["scenarios"]] == [outcome.get("scenario", name)]


def test_wrong_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no scenario is called nothing"):
        suite.bench(["nothing"], None, Console(quiet=True))
    monkeypatch.setattr(suite, "PEERS", ("no_such_peer",))
    with pytest.raises(InputError, match="need no_such_peer"):
        suite.bench([], None, Console(quiet=True))


@pytest.mark.parametrize(("command", "module"), [("bench", "benchmarks"), ("papers", "benchmarks.papers")])
def test_the_old_commands_say_what_to_run(command: str, module: str) -> None:
    done = CliRunner().invoke(cli.app, [command, "name", "--json", "file"])
    assert isinstance(done.exception, InputError)
    assert f"run `python -m {module}` in a checkout" in str(done.exception)


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "inequality_count" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    assert "no scenario is called nothing" in capsys.readouterr().err


def test_every_scenario_names_its_contenders() -> None:
    names = runner.known()
    assert "inequality_count" in names
    for name in names:
        scenario = runner.load(name)
        asked = [expected.get("ratio", [expected.get("peak_memory")]) for expected in scenario.expect]
        assert {contender for names in asked for contender in names} <= set(scenario.contenders)
