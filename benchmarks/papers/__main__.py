"""python -m benchmarks.papers [name …]: the claims of these papers, or of all of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from rich.console import Console

from benchmarks.papers.claims import print_claims

PAPERS = ("diag", "diner", "miner", "pmj", "rpj", "spo")  # modules with a TITLE and claims()


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in PAPERS]
    if unknown:
        print(f"no paper is called {', '.join(unknown)}; there are {', '.join(PAPERS)}.", file=sys.stderr)
        return 2
    console = Console()
    for name in names or PAPERS:
        paper = importlib.import_module(f"benchmarks.papers.{name}")
        console.print(f"[bold]{paper.TITLE}[/]")
        print_claims(console, paper.claims())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
