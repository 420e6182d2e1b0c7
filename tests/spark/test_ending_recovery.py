"""Streams that end, by operators that leave work for later: killed in every phase, and held to their memory."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.killing import Batch, Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = 8  # of each side; the last one says that there are no more
KEYS = 40_000
END = 1  # row of each side


class Sources:
    """Files of both sides, which appear when they are let go."""

    def __init__(self, place: Path, rows: int, text: int) -> None:
        rng = np.random.default_rng(0)
        self.place = place
        self.tables = []
        self.given = 0
        for side in ("left", "right"):
            (place / side).mkdir()
            (place / f"{side}-waiting").mkdir()
            keys = rng.integers(0, KEYS, rows)
            words = pa.array([f"{i:0{text}d}" for i in range(rows)])
            table = pa.table({"k": keys, "s": words, "kind": ["row"] * rows, side: np.arange(rows)})
            self.tables.append(table)
            end = pa.table({"k": [0], "s": [""], "kind": ["end"], side: [-1]})
            parts = [table.take(part) for part in np.array_split(np.arange(rows), FILES - 1)]
            for number, part in enumerate([*parts, end]):
                pq.write_table(part, place / f"{side}-waiting" / f"{number}.parquet")

    def give(self, upto: int) -> None:
        """Let files go, up to this one."""
        for number in range(self.given, upto):
            for side in ("left", "right"):
                path = self.place / f"{side}-waiting" / f"{number}.parquet"
                os.utime(path, (number, number))  # Spark reads the oldest first
                path.rename(self.place / side / path.name)
        self.given = max(upto, self.given)

    def expected(self) -> Counter[tuple[int, int]]:
        left, right = (table.select(["k", side]) for table, side in zip(self.tables, ("left", "right"), strict=True))
        pairs = left.join(right, "k", join_type="inner")
        return Counter(zip(pairs["left"].to_pylist(), pairs["right"].to_pylist(), strict=True))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


def describe(place: Path, algorithm: str, memory: str, cells: int) -> None:
    join = {"on": "l.k = r.k", "algorithm": algorithm, "memory": memory, "cells": cells, "end": "kind = 'end'"}
    (place / "join.json").write_text(json.dumps(join))


def results(spark: SparkSession, place: Path) -> Counter[tuple[int, int]]:
    sink = spark.read.parquet(str(place / "results")).select("left", "right").toArrow()  # by the log of the sink
    return Counter(zip(sink["left"].to_pylist(), sink["right"].to_pylist(), strict=True))


def arriving(batch: Batch) -> bool:
    return batch.rows > 2 * END


def idle(batch: Batch) -> bool:
    return batch.rows == 0


def at_the_end(batch: Batch) -> bool:
    """The micro-batch that tells the end, or one after it."""
    return batch.rows <= 2 * END


@pytest.mark.parametrize("algorithm", ["diner", "xjoin", "hmj", "rpj", "pmj"])
def test_kills_in_every_phase(algorithm: str, job: Job, spark: SparkSession) -> None:
    rng = random.Random(algorithm)
    sources = Sources(job.place, rows=60_000, text=100)
    describe(job.place, algorithm, memory="1MB", cells=2)
    sources.give(4)
    job.kill_jvm(batches=1, pause=rng.random(), phase=arriving)
    assert not job.kill_workers(batches=1, master="local[2]", phase=arriving)
    job.kill_jvm(batches=1, pause=2 * rng.random(), phase=idle)
    assert not job.kill_workers(batches=1, master="local[2]", phase=idle, pause=1.5)
    sources.give(FILES - 1)
    job.kill_jvm(batches=2, pause=rng.random(), phase=arriving)
    sources.give(FILES)
    job.kill_jvm(batches=1, pause=rng.random() / 2, phase=at_the_end)
    assert job.kill_workers(batches=1, master="local[2]", phase=at_the_end, pause=1.5) or job.run_to_the_end()
    assert results(spark, job.place) == sources.expected()


@pytest.mark.parametrize("algorithm", ["diner", "xjoin", "hmj", "rpj", "pmj"])
def test_a_worker_keeps_to_its_memory(algorithm: str, tmp_path: Path, spark: SparkSession) -> None:
    """One cell: a worker with a budget, and data that is four times as large; beside the same with hardly any data."""
    budget = 64_000_000
    peaks = []
    for name, rows in (("small", 2_000), ("large", 400_000)):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name)
        sources = Sources(job.place, rows, text=300)
        describe(job.place, algorithm, memory=f"{budget}", cells=1)
        sources.give(FILES)
        try:
            assert job.run_to_the_end("local[1]")
        finally:
            job.end()
        assert results(spark, job.place) == sources.expected()
        peaks.append(job.peak_rss)
    grown = peaks[1] - peaks[0]
    assert grown <= 1.3 * budget, f"{peaks[0] / 1e6:.0f} MB without data, {grown / 1e6:.0f} MB more with it"
