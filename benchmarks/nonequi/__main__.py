"""Run the benchmark of joins without equal keys, or write its page.

python -m benchmarks.nonequi run --rows 100000 --json FILE [--cases …] [--contenders …] [--outputs …]
python -m benchmarks.nonequi page FILE
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.nonequi.case import OUTPUTS
from benchmarks.nonequi.cases import CASES
from benchmarks.nonequi.contenders import CONTENDERS
from benchmarks.nonequi.environments import ROOT
from benchmarks.nonequi.limits import Limits
from benchmarks.nonequi.page import write_page
from benchmarks.nonequi.runner import NO_FIGURES, Entry, read, run_all

DATA = ROOT / "build" / "nonequi"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nonequi", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run cases; entries that are already in the file are not run again")
    run.add_argument("--rows", type=int, nargs="+", default=[100_000], help="sizes of the tables")
    run.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    run.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME",
        help=", ".join(CONTENDERS),
    )  # fmt: skip
    run.add_argument("--outputs", nargs="+", choices=OUTPUTS, default=list(OUTPUTS))
    run.add_argument("--runs", type=int, default=3, help="runs of each entry, in one process; the page shows medians")
    run.add_argument("--cpu", type=float, default=Limits.cpu_s, help="CPU seconds that a run may take")
    run.add_argument("--memory", type=float, default=Limits.memory_bytes / 1e9, help="gigabytes that a run may take")
    run.add_argument("--data", type=Path, default=DATA, help="directory for the tables")
    run.add_argument("--json", type=Path, required=True, help="the output file for the figures")
    page = commands.add_parser("page", help="write docs/nonequi.md and its plots")
    page.add_argument("json", type=Path, help="the figures of a run")
    given = parser.parse_args(arguments)
    if given.command == "page":
        write_page(read(given.json))
        return
    run_all(
        [CASES[name] for name in given.cases],
        given.contenders,
        given.rows,
        given.outputs,
        runs=given.runs,
        limits=Limits(given.cpu, int(given.memory * 1e9)),
        data=given.data,
        file=given.json,
        report=print_entry,
    )


def print_entry(entry: Entry) -> None:
    word = next((word for word in NO_FIGURES if word in entry), None)
    if word:
        said = f"{word}: {entry[word]}"
    else:
        cpu, wall = (statistics.median(run[name] for run in entry["runs"]) for name in ("cpu_s", "wall_s"))
        peak = max(run["peak_bytes"] for run in entry["runs"])
        said = f"{cpu:.3f} CPU s, {wall:.3f} s, {peak / 1e6:,.0f} MB, {entry['answer']['rows']:,} rows"
    print(f"{entry['case']:16}{entry['contender']:16}{entry['output']:7}{said}", flush=True)


if __name__ == "__main__":
    main()
