"""Inputs too large for a nested loop in Spark, in a separate script, with typical settings."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from tests.effort import some

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).with_name("larger_inputs.py")
WAYS = [
    "-".join(way) for way in product(("adaptive", "fixed"), ("", "left"), ("views", "parquet", "cached", "shuffled"))
]


def run(left_rows: int, right_rows: int, place: Path, ways: list[str]) -> None:
    command = [sys.executable, str(SCRIPT), str(left_rows), str(right_rows), str(place), *ways]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def test_a_script(tmp_path: Path) -> None:
    run(60_000, 60_000, tmp_path, some(WAYS, 3))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(60_000, 60_000), (300_000, 30_000)], ids=str)
def test_every_way(rows: tuple[int, int], tmp_path: Path) -> None:
    run(*rows, tmp_path, WAYS)
