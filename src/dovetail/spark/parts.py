"""Tasks that are told which part of the work is theirs, and nothing else: no rows travel to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dovetail.spark.decimals import map_in_arrow
from dovetail.spark.packing import Rewrite
from dovetail.spark.workers import settle

Part = Callable[[int], Iterator[pa.RecordBatch]]
"""From the number of a part to what it gives."""


def in_tasks(spark: SparkSession, tasks: int, part: Part, schema: StructType | str) -> DataFrame:
    """A task for each part, without a shuffle."""
    numbers = spark.range(0, tasks, 1, tasks)
    return map_in_arrow(numbers, _parts(part), schema)


def _parts(part: Part) -> Rewrite:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from part(number)
        settle()

    return run
