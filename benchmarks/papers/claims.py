"""A claim in print beside what comes out here, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


class Claim(NamedTuple):
    source: str  # where in the paper
    in_print: str
    here: str
    holds: bool | None  # None: nobody judged


def print_claims(console: Console, claims: Iterable[Claim]) -> None:
    table = Table(box=SIMPLE_HEAD, caption="holds: in its direction; sizes in print belong to other machines and data")
    for name in ("claim", "in print", "here", "holds"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        mark = "" if claim.holds is None else "[green]yes[/]" if claim.holds else "[bold red]no[/]"
        table.add_row(claim.source, claim.in_print, claim.here, mark)
    console.print(table)
