"""Conditions as Columns are equivalent to the same conditions as SQL text, in classic and in Connect sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.frames import column_cases

from dovetail.spark.frames.column_names import name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def classic(spark: SparkSession) -> dict[str, str]:
    return column_cases.outcomes(spark)


@pytest.fixture(scope="module")
def connect() -> dict[str, str]:
    """The outcomes of the same cases over Connect, in a separate process."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.frames.column_cases"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    outcomes: dict[str, str] = json.loads(run.stdout)
    return outcomes


@pytest.mark.spark
@pytest.mark.parametrize("name", column_cases.NAMES)
def test_classic(classic: dict[str, str], name: str) -> None:
    assert not classic[name], classic[name]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", column_cases.NAMES)
def test_connect(connect: dict[str, str], name: str) -> None:
    assert not connect[name], connect[name]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a", ["a"]),
        ("x.a", ["x", "a"]),
        ("`x.y`", ["x.y"]),
        ("x.`y.z`.f", ["x", "y.z", "f"]),
        ("`we``ird`", ["we`ird"]),
        ("with space", ["with space"]),
    ],
)
def test_name_parts(name: str, parts: list[str]) -> None:
    assert name_parts(name) == parts
