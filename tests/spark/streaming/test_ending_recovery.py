"""Streams that end, with operators that defer work: killed in every phase, and checked against their memory."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.streaming.killing import Batch, Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = 8  # per input; the last one marks the end
KEYS = {2: 40_000, 3: 200_000}  # by the number of inputs
END = 1  # row of each input


ALGORITHMS = ("diner", "diner_merge", "adaptive", "xjoin", "hmj", "rpj", "pmj", "miner")


def inputs_of(algorithm: str) -> tuple[str, ...]:
    return ("a", "b", "c") if algorithm == "miner" else ("left", "right")


class Sources:
    """Files of all inputs, which appear when released."""

    def __init__(self, place: Path, names: tuple[str, ...], rows: int, keys: int, text: int) -> None:
        rng = np.random.default_rng(0)
        self.place, self.names = place, names
        self.tables = []
        self.given = 0
        for name in names:
            (place / name).mkdir()
            (place / f"{name}-waiting").mkdir()
            values = rng.integers(0, keys, rows)
            words = pa.array([f"{i:0{text}d}" for i in range(rows)])
            table = pa.table({"k": values, "s": words, "kind": ["row"] * rows, name: np.arange(rows)})
            self.tables.append(table)
            end = pa.table({"k": [0], "s": [""], "kind": ["end"], name: [-1]})
            parts = [table.take(part) for part in np.array_split(np.arange(rows), FILES - 1)]
            for number, part in enumerate([*parts, end]):
                pq.write_table(part, place / f"{name}-waiting" / f"{number}.parquet")

    def give(self, upto: int) -> None:
        """Release files up to this one."""
        for number in range(self.given, upto):
            for name in self.names:
                path = self.place / f"{name}-waiting" / f"{number}.parquet"
                os.utime(path, (number, number))  # Spark reads the oldest first
                path.rename(self.place / name / path.name)
        self.given = max(upto, self.given)

    def expected(self) -> Counter[tuple[int, ...]]:
        tables = [table.select(["k", name]) for table, name in zip(self.tables, self.names, strict=True)]
        joined = reduce(lambda left, right: left.join(right, "k", join_type="inner"), tables)
        return Counter(zip(*(joined[name].to_pylist() for name in self.names), strict=True))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


def describe(place: Path, algorithm: str, memory: str, cells: int) -> None:
    options = {"algorithm": algorithm, "memory": memory, "cells": cells, "end": "kind = 'end'"}
    if algorithm == "miner":
        join = {"on": "a.k = b.k AND b.k = c.k", "inputs": inputs_of(algorithm), **options}
    else:
        join = {"on": "l.k = r.k", **options}
    (place / "join.json").write_text(json.dumps(join))


def results(spark: SparkSession, place: Path, names: tuple[str, ...]) -> Counter[tuple[int, ...]]:
    sink = spark.read.parquet(str(place / "results")).select(*names).toArrow()  # from the log of the sink
    return Counter(zip(*(sink[name].to_pylist() for name in names), strict=True))


def arriving(batch: Batch) -> bool:
    return batch.rows > 3 * END


def idle(batch: Batch) -> bool:
    return batch.rows == 0


def at_the_end(batch: Batch) -> bool:
    """The micro-batch that announces the end, or a later one."""
    return batch.rows <= 3 * END


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_kills_in_every_phase(algorithm: str, job: Job, spark: SparkSession) -> None:
    rng = random.Random(algorithm)
    names = inputs_of(algorithm)
    sources = Sources(job.place, names, rows=60_000, keys=KEYS[len(names)], text=100)
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
    assert results(spark, job.place, names) == sources.expected()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_worker_keeps_to_its_memory(algorithm: str, tmp_path: Path, spark: SparkSession) -> None:
    """With one cell, a worker has a budget and four times as much data; compared with a run with hardly any data."""
    budget, names = 64_000_000, inputs_of(algorithm)
    peaks = []
    for name, rows in (("small", 2_000), ("large", 800_000 // len(names))):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name)
        sources = Sources(job.place, names, rows, keys=200_000, text=300)  # few results: writing them takes long
        describe(job.place, algorithm, memory=f"{budget}", cells=1)
        sources.give(FILES)
        try:
            assert job.run_to_the_end("local[1]")
        finally:
            job.end()
        assert results(spark, job.place, names) == sources.expected()
        peaks.append(job.peak_rss)
    grown = peaks[1] - peaks[0]
    assert grown <= 1.3 * budget, f"{peaks[0] / 1e6:.0f} MB without data, {grown / 1e6:.0f} MB more with it"
