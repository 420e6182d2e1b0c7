"""Files of waves are removed when their driver ends or is killed. These tests need no JVM."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.spark.early.files import WaveFiles, new_directory
from dovetail.spark.session.shared_directory import SharedDirectory
from dovetail.storage.open_store import open_store

DRIVER = """
import os, sys
from dovetail.spark.early.files import WaveFiles, new_directory
from dovetail.spark.session.shared_directory import SharedDirectory
from dovetail.storage.open_store import open_store

files = WaveFiles(new_directory(SharedDirectory(open_store(sys.argv[1])), "waves"))
files.replace("log.json", "{}")
os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_later_driver_removes_those_of_one_that_was_killed(number: int, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path), str(int(number))], check=False)
    assert killed.returncode == -number
    (left,) = tmp_path.iterdir()
    assert (left / "log.json").exists()
    files = WaveFiles(new_directory(SharedDirectory(open_store(tmp_path)), "waves"))
    assert list(tmp_path.iterdir()) == [files.directory.path]
    assert files.directory.path is not None
    assert files.directory.path.stat().st_mode & 0o777 == 0o700
    files.remove_all()
    assert not list(tmp_path.iterdir())
