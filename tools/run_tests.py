"""Run parts of the test suite one after the other, whatever fails, and end with one summary.

python tools/run_tests.py core kernels spark

The exit code is 1 if a test failed, or if a part did not run to its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "build" / "tests"

# Tests of one file share what they compute, and the kernels that they compile.
PARALLEL = ("--numprocesses", "auto", "--maxprocesses", "4", "--dist", "loadfile")


def files_with_spark_tests() -> list[str]:
    """Only these are collected. They run in this order, because those with few tests are not the short ones."""
    return sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.spark" in path.read_text(encoding="utf-8")
    )


def no_files() -> list[str]:
    return []


class Part(NamedTuple):
    title: str
    options: tuple[str, ...] = PARALLEL
    files: Callable[[], list[str]] = no_files
    environment: Mapping[str, str] = {}


# Two JVMs side by side: each waits for its Python workers half of the time.
ON_SPARK = ("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder")

PARTS = {
    "core": Part("tests without Spark"),
    # As plain Python, an index out of bounds is an IndexError.
    "kernels": Part("kernels as plain Python", (*PARALLEL, "tests/kernels"), environment={"NUMBA_DISABLE_JIT": "1"}),
    # The same cases once more, compiled with bounds checks: sizes and overflows of machine code, where plain Python
    # has integers without end. Numba's cache does not tell code with bounds checks from code without.
    "bounds": Part(
        "kernels with bounds checks",
        (*PARALLEL, "tests/kernels"),
        environment={
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": str(ROOT / "build" / "numba-boundscheck"),
        },
    ),
    "spark": Part("tests on Spark", (*ON_SPARK, "-m", "spark and not slow"), files_with_spark_tests),
    "slow": Part("slow tests without Spark", (*PARALLEL, "--dist", "worksteal", "-m", "slow and not spark")),
    "slow-spark": Part("slow tests on Spark", (*ON_SPARK, "-m", "slow and spark"), files_with_spark_tests),
}


class Outcome(NamedTuple):
    counts: Counter[str]
    failures: list[str]
    seconds: float
    exit_code: int

    @property
    def ended_early(self) -> bool:
        """Stopped by something else than a failing test: a crash, an interrupt, an error of pytest's own."""
        return self.exit_code not in (0, 1)


def run(name: str) -> Outcome:
    part = PARTS[name]
    print(f"==> {part.title}", flush=True)  # noqa: T201
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *part.options, *part.files()]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **part.environment}, check=False)
    seconds = time.monotonic() - began
    counts, failures = read_report(report)
    return Outcome(counts, failures, seconds, done.returncode)


def read_report(report: Path) -> tuple[Counter[str], list[str]]:
    """How many tests passed, failed and were skipped, and the names of those that failed."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    if not report.exists():
        return counts, failures
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            counts["failed"] += 1
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            counts["skipped" if "skipped" in kinds else "passed"] += 1
    return counts, failures


def summarise(outcomes: Mapping[str, Outcome]) -> list[str]:
    lines = ["", "==> summary"]
    for name, (counts, _, seconds, _) in outcomes.items():
        tests = f"{counts['passed']:,} passed, {counts['failed']:,} failed, {counts['skipped']:,} skipped"
        early = f"; did not run to its end (exit code {outcomes[name].exit_code})" if outcomes[name].ended_early else ""
        lines.append(f"{PARTS[name].title:<26} {tests}, {seconds:.0f} s{early}")
    lines += [f"FAILED {failure}" for outcome in outcomes.values() for failure in outcome.failures]
    total = sum((outcome.counts for outcome in outcomes.values()), Counter[str]())
    lines.append(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return lines


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        print(f"usage: run_tests.py {{{','.join(PARTS)}}} ...", file=sys.stderr)  # noqa: T201
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    outcomes = {name: run(name) for name in names}
    print("\n".join(summarise(outcomes)), flush=True)  # noqa: T201
    return int(any(outcome.exit_code for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
