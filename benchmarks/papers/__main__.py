"""python -m benchmarks.papers: as `dovetail papers`, for those who have the checkout only."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.papers.scale import SCALES
from benchmarks.papers.suite import papers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", choices=list(SCALES), default="ci")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--json", type=Path, dest="json_file")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--counted", action="store_true")
    parser.add_argument("--seeds", type=int)
    given = parser.parse_args()
    return 0 if papers(**vars(given), console=Console()) else 1


if __name__ == "__main__":
    sys.exit(main())
