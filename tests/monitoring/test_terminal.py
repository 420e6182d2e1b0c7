import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from tests.monitoring.runs import HOSTILE, Clock, recorded

from dovetail.core.metrics import Moment
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import DONE, FAILED, RUNNING, STOPPED, Heading
from dovetail.monitoring.terminal import Panel, _row, gains, line, show


def drawn(recording: Recording, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    console.print(Panel(recording))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_there_is_to_see() -> None:
    panel = drawn(recorded(outcome=RUNNING))
    lines = [text.rstrip() for text in panel.splitlines()]
    assert lines[0].startswith("orders ⋈ payments")
    assert lines[0].endswith("diner")
    assert lines[1] == "l.id = r.order_id"
    assert lines[3] == "● cleanup   all inputs have ended; the remaining results are emitted"
    assert lines[4] == "results    3,600   400/s   0:10   of 3,600"
    assert len(lines[5].rstrip()) <= 80
    assert set(lines[5].strip()) <= set("▁▂▃▄▅▆▇█ ")
    assert lines[6] == " " * 11 + "━" * 69
    assert lines[7] == "held       0 rows in memory   0 on disk"
    assert lines[8] == "orders     ended      6,000 rows"


@pytest.mark.parametrize("width", [20, 40, 72, 200])
@pytest.mark.parametrize("outcome", [DONE, STOPPED, FAILED, RUNNING])
def test_any_width_any_outcome(width: int, outcome: str) -> None:
    panel = drawn(recorded(outcome=outcome, error="it broke"), width)
    assert all(len(text) <= width for text in panel.splitlines())
    assert (outcome if outcome != RUNNING else "cleanup") in panel
    assert ("it broke" in panel) == (outcome == FAILED)


def test_before_it_begins_and_with_names_that_are_markup() -> None:
    assert "not yet begun" in drawn(Recording())
    assert "[bold]" in drawn(recorded(names=("[bold]x", HOSTILE), on="l.a = '[red]'"))
    assert "[red]" in drawn(recorded(names=("[bold]x", HOSTILE), on="l.a = '[red]'"))


def test_gains_are_what_came_in_each_span() -> None:
    clock = Clock()
    recording = Recording(clock=clock)
    recording.begin(Heading("TRUE"))
    for second, results in ((1.0, 10), (3.0, 10), (4.0, 50)):
        clock.now = second
        recording.tell(Moment("arriving", {"arriving": results}))
        recording.note()
    assert gains(recording.moments, 4) == pytest.approx([10, 0, 0, 40])
    assert sum(gains(recording.moments, 7)) == pytest.approx(50)


def test_only_labels_are_pale() -> None:
    assert _row(("7 rows", ""), label="held").style == ""


def test_a_line_elsewhere() -> None:
    out = io.StringIO()
    with show(recorded(outcome=RUNNING), out):
        pass
    assert out.getvalue().splitlines()[-1] == (
        "0:10  cleanup  3,600 results  expected 3,600  0 rows in memory  orders ended 6,000  payments ended 7,200"
    )
    assert line(recorded()).startswith("0:10  done  3,600 results  0 rows in memory")


@pytest.mark.one_in(2)
def test_the_command_on_a_real_terminal(tmp_path: Path) -> None:
    """Frames are drawn, the last one stays, and all requested output is written."""
    keys = pa.table({"k": list(range(1000)) * 5})
    for name in ("l", "r"):
        pq.write_table(keys, tmp_path / f"{name}.parquet")
    command = [sys.executable, "-m", "dovetail.cli", "join", "--left", "l.parquet", "--right", "r.parquet"]
    command += ["--on", "l.k = r.k", "--out", "out", "--live", "--report", "run.html", "--record", "run.jsonl"]
    command += ["--algorithm", "diner", "--memory", "200KB"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "30"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as run:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 1 << 16)
            except OSError:  # the other end has been closed
                break
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert run.returncode == 0, text
    assert "\x1b[" in seen.decode()
    assert "l ⋈ r" in text
    assert "● done" in text
    assert "25,000 rows in" in text.splitlines()[-1]
    assert pq.read_table(tmp_path / "out").num_rows == 25_000
    assert Recording.read(tmp_path / "run.jsonl").latest.results == 25_000
    assert "25,000" in (tmp_path / "run.html").read_text()
