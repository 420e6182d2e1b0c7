"""Ctrl-C during `dovetail join`, sent as by a terminal: rows found so far are kept, with a message."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.patience import PATIENCE_S, wait_until

from dovetail.cli.request import Interrupted, Interrupts, JoinCommand, JoinToWrite, Target

ROWS = 40_000  # all pairs match: more results than can be written during a test
KEPT = r"interrupted: ([\d,]+) rows found so far are in (\S+); the join is not complete"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in "lr":
        pq.write_table(pa.table({"a": pa.array(range(ROWS), pa.int32())}), tmp_path / f"{name}.parquet")
    return ["--left", str(tmp_path / "l.parquet"), "--right", str(tmp_path / "r.parquet"), "--on", "l.a + r.a >= 0"]


def interrupted(words: list[str], is_time: Callable[[], object]) -> str:
    """The command's output on standard error when Ctrl-C stops it."""
    command = [sys.executable, "-m", "dovetail.cli", "join", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: is_time() or process.poll() is not None, "the first rows")
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130, out + errors
    return errors


def has_rows(directory: Path) -> bool:
    """Whether something has been written, under any name."""
    return any(path.is_file() and path.stat().st_size > 1000 for path in directory.iterdir())


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["--progress", "--live"])  # the first is the default: in process
@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out"])
def test_rows_found_so_far_are_kept(files: list[str], tmp_path: Path, how: str, name: str) -> None:
    place = tmp_path / "results"
    place.mkdir()
    out = place / name if "." in name else place
    said = interrupted([*files, "--out", str(out), how], lambda: has_rows(place))
    found = re.search(KEPT, said)
    assert found is not None, said
    assert found[2] == str(out)
    rows = int(found[1].replace(",", ""))
    assert 0 < rows < ROWS * ROWS
    (file,) = place.iterdir()  # no draft is left
    if name.endswith(".csv"):
        with file.open("rb") as lines:
            assert sum(1 for _ in lines) == rows + 1
    else:
        assert pq.read_metadata(file).num_rows == rows


def test_an_earlier_result_is_kept_instead(files: list[str], tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.mkdir()
    out = place / "out.csv"
    out.write_text("a\n1\n")
    words = [*files, "--out", str(out), "--overwrite"]
    said = interrupted(words, lambda: has_rows(place))
    assert re.search(r"the earlier result in \S+ was kept; [\d,]+ rows found so far were not", said), said
    assert [(path.name, path.read_text()) for path in place.iterdir()] == [("out.csv", "a\n1\n")]


def test_ctrl_c_before_any_row(tmp_path: Path) -> None:
    """Everything is read and nothing matches, so there is nothing to keep."""
    for name in "lr":
        pq.write_table(pa.table({"a": pa.array(range(ROWS))}), tmp_path / f"{name}.parquet")
    out, record = tmp_path / "out.csv", tmp_path / "record.jsonl"
    inputs = ["--left", str(tmp_path / "l.parquet"), "--right", str(tmp_path / "r.parquet")]
    words = [*inputs, "--on", "l.a * r.a = -1", "--out", str(out), "--record", str(record)]
    said = interrupted(words, record.exists)
    assert f"interrupted: nothing was written to {out}; the join is not complete" in said
    assert not out.exists()


def test_ctrl_c_while_rows_are_written_waits_until_they_are() -> None:
    with Interrupts() as interrupts:
        batches = interrupts.await_each(iter([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2]})]))
        next(batches)
        signal.raise_signal(signal.SIGINT)  # while a batch is being written
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # the previous behaviour is restored


def test_what_waits_for_a_whole_group_is_written(tmp_path: Path) -> None:
    """Groups are large, and Ctrl-C comes before the first is complete."""
    for name in "lr":
        pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / f"{name}.parquet")
    places = (str(tmp_path / "l.parquet"), str(tmp_path / "r.parquet"))
    command = JoinCommand.read(places, "l.a = r.a", "inner", in_process=True, suffix="_r")
    schema = pa.schema([("a", pa.int64()), ("a_r", pa.int64())])

    def batches():  # type: ignore[no-untyped-def]
        yield pa.record_batch([[1, 2], [1, 2]], schema=schema)
        yield pa.record_batch([[3], [3]], schema=schema)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")

    out = tmp_path / "out.csv"
    work = JoinToWrite(command, Target(out, "csv", True), [], None)
    with pytest.raises(Interrupted, match="3 rows found so far"):
        work._write(batches(), schema)
    assert out.read_text().splitlines()[1:] == ["1,1", "2,2", "3,3"]
