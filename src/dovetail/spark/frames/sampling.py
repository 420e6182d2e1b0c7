"""Samples both sides before the join: the number of rows, some random rows, and the range of their keys.

It takes one pass over the columns of the condition. Every task returns its number of rows, a uniform sample of them and
the extremes of its keys. The driver merges them into one sample.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from dovetail.columns.batches import concatenate, empty_batch, one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.planning.statistics import SAMPLE, Reach, Sample, Samples, measure, sampled_columns
from dovetail.spark.exchange.packing import Rewrite, as_planned, collected, from_bytes, to_bytes
from dovetail.spark.frames.file_rows import FileRows
from dovetail.spark.session.workers import freeze_modules

SAMPLED = "side tinyint, rows bigint, sample binary, boxes binary, longest array<double>, by_length array<binary>"
MEASURED_ROWS = 1000
READ_HERE = 1 << 28  # bytes of files that are read in less than a second; starting a Spark job takes as long


def sample_sides(
    frames: tuple[DataFrame, DataFrame],
    condition: Condition,
    size: int = SAMPLE,
    files: tuple[FileRows | None, FileRows | None] = (None, None),
) -> Samples:
    """The statistics from one pass over both sides, with samples of at most `size` rows each.

    Small files are read here, other inputs in one Spark job.
    """
    schemas = [_sampled_schema(condition, side) for side in Side]
    found: list[Row] = []
    jobs: list[DataFrame] = []
    for side in Side:
        columns, of_files = _columns(frames[side], condition, side, schemas[side]), files[side]
        if of_files is not None and of_files.bytes_of(columns) <= READ_HERE:
            drawn = _draw(condition, side, schemas[side], size, 0, of_files.batches(columns))
            found += [Row(**row) for row in drawn.to_pylist()]
        else:
            jobs.append(_sampled(frames[side], condition, side, schemas[side], size, of_files))
    if jobs:
        found += reduce(DataFrame.unionAll, jobs).collect()
    rows = [[row for row in found if row.side == side] for side in Side]
    left, right = (_one_sample(rows[side], condition, schemas[side], size) for side in Side)
    return left, right


def sample_by_spark(frames: tuple[DataFrame, DataFrame], condition: Condition, size: int = SAMPLE) -> Samples:
    """The same without Python workers, by two jobs. The range of keys stays unknown."""
    counts = [frames[side].select(F.lit(int(side)).alias("side"), F.lit(1).alias("row")) for side in Side]
    counted = counts[0].unionAll(counts[1]).groupBy("side").count().collect()
    rows = {Side(row.side): int(row[1]) for row in counted}
    left, right = (_drawn_by_spark(frames[side], condition, side, rows.get(side, 0), size) for side in Side)
    return left, right


def _drawn_by_spark(frame: DataFrame, condition: Condition, side: Side, rows: int, size: int) -> Sample:
    schema = _sampled_schema(condition, side)
    read = frame.select(*_columns(frame, condition, side, schema))
    if rows > size:
        read = read.sample(min(1.0, size / rows), int(side))
    found = [as_planned(batch, schema) for batch in read.toArrow().to_batches()]
    return Sample(rows, one_batch(found, schema))


def sample_side(frame: DataFrame, condition: Condition, side: Side, size: int = SAMPLE) -> Sample:
    """The same for one side."""
    schema = _sampled_schema(condition, side)
    return _one_sample(_sampled(frame, condition, side, schema, size).collect(), condition, schema, size)


def _sampled(
    frame: DataFrame, condition: Condition, side: Side, schema: pa.Schema, size: int, files: FileRows | None = None
) -> DataFrame:
    """The findings of each task, as one row."""
    columns, sample = _columns(frame, condition, side, schema), sampler(condition, side, schema, size)
    if files is not None:
        return files.rewrite(sample, SAMPLED, columns)
    return frame.select(*columns).mapInArrow(sample, SAMPLED)


def _columns(frame: DataFrame, condition: Condition, side: Side, schema: pa.Schema) -> list[str]:
    """The frame's names of the sampled columns."""
    names = condition.schema(side).names
    return [frame.columns[names.index(name)] for name in schema.names]


def _sampled_schema(condition: Condition, side: Side) -> pa.Schema:
    schema = condition.schema(side)
    return pa.schema([schema.field(name) for name in sampled_columns(condition, side)])


def sampler(condition: Condition, side: Side, schema: pa.Schema, size: int) -> Rewrite:
    def sample(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield _draw(condition, side, schema, size, context.partitionId() if context is not None else 0, batches)
        freeze_modules()

    return sample


def _draw(
    condition: Condition, side: Side, schema: pa.Schema, size: int, seed: int, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatch:
    """The statistics and a sample of some rows, as one row."""
    # Seeds differ, or two samples of one table would be the same rows.
    rng = np.random.default_rng((side, seed))
    rows = 0
    kept, ranks = empty_batch(schema), np.empty(0)
    reached: Reach | None = None
    for batch in collected(batches):
        new = as_planned(batch, schema)
        rows += new.num_rows
        measured = measure(condition, side, new)
        reached = measured if reached is None else reached if measured is None else reached + measured
        drawn = rng.random(new.num_rows)
        low = np.flatnonzero(drawn < ranks.max()) if len(ranks) == size else np.arange(new.num_rows)
        kept, ranks = concatenate([kept, take_rows(new, low)]), np.concatenate([ranks, drawn[low]])
        if len(ranks) > size:  # the rows with the smallest random ranks are a uniform sample
            chosen = np.argpartition(ranks, size)[:size]
            kept, ranks = take_rows(kept, chosen), ranks[chosen]
    columns = [
        pa.array([side], pa.int8()),
        pa.array([rows], pa.int64()),
        pa.array([to_bytes(kept).to_pybytes()]),
        pa.array([None if reached is None else reached.boxes.tobytes()], pa.binary()),
        pa.array([None if reached is None else list(reached.longest)], pa.list_(pa.float64())),
        pa.array([None if reached is None else [n.tobytes() for n in reached.by_length]], pa.list_(pa.binary())),
    ]
    return pa.RecordBatch.from_arrays(columns, ["side", "rows", "sample", "boxes", "longest", "by_length"])


def _one_sample(found: list[Row], condition: Condition, schema: pa.Schema, size: int) -> Sample:
    """Merge the findings of all tasks of a side: from each task rows in proportion to its share."""
    rng = np.random.default_rng(0)
    rows = sum(row.rows for row in found)
    keys, parts = len(condition.strategy.ordered_keys), [empty_batch(schema)]
    reached = []
    for row in found:
        if row.boxes is not None:
            boxes = np.frombuffer(row.boxes, np.int64).reshape(-1, keys, 2)
            by_length = tuple(np.frombuffer(counts, np.int64) for counts in row.by_length)
            reached.append(Reach(boxes, tuple(row.longest), by_length))
        part = from_bytes(row.sample)
        wanted = min(part.num_rows, -(-size * row.rows // max(1, rows)))
        parts.append(take_rows(part, rng.choice(part.num_rows, wanted, replace=False)))
    return Sample(rows, concatenate(parts), reduce(operator.add, reached) if reached else None)


def measured_row_bytes(frame: DataFrame) -> int:
    """The average size of a row, measured on the first rows."""
    found = frame.limit(MEASURED_ROWS).mapInArrow(_measure, "rows bigint, bytes bigint").collect()
    rows = sum(row.rows for row in found)
    return -(-sum(row.bytes for row in found) // rows) if rows else 0


def _measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "bytes": [batch.nbytes]})
