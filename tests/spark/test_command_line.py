"""`dovetail join` on Spark prints and writes the same as in process."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.test_cli_interrupts import interrupted
from typer.testing import CliRunner

from dovetail.cli import app

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def request_(tmp_path: Path) -> list[str]:
    until = pa.array([datetime(9999, 12, 31, 1)] * 30, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": range(30), "Price": [1.5] * 30, "until": until}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": range(0, 60, 2), "name": ["x"] * 30}), tmp_path / "b.parquet")
    inputs = ["--left", str(tmp_path / "a.parquet"), "--right", str(tmp_path / "b.parquet")]
    return ["join", *inputs, "--on", "l.id = r.id", "--select", "r.id AS key, Price, until", "--spark"]


def lines(*words: str) -> list[str]:
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    return sorted(run.stdout.splitlines())


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_the_same_lines_as_in_process(request_: list[str], format_: str) -> None:
    printed = lines(*request_, "--format", format_)
    assert len(printed) == 15 + (format_ == "csv")
    assert printed == lines(*request_, "--format", format_, "--in-process")


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """Spark publishes rows when all are written: none are left, and the next run finds an empty directory."""
    for name in "lr":
        pq.write_table(pa.table({"a": pa.array(range(40_000), pa.int32())}), tmp_path / f"{name}.parquet")
    out = tmp_path / "out"
    inputs = ["--left", str(tmp_path / "l.parquet"), "--right", str(tmp_path / "r.parquet")]
    said = interrupted([*inputs, "--on", "l.a + r.a >= 0", "--out", str(out), "--spark"], (out / "_temporary").exists)
    assert f"interrupted: nothing was written to {out}; the join is not complete" in said
    assert list(out.iterdir()) == []


def test_a_table_and_files(request_: list[str], tmp_path: Path) -> None:
    assert len(lines(*request_, "--limit", "4")) == 5
    assert len(lines(*request_)) == 16
    lines(*request_, "--out", str(tmp_path / "joined"))
    assert pq.read_table(tmp_path / "joined").column_names == ["key", "Price", "until"]
    for name in ("joined.csv", "joined.parquet", "joined.arrow"):
        lines(*request_, "--out", str(tmp_path / name))
        assert (tmp_path / name).is_file()
    assert len((tmp_path / "joined.csv").read_text().splitlines()) == 16
    assert pq.read_table(tmp_path / "joined.parquet").num_rows == 15
    written = pa.ipc.open_file(tmp_path / "joined.arrow").read_all()
    assert written.num_rows == 15
    assert written["until"].unique().to_pylist() == [datetime(9999, 12, 31, 1, tzinfo=UTC)]
