"""`dovetail sql`: queries over files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.test_cli import dovetail


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    pq.write_table(pa.table({"trip": ["a", "b", "c"], "km": [2, 7, 4]}), tmp_path / "trips.parquet")
    (tmp_path / "fares.csv").write_text("up_to,price\n5,3.0\n10,4.5\n")
    return {"trips": tmp_path / "trips.parquet", "fares": tmp_path / "fares.csv"}


def test_files_have_names_or_stand_in_the_query(files: dict[str, Path], tmp_path: Path) -> None:
    query = "SELECT price, count(*) AS n FROM trips JOIN fares ON km < up_to GROUP BY price ORDER BY price"
    expected = [{"price": 3.0, "n": 2}, {"price": 4.5, "n": 3}]
    run = dovetail("sql", query, *(f"{name}={path}" for name, path in files.items()), "--format", "json")
    assert (run.returncode, [json.loads(line) for line in run.stdout.splitlines()]) == (0, expected), run.stderr
    for name, path in files.items():
        query = query.replace(name, f"'{path}'")
    out = tmp_path / "found.jsonl"
    run = dovetail("sql", query, "--out", out)
    assert (run.returncode, [json.loads(line) for line in out.read_text().splitlines()]) == (0, expected), run.stderr
    assert "2 rows in" in run.stderr


def test_a_table_for_people_has_the_first_rows(files: dict[str, Path]) -> None:
    run = dovetail("sql", "SELECT a.trip FROM t a, t b, t c WHERE a.km > 0", f"t={files['trips']}")
    assert run.returncode == 0, run.stderr
    assert "27 rows" in run.stderr
    assert "the first 20 are shown" in run.stderr
    assert len(run.stdout.splitlines()) == 21


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SELECT * FROM trips", "trips"], "a table is NAME=FILE, such as trips=trips.csv; got 'trips'"),
        (["SELECT * FROM trip", "trips=nowhere.csv"], "Did you mean 'trips'?"),
        (["SELECT * FROM trips", "trips=nowhere.csv"], "nowhere.csv: no such file"),
        (["DROP TABLE trips"], "one query, SELECT"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str) -> None:
    run = dovetail("sql", *words)
    assert run.returncode == 2
    assert message in run.stderr
