"""The logic of the benchmark of joins without equal keys. Contenders need not be installed."""

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.nonequi.case import Case, Files, write_tables
from benchmarks.nonequi.cases import CASES
from benchmarks.nonequi.contenders import CONTENDERS, find
from benchmarks.nonequi.limits import Ended, Limits, exceeded, run_within
from benchmarks.process_tree import Process, cpu_seconds, forget_peaks, peak_bytes
from tests.patience import PATIENCE_S

from benchmarks.nonequi import runner

ANSWER = {"rows": 3, "checksum": 7}
MEASURED = {"runs": [{"cpu_s": 1.0, "wall_s": 2.0, "peak_bytes": 10}], "answer": ANSWER, "versions": {}}


def entry(contender: str, rows: int, checksum: int | None, output: str = "rows") -> dict[str, Any]:
    return {
        "case": "point", "rows": 5000, "contender": contender, "output": output,
        "answer": {"rows": rows, "checksum": checksum},
    }  # fmt: skip


def test_an_answer_that_differs_from_most_is_wrong() -> None:
    entries = [entry("a", 3, 7), entry("b", 3, 7), entry("c", 3, 8), entry("d", 4, None, "count")]
    runner.mark_wrong_answers(entries)
    assert [found.get("wrong") for found in entries] == [
        None, None, "checksum 8; most others have 7", "rows 4; most others have 3",
    ]  # fmt: skip
    entries[2]["answer"], entries[3]["answer"] = ANSWER, {"rows": 3, "checksum": None}
    runner.mark_wrong_answers(entries)
    assert not any("wrong" in found for found in entries)


def test_where_as_many_say_one_thing_as_another_nothing_is_known() -> None:
    entries = [entry("a", 3, 7), entry("b", 3, 8)]
    runner.mark_wrong_answers(entries)
    assert all("wrong" in found for found in entries)


def test_too_few_first_rows_are_wrong() -> None:
    entries = [entry("a", 999, None, "first"), entry("b", 8192, None, "first"), entry("c", 20_000, 1)]
    runner.mark_wrong_answers(entries)
    assert [found.get("wrong") for found in entries] == ["only 999 rows", None, None]


@pytest.mark.parametrize(
    ("ended", "measured", "word"),
    [
        (Ended(None, 0, ""), MEASURED, "answer"),
        (Ended("memory: more than 8 GB", -9, ""), None, "memory"),
        (Ended("time: more than 60 CPU seconds", -9, ""), None, "time"),
        (Ended(None, 1, "ValueError: no"), None, "error"),
        (Ended(None, -11, "exit code -11"), None, "error"),
    ],
)
def test_an_entry_has_figures_or_says_why_not(ended: Ended, measured: dict[str, Any] | None, word: str) -> None:
    assert word in runner.outcome(ended, measured)


@pytest.mark.parametrize(
    ("phase", "wall_s", "cpu_s", "resident", "said"),
    [
        ("run", 1, 1, 10, None),
        ("run", 1, 61, 10, "time: more than 60 CPU seconds"),
        ("run", 1201, 1, 10, "time: more than 1200 seconds"),
        ("prepare", 801, 200, 10, None),
        ("compare", 901, 1, 10, "time: more than 900 s before or after the run"),
        ("prepare", 1, 1, 9 * 10**9, "memory: more than 8 GB"),
    ],
)
def test_limits(phase: str, wall_s: float, cpu_s: float, resident: int, said: str | None) -> None:
    assert exceeded(phase, wall_s, cpu_s, {1: Process(cpu_s, resident)}, Limits()) == said


def test_a_child_within_limits(tmp_path: Path) -> None:
    script = "import sys; sys.stderr.write('first\\nlast line\\n'); sys.exit(3)"
    assert run_within([sys.executable, "-c", script], tmp_path, tmp_path / "phases", Limits()) == Ended(
        None, 3, "last line"
    )


def test_a_child_that_takes_too_long_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "phases").write_text("prepare\nrun\n")
    script = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'while True: pass'], start_new_session=True)\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "child.wait()"
    )
    ended = run_within(
        [sys.executable, "-c", script], tmp_path, tmp_path / "phases", Limits(cpu_s=0.2, wall_factor=1e6)
    )
    assert ended.excess == "time: more than 0.2 CPU seconds"
    with suppress(ProcessLookupError):  # it has ended
        ending = os.pidfd_open(int((tmp_path / "child").read_text()))
        assert select.select([ending], [], [], PATIENCE_S)[0]


def test_a_process_and_its_children_are_counted() -> None:
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert cpu_seconds() > before
    forget_peaks()
    kept = bytearray(50_000_000)
    kept[::4096] = b"x" * len(kept[::4096])
    assert peak_bytes() > len(kept)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(case: Case, wanted: dict[str, Any], *_: Any) -> dict[str, Any]:
        asked.append(wanted["contender"])
        return json.loads(json.dumps(MEASURED))

    monkeypatch.setattr(runner, "_run", run)
    monkeypatch.setattr(runner, "has", lambda environment, package: package != "polars")
    options: dict[str, Any] = {
        "runs": 1, "limits": Limits(), "data": tmp_path, "file": tmp_path / "new" / "figures.json",
        "report": lambda entry: None,
    }  # fmt: skip
    cases = [CASES["streams"]]
    runner.run_all(cases, ["dovetail", "duckdb"], [100], ["rows", "count"], **options)
    found = runner.run_all(cases, ["dovetail", "duckdb", "dovetail_spark"], [100], ["rows"], **options)
    assert asked == ["dovetail", "dovetail_spark"]  # no duplicates; streams have no count, and DuckDB has no streams
    assert [("runs" in one, "cannot" in one) for one in found["entries"]] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert runner.read(options["file"]) == json.loads(json.dumps(found))
    found = runner.run_all([CASES["point"]], ["polars"], [100], ["rows"], **options)
    assert found["entries"][-1]["absent"]


def test_every_contender_can_be_asked_without_its_package() -> None:
    for name in CONTENDERS:
        contender = find(name)
        reasons = [contender.cannot(case) for case in CASES.values()]
        assert None in reasons, f"{name} runs nothing"
        assert all(reason is None or reason for reason in reasons)
        assert contender.title
        assert contender.first_by
        assert contender.packages


def test_tables_are_written_once(tmp_path: Path) -> None:
    made = []
    case = CASES["overlap"]

    def generate(rows: int, rng: Any) -> Any:
        made.append(rows)
        return case.generate(rows, rng)

    counted = Case("counted", "counted", generate, case.question)
    files = [write_tables(counted, 100, tmp_path) for _ in range(2)]
    assert made == [100]
    assert files[0] == files[1] == Files(tmp_path / "counted-100/left.parquet", tmp_path / "counted-100/right.parquet")
