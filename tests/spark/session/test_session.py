"""The local session: one per process, with its own settings, and the same Python on both ends."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dovetail.spark.session.session import SETTINGS, _chatter_to_a_file, local_session

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


def test_log_is_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who knows the number of the process must not be able to say where its log goes."""
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / f"dovetail-spark-{os.getpid()}.log").symlink_to("precious")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _chatter_to_a_file():
        os.write(2, b"chatter")
    assert (tmp_path / "precious").read_text() == "as it was"
    (log,) = (path for path in tmp_path.iterdir() if path.is_file() and path.read_bytes() == b"chatter")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    found = spark.range(1).mapInArrow(executable, "path string").collect()
    assert {row.path for row in found} == {sys.executable}
