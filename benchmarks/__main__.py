"""Run the benchmarks against other systems: our figures, their figures, and whether each floor is met.

Exit code 1 if a floor is missed, 2 if the request is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.suite import bench, list_scenarios
from dovetail.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios to run; all by default")
    parser.add_argument("--json", type=Path, help="the output file for the figures; by default in benchmarks/results/")
    parser.add_argument("--list", action="store_true", dest="only_list", help="list the scenarios")
    given = parser.parse_args(arguments)
    try:
        if given.only_list:
            list_scenarios(Console())
            return 0
        return 0 if bench(given.names, given.json, Console()) else 1
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
