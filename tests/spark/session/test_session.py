"""The local session: one per process, with its own settings, and the same Python for driver and workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dovetail.spark.session.session import SETTINGS, local_session

pytestmark = pytest.mark.spark


def test_settings(spark: SparkSession) -> None:
    for name, value in SETTINGS.items():
        assert spark.conf.get(name) == value


def test_active_session_is_kept_as_it_is(spark: SparkSession) -> None:
    again = local_session("another", conf={"spark.sql.shuffle.partitions": "99"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.shuffle.partitions") == SETTINGS["spark.sql.shuffle.partitions"]


def test_session_is_found_from_another_thread(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(local_session).result().sparkContext is spark.sparkContext


CHATTER = """
import os
from dovetail.spark.session.session import _chatter_to_a_file
for _ in range(3):
    with _chatter_to_a_file():
        os.write(2, b"chatter")
(log,) = __import__("pathlib").Path(os.environ["TMPDIR"]).rglob("*.log")
assert log.read_bytes() == 3 * b"chatter"
assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
"""
REFUSED = """
from dovetail.spark.session.session import local_session
try:
    local_session()
except Exception as error:
    print("".join(error.__notes__))
"""
BROKEN_JAVA = """#!/bin/sh
case "$*" in *-version*) echo '    java.version = 21.0.1' >&2; exit 0;; esac
echo 'Cannot allocate memory for the heap' >&2
exit 1
"""


def run(program: str, place: Path, **variables: str) -> str:
    environment = os.environ | {"TMPDIR": str(place)} | variables
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_log_is_a_file_of_its_own_and_ends_with_the_process(tmp_path: Path) -> None:
    """A user who knows the process id must not be able to choose where the log is written."""
    run(CHATTER, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_java_says_when_it_does_not_start(tmp_path: Path) -> None:
    java, place = tmp_path / "jdk" / "bin" / "java", tmp_path / "place"
    java.parent.mkdir(parents=True)
    java.write_text(BROKEN_JAVA)
    java.chmod(0o755)
    place.mkdir()
    assert "Java wrote:\nCannot allocate memory for the heap" in run(REFUSED, place, JAVA_HOME=str(tmp_path / "jdk"))
    assert not [path for path in place.iterdir() if path.name.startswith("dovetail")]


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    found = spark.range(1).mapInArrow(executable, "path string").collect()
    assert {row.path for row in found} == {sys.executable}
