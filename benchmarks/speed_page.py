"""Write the tables of docs/speed.md and of the README from the figures of one run.

    python -m benchmarks $(python -m benchmarks.speed_page --names) --json benchmarks/speed.json
    python -m benchmarks.speed_page

A table is enclosed in two comments, `<!-- begin NAME -->` and `<!-- end NAME -->`. The rest of a page is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).with_name("speed.json")
PAGES = (ROOT / "docs" / "speed.md", ROOT / "README.md")


class Line(NamedTuple):
    join: str
    scenario: str
    contender: str = "dovetail"
    on_front_page: bool = False


LINES = (
    Line("two inequalities, 300k x 300k, 6 columns", "rows_inequalities", on_front_page=True),
    Line("overlap of intervals, 300k x 300k", "rows_overlap", on_front_page=True),
    Line("containment of intervals, 300k x 300k", "rows_containment"),
    Line("band, 300k x 300k", "rows_band", on_front_page=True),
    Line("band of two attributes, 300k x 300k", "rows_band2d", on_front_page=True),
    Line("left join by two inequalities, 300k x 300k", "rows_left"),
    Line("full join by two inequalities, 300k x 300k", "rows_full"),
    Line("semi join by two inequalities, 300k x 300k", "rows_left_semi"),
    Line("anti join by two inequalities, 300k x 300k", "rows_left_anti"),
    Line("equality and inequality, 3 groups of 5,000 rows", "rows_groups_3"),
    Line("equality and inequality, 1,000 groups of 100k rows", "rows_groups_1000", on_front_page=True),
    Line("equality and inequality, 30,000 groups of 300k rows", "rows_groups_30000"),
    Line("equality and two inequalities, 100,000 groups of 1M rows", "rows_groups_100000"),
    Line("two inequalities, 40 columns, ten of them strings, 100k x 100k", "rows_wide"),
    Line("equality, 1M x 1M, dense integers", "rows_equal_ints", on_front_page=True),
    Line("equality, 1M x 1M, integers far apart", "rows_equal_far_ints"),
    Line("equality, 1M x 1M, strings", "rows_equal_strings", on_front_page=True),
    Line("equality, 1M x 1M, two integers", "rows_equal_composite"),
    Line("equality, 1M x 1M, an integer and a string", "rows_equal_composite_strings"),
    Line("equality, 10M x 1,000", "rows_star"),
    Line("equality, Zipf 1.3, 1M x 100k", "rows_skewed"),
    Line("`progressive`, equality, 1M x 1M, everything fits", "rows_progressive", on_front_page=True),
    Line("`progressive`, equality, 2M x 2M rows of 180 bytes in 100 MB", "spilling_join", on_front_page=True),
    Line("the same by `diner`", "spilling_join", "dovetail_diner", on_front_page=True),
    Line("the same by `rpj`", "spilling_join", "dovetail_rpj", on_front_page=True),
)
PEERS = {"duckdb": "DuckDB", "polars": "Polars"}
HEAD = "| join | rows out | Dovetail | DuckDB | Polars | ratio to DuckDB, Polars |\n|---|---|---|---|---|---|"


def blocks(run: Mapping[str, Any]) -> dict[str, str]:
    """The text of each block, by name."""
    reports = {report["scenario"]: report for report in run["scenarios"] if "medians" in report}
    lines = [line for line in LINES if line.scenario in reports]
    slower = [line for line in lines if min(_ratios(line, reports[line.scenario]).values()) < 1]
    return {
        "machine": _machine(run),
        "speed": _table([_row(line, reports[line.scenario]) for line in lines]),
        "slower": _table([_row(line, reports[line.scenario]) for line in slower]),
        "front page": _table([_row(line, reports[line.scenario]) for line in lines if line.on_front_page]),
    }


def write_pages(run: Mapping[str, Any], pages: tuple[Path, ...] = PAGES) -> None:
    found = blocks(run)
    for page in pages:
        page.write_text(replace_blocks(page.read_text(), found))


def replace_blocks(text: str, found: Mapping[str, str]) -> str:
    for name, block in found.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if begin in text:
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n\n{block}\n\n{end}{after}"
    return text


def _ratios(line: Line, report: Mapping[str, Any]) -> dict[str, float]:
    medians = report["medians"]
    return {peer: medians[peer] / medians[line.contender] for peer in PEERS if peer in medians}


def _row(line: Line, report: Mapping[str, Any]) -> list[str]:
    medians, ratios = report["medians"], _ratios(line, report)
    peers = [_seconds(medians[peer]) if peer in medians else "-" for peer in PEERS]
    return [line.join, _rows(report["result_rows"]), _seconds(medians[line.contender]), *peers, _written(ratios)]


def _table(rows: list[list[str]]) -> str:
    return "\n".join([HEAD, *(f"| {' | '.join(row)} |" for row in rows)])


def _machine(run: Mapping[str, Any]) -> str:
    machine, versions = run["machine"], run["machine"]["versions"]
    memory = round(machine["memory_bytes"] / 1e9)
    return (
        f"Measured on {run['started'][:10]} on one core of {machine['cpus']} x {machine['cpu']}, {memory} GB, "
        f"at a load average of {machine['load'][0]:.1f}, with\nPython {machine['python']}, "
        f"DuckDB {versions['duckdb']} and Polars {versions['polars']}."
    )


def _written(ratios: Mapping[str, float]) -> str:
    """The ratios as text; losses in bold."""
    return ", ".join(
        f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"
        for ratio in ratios.values()
    )


def _rows(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e6:.3g}M" if count >= 1_000_000 else f"{count / 1e3:.3g}k"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"


def main(arguments: list[str]) -> None:
    if "--names" in arguments:
        print(*dict.fromkeys(line.scenario for line in LINES))
    else:
        write_pages(json.loads(FIGURES.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
