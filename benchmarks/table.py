"""A report as a table on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.runner import Report

console = Console()


def print_report(report: Report) -> None:
    scenario = report.scenario
    times = Table(
        title=scenario.title, title_justify="left", caption=f"{scenario.measure} time, {scenario.repeat} runs"
    )
    for name in ("contender", "median s", "fastest s", "slowest s"):
        times.add_column(name, justify="left" if name == "contender" else "right")
    for name, seconds in report.seconds.items():
        times.add_row(name, *(f"{value:.3f}" for value in (report.median(name), min(seconds), max(seconds))))
    console.print(times)
    for ratio, value, wanted, met in report.checks():
        mark = "[green]met[/]" if met else "[bold red]missed[/]"
        console.print(f"  {ratio}: [bold]{value:.2f}[/], expected {wanted}: {mark}", highlight=False)
    console.print()
