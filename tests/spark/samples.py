"""Samples of tables, taken in process as Spark's tasks would: for tests that only compare plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.planning.statistics import SAMPLE, Sample, Samples
from dovetail.spark.frames import sampling

TASKS = 2  # in the test session


def stub_samples(monkeypatch: pytest.MonkeyPatch, left: pa.Table, right: pa.Table) -> None:
    """Take samples of these tables without a job."""

    def sample_sides(frames: object, condition: Condition, size: int = SAMPLE, files: object = None) -> Samples:
        return sample(condition, Side.LEFT, left, size), sample(condition, Side.RIGHT, right, size)

    monkeypatch.setattr("dovetail.spark.batch.tables.sample_sides", sample_sides)


def sample(condition: Condition, side: Side, table: pa.Table, size: int) -> Sample:
    schema = sampling._sampled_schema(condition, side)
    parts = table.select(schema.names).to_batches(max_chunksize=-(-table.num_rows // TASKS))
    found: list[Any] = []
    for number, part in enumerate(parts):
        task = SimpleNamespace(partitionId=lambda number=number: number)
        with (
            patch.object(sampling, "TaskContext", SimpleNamespace(get=lambda task=task: task)),
            patch.object(sampling, "freeze_modules"),  # this process is not a worker
        ):
            (made,) = sampling.sampler(condition, side, schema, size)(iter([part]))
        found += [SimpleNamespace(**row) for row in made.to_pylist()]
    return sampling._one_sample(found, condition, schema, size)
