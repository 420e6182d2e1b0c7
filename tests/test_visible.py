"""Escape sequences and markup in names and values are always shown as text."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight
from rich.console import Console
from tests.monitoring.runs import recorded
from tests.monitoring.test_terminal import drawn
from tests.storage.test_stored_state import QUERY, two_batches

import dovetail
from dovetail.cli.doctor import Finding, _line
from dovetail.cli.state_command import show_state
from dovetail.cli.table import ColumnOfResult, show_table
from dovetail.core.markup import tag
from dovetail.errors import DovetailError, SourceError
from dovetail.monitoring.report import body
from dovetail.monitoring.snapshot import FAILED
from dovetail.monitoring.terminal import line
from dovetail.sources import Retry
from dovetail.sources.flight_server import TableServer
from dovetail.visible import visible

TITLE = "\x1b]0;owned\x07"  # a terminal would use it as its window title
NAME = f"k{TITLE}[/]"
VALUE = f"[red]\x9b2J\u202e{TITLE}\r"
TABLE = pa.table({NAME: [1, 2], "v": [VALUE, "plain"]})
ON = f"l.`{NAME}` = r.`{NAME}`"


def harmless(text: str) -> bool:
    return not any(sign in text for sign in ("\x1b]", "\x07", "\x9b", "\u202e", "\r\r"))


def test_what_is_written_out() -> None:
    assert visible("plain, ä, 漢, ⋈, \t and \n") == "plain, ä, 漢, ⋈, \t and \n"
    assert visible("\x1b[31m\x07\r\x7f\x9b\u202e\u2028\ud800") == r"\x1b[31m\x07\x0d\x7f\x9b\u202e\u2028\ud800"
    assert visible("a\tb\nc", one_line=True) == r"a\tb\nc"
    assert visible(visible("\x1b")) == visible("\x1b")


def test_errors() -> None:
    with pytest.raises(DovetailError) as raised:
        dovetail.join(TABLE, TABLE, "l.missing = r.v")
    assert r"k\x1b]0;owned\x07[/]" in str(raised.value)
    assert harmless(f"{raised.value} {raised.value!r}")
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert type(again) is type(raised.value)


def test_plans() -> None:
    plan = dovetail.explain(TABLE, TABLE, ON)
    assert r"\x1b]0;owned\x07" in str(plan)
    assert harmless(f"{plan} {plan!r} {plan._repr_html_()}")


def test_a_table_for_people() -> None:
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
        show_table(TABLE, console, [ColumnOfResult(of_right=False, is_key=True)] * TABLE.num_columns)
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        assert harmless(shown)
        assert r"k\x1b]0;owned\x07[/]" in shown
        assert r"[red]\x9b2J\u202e\x1b]0;owned\x07\x0d" in shown


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    return ["--left", str(tmp_path / "a.parquet"), "--right", str(tmp_path / "a.parquet"), "--in-process"]


def on_a_terminal(*arguments: str) -> str:
    """The command's output to a real terminal that is wide enough not to wrap lines."""
    here, there = pty.openpty()
    environment = {**os.environ, "COLUMNS": "400", "TERM": "xterm"}
    command = [sys.executable, "-m", "dovetail.cli", *arguments]
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment)
    os.close(there)
    seen = b""
    while True:
        try:
            data = os.read(here, 1 << 16)
        except OSError:  # closed by all processes
            break
        if not data:
            break
        seen += data
    os.close(here)
    process.wait()
    return seen.decode().replace("\r\n", "\n")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["join", "FILES", "--on", ON], r"\x1b]0;owned\x07"),
        (["join", "FILES", "--on", ON, "--format", "csv"], r"\x1b]0;owned\x07"),
        (["join", "FILES", "--on", ON, "--format", "json"], r"\u202e"),
        (["explain", "FILES", "--on", ON], r"\x1b]0;owned\x07"),
        (["join", "FILES", "--on", "l.missing = r.v"], r"\x1b]0;owned\x07"),
        (["join", "FILES", "--on", ON, "--out", f"TMP/[red]{TITLE}"], r"[red]\x1b]0;owned\x07"),
        (["state", f"TMP/none[/]{TITLE}"], r"none[/]\x1b]0;owned\x07"),
    ],
    ids=["text", "csv", "json", "explain", "missing", "out", "state"],
)
def test_commands_on_a_terminal(arguments: list[str], told: str, files: list[str], tmp_path: Path) -> None:
    given = [word.replace("TMP", str(tmp_path)) for one in arguments for word in (files if one == "FILES" else [one])]
    seen = on_a_terminal(*given)
    assert harmless(seen)
    assert told in seen


@pytest.mark.one_in(2)
def test_other_programs_get_values_as_they_are(files: list[str]) -> None:
    command = [sys.executable, "-m", "dovetail.cli", "join", *files, "--on", ON, "--format", "csv"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert VALUE.encode() in done.stdout


def test_a_run_on_the_screen_and_its_report() -> None:
    recording = recorded(names=(NAME, VALUE), on=ON, outcome=FAILED, error=f"it broke{TITLE}[/]")
    assert recording.heading is not None
    for shown in (drawn(recording, 200), line(recording), repr(recording), body(recording), recording._repr_html_()):
        assert harmless(shown)
        assert r"\x1b]0;owned\x07" in shown
    assert tag("b", "<x>", title=TITLE) == r'<b title="\x1b]0;owned\x07">&lt;x&gt;</b>'


def test_stored_state(tmp_path: Path) -> None:
    two_batches(tmp_path)
    (tmp_path / QUERY).rename(tmp_path / f"[red]{TITLE}")
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    show_state(str(tmp_path), None, False, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert harmless(shown)
    assert r"[red]\x1b]0;owned\x07" in shown


def test_the_doctor() -> None:
    shown = _line(Finding("workers", "problem", f"[red]{TITLE}", "See[/]")).plain
    assert shown == r"problem  workers         [red]\x1b]0;owned\x07. See[/]"
    assert harmless(json.dumps({"found": TITLE}))


def test_words_of_a_server(caplog: pytest.LogCaptureFixture) -> None:
    class Rude(TableServer):
        def do_get(self, context: Any, ticket: Any) -> Any:
            raise flight.FlightUnavailableError(f"go away{TITLE}")

    caplog.set_level(logging.WARNING)
    with Rude({"orders": pa.table({"k": [1]})}) as server:
        source = dovetail.sources.flight(f"grpc://127.0.0.1:{server.port}", "orders")
        with pytest.raises(SourceError, match=r"go away\\x1b\]0;owned\\x07") as raised:
            list(dovetail.progressive(source, source, ["k"], retry=Retry(tries=2, first_pause_ms=1)))
    assert harmless(str(raised.value) + caplog.text)
