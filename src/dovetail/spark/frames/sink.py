"""Writes results to Parquet files from the tasks that compute them. Arrow batches are not converted to Spark rows.

    tasks      one file each, under a unique name, in a stage that readers do not see
    driver     the files of successful tasks --> visible to readers, all at once (publishing.py)

Failed and duplicate attempts leave files that are never published.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    CalendarIntervalType,
    NullType,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from dovetail.errors import InputError
from dovetail.spark.exchange.arrow_tasks import Part, in_tasks
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.exchange.publishing import STAGE, commit, exists, is_committed, remove_stage, stage_for
from dovetail.spark.frames.schemas import arrow_schema, parts_of
from dovetail.spark.session.shared_directory import ADVICE as SHARED
from dovetail.spark.session.shared_directory import shared_directory
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.versions import types_named
from dovetail.spark.worker_python import prepare_workers
from dovetail.storage.open_store import open_store
from dovetail.storage.owned_place import give_up, own
from dovetail.storage.store import Store

MODES = ("error", "overwrite", "append")
ADVICE = SHARED.format("Give")
GROUP_ROWS = 1 << 18  # of a row group, or
GROUP_BYTES = 1 << 26
MANIFEST = "file string, rows bigint"
ARROW_MANIFEST = pa.schema([("file", pa.string()), ("rows", pa.int64())])
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"  # where Spark stores column types that Parquet does not have
UNSTORED: tuple[type[Any], ...] = (
    CalendarIntervalType,
    *types_named("GeographyType", "GeometryType"),
    NullType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)


class PartedJoin(Protocol):
    """A join with most results in numbered parts computed by tasks, and the rest in DataFrames."""

    @property
    def parts(self) -> int: ...
    def hits(self) -> Part: ...
    def rest(self) -> Iterable[DataFrame]: ...


_joins: WeakKeyDictionary[DataFrame, PartedJoin] = WeakKeyDictionary()
_plans: WeakKeyDictionary[DataFrame, Callable[[], DataFrame]] = WeakKeyDictionary()


class Written(NamedTuple):
    """The outcome of a write."""

    files: int
    rows: int


def remember_join(frame: DataFrame, join: PartedJoin) -> DataFrame:
    """Remember the join of a frame. If the frame is written unchanged, the tasks of the join write it."""
    _joins[frame] = join
    return frame


def join_behind(frame: DataFrame) -> PartedJoin | None:
    """The join whose tasks can write this DataFrame."""
    return _joins.get(frame)


def remember_plan(frame: DataFrame, plan: Callable[[], DataFrame]) -> DataFrame:
    """Remember the plan of a frame that Spark has not planned. It is used if the frame is written unchanged."""
    _plans[frame] = plan
    return frame


def write_dataframe(frame: DataFrame, path: str | os.PathLike[str], mode: str) -> Written:
    """Write a DataFrame at rest into a directory of Parquet files."""
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}; got {mode!r}.")
    if frame.isStreaming:
        raise InputError("a stream is written by its query: use frame.writeStream.")
    _check_types(frame.schema)
    if frame in _plans:
        frame = _plans[frame]()
    prepare_workers(frame.sparkSession)
    target = open_store(path)
    make = partial(stage_for, target, mode, f"{STAGE}{uuid.uuid4().hex}")
    shared = shared_directory(frame.sparkSession, make, ADVICE, is_scratch=True)
    stage = own(shared.place, unless=is_committed) if shared.is_seen else shared.place
    try:
        parts = sorted((row.file, row.rows) for row in _manifest(frame, stage).collect())
        return shared.run(partial(_finish, target, stage, parts, mode, frame.schema, arrow_schema(frame)))
    finally:
        if not give_up(stage):
            shared.run(partial(remove_stage, stage))


def _check_types(schema: StructType) -> None:
    if not schema.fields:
        raise InputError(
            "the DataFrame has no columns, and a Parquet file without columns has no rows: select a column."
        )
    for field in schema.fields:
        if any(isinstance(part, UNSTORED) for part in parts_of(field.dataType)):
            raise InputError(
                f"column {field.name} is of the Spark type {field.dataType.simpleString()}, which Arrow cannot write "
                "to Parquet. Cast it, or use frame.write."
            )


def _manifest(frame: DataFrame, stage: Store) -> DataFrame:
    """One job that writes everything, and returns the list of files."""
    join = join_behind(frame)
    if join is None:
        return frame.mapInArrow(_writer(stage, frame.schema), MANIFEST)
    manifest = in_tasks(frame.sparkSession, join.parts, _part_writer(stage, join.hits(), frame.schema), MANIFEST)
    for rest in join.rest():
        manifest = manifest.unionAll(rest.mapInArrow(_writer(stage, frame.schema, join.parts), MANIFEST))
    return manifest


# In the tasks.


def _part_writer(stage: Store, part: Part, schema: StructType) -> Part:
    def write(number: int) -> Iterator[pa.RecordBatch]:
        return _write_part(stage, number, part(number), schema)

    return write


def _writer(stage: Store, schema: StructType, first: int = 0) -> Rewrite:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from _write_part(stage, first + (0 if context is None else context.partitionId()), batches, schema)
        freeze_modules()

    return write


def _write_part(
    stage: Store, number: int, batches: Iterable[pa.RecordBatch], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Write batches to a file that only this attempt writes to, and report it when it is complete."""
    name = f"part-{number:05d}-{uuid.uuid4().hex}.parquet"
    rows, writer = 0, None
    with ExitStack() as published:
        for table in _group_batches(batches):
            if writer is None:
                writer = _open_writer(stage, name, table.schema, schema, published)
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
        if writer is not None:
            writer.close()
    if writer is not None:
        yield pa.RecordBatch.from_pylist([{"file": name, "rows": rows}], ARROW_MANIFEST)


def _open_writer(
    stage: Store, name: str, columns: pa.Schema, schema: StructType, published: ExitStack
) -> pq.ParquetWriter:
    """A writer for a file in a directory, or for a local file that is uploaded to a store on success."""
    if stage.path is not None:
        where: Any = stage.path / name
    else:
        where = published.enter_context(stage.create(name, keep=False))
    writer = pq.ParquetWriter(where, columns, store_decimal_as_integer=True)
    writer.add_key_value_metadata({SPARK_SCHEMA: schema.json()})
    return writer


def _group_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Groups of batches that fill a row group."""
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


# Runs in the driver, or in a task if only the workers can access the directory. Tasks may be retried.


def _finish(
    target: Store, stage: Store, parts: list[tuple[str, int]], mode: str, schema: StructType, columns: pa.Schema
) -> Written:
    """Publish the files of successful tasks."""
    if not parts and not (mode == "append" and exists(target)):
        parts = [(_empty(stage, schema, columns), 0)]
    commit(target, stage, [file for file, _ in parts], mode)
    return Written(len(parts), sum(rows for _, rows in parts))


def _empty(stage: Store, schema: StructType, columns: pa.Schema) -> str:
    """A file without rows, so that the columns can be read."""
    name = f"part-00000-{stage.name.rpartition('-')[2]}.parquet"
    with ExitStack() as published, _open_writer(stage, name, columns, schema, published):
        pass
    return name
