"""The printed claims, and the experiments that check them.

Printed claims are data: `printed/<paper>.toml` has one table per claim. An experiment is a function that is decorated
with the claims it checks and yields a finding for each of them; it runs in a separate process.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.papers.scale import Scale
from benchmarks.papers.verdicts import Finding

PRINTED = Path(__file__).with_name("printed")

PAPERS = {
    "diner": ("diner_skew", "diner_data", "diner_order", "diner_stalls"),
    "miner": ("miner",),
    "rpj": ("rpj", "rpj_stalls"),
    "diag": ("diag",),
    "pmj": ("pmj",),
    "spo": ("spo_probes", "spo_windows", "spo_cells"),
}
"""The modules with the experiments of each paper."""

Run = Callable[[Scale], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, and where it is printed."""

    name: str  # C-DN-4
    paper: str
    source: str  # figure, table or section
    printed: str
    workload: str
    operator: str  # the page in docs/operators
    asked: str  # the required outcome; marks sizes that are not from the paper
    derived: bool = False  # follows from the paper but is not stated there: not counted among its claims


@dataclass(frozen=True, slots=True)
class Experiment:
    module: str
    name: str
    claims: tuple[str, ...]
    run: Run
    timed: bool  # judged by CPU time, which depends on other loads; the others are judged by counts
    long: bool  # started first, so that it does not run alone at the end


_experiments: list[Experiment] = []


def experiment(*claims: str, timed: bool = False, long: bool = False) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        _experiments.append(Experiment(run.__module__.rpartition(".")[2], run.__name__, claims, run, timed, long))
        return run

    return register


@cache
def claims() -> dict[str, Claim]:
    found = {}
    for paper in PAPERS:
        for name, fields in tomllib.loads((PRINTED / f"{paper}.toml").read_text()).items():
            found[name] = Claim(name=name, paper=paper, **fields)
    return found


def experiments(papers: tuple[str, ...] = tuple(PAPERS)) -> list[Experiment]:
    """The experiments of some papers, in the order of their modules."""
    modules = [module for paper in papers for module in PAPERS[paper]]
    for module in modules:
        importlib.import_module(f"benchmarks.papers.{module}")
    return [each for module in modules for each in _experiments if each.module == module]


def experiment_of(module: str, name: str) -> Experiment:
    importlib.import_module(f"benchmarks.papers.{module}")
    [found] = [each for each in _experiments if each.module == module and each.name == name]
    return found
