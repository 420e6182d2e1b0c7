from __future__ import annotations

import json
from typing import Any

from benchmarks.runner import known, load
from benchmarks.speed_page import FIGURES, LINES, PAGES, blocks, replace_blocks


def report(scenario: str, **medians: float) -> dict[str, Any]:
    return {"scenario": scenario, "medians": medians, "result_rows": 1_000_000}


def run(*reports: dict[str, Any]) -> dict[str, Any]:
    versions = {"duckdb": "2.0.0", "polars": "2.1.0"}
    machine = {
        "cpu": "Xeon",
        "cpus": 2,
        "memory_bytes": 24e9,
        "load": [0.5, 0, 0],
        "python": "3.11",
        "versions": versions,
    }
    return {"started": "2026-11-19T10:00:00", "machine": machine, "scenarios": list(reports)}


def test_lines_are_of_scenarios() -> None:
    assert {line.scenario for line in LINES} <= set(known())
    assert all(line.contender in load(line.scenario).contenders for line in LINES)


def test_pages_have_the_figures_of_the_last_run() -> None:
    found = blocks(json.loads(FIGURES.read_text()))
    for page in PAGES:
        text = page.read_text()
        assert replace_blocks(text, found) == text, f"python -m benchmarks.speed_page writes {page.name} anew"


def test_losses_have_a_table_of_their_own() -> None:
    found = blocks(run(report("rows_band", dovetail=1, duckdb=5), report("rows_star", dovetail=2, duckdb=1, polars=3)))
    assert found["speed"].splitlines()[2:] == [
        "| band, 300k x 300k | 1M | 1.0 s | 5.0 s | - | 5.0 |",
        "| equality, 10M x 1,000 | 1M | 2.0 s | 1.0 s | 3.0 s | **0.50**, 1.5 |",
    ]
    assert found["slower"].splitlines()[2:] == found["speed"].splitlines()[3:]


def test_only_what_is_between_the_comments_changes() -> None:
    text = "a\n<!-- begin slower -->\nold\nlines\n<!-- end slower -->\nb\n"
    assert replace_blocks(text, {"slower": "new"}) == "a\n<!-- begin slower -->\n\nnew\n\n<!-- end slower -->\nb\n"
