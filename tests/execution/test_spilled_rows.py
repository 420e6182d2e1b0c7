"""Spilled rows of a killed process are removed by the next process that spills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dovetail.storage.blocks import BlockStore

SPILLED = 1 << 15  # bytes, then the process is killed
TABLES = """
import os, signal, sys
import numpy as np
import pyarrow as pa
import dovetail
from dovetail.storage.blocks import PagedBlock

keys = np.random.default_rng(7).permutation(3_000)
tables = [pa.table({"k": keys[::way], "s": pa.array([f"{k:0200}" for k in keys])}) for way in (1, -1)]
left, right = (pa.Table.from_batches(table.to_batches(max_chunksize=256)) for table in tables)
"""
ONE = 'list(dovetail.progressive(left, right, "l.k = r.k", memory="256KB"))'
WORKERS = 'list(dovetail.progressive(left, right, "l.k = r.k", memory="512KB", workers=2))'
THREE = 'list(dovetail.progressive({"a": left, "b": right, "c": left}, "a.k = b.k AND b.k = c.k", memory="512KB"))'
HANGUP = "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, if the tests run under nohup"
KILLED = """
number, wanted, written = int(sys.argv[1]), int(sys.argv[2]), 0
close = PagedBlock.close

def close_and_die(block, zone=None):
    global written
    closed = close(block, zone)
    written += closed.nbytes
    if written > wanted:
        os.kill(os.getpid(), number)
    return closed

PagedBlock.close = close_and_die
"""
WAITING = """
steps = dovetail.progressive(left, right, "l.k = r.k", memory="256KB")
found = 0
for step in steps:
    found += step.batch.num_rows
    if any(path.name != "lock" for path in __import__("pathlib").Path(os.environ["TMPDIR"]).glob("*/*")):
        break
print("spilled", flush=True)
sys.stdin.readline()
found += sum(step.batch.num_rows for step in steps)
assert found == len(keys), found
"""


def run(program: str, place: Path, *arguments: str) -> int:
    environment = os.environ | {"TMPDIR": str(place)}
    return subprocess.run([sys.executable, "-c", TABLES + program, *arguments], env=environment, check=False).returncode


def left_in(place: Path) -> int:
    """The number of bytes in a directory."""
    return sum(path.stat().st_size for path in place.rglob("*.arrow"))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("program", "number"),
    [(ONE, signal.SIGTERM), (ONE, signal.SIGKILL), (WORKERS, signal.SIGKILL), (THREE, signal.SIGKILL)],
    ids=["sigterm", "sigkill", "two workers", "three inputs"],
)
def test_the_next_process_removes_what_a_killed_one_has_left(
    program: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dovetail-thesis").mkdir()
    assert run(KILLED + program, tmp_path, str(int(number)), str(SPILLED)) == -number
    assert left_in(tmp_path) > SPILLED
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = BlockStore()
    new = store.directory
    assert [path.parent for path in tmp_path.glob("*/lock")] == [new]
    store.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "dovetail-thesis"]


@pytest.mark.one_in(2)
def test_nothing_is_left_of_a_join_that_was_not_run_to_its_end(tmp_path: Path) -> None:
    assert run('steps = dovetail.progressive(left, right, "l.k = r.k", memory="256KB"); next(steps)', tmp_path) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.one_in(3)
def test_a_process_that_lives_keeps_its_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TABLES + WAITING]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "spilled\n"
        spilled = left_in(tmp_path)
        assert spilled
        assert run(ONE, tmp_path) == 0
        assert left_in(tmp_path) == spilled
        process.communicate("\n")
    assert process.returncode == 0
    assert not list(tmp_path.iterdir())


COMMAND = """
import pyarrow.parquet as pq
from pathlib import Path
from dovetail.cli import main

place = Path(sys.argv[3])
for name, table in (("left", left), ("right", right)):
    pq.write_table(table, place / f"{name}.parquet", row_group_size=256)
inputs = [f"--{name}={place / name}.parquet" for name in ("left", "right")]
out = [f"--out={place / 'joined.csv'}", f"--record={place / 'run.jsonl'}"]
sys.argv = ["dovetail", "join", *inputs, "--on=l.k = r.k", "--memory=256KB", *out]
main()
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_command_line_removes_them_itself(number: int, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    code = run(HANGUP + KILLED + COMMAND, tmp_path, str(int(number)), str(SPILLED), str(place))
    assert code == 128 + number
    assert list(tmp_path.iterdir()) == [place]
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


@pytest.mark.one_in(2)
def test_the_command_line_keeps_what_its_caller_has_decided(tmp_path: Path) -> None:
    """`nohup` lets a process ignore SIGHUP."""
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code = run(ignored + KILLED + COMMAND, tmp_path, str(int(signal.SIGHUP)), str(SPILLED), str(tmp_path))
    assert code == 0
    assert (tmp_path / "joined.csv").read_bytes().count(b"\n") == 3_001


def test_a_place_for_temporary_files_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(Exception, match=r"cannot create a directory for spilled rows: .*gone.* Set TMPDIR"):
        BlockStore().directory  # noqa: B018
