"""The queries of the SPO-Join paper on real data: in one operator, in cells, and on Spark, against a per-row oracle."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.streaming.window_cells import played, query
from tests.spark.streaming.window_oracle import Results, Source
from tests.spark.streaming.window_queries import QUERIES, read

import dovetail

ROWS = 900  # per stream


def micro_batches(rows: int) -> Iterator[list[Source]]:
    """Micro-batches with one partition per stream, and this many rows of each."""
    for start in range(0, ROWS, rows):
        numbers = range(start, min(start + rows, ROWS))
        yield [(0, numbers), (1, numbers)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [50, 300])
@pytest.mark.parametrize("name", QUERIES)
def test_in_one_operator(name: str, rows: int) -> None:
    """Here the rows of a side arrive together, the left side first."""
    case = read(name, ROWS)
    oracle = case.oracle()
    schedule: list[tuple[Any, ...]] = []
    expected: Results = Counter()
    for sources in micro_batches(rows):
        for side, numbers in sources:
            expected += oracle.micro_batch([(side, numbers)])
            schedule.append(("lr"[side], len(numbers)))
            if oracle.horizon is not None:
                schedule.append(("watermark", oracle.horizon))
    run = dovetail.testing.simulate(
        "spo", case.left, case.right, case.on, schedule, window=case.window, block_rows=rows
    )
    assert Counter(run.pairs) == expected
    assert expected.total() > ROWS


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("rows", "cells"), [(50, 3), (300, 1), pytest.param(300, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", QUERIES)
def test_in_cells(name: str, rows: int, cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, rng = read(name, ROWS), random.Random(0)
    oracle = case.oracle()
    task: SimpleNamespace = played(monkeypatch)
    task.query = query((case.left, case.right), case.on, "inner", case.window, tmp_path, cells=cells)
    for sources in micro_batches(rows):
        assert task.query.micro_batch(sources, rng)[0] == oracle.micro_batch(sources)


MORE = [(name, rows, cells) for name in QUERIES for rows, cells in ((90, 1), (450, 2))]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in MORE]


@pytest.mark.one_in(2)
@pytest.mark.spark
@pytest.mark.parametrize(("name", "rows", "cells"), [("Q2", 450, 9), *SLOW])
def test_on_spark(name: str, rows: int, cells: int, spark: SparkSession, tmp_path: Path) -> None:
    case = read(name, ROWS)
    for side, table in (("l", case.left), ("r", case.right)):
        (tmp_path / side).mkdir()
        for number, start in enumerate(range(0, ROWS, rows)):
            path = tmp_path / side / f"{number:03}.parquet"
            pq.write_table(table.slice(start, rows), path)
            os.utime(path, (number, number))  # Spark reads the oldest first
    readers = [spark.readStream.schema(spark.read.parquet(str(tmp_path / side)).schema) for side in "lr"]
    left, right = (
        reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / side))
        for reader, side in zip(readers, "lr", strict=True)
    )
    options = {"window": case.window, "cells": cells, "state_dir": str(tmp_path / "state")}
    joined = dovetail.join(left, right, case.on, **options).select("left_row", "right_row")
    name = f"window_query_{os.getpid()}"
    writer = joined.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    oracle = case.oracle()
    expected = sum((oracle.micro_batch(sources) for sources in micro_batches(rows)), Counter())
    assert Counter(map(tuple, spark.table(name).collect())) == expected
