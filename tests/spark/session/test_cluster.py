"""A cluster of two workers with separate disks: every class and type of join; executors, workers and drivers die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.streaming.killing import Job, any_batch

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
JOB = "tests.spark.session.cluster_job"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    from tests.spark.session.separate_disks import why_not

    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    for name in ("own", "shared"):
        (tmp_path / name).mkdir()
    return tmp_path


KILLED = [f"{part} {kind}" for part in ("stream", "multijoin", "diag") for kind in ("executor", "worker")]


@pytest.mark.parametrize("part", ["classes", "kills", *KILLED])
def test_joins_are_exact(part: str, place: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(place / "own")}
    job = [sys.executable, "-m", JOB, str(place), *part.split()]
    run = subprocess.run(job, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-8000:]


def test_a_driver_of_512_mb_joins_what_is_larger(place: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(place / "own"), "PYSPARK_DRIVER_PYTHON": sys.executable}
    job = [sys.executable, "-m", "tests.spark.session.small_driver_job", str(place)]
    run = subprocess.run(job, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-8000:]


def test_a_driver_that_dies_is_followed_by_another(place: Path) -> None:
    """State, checkpoint and results are in the shared directory."""
    from tests.spark.session.cluster_job import pairs_of, write_side
    from tests.spark.session.separate_disks import cluster

    shared = place / "shared"
    tables = [write_side(shared / name, name) for name in ("left", "right")]
    (shared / "join.json").write_text(json.dumps({"on": "l.k = r.k", "cells": 2}))
    job = Job(shared)
    try:
        with cluster(place) as master:
            for pause in (0.0, 0.5):
                with job.started(master) as running:
                    job.wait_for(running, 1, any_batch)
                    job._kill_jvm(running, pause)
            assert job.run_to_the_end(master), (shared / "job.log").read_text()[-3000:]
    finally:
        job.end()
    both = tables[0].join(tables[1], "k", join_type="inner")
    found: Counter[Any] = Counter()
    for file in committed_files(shared / "results"):
        found += pairs_of(pq.read_table(file))
    assert found == pairs_of(both)


def committed_files(sink: Path) -> set[str]:
    """The files named in the log of Spark's sink."""
    logs = [p for p in (sink / "_spark_metadata").iterdir() if p.name.isdigit() or p.name.endswith(".compact")]
    entries = [json.loads(line) for path in logs for line in path.read_text().splitlines()[1:]]
    return {entry["path"].removeprefix("file://") for entry in entries}
