"""Runs all or some scenarios, each in a separate process, then prints a table and writes the figures as JSON.

    python -m benchmarks [name …]         make bench

In a separate process, every scenario starts with fresh memory, and libraries read the number of threads they may use.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.machine import describe_machine, versions
from benchmarks.runner import known, load
from benchmarks.table import print_header, print_list, print_outcome, print_table
from dovetail.errors import InputError

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")
PEERS = ("duckdb", "polars", "scipy", "shapely")
PACKAGES = ("numba", "numpy", "pyarrow", *PEERS)
ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def list_scenarios(console: Console) -> None:
    print_list(console, [load(name) for name in known()])


def bench(names: Sequence[str], file: Path | None, console: Console) -> bool:
    """Run the scenarios. Returns whether all requirements are met."""
    unknown = [name for name in names if name not in known()]
    if unknown:
        raise InputError(f"no scenario is called {', '.join(unknown)}; there are {', '.join(known())}.")
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"the benchmarks need {', '.join(missing)}, which Dovetail itself does not: run `make bench`, "
            "or `pip install --group bench` in the checkout."
        )
    started = datetime.now().astimezone()
    file = file or RESULTS / f"{started:%Y-%m-%d-%H%M%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    machine = describe_machine() | {"versions": versions(("dovetail-joins", *PACKAGES))}
    print_header(console, machine)
    outcomes = []
    for name in names or known():
        with console.status(f"{name}: {load(name).title}"):
            outcome = run_alone(name)
        outcomes.append(outcome)
        print_outcome(console, outcome)
        figures = {"started": started.isoformat(timespec="seconds"), "machine": machine, "scenarios": outcomes}
        file.write_text(json.dumps(figures, indent=2) + "\n")
    print_table(console, outcomes)
    console.print(f"figures in {file}", highlight=False, soft_wrap=True)
    return all(outcome.get("met", "skipped" in outcome) for outcome in outcomes)


def run_alone(name: str) -> dict[str, Any]:
    """The report of one scenario; without figures if it was skipped or failed, with the reason."""
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as place:
        file = Path(place) / "report.json"
        command = [sys.executable, "-m", "benchmarks.runner", name, str(file)]
        environment = os.environ | ONE_THREAD
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if child.returncode == 0:
            report: dict[str, Any] = json.loads(file.read_text())
            return report
    last = (child.stderr.strip() or f"exit code {child.returncode}").splitlines()[-1]
    return {"scenario": name, "failed": last}
