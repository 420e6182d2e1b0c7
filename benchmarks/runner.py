"""Run one scenario: prepare, compare the answers, then time the contenders in turn.

A scenario is a small TOML file:

    title = "…"
    measure = "cpu" | "wall" | "own"    # CPU time of this process, or elapsed time where other processes do the work;
                                        # "own": the contender returns (answer, seconds) and has measured by itself
    repeat = 5
    prepare = "module:function"         # gives the data, from [data] as keyword arguments
    [data]
    …
    [contenders]
    name = "module:function"            # takes the data; returns an answer that must be equal for all
    [[expect]]
    ratio = ["slower", "faster"]        # median of the first / median of the second
    at_least = 2.0                      # or at_most

Ratios come from one run on one machine, contenders in turn, medians of several: the only figures that travel.
"""

from __future__ import annotations

import importlib
import statistics
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).with_name("scenarios")

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}
Contender = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    measure: str
    repeat: int
    prepare: str
    data: dict[str, Any]
    contenders: dict[str, str]
    expect: list[dict[str, Any]]


@dataclass(slots=True)
class Report:
    scenario: Scenario
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, contender: str) -> float:
        return statistics.median(self.seconds[contender])

    def checks(self) -> list[tuple[str, float, str, bool]]:
        """(which ratio, its value, what it should be, whether it is)"""
        rows = []
        for expected in self.scenario.expect:
            first, second = expected["ratio"]
            ratio = self.median(first) / self.median(second)
            if "at_least" in expected:
                wanted, met = f"at least {expected['at_least']:g}", ratio >= expected["at_least"]
            else:
                wanted, met = f"at most {expected['at_most']:g}", ratio <= expected["at_most"]
            rows.append((f"{first} / {second}", ratio, wanted, met))
        return rows

    def to_json(self) -> dict[str, Any]:
        checks = self.checks()
        return {
            "scenario": self.scenario.name,
            "title": self.scenario.title,
            "measure": self.scenario.measure,
            "data": self.scenario.data,
            "seconds": self.seconds,
            "ratios": [{"ratio": r, "value": round(v, 3), "expected": w, "met": m} for r, v, w, m in checks],
            "met": all(met for _, _, _, met in checks),
        }


def load(name: str) -> Scenario:
    fields = tomllib.loads((SCENARIOS / f"{name}.toml").read_text())
    return Scenario(name=name, **fields)


def run(scenario: Scenario) -> Report:
    data = _find(scenario.prepare)(**scenario.data)
    contenders = {name: _find(path) for name, path in scenario.contenders.items()}
    answers = {name: _timed(scenario, contender, data)[0] for name, contender in contenders.items()}  # also warms up
    first = next(iter(answers))
    for name, answer in answers.items():
        if answer != answers[first]:
            raise AssertionError(f"{scenario.name}: {name} answers {answer}, {first} answers {answers[first]}")
    report = Report(scenario, {name: [] for name in contenders})
    for _ in range(scenario.repeat):
        for name, contender in contenders.items():
            report.seconds[name].append(_timed(scenario, contender, data)[1])
    return report


def _timed(scenario: Scenario, contender: Contender, data: Any) -> tuple[Any, float]:
    if scenario.measure == "own":
        answer, seconds = contender(data)
        return answer, seconds
    clock = CLOCKS[scenario.measure]
    started = clock()
    return contender(data), clock() - started


def _find(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
