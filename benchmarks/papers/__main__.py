"""Check the claims of the papers behind the algorithms: the printed figures, the measured ones, and a verdict.

Exit code 1 if a verdict differs from benchmarks/papers/expected.toml, 2 if the request is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.papers.scale import SCALES
from benchmarks.papers.suite import papers
from dovetail.errors import InputError


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("names", nargs="*", help="diner, miner, rpj, diag, pmj, spo; all by default")
    scales = "ci (minutes), small, or paper: the printed sizes, hours"
    parser.add_argument("--scale", choices=list(SCALES), default="ci", help=scales)
    parser.add_argument("--report", type=Path, help="an HTML file for all findings, with plots")
    parser.add_argument("--json", type=Path, dest="json_file", help="a JSON file for all findings")
    parser.add_argument("--workers", type=int, help="number of processes; by default one per core")
    parser.add_argument("--counted", action="store_true", help="only claims judged by counts, not by CPU time")
    parser.add_argument("--seeds", type=int, help="number of seeds; by default two at ci, otherwise five")
    return parser


def main() -> int:
    parser = build_parser()
    try:
        return 0 if papers(**vars(parser.parse_args()), console=Console()) else 1
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
