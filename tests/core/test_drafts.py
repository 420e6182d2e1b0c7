"""Files that replace others: completely or not at all, and never through a link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.core.directories import check_link
from dovetail.core.drafts import draft
from dovetail.errors import InputError

SOMEBODY = 54321
WRITER = """
import os, sys
from pathlib import Path
from dovetail.core.drafts import draft
with draft(Path(sys.argv[1])) as file:
    file.write(b"of another process")
    file.flush()
    print("begun", flush=True)
    sys.stdin.readline()
"""


def start(place: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def write(place: Path, text: bytes) -> None:
    with draft(place) as file:
        file.write(text)


def test_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "x.csv"
    write(place, b"first")

    def fail() -> None:
        with draft(place) as file:
            file.write(b"half")
            assert place.read_bytes() == b"first"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert place.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [place]


def test_a_link_in_its_place_is_replaced(tmp_path: Path) -> None:
    precious, place = tmp_path / "precious", tmp_path / "x.csv"
    precious.write_text("as it was")
    place.symlink_to(precious)
    for name in (".x.csv.tmp", f".x.csv.{'0' * 32}.tmp"):
        (tmp_path / name).symlink_to(precious)
    write(place, b"rows")
    assert precious.read_text() == "as it was"
    assert place.read_bytes() == b"rows"
    assert not place.is_symlink()


def test_two_at_once_do_not_share_a_draft(tmp_path: Path) -> None:
    place = tmp_path / "x.csv"
    other = start(place)
    write(place, b"mine")
    assert place.read_bytes() == b"mine"
    other.communicate("\n")
    assert other.returncode == 0
    assert place.read_bytes() == b"of another process"
    assert list(tmp_path.iterdir()) == [place]


def test_the_draft_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "x.csv"
    killed = start(place)
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 1
    others = [f".y.csv.{'0' * 32}.tmp", f".x.csv.{'0' * 31}.tmp", f"x.csv.{'0' * 32}.tmp", f".x.csv.{'0' * 32}.tmp~"]
    for name in others:
        (tmp_path / name).touch()
    signal.alarm(20)  # instead of hanging
    try:
        os.mkfifo(tmp_path / f".x.csv.{'1' * 32}.tmp")
        write(place, b"mine")
    finally:
        signal.alarm(0)
    assert {path.name for path in tmp_path.iterdir()} == {"x.csv", *others, f".x.csv.{'1' * 32}.tmp"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_link_of_somebody_else_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    check_link(link)
    link.symlink_to(tmp_path / "precious")
    check_link(link)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(InputError, match=f"link is a link that belongs to user {SOMEBODY}. Give another path"):
        check_link(link)
