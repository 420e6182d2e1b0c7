"""Run parts of the test suite, even if some of them fail, and print one summary at the end.

    python -m tools.run_tests core kernels spark
    python -m tools.run_tests core --seed 7    # with the random examples of an earlier run
    python -m tools.run_tests slow --part 2/4  # the second quarter of the slow tests

Parts on Spark run alongside the others, since they wait for their JVM half of the time. The exit code is 1 if a test
failed or a part did not finish.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tools.java_options import archive_classes

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "build" / "tests"

# Tests of one file share computed results and compiled kernels.
PARALLEL = ("--numprocesses", "auto", "--maxprocesses", "4", "--dist", "loadfile")


def files_with_spark_tests() -> list[str]:
    """The only files to collect. They run in this order, because files with few tests are not the quick ones."""
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

    @property
    def on_spark(self) -> bool:
        return self.files is files_with_spark_tests


# Two JVMs at a time: each waits for its Python workers half of the time. Spark gives a worker ten seconds to start, and
# under load that may not be enough.
ON_SPARK = (
    *("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
    *("--reruns", "5", "--only-rerun", "Python worker failed to connect back"),
)

PARTS = {
    "core": Part("tests without Spark"),
    # In plain Python, an index out of bounds raises an IndexError.
    "kernels": Part("kernels as plain Python", (*PARALLEL, "tests/kernels"), environment={"NUMBA_DISABLE_JIT": "1"}),
    # The same cases, compiled with bounds checks, cover integer overflow, which plain Python does not have. They need
    # a cache of their own, because Numba's cache does not distinguish code with bounds checks from code without.
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
        """Whether the run stopped for a reason other than failing tests: a crash, an interrupt, an error in pytest."""
        return self.exit_code not in (0, 1)


def run(name: str, options: Sequence[str], *, behind: bool) -> Outcome:
    """Run one part. If another runs at the same time (`behind`), its output is shown when it has finished."""
    part = PARTS[name]
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *options, *part.options, *part.files()]
    began = time.monotonic()
    if not behind:
        print(f"==> {part.title}", flush=True)  # noqa: T201
    with ExitStack() as stack:
        printed = stack.enter_context(tempfile.TemporaryFile()) if behind else None
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **part.environment},
            check=False,
            stdout=printed,
            stderr=printed,
        )
        if printed is not None:
            printed.seek(0)
            print(f"==> {part.title}\n{printed.read().decode(errors='replace')}", flush=True)  # noqa: T201
    seconds = time.monotonic() - began
    counts, failures = read_report(report)
    return Outcome(counts, failures, seconds, done.returncode)


def compile_kernels() -> None:
    """Compile once, on all cores: otherwise each of several processes would compile the kernels itself."""
    print("==> kernels", flush=True)  # noqa: T201
    subprocess.run([sys.executable, "-m", "dovetail.cli", "warmup"], cwd=ROOT, check=False)


def run_on_spark(names: Sequence[str], options: Sequence[str], *, behind: bool) -> dict[str, Outcome]:
    if "slow-spark" in names:  # it starts Java a hundred times; the quick tests start it too rarely to make up for it
        archive_classes(ROOT / "build")
    return {name: run(name, options, behind=behind) for name in names}


def run_all(names: Sequence[str], options: Sequence[str]) -> dict[str, Outcome]:
    """Run the parts on Spark alongside the others; within each group, one part after the other."""
    on_spark = [name for name in names if PARTS[name].on_spark]
    others = [name for name in names if name not in on_spark]
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(run_on_spark, on_spark, options, behind=bool(others))
        outcomes = {name: run(name, options, behind=False) for name in others} | beside.result()
    return {name: outcomes[name] for name in names}


def read_report(report: Path) -> tuple[Counter[str], list[str]]:
    """The numbers of tests that passed, failed and were skipped, and the names of those that failed."""
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


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("run_tests.py")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--part", metavar="K/N")
    asked = parser.parse_args(arguments)
    REPORTS.mkdir(parents=True, exist_ok=True)
    os.environ["DOVETAIL_TEST_SEED"] = str(asked.seed)
    if len(asked.parts) > 1:
        compile_kernels()
    outcomes = run_all(asked.parts, [f"--part={asked.part}"] if asked.part else [])
    print("\n".join([*summarise(outcomes), f"seed {asked.seed}: make test SEED={asked.seed}"]), flush=True)  # noqa: T201
    return int(any(outcome.exit_code for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
