"""Slow tests, and cases of marked tests, are part of one in several runs; all others are part of every run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import effort, seed, turns

ROOT = Path(__file__).parents[1]
TESTS = {"tests/a.py::test_quick": 0.0, "tests/a.py::test_long": 9.0, "tests/a.py::test_longer": 30.0}
TESTS |= {"tests/b.py::test_cases": 3.0, "tests/b.py::test_marked": 0.0, "tests/b.py::test_slow": 90.0}


class Item(SimpleNamespace):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.nodeid)


def items() -> list[Any]:
    def made(nodeid: str, **marks: int) -> Item:
        found = {name: SimpleNamespace(args=(value,)) for name, value in marks.items()}
        return Item(nodeid=nodeid, get_closest_marker=found.get, user_properties=[])

    single = [made(f"tests/a.py::test_{name}") for name in ("quick", "long", "longer")]
    cases = [made(f"tests/b.py::test_cases[{number}]") for number in range(6)]
    marked = [made(f"tests/b.py::test_marked[{number}]", one_in=5) for number in range(5)]
    return [*single, *cases, *marked, made("tests/b.py::test_slow", slow=1)]


def run(number: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(seed, "SEED", number)
    return [one.nodeid.partition("::")[2] for one in turns.in_turns(items())]


@pytest.fixture(autouse=True)
def part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "ALL", False)
    monkeypatch.setattr(turns, "SECONDS", TESTS)


def test_every_test_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run(number, monkeypatch) for number in range(40)]
    for names in runs:
        assert {"test_quick", "test_slow"} <= set(names)
        assert len({"test_long", "test_longer"} & set(names)) <= 1
        assert sum(name.startswith("test_cases") for name in names) == 3
        assert sum(name.startswith("test_marked") for name in names) == 1
    assert {name for names in runs for name in names} == {one.nodeid.partition("::")[2] for one in items()}


def test_a_case_stands_for_those_that_had_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed, "SEED", 1)
    stands_for = {one.nodeid.partition("::")[2]: dict(one.user_properties) for one in turns.in_turns(items())}
    assert all(has == {"stands for": 2} for name, has in stands_for.items() if name.startswith("test_cases"))
    assert not any(has for name, has in stands_for.items() if name.startswith(("test_quick", "test_slow")))


def test_all_run_where_all_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "ALL", True)
    assert len(turns.in_turns(items())) == len(items())


def test_each_name_of_the_file_is_a_test() -> None:
    for name in json.loads((ROOT / "tests" / "seconds.json").read_text(encoding="utf-8")):
        file, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), name
