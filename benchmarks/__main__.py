"""python -m benchmarks [name …]: run scenarios, print the table, write the JSON beside it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from unittest import SkipTest

from benchmarks.runner import SCENARIOS, load, run
from benchmarks.table import print_report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios to run; all, if none is named")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"), help="where the figures go")
    arguments = parser.parse_args()
    known = sorted(path.stem for path in SCENARIOS.glob("*.toml"))
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no scenario is called {', '.join(unknown)}; there are {', '.join(known)}")
    reports = []
    for name in arguments.names or known:
        try:
            report = run(load(name))
        except SkipTest as reason:
            sys.stdout.write(f"{name}: skipped, {reason}\n\n")
            continue
        print_report(report)
        reports.append(report.to_json())
    arguments.json.write_text(json.dumps(reports, indent=2) + "\n")
    return 0 if all(report["met"] for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
