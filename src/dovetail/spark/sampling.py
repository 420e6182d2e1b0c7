"""A look at both sides before the join: how many rows, some of them at random, and how far their keys reach.

One pass over the columns that the condition reads. Every task gives its number of rows, a uniform sample of them and
the extremes of its keys; the driver makes one sample of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row

from dovetail.batch import Side, take_rows
from dovetail.condition import Condition
from dovetail.matchers import Drive
from dovetail.spark.packing import Rewrite, as_planned, from_bytes, to_bytes
from dovetail.spark.workers import settle
from dovetail.statistics import SAMPLE, Extremes, Sample, measure, read_columns

SAMPLED = "rows bigint, sample binary, extremes string"
MEASURED_ROWS = 1000


def sample_side(frame: DataFrame, condition: Condition, drive: Drive, side: Side) -> Sample:
    """What one pass over a side shows."""
    schema = condition.schema(side)
    names = read_columns(condition, side) or schema.names[:1]
    positions = [schema.names.index(name) for name in names]
    keys = pa.schema([schema.field(i) for i in positions])
    selected = frame.select(*(frame.columns[i] for i in positions))
    found = selected.mapInArrow(sampler(condition, drive, side, keys), SAMPLED).collect()
    extremes = [Extremes(**json.loads(row.extremes)) for row in found if row.extremes is not None]
    reached = extremes[0] if extremes else Extremes()
    for more in extremes[1:]:
        reached += more
    return Sample(sum(row.rows for row in found), _one_sample(found, keys), reached)


def sampler(condition: Condition, drive: Drive, side: Side, schema: pa.Schema) -> Rewrite:
    def sample(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(0)
        rows = 0
        kept, ranks = pa.RecordBatch.from_pylist([], schema), np.empty(0)
        reached: Extremes | None = None
        for batch in batches:
            new = as_planned(batch, schema)
            rows += new.num_rows
            measured = measure(condition, drive, side, new)
            reached = measured if reached is None else reached if measured is None else reached + measured
            kept, ranks = pa.concat_batches([kept, new]), np.concatenate([ranks, rng.random(new.num_rows)])
            if len(ranks) > SAMPLE:  # the rows with the smallest random ranks are a uniform sample
                chosen = np.argpartition(ranks, SAMPLE)[:SAMPLE]
                kept, ranks = take_rows(kept, chosen), ranks[chosen]
        extremes = None if reached is None else json.dumps(asdict(reached))
        yield pa.RecordBatch.from_pydict(
            {"rows": [rows], "sample": [to_bytes(kept).to_pybytes()], "extremes": pa.array([extremes], pa.string())}
        )
        settle()

    return sample


def _one_sample(found: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of all tasks, from each as many as its share of the rows."""
    rng = np.random.default_rng(0)
    rows = sum(row.rows for row in found)
    parts = [pa.RecordBatch.from_pylist([], schema)]
    for row in found:
        part = from_bytes(row.sample)
        wanted = min(part.num_rows, -(-SAMPLE * row.rows // max(1, rows)))
        parts.append(take_rows(part, rng.choice(part.num_rows, wanted, replace=False)))
    return pa.concat_batches(parts)


def measured_row_bytes(frame: DataFrame) -> int:
    """The average size of a row, by a look at the first ones."""
    found = frame.limit(MEASURED_ROWS).mapInArrow(_measure, "rows bigint, bytes bigint").collect()
    rows = sum(row.rows for row in found)
    return -(-sum(row.bytes for row in found) // rows) if rows else 0


def _measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "bytes": [batch.nbytes]})
