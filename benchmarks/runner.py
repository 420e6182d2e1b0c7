"""Run one scenario: prepare, compare the answers, then time the contenders in turn.

A scenario is a small TOML file:

    title = "…"
    measure = "cpu" | "wall" | "own"    # CPU time of this process, or elapsed time if other processes do the work;
                                        # "own": the contender measures itself and returns (answer, seconds)
    repeat = 5
    prepare = "module:function"         # returns the data; gets [data] as keyword arguments
    [data]
    …
    [contenders]
    name = "module:function"            # takes the data; returns an answer that must be the same for all
    [[expect]]
    ratio = ["slower", "faster"]        # median of the first / median of the second
    at_least = 2.0                      # the second is ours; with at_most, the first
    [[expect]]
    peak_memory = "name"                # the peak memory of its first run, on top of the data
    at_most_bytes = 2_000_000_000

Ratios compare medians of several runs, made in turn on one machine; only ratios are comparable between machines.

`python -m benchmarks.runner NAME FILE` runs one scenario in this process and writes its report as JSON.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import SkipTest

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


@dataclass(frozen=True, slots=True)
class Check:
    """A requirement on our contender, and whether it is met."""

    ours: str
    peer: str | None  # None for a requirement on memory
    value: float  # a ratio of medians, or bytes
    asked: str
    met: bool


@dataclass(slots=True)
class Report:
    scenario: Scenario
    seconds: dict[str, list[float]] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    result_rows: int | None = None  # if the answer includes them

    def median(self, contender: str) -> float:
        return statistics.median(self.seconds[contender])

    def checks(self) -> Iterator[Check]:
        for expected in self.scenario.expect:
            if "peak_memory" in expected:
                ours, most = expected["peak_memory"], expected["at_most_bytes"]
                peak = self.peak_bytes[ours]
                yield Check(ours, None, peak, f"≤ {most / 1e9:.3g} GB", peak <= most)
                continue
            first, second = expected["ratio"]
            ratio = self.median(first) / self.median(second)
            if "at_least" in expected:
                least = expected["at_least"]
                yield Check(second, first, ratio, f"≥ {least:g}", ratio >= least)
            else:
                most = expected["at_most"]
                yield Check(first, second, ratio, f"≤ {most:g}", ratio <= most)

    def to_json(self) -> dict[str, Any]:
        checks = list(self.checks())
        return {
            "scenario": self.scenario.name,
            "title": self.scenario.title,
            "measure": self.scenario.measure,
            "data": self.scenario.data,
            "seconds": self.seconds,
            "medians": {name: self.median(name) for name in self.seconds},
            "peak_bytes": self.peak_bytes,
            "result_rows": self.result_rows,
            "checks": [asdict(check) for check in checks],
            "met": all(check.met for check in checks),
        }


def known() -> list[str]:
    """The names of all scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def load(name: str) -> Scenario:
    fields = tomllib.loads((SCENARIOS / f"{name}.toml").read_text())
    return Scenario(name=name, **fields)


def run(scenario: Scenario) -> Report:
    data = _find(scenario.prepare)(**scenario.data)
    contenders = {name: _find(path) for name, path in scenario.contenders.items()}
    report = Report(scenario, {name: [] for name in contenders})
    weighed = any("peak_memory" in expected for expected in scenario.expect)
    answers = {}
    for name, contender in contenders.items():  # also warms up
        before = _resident_bytes(reset_peak=True) if weighed else 0
        answers[name] = _timed(scenario, contender, data)[0]
        if weighed:
            report.peak_bytes[name] = _resident_bytes() - before
    first = next(iter(answers))
    for name, answer in answers.items():
        if answer != answers[first]:
            raise AssertionError(f"{scenario.name}: {name} answers {answer}, {first} answers {answers[first]}")
    report.result_rows = getattr(answers[first], "rows", None)
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


def _resident_bytes(reset_peak: bool = False) -> int:
    """The peak memory of this process so far, or since it was last reset."""
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5")
    [line] = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _find(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def main(name: str, file: str) -> None:
    try:
        report = run(load(name)).to_json()
    except SkipTest as reason:
        report = {"scenario": name, "skipped": str(reason)}
    Path(file).write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
