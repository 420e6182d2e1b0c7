"""Measures how well files are clustered alike. Tasks do it if one process would take long."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.diag.clusteredness import (
    BATCH_ROWS,
    Clusteredness,
    PartnerSample,
    Sampled,
    clusteredness,
    measure,
    partners_in,
    sample,
)
from dovetail.diag.slices import Range, cut_slices
from dovetail.planning.statistics import read_columns
from dovetail.sources.parquet_files import ParquetRows
from dovetail.sources.protocol import Scan
from dovetail.spark.exchange.arrow_tasks import Part, in_tasks
from dovetail.spark.session.shared_directory import runs_here

HERE = 1 << 23  # rows of R1 whose keys the driver reads, in about a second, if tasks run on its machine
HERE_OF_A_CLUSTER = 1 << 17  # the same, if tasks run elsewhere
FOUND = "row array<int>, first array<bigint>, times array<bigint>"
ARROW_FOUND = pa.schema(
    [("row", pa.list_(pa.int32())), ("first", pa.list_(pa.int64())), ("times", pa.list_(pa.int64()))]
)


def measured_by(spark: SparkSession, tasks: int) -> Callable[[Condition, tuple[Scan, Scan], Side], Clusteredness]:
    """Samples RN in the driver. Partners are looked up in the keys of R1, by tasks if there are many."""

    def look(condition: Condition, scans: tuple[Scan, Scan], one: Side) -> Clusteredness:
        scan = scans[one]
        if scan.rows <= (HERE if runs_here(spark) else HERE_OF_A_CLUSTER) or not isinstance(scan, ParquetRows):
            return measure(condition, scans, one)
        sampled = sample(condition, scans[one.other], one.other)
        parts = cut_slices(scan, tasks)
        rows = in_tasks(spark, len(parts), _finder(condition, one, sampled, scan, parts), FOUND).collect()
        nothing = PartnerSample(np.full(len(sampled.hashes), scan.rows), np.zeros(len(sampled.hashes), np.int64))
        found = reduce(operator.add, (_spread(row.row, row.first, row.times, nothing) for row in rows), nothing)
        return clusteredness(scans, one, sampled, found)

    return look


def _finder(condition: Condition, one: Side, sampled: Sampled, scan: ParquetRows, parts: list[Range]) -> Part:
    def find(number: int) -> Iterator[pa.RecordBatch]:
        found = partners_in(
            condition, one, sampled, scan.places(BATCH_ROWS, read_columns(condition, one), *parts[number])
        )
        rows = np.flatnonzero(found.times)
        lists = {"row": rows, "first": found.first[rows], "times": found.times[rows]}
        yield pa.RecordBatch.from_pylist([{name: values.tolist() for name, values in lists.items()}], ARROW_FOUND)

    return find


def _spread(rows: list[int], first: list[int], times: list[int], nothing: PartnerSample) -> PartnerSample:
    """The findings of one task, spread over all sampled rows."""
    spread = PartnerSample(nothing.first.copy(), nothing.times.copy())
    spread.first[rows], spread.times[rows] = first, times
    return spread
