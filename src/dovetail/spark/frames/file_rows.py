"""Inputs that tasks read themselves: plain Parquet files.

Spark's scan converts the columns of a file to rows, and for Python workers back to columns. That costs more than most
joins. Tasks that read the files get columns as they are stored, and only the needed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from dovetail.condition import Expression, columns_of, evaluate
from dovetail.errors import DovetailError
from dovetail.sources.parquet_files import ParquetRows
from dovetail.spark.exchange.arrow_tasks import in_tasks
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.frames.binding import value_bytes
from dovetail.spark.frames.parquet_frames import NotPlainError, plain_read
from dovetail.spark.session.shared_directory import runs_here
from dovetail.spark.session.task_calls import call_in_each_task

PART_BYTES = 1 << 26  # read by a task, as a rule
BATCH_BYTES = 1 << 22
MOST_FILES = 1 << 10  # in an object store, where each footer takes a request
LEAST_ROWS = 1 << 17  # on a cluster, where a job has to check that workers can read the files


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a DataFrame, divided into a part for each task."""

    spark: SparkSession
    rows: ParquetRows  # with the column names of the DataFrame, including columns that filters read
    columns: tuple[str, ...]  # of the DataFrame
    filters: tuple[Expression, ...]  # of the DataFrame, as conditions on a left side
    parts: tuple[tuple[int, int], ...]

    def bytes_of(self, columns: Sequence[str]) -> int:
        """Approximate size of these columns in memory."""
        read = [self.rows.schema.field(name).type for name in self._reader(columns).read]
        return self.rows.rows * sum(map(value_bytes, read))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, read by this process."""
        reader = self._reader(columns)
        return (batch for number in range(len(self.parts)) for batch in reader.batches(number))

    def rewrite(self, rewrite: Rewrite, schema: str, columns: Sequence[str] | None = None) -> DataFrame:
        """The result of a function for mapInArrow on these columns, or on all."""
        reader = self._reader(columns or self.columns)
        return in_tasks(self.spark, len(self.parts), lambda number: rewrite(reader.batches(number)), schema)

    def _reader(self, columns: Sequence[str]) -> _Reader:
        return _Reader(self.rows, self.filters, self.parts, tuple(columns))


Files = tuple[FileRows | None, FileRows | None]
"""The files of both sides. None for a side that is not a plain read of files."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """The part that is sent to the tasks."""

    rows: ParquetRows
    filters: tuple[Expression, ...]
    parts: tuple[tuple[int, int], ...]
    columns: tuple[str, ...]

    @property
    def read(self) -> set[str]:
        """The requested columns, and those of filters."""
        return {*self.columns, *(column.name for part in self.filters for column in columns_of(part))}

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        read = list(self.read)
        most_rows = max(1, BATCH_BYTES * self.rows.rows // max(1, self.rows.total_bytes()))
        for place in self.rows.places(most_rows, read, *self.parts[number]):
            batch = place.batch
            for part in self.filters:
                batch = batch.filter(pc.fill_null(evaluate(part, batch, None), False))
            yield batch.select(self.columns)


def plain_files(frames: tuple[DataFrame, DataFrame]) -> Files:
    """Each side as files that the driver can read. None if Spark has to read it."""
    return _plain_files(frames[0]), _plain_files(frames[1])


def for_tasks(files: Files) -> Files:
    """The same, if workers can read these files, too."""
    found = [side.rows for side in files if side is not None]
    spark = next((side.spark for side in files if side is not None), None)
    if spark is None or runs_here(spark):
        return files
    few = sum(rows.rows for rows in found) < LEAST_ROWS
    return (None, None) if few or not are_reached(spark, found) else files


def _plain_files(frame: DataFrame) -> FileRows | None:
    try:
        rows, filters = plain_read(frame, MOST_FILES, with_filtered=True)
    except (NotPlainError, DovetailError):
        return None
    if not rows.rows or not frame.columns:
        return None
    cores = frame.sparkSession.sparkContext.defaultParallelism
    wanted = max(cores, -(-rows.total_bytes() // PART_BYTES))
    return FileRows(frame.sparkSession, rows, tuple(frame.columns), filters, tuple(rows.cut(wanted)))


def are_reached(spark: SparkSession, scans: Sequence[ParquetRows]) -> bool:
    """Whether workers find the files that the driver sees."""
    return runs_here(spark) or all(call_in_each_task(spark, lambda _: all(scan.is_unchanged() for scan in scans)))
