"""Results into Parquet files, written by the tasks that make them: Arrow batches never become Spark's rows.

    tasks      one file each, under a name of its own, in a directory that readers do not see
    driver     the files of tasks that succeeded --renamed--> the directory that readers see, all at once

Attempts that fail, or that Spark runs twice, leave files that nobody renames. Until the renaming there is nothing to be
seen; after it there is everything.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    CalendarIntervalType,
    GeographyType,
    GeometryType,
    NullType,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from dovetail.errors import InputError
from dovetail.spark.diag.join import DiagonalTables
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.exchange.partitions import Part, in_tasks
from dovetail.spark.frames.schemas import arrow_schema, parts_of
from dovetail.spark.session.shared_directory import ADVICE as SHARED
from dovetail.spark.session.shared_directory import local_path, shared_directory
from dovetail.spark.session.worker_python import prepare_workers
from dovetail.spark.session.workers import settle

MODES = ("error", "overwrite", "append")
ADVICE = SHARED.format("Give") + " For other storage use frame.write."
GROUP_ROWS = 1 << 18  # of a row group, or
GROUP_BYTES = 1 << 26
MANIFEST = "file string, rows bigint"
ARROW_MANIFEST = pa.schema([("file", pa.string()), ("rows", pa.int64())])
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"  # where Spark keeps what Parquet does not know of a column
UNSTORED = (
    CalendarIntervalType,
    GeographyType,
    GeometryType,
    NullType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

_joins: WeakKeyDictionary[DataFrame, DiagonalTables] = WeakKeyDictionary()


class Written(NamedTuple):
    """What was written."""

    files: int
    rows: int


def remember_join(frame: DataFrame, join: DiagonalTables) -> DataFrame:
    """The frame; if it is written as it is, the tasks of the join write."""
    _joins[frame] = join
    return frame


def write_dataframe(frame: DataFrame, path: str | os.PathLike[str], mode: str) -> Written:
    """Write a DataFrame at rest into a directory of Parquet files."""
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}; got {mode!r}.")
    if frame.isStreaming:
        raise InputError("a stream is written by its query: use frame.writeStream.")
    _check_types(frame.schema)
    prepare_workers(frame.sparkSession)
    target = local_path(os.fspath(path), ADVICE)
    make = partial(_staging_directory, target, mode, f"_dovetail-{uuid.uuid4().hex}")
    shared = shared_directory(frame.sparkSession, make, ADVICE, is_scratch=True)
    stage = shared.path
    try:
        parts = sorted((row.file, row.rows) for row in _manifest(frame, stage).collect())
        return shared.run(partial(_finish, target, stage, parts, mode, frame.schema, arrow_schema(frame)))
    finally:
        shared.run(partial(shutil.rmtree, stage, ignore_errors=True))


def _check_types(schema: StructType) -> None:
    for field in schema.fields:
        if any(isinstance(part, UNSTORED) for part in parts_of(field.dataType)):
            raise InputError(
                f"column {field.name} is of the Spark type {field.dataType.simpleString()}, which Arrow cannot write "
                "to Parquet. Cast it, or use frame.write."
            )


def _manifest(frame: DataFrame, stage: Path) -> DataFrame:
    """One job that writes everything, and says what."""
    join = _joins.get(frame)
    if join is None:
        return frame.mapInArrow(_writer(stage, frame.schema), MANIFEST)
    slices = len(join.sliced.slices)
    manifest = in_tasks(frame.sparkSession, slices, _part_writer(stage, join.hits(), frame.schema), MANIFEST)
    for rest in join.rest():
        manifest = manifest.unionAll(rest.mapInArrow(_writer(stage, frame.schema, slices), MANIFEST))
    return manifest


# In the tasks.


def _part_writer(stage: Path, part: Part, schema: StructType) -> Part:
    def write(number: int) -> Iterator[pa.RecordBatch]:
        return _write_part(stage, number, part(number), schema)

    return write


def _writer(stage: Path, schema: StructType, first: int = 0) -> Rewrite:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from _write_part(stage, first + (0 if context is None else context.partitionId()), batches, schema)
        settle()

    return write


def _write_part(
    stage: Path, number: int, batches: Iterable[pa.RecordBatch], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Write batches to a file that no other attempt writes to, and say so when it is complete."""
    name = f"part-{number:05d}-{uuid.uuid4().hex}.parquet"
    rows, writer = 0, None
    for table in _group_batches(batches):
        if writer is None:
            writer = pq.ParquetWriter(stage / name, table.schema, store_decimal_as_integer=True)
            writer.add_key_value_metadata({SPARK_SCHEMA: schema.json()})
        writer.write_table(table, row_group_size=table.num_rows)
        rows += table.num_rows
    if writer is not None:
        writer.close()
        yield pa.RecordBatch.from_pylist([{"file": name, "rows": rows}], ARROW_MANIFEST)


def _group_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As many batches together as make a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


# In the driver, or in a task if only the workers see the directory. Tasks may be run again.


def _staging_directory(target: Path, mode: str, name: str) -> Path:
    """A directory beside the target, or inside if that is to stay, which readers pass over."""
    if mode == "error" and target.exists():
        raise InputError(f"{target} exists: give another path, or mode='overwrite' or 'append'.")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; results are written to a directory of files.")
    stays = mode == "append" and target.exists()
    stage = (target if stays else target.parent) / name
    try:
        stage.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target} cannot be written to: {error.strerror}.") from error
    return stage


def _finish(
    target: Path, stage: Path, parts: list[tuple[str, int]], mode: str, schema: StructType, columns: pa.Schema
) -> Written:
    """Let readers see the files of tasks that succeeded."""
    if not parts and not (mode == "append" and target.exists()):
        parts = [(_empty(stage, schema, columns), 0)]
    _commit(target, stage, [file for file, _ in parts], mode)
    return Written(len(parts), sum(rows for _, rows in parts))


def _empty(stage: Path, schema: StructType, columns: pa.Schema) -> str:
    """A file without rows, so that somebody can read the columns."""
    name = f"part-00000-{stage.name.rpartition('-')[2]}.parquet"
    with pq.ParquetWriter(stage / name, columns, store_decimal_as_integer=True) as writer:
        writer.add_key_value_metadata({SPARK_SCHEMA: schema.json()})
    return name


def _commit(target: Path, stage: Path, files: list[str], mode: str) -> None:
    left = [file for file in files if not (target / file).exists()]  # names are unique: the others are committed
    if not left:
        return
    if mode == "append" and target.exists():
        for file in left:
            os.rename(stage / file, target / file)
        return
    new, old = stage / "new", stage / "old"
    new.mkdir(exist_ok=True)
    for file in left:
        if not (new / file).exists():
            os.rename(stage / file, new / file)
    (new / "_SUCCESS").touch()
    if mode == "overwrite" and target.exists():
        os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(old, target)
            raise
    else:
        os.rename(new, target)
