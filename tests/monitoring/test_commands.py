"""`dovetail join` with a monitoring page, and `dovetail watch`, as processes."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.monitoring.runs import recorded
from tests.patience import PATIENCE_S
from typer.testing import CliRunner

from dovetail.cli import app
from dovetail.errors import DovetailError
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import DONE
from dovetail.sources.flight_server import TableServer

DOVETAIL = [sys.executable, "-m", "dovetail.cli"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"id": range(100), "price": [1.5] * 100}), tmp_path / "orders.parquet")
    (tmp_path / "payments.csv").write_text("id,paid\n" + "".join(f"{n},1\n" for n in range(0, 200, 2)))
    return tmp_path


def command(*arguments: object) -> list[str]:
    inputs = ["--left", "orders.parquet", "--right", "payments.csv", "--out", "out", "--overwrite"]
    return [*DOVETAIL, "join", *inputs, *map(str, arguments)]


@contextmanager
def running(words: list[str], directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the address that it printed."""
    process = subprocess.Popen(words, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", said)
            assert found is not None, said + process.stderr.read()
            yield process, found[0]
        finally:
            process.kill()


def test_record_and_report(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    watched = ["--on", "l.id = r.id", "--how", "left", "--record", "runs/one.jsonl", "--report", "one.html", "--live"]
    run = CliRunner().invoke(app, command(*watched)[3:])
    assert run.exit_code == 0, run.stderr
    assert "done  100 results" in run.stderr  # not a terminal, so a line
    assert [path.name for path in (files / "out").iterdir()] == ["part-0.parquet"]
    assert pq.read_table(files / "out").column_names == ["id", "price", "id_right", "paid"]
    recording = Recording.read(files / "runs" / "one.jsonl")
    assert (recording.outcome, recording.latest.results) == (DONE, 100)
    assert "<svg" in (files / "one.html").read_text()


def test_datasets_of_a_flight_server_are_joined_as_they_come(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    payments = pa.table({"order": [n % 50 for n in range(200)]})
    with TableServer({"pay/ments": payments}) as server:
        place = f"grpc://127.0.0.1:{server.port}/pay/ments"
        words = ["join", "--left", "orders.parquet", "--right", place, "--on", "l.id = r.order", "--out", "out"]
        run = CliRunner().invoke(app, [*words, "--record", "one.jsonl"], catch_exceptions=False)
        assert run.exit_code == 0, run.stderr
        with pytest.raises(DovetailError, match="cannot read"):
            CliRunner().invoke(app, [*words[:4], f"{place}s", *words[5:], "--overwrite"], catch_exceptions=False)
    assert pq.read_table(files / "out").num_rows == 200
    recording = Recording.read("one.jsonl")
    assert recording.heading is not None
    assert recording.heading.title == "orders ⋈ pay/ments"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--on", "l.id = r.idd"], "no such column"),
        (["--on", "l.id = r.id", "--how", "left", "--algorithm", "diner"], "inner joins only"),
        (["--on", "l.id = r.id", "--record", "orders.parquet"], "is not a recording"),
        (["--on", "l.id = r.id", "--watch", "--port", "99999"], "cannot be used"),
    ],
)
def test_what_is_wrong_is_said_before(
    files: Path, monkeypatch: pytest.MonkeyPatch, wrong: list[str], message: str
) -> None:
    monkeypatch.chdir(files)
    with pytest.raises(DovetailError, match=message):
        CliRunner().invoke(app, command(*wrong, "--live", "--report", "wrong.html")[3:], catch_exceptions=False)
    assert not (files / "wrong.html").exists()
    assert list((files / "out").glob("*")) == []
    assert pq.read_table(files / "orders.parquet").num_rows == 100


@pytest.mark.one_in(2)
def test_a_page_of_the_running_join(files: Path) -> None:
    with running(command("--on", "l.id = r.id", "--watch"), files) as (process, url):
        events = urllib.request.urlopen(f"{url}events", timeout=PATIENCE_S).read().decode()  # until it ends
        assert "orders ⋈ right" in events
        assert "event: over" in events
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "50 rows in" in out


def test_a_page_of_recordings(tmp_path: Path) -> None:
    recorded(tmp_path / "one.jsonl")
    with running([*DOVETAIL, "watch", "."], tmp_path) as (process, url):
        page = urllib.request.urlopen(f"{url}run/one.jsonl", timeout=PATIENCE_S).read().decode()
        assert "orders ⋈ payments" in page
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
