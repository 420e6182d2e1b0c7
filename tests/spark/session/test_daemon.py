"""The process from which workers are forked, and where modules are imported."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from dovetail.spark.session.daemon import unpacked

FORKED = "from dovetail.spark.session import daemon; daemon.preload(); print(daemon.threads())"
BESIDE_THE_DRIVER = (
    "import sys, dovetail.spark.streaming.processor; print(sorted({'numba', 'pandas', 'sqlglot'} & sys.modules.keys()))"
)
FROM = "from dovetail.spark.session import daemon; daemon.prefer_unpacked(); import pyspark; print(pyspark.__file__)"


def said(script: str, **more: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}  # as set by Spark
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def test_it_has_one_thread_when_workers_are_forked() -> None:
    assert said(FORKED) == "1"


def test_the_start_of_a_stream_imports_no_join() -> None:
    assert said(BESIDE_THE_DRIVER) == "[]"


def test_it_imports_spark_from_compiled_modules() -> None:
    """Spark puts its archive first on the path, which has none."""
    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    assert archive.is_file()
    assert said(FROM, PYTHONPATH=str(archive)) == pyspark.__file__


@pytest.mark.parametrize("place", ["", "spark/python/pyspark", "site/pyspark"])
def test_an_archive_is_replaced_by_the_package_beside_it(place: str, tmp_path: Path) -> None:
    """Spark's own downloads have both, and so has the package from PyPI. Containers of YARN have only the archive."""
    archive = tmp_path / ("site/pyspark" if place.startswith("site") else "spark") / "python" / "lib" / "pyspark.zip"
    if place:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "__init__.py").touch()
    assert unpacked(str(archive)) == (str((tmp_path / place).parent) if place else None)
    assert unpacked(str(tmp_path / "other.zip")) is None
