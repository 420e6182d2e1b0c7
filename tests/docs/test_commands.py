"""Every command line in the README and the documentation works on small files."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from benchmarks.papers.__main__ import build_parser
from tests.docs.pages import ORDERS, PARCELS, PAYMENTS, ROOT, blocks
from tests.patience import PATIENCE_S
from tests.storage.test_stored_state import QUERY, two_batches

import dovetail

PROGRAM = {"dovetail": [sys.executable, "-m", "dovetail.cli"], "python": [sys.executable]}


def commands(page: str) -> list[list[str]]:
    """The lines of command blocks, except `make`. A backslash continues a line."""
    texts = [block.text.replace("\\\n", " ") for block in blocks(ROOT / page) if not block.language]
    found = [shlex.split(line, comments=True) for text in texts for line in text.splitlines()]
    return [PROGRAM[words[0]] + words[1:] for words in found if words and words[0] in PROGRAM]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files used in the commands."""
    for name, table in (("orders", ORDERS), ("payments", PAYMENTS), ("parcels", PARCELS)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    pyarrow.csv.write_csv(PAYMENTS, tmp_path / "payments.csv")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("page", "outputs"),
    [
        ("docs/live.md", ["joined"]),
        ("docs/command_line.md", ["paid.parquet"]),
    ],
)
def test_commands(page: str, outputs: list[str], place: Path) -> None:
    for command in commands(page):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
    for output in outputs:
        assert pq.read_table(place / output).num_rows == PAYMENTS.num_rows


@pytest.mark.one_in(2)
def test_commands_of_the_readme(place: Path) -> None:
    """Runs on the files of the repository."""
    shown = [
        subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
        for command in commands("README.md")
    ]
    assert all(done.stdout for done in shown)
    with (place / "flights.csv").open() as found:
        assert sum(1 for _ in found) > 6_000
    assert "driven by" in shown[-1].stdout


def test_server(place: Path) -> None:
    (command,) = commands("docs/sources.md")
    port = command.index("--port") + 1
    assert command[port] == "8815"
    command[port] = "0"  # any free port
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            location = server.stdout.readline().strip()
            steps = dovetail.progressive(ORDERS, dovetail.sources.flight(location, "parcels"), "l.id = r.order_id")
            assert sum(step.batch.num_rows for step in steps) == PARCELS.num_rows
        finally:
            server.terminate()


def test_targets_of_make() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    named = {name for page in pages for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_state(tmp_path: Path) -> None:
    """Commands on the state of a query; the last one deletes it."""
    two_batches(tmp_path)
    meant = {"/shared/dovetail": str(tmp_path), "ID": QUERY}
    for command in commands("docs/operations.md"):
        assert (tmp_path / QUERY).exists()
        words = [meant.get(word, word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        assert QUERY in done.stdout
    assert not (tmp_path / QUERY).exists()


@pytest.mark.spark
@pytest.mark.slow
def test_doctor(tmp_path: Path) -> None:
    """Runs against Spark on this machine instead of a cluster."""
    meant = {"/shared/dovetail": str(tmp_path), "spark://master:7077": "local[1]"}
    for command in commands("docs/clusters.md"):
        words = [meant.get(word, word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"


def test_papers() -> None:
    """These commands take minutes, so only their arguments are parsed."""
    for _, _, module, *words in commands("docs/papers.md"):
        assert module == "benchmarks.papers"
        build_parser().parse_args(words)


def test_every_command_is_run() -> None:
    with_commands = {
        str(page.relative_to(ROOT))
        for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
        if commands(str(page.relative_to(ROOT)))
    }
    assert with_commands == {
        "README.md",
        "docs/clusters.md",
        "docs/command_line.md",
        "docs/live.md",
        "docs/operations.md",
        "docs/papers.md",
        "docs/sources.md",
    }
