"""The output of `explain`, compared with golden files.

`DOVETAIL_GOLDEN=write pytest -m "spark or not spark" tests/test_explain.py` rewrites the files; review the diff before
keeping them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path(__file__).parent / "golden" / "explain"
ROWS = 3000
TASKS = 8

CASES = {
    "equality": ("l.k = r.k", "inner"),
    "heavy_keys": ("l.h = r.h AND l.x < r.x", "left"),
    "equality_and_residual": ("l.k = r.k AND (l.x < 3 OR r.y > 4)", "inner"),
    "equality_and_band": ("l.g = r.g AND abs(l.x - r.x) <= 1", "left_semi"),
    "one_inequality": ("l.x < r.x AND l.g <> r.g", "inner"),
    "two_inequalities": ("l.x < r.x AND l.y > r.y", "inner"),
    "two_inequalities_anti": ("l.x < r.x AND l.y > r.y", "left_anti"),
    "three_inequalities": ("l.x < r.x AND l.y > r.y AND l.z <= r.z", "inner"),
    "unequal": ("l.g != r.g", "inner"),
    "band": ("abs(l.x - r.x) <= 0.1 AND l.k > 3", "inner"),
    "band_full": ("l.day BETWEEN r.day - INTERVAL 1 DAY AND r.day", "full"),
    "two_bands": ("abs(l.x - r.x) <= 1 AND abs(l.y - r.y) < 1", "inner"),
    "overlap": ("l.start <= r.end AND l.end >= r.start", "inner"),
    "overlap_left": ("l.start < r.end AND l.end > r.start", "left"),
    "rectangles": ("l.xmin <= r.xmax AND l.xmax >= r.xmin AND l.ymin <= r.ymax AND l.ymax >= r.ymin", "inner"),
    "distance": ("sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) < 1", "inner"),
    "similarity": ("distance(l.v, r.v) <= 0.5", "left_anti"),
    "text": ("l.s < r.s", "inner"),
    "disjunction": ("l.k = r.k OR l.x < r.x - 99", "inner"),
    "disjunction_left": ("(l.k = r.k OR l.g <=> r.g) AND l.x < r.x", "left"),
    "disjunction_without_kernel": ("l.k = r.k OR l.x * r.y > 9000", "inner"),
    "no_condition": ("TRUE", "right"),
}


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x, y = rng.random(ROWS) * 100, rng.random(ROWS) * 100
    start = rng.random(ROWS) * 1000
    return pa.table(
        {
            "k": rng.integers(0, ROWS, ROWS),
            "h": np.where(rng.random(ROWS) < 0.6, 1, rng.integers(0, ROWS, ROWS)),
            "g": rng.integers(0, 3, ROWS),
            "x": x,
            "y": x + rng.random(ROWS),
            "z": y,
            "day": pa.array(rng.integers(19000, 20000, ROWS).astype(np.int32), pa.date32()),
            "start": start,
            "end": start + rng.random(ROWS),
            "xmin": x,
            "xmax": x + 1,
            "ymin": y,
            "ymax": y + 1,
            "s": [f"{number:05}" for number in rng.integers(0, 10**5, ROWS)],
            "v": list(rng.random((ROWS, 8))),
        }
    )


LEFT, RIGHT = table(1), table(2)


def compare(engine: str, name: str, text: str) -> None:
    file = GOLDEN / engine / f"{name}.txt"
    if os.environ.get("DOVETAIL_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert f"{text}\n" == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_in_process(name: str) -> None:
    on, how = CASES[name]
    compare("in_process", name, dovetail.explain(LEFT, RIGHT, on, how).explain())


@pytest.mark.parametrize("name", CASES)
def test_as_rows_come(name: str) -> None:
    on, how = CASES[name]
    compare("progressive", name, dovetail.explain(LEFT, RIGHT, on, how, progressive=True).explain())


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame(LEFT), spark.createDataFrame(RIGHT)


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_on_spark(name: str, frames: tuple[DataFrame, DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.spark.samples import stub_samples  # imports PySpark

    stub_samples(monkeypatch, LEFT, RIGHT)
    on, how = CASES[name]
    compare("spark", name, dovetail.explain(*frames, on, how, cells=TASKS).explain())


def test_every_file_is_of_a_case() -> None:
    assert {engine.name for engine in GOLDEN.iterdir()} == {"in_process", "progressive", "spark"}
    for engine in GOLDEN.iterdir():
        assert {file.stem for file in engine.iterdir()} == set(CASES)
