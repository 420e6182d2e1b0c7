"""The page of results is generated from figures: losses first, and a word for missing figures."""

from pathlib import Path
from typing import Any

from benchmarks.nonequi.environments import ROOT
from benchmarks.nonequi.page import IMAGES, PAGE, Figures, losses, seconds, short, write_page
from benchmarks.nonequi.runner import read


def entry(case: str, contender: str, output: str, cpu_s: float | None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"case": case, "rows": 100_000, "contender": contender, "output": output, **more}
    if cpu_s is not None:
        runs = [{"cpu_s": cpu_s, "wall_s": 2 * cpu_s, "peak_bytes": 200_000_000}]
        found |= {"runs": runs, "answer": {"rows": 500_000, "checksum": 1}, "versions": {"numpy": "2"}}
        found |= {"started": "2026-01-02T03:04:05+00:00", "load": 0.5}
    return found


RUN: dict[str, Any] = {
    "machine": {"cpu": "Fast", "cpus": 2, "memory_bytes": 8 << 30, "system": "Linux", "python": "3.11.7"},
    "limits": {"cpu_s": 60.0, "memory_bytes": 8 * 10**9},
    "runs": 3,
    "entries": [
        entry("point", "dovetail", "rows", 0.2),
        entry("point", "duckdb", "rows", 0.1),
        entry("point", "polars", "rows", 0.05, wrong="rows 1; most others have 500,000"),
        entry("point", "dovetail_spark", "rows", 5.0),
        entry("point", "spark_bins", "rows", 6.0),
        entry("point", "dovetail", "first", 0.01),
        entry("point", "duckdb", "first", 0.02),
        entry("streams", "duckdb", "rows", None, cannot="does not read streams"),
        entry("overlap", "datafusion", "rows", None, time="more than 60 CPU seconds"),
    ],
}


def test_losses_are_found_among_those_that_are_compared() -> None:
    [loss] = losses(Figures(RUN))
    assert (loss.case, loss.output, loss.first, loss.ours) == ("point", "rows", "duckdb", "dovetail")


def test_the_page(tmp_path: Path) -> None:
    page = tmp_path / "nonequi.md"
    write_page(RUN, page, tmp_path)
    text = page.read_text()
    assert text.index("## Where Dovetail is not the first") < text.index("## The whole result")
    assert "| point in interval, uniform | 100k | rows | DuckDB | 0.100 | 0.200 | 0.50 |" in text
    assert "| point in interval, uniform | 100k | 500k | 0.200 | **0.100** | wrong |  |" in text
    assert "| overlap of intervals | 100k |  |  |  |  | time |" in text
    assert "time: more than 60 CPU seconds" in text
    assert "does not read streams" in text
    assert "Other work ran" not in text
    assert (tmp_path / "nonequi_rows.svg").read_text().count("<circle") >= 4
    busy = RUN | {"entries": [entry("point", "dovetail", "rows", 0.2) | {"load": 9.0}]}
    write_page(busy, page, tmp_path)
    assert "load average was 9 to 9 on 2 cores" in page.read_text()
    assert "Nowhere in this run" in page.read_text()


def test_the_page_of_the_documentation_is_as_the_script_writes_it(tmp_path: Path) -> None:
    last = max((ROOT / "benchmarks" / "nonequi" / "results").glob("*.json"))
    write_page(read(last), tmp_path / PAGE.name, tmp_path)
    for written in (PAGE, IMAGES / "nonequi_rows.svg", IMAGES / "nonequi_first.svg"):
        assert (tmp_path / written.name).read_text() == written.read_text()


def test_numbers() -> None:
    assert [seconds(value) for value in (0.0123, 1.234, 12.3)] == ["0.012", "1.23", "12"]
    assert [short(value) for value in (999, 100_000, 1_500_000, 2 * 10**9)] == ["999", "100k", "1.5M", "2G"]
