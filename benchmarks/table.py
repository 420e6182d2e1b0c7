"""Prints figures to the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.runner import Scenario

Outcome = dict[str, Any]  # a report, as JSON


def print_list(console: Console, scenarios: Sequence[Scenario]) -> None:
    table = Table.grid(padding=(0, 2))
    for scenario in scenarios:
        table.add_row(f"[bold]{scenario.name}[/]", scenario.title)
    console.print(table)


def print_header(console: Console, machine: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    loads = " ".join(f"{load:.2f}" for load in machine["load"])
    console.print(
        f"{machine['cpus']} x {machine['cpu']}, {machine['system']}, load {loads}\n"
        f"Python {machine['python']}, {versions}\n",
        highlight=False,
        soft_wrap=True,
    )


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print one line when a scenario is done."""
    if "checks" in outcome:
        medians = ", ".join(f"{name} {_seconds(value)}" for name, value in outcome["medians"].items())
        line = f"{_mark(outcome['met'])}, {medians}"
    else:
        line = _no_figures(outcome)
    console.print(f"[bold]{outcome['scenario']}[/]: {line}", highlight=False, soft_wrap=True)


def print_table(console: Console, outcomes: Sequence[Outcome]) -> None:
    table = Table(box=SIMPLE_HEAD, caption="medians; ratio: slower / faster as asked (≥), or ours / theirs (≤)")
    table.add_column("scenario", no_wrap=True)
    for name in ("ours", "peer", "ratio", "asked", "", "memory"):
        table.add_column(name, justify="right" if name in ("ratio", "memory") else "left")
    for outcome in outcomes:
        for check in outcome.get("checks", ()):
            table.add_row(outcome["scenario"], *_cells(outcome["medians"], check))
        if "checks" not in outcome:
            table.add_row(outcome["scenario"], "", "", "", "", "skipped" if "skipped" in outcome else "[red]failed[/]")
    console.print()
    console.print(table)


def _cells(medians: dict[str, float], check: dict[str, Any]) -> list[str]:
    ours, peer, value, asked, met = check["ours"], check["peer"], check["value"], check["asked"], _mark(check["met"])
    if peer is None:
        return [ours, "", "", asked, met, f"{value / 1e9:.2f} GB"]
    times = [f"{name} {_seconds(medians[name])}" for name in (ours, peer)]
    return [*times, f"{value:.2f}", asked, met, ""]


def _no_figures(outcome: Outcome) -> str:
    if "skipped" in outcome:
        return f"[yellow]skipped[/], {outcome['skipped']}"
    return f"[bold red]failed[/], {outcome['failed']}"


def _mark(met: bool) -> str:
    return "[green]met[/]" if met else "[bold red]missed[/]"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
