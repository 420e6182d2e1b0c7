"""Results into Parquet files, written by the tasks that make them: Arrow batches never become Spark's rows.

    tasks      one file each, under a name of its own, in a stage that readers do not see
    driver     the files of tasks that succeeded --> what readers see, all at once (publishing.py)

Attempts that fail, or that Spark runs twice, leave files that are never published.
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
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"  # where Spark keeps what Parquet does not know of a column
UNSTORED: tuple[type[Any], ...] = (
    CalendarIntervalType,
    *types_named("GeographyType", "GeometryType"),
    NullType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)


class PartedJoin(Protocol):
    """A join of which most results come from tasks that go by number, and the rest from DataFrames."""

    @property
    def parts(self) -> int: ...
    def hits(self) -> Part: ...
    def rest(self) -> Iterable[DataFrame]: ...


_joins: WeakKeyDictionary[DataFrame, PartedJoin] = WeakKeyDictionary()
_plans: WeakKeyDictionary[DataFrame, Callable[[], DataFrame]] = WeakKeyDictionary()


class Written(NamedTuple):
    """What was written."""

    files: int
    rows: int


def remember_join(frame: DataFrame, join: PartedJoin) -> DataFrame:
    """The frame; if it is written as it is, the tasks of the join write."""
    _joins[frame] = join
    return frame


def join_behind(frame: DataFrame) -> PartedJoin | None:
    """The join whose tasks write this DataFrame."""
    return _joins.get(frame)


def remember_plan(frame: DataFrame, plan: Callable[[], DataFrame]) -> DataFrame:
    """The frame, which Spark has not planned; if it is written as it is, the planned one is."""
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
    """One job that writes everything, and says what."""
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
    """Write batches to a file that no other attempt writes to, and say so when it is complete."""
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
    """A file in a directory, or one of this machine that is put into a store when it is left without an error."""
    if stage.path is not None:
        where: Any = stage.path / name
    else:
        where = published.enter_context(stage.create(name, keep=False))
    writer = pq.ParquetWriter(where, columns, store_decimal_as_integer=True)
    writer.add_key_value_metadata({SPARK_SCHEMA: schema.json()})
    return writer


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


# In the driver, or in a task if only the workers reach the directory. Tasks may be run again.


def _finish(
    target: Store, stage: Store, parts: list[tuple[str, int]], mode: str, schema: StructType, columns: pa.Schema
) -> Written:
    """Let readers see the files of tasks that succeeded."""
    if not parts and not (mode == "append" and exists(target)):
        parts = [(_empty(stage, schema, columns), 0)]
    commit(target, stage, [file for file, _ in parts], mode)
    return Written(len(parts), sum(rows for _, rows in parts))


def _empty(stage: Store, schema: StructType, columns: pa.Schema) -> str:
    """A file without rows, so that its columns can be read."""
    name = f"part-00000-{stage.name.rpartition('-')[2]}.parquet"
    with ExitStack() as published, _open_writer(stage, name, columns, schema, published):
        pass
    return name
