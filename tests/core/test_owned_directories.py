"""Directories that are removed when their process ends, for any reason; nothing else is removed."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.core.owned_directories import owned_directory, remove_owned

SOMEBODY = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

OWNER = """
import platform, sys
from pathlib import Path
from dovetail.core.owned_directories import owned_directory
platform.node = lambda: sys.argv[2]
print(owned_directory(Path(sys.argv[1]), "table"), flush=True)
sys.stdin.readline()
"""
FORKING = """
import os, sys
from pathlib import Path
from dovetail.core.owned_directories import owned_directory
print(owned_directory(Path(sys.argv[1]), "table"), flush=True)
child = os.fork()
if child == 0:
    sys.exit()  # as a program does: what is registered to be done at the end is done
assert os.waitpid(child, 0)[1] == 0
print("waited", flush=True)
if os.fork() == 0:
    os.close(1)
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""


def start(program: str, parent: Path, host: str = "here") -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(parent), host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def forgotten(parent: Path, name: str) -> Path:
    """The directory left behind by a process that was killed."""
    path = parent / name
    path.mkdir()
    (path / "lock").touch()
    (path / "rows").touch()
    return path


def ours(stem: str = "table") -> str:
    return f"{stem}-{platform.node()}-{'0123456789abcdef' * 2}"


def test_they_end_with_their_process(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    processes, places = zip(*(start(OWNER, tmp_path) for _ in range(3)), strict=True)
    assert set(tmp_path.iterdir()) == set(places)
    assert {place.stat().st_mode & 0o7777 for place in places} == {0o770}
    end(processes[0])
    assert set(tmp_path.iterdir()) == set(places[1:])
    kill(processes[1])
    assert set(tmp_path.iterdir()) == set(places[1:])
    last, place = start(OWNER, tmp_path)  # sweeps leftovers
    assert set(tmp_path.iterdir()) == {places[2], place}
    end(processes[2])
    end(last)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("other", ["worker-2", "worker-0123456789abcdef0123456789abcdef", "worker*"])
def test_those_of_another_host_stay(other: str, tmp_path: Path) -> None:
    """A lock may be visible on one machine only: a directory that looks unused here may be in use there."""
    killed, there = start(OWNER, tmp_path, other)
    kill(killed)
    for host in ("worker", "?*"):
        here, _ = start(OWNER, tmp_path, host)
        end(here)
    assert list(tmp_path.iterdir()) == [there]
    again, _ = start(OWNER, tmp_path, other)
    end(again)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "thesis",
        ours() + "0",
        ours()[:-1],
        ours().upper(),
        ours("my-table"),
        ours("table-2"),
        f"table-{platform.node()}-old",
        ours() + "\n",
    ],
)
def test_names_are_matched_whole(name: str, tmp_path: Path) -> None:
    path = forgotten(tmp_path, name)
    remove_owned(owned_directory(tmp_path, "table"))
    assert (path / "rows").exists()


def test_what_was_forgotten_is_removed(tmp_path: Path) -> None:
    path = forgotten(tmp_path, ours())
    (path / "below").mkdir()
    (path / "below" / "rows").touch()
    remove_owned(owned_directory(tmp_path, "table"))
    assert not list(tmp_path.iterdir())


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    precious, parent = tmp_path / "precious", tmp_path / "parent"
    parent.mkdir()
    forgotten(tmp_path, "precious")
    (parent / ours()).symlink_to(precious)
    held = forgotten(parent, ours()[:-1] + "0")  # contains links to files that must not be touched
    (held / "more").symlink_to(precious)
    remove_owned(owned_directory(parent, "table"))
    assert (precious / "rows").exists()
    assert list(parent.iterdir()) == [parent / ours()]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "nothing"])
def test_a_lock_that_is_none(kind: str, tmp_path: Path) -> None:
    """It blocks no other process, and the directory that it should protect stays."""
    path = forgotten(tmp_path, ours())
    lock = path / "lock"
    lock.unlink()
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(tmp_path / "thesis")
    elif kind == "directory":
        lock.mkdir()
    signal.alarm(20)  # instead of hanging
    try:
        remove_owned(owned_directory(tmp_path, "table"))
    finally:
        signal.alarm(0)
    assert (path / "rows").exists()
    assert not (tmp_path / "thesis").exists()


@needs_root
def test_of_somebody_else(tmp_path: Path) -> None:
    path = forgotten(tmp_path, ours())
    os.chown(path, SOMEBODY, SOMEBODY)
    remove_owned(owned_directory(tmp_path, "table"))
    assert (path / "rows").exists()


def test_one_that_was_being_removed_is_removed(tmp_path: Path) -> None:
    """The lock is removed last, so that the next process can continue."""
    path = forgotten(tmp_path, ours())
    (path / "rows").unlink()
    remove_owned(owned_directory(tmp_path, "table"))
    assert not list(tmp_path.iterdir())


def test_the_child_of_a_fork_owns_nothing(tmp_path: Path) -> None:
    """The child does not remove its parent's directory when it ends, nor keep it when its parent has been killed."""
    process, place = start(FORKING, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "waited\n"
    assert (place / "lock").exists()
    process.kill()
    process.wait()  # its second child is still running
    assert process.stdout.read() == ""
    remove_owned(owned_directory(tmp_path, "table"))
    assert not list(tmp_path.iterdir())
    process.communicate("\n")


def test_only_its_own(tmp_path: Path) -> None:
    assert not remove_owned(tmp_path)
    assert tmp_path.exists()
