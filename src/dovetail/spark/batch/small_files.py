"""Joins small Parquet files in the driver, when the query runs. A Spark job takes longer than such a join."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dovetail.columns.batches import one_batch
from dovetail.core.join_types import JoinType
from dovetail.core.processors import default_threads
from dovetail.core.threads import allow_threads
from dovetail.errors import DovetailError, PlanError
from dovetail.execution.at_rest import Batches, Joining, count_results, join_at_rest, rows_alone
from dovetail.matching import build_matcher
from dovetail.planning.plan import JoinPlan
from dovetail.request import Request
from dovetail.spark.exchange.packing import as_planned
from dovetail.spark.frames.binding import Bound, after_join
from dovetail.spark.frames.file_rows import Files, plain_files
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.schemas import carried_schema, result_fields
from dovetail.spark.session.java_sessions import frame_of_table
from dovetail.spark.session.settings import parallelism, plans_at_once
from dovetail.storage.budget import bytes_of

SETTING = "spark.dovetail.smallFiles"  # the size of both inputs in memory, up to which the driver joins them
JOINED_BYTES = "16MB"
JOINED_CANDIDATES = 1_000_000  # that the driver checks
RESULT_BYTES = 1 << 26
ROWS_PER_TASK = 10_000  # of the result, at least
COUNTED_BYTES = 1 << 26
COUNTED_CANDIDATES = 10_000_000
READ = "the driver reads the Parquet files of l and r and joins them when the query runs, without a Spark job"


def count_here(asked: FrameJoin, how: JoinType) -> int | None:
    """The number of results, counted by the driver. None if that may take longer than a Spark job."""
    if asked.bound.after or _is_for_tasks(asked.request):
        return None
    bound = asked.bound.only_read()
    batches = _read(bound, plain_files(bound.frames), COUNTED_BYTES)
    if batches is None:
        return None
    partnered = (np.zeros(batches[0].num_rows, np.bool_), np.zeros(batches[1].num_rows, np.bool_))
    with allow_threads(default_threads()):
        matcher = build_matcher(bound.condition, *batches)
        if not matcher.exact and matcher.candidates() > COUNTED_CANDIDATES:
            return None
        pairs = count_results(matcher, how, partnered)
    return pairs + sum(len(rows_alone(how, side, partnered[side])) for side in how.tracked)


def plan_here(asked: FrameJoin, plan: JoinPlan, files: Files) -> Planned | None:
    """The join by the driver. None if that may take longer than a Spark job, or if the query is not running yet."""
    bound, spark = asked.bound, asked.inputs[0].sparkSession
    if bound.after or not plan.at_rest or _is_for_tasks(asked.request) or plans_at_once(spark):
        return None
    batches = _read(bound, files, _most_bytes(spark))
    if batches is None:
        return None
    with allow_threads(default_threads()):
        pairs = build_matcher(bound.condition, *batches).candidates()
    width = sum(batch.nbytes // max(1, batch.num_rows) for batch in batches)
    rows = sum(batch.num_rows for batch in batches)
    if pairs > JOINED_CANDIDATES or (pairs + rows) * width > RESULT_BYTES:
        return None
    known = (batches[0].num_rows, batches[1].num_rows)
    return Planned(replace(plan, read=READ, rows=known), lambda: _joined(asked, plan.how, batches))


def _is_for_tasks(request: Request) -> bool:
    """Whether the request says how tasks are to run the join."""
    return request.algorithm != "auto" or request.memory is not None or request.cells is not None or not request.sample


def _most_bytes(spark: SparkSession) -> int:
    text = str(spark.conf.get(SETTING, JOINED_BYTES))
    try:
        return 0 if text.strip() == "0" else bytes_of(text) or 0
    except DovetailError as error:
        raise PlanError(f"{SETTING}: {error}") from None


def _read(bound: Bound, files: Files, most_bytes: int) -> Batches | None:
    """Both sides, if they are files of at most this size."""
    left, right = files
    if left is None or right is None or sum(one.bytes_of(one.columns) for one in (left, right)) > most_bytes:
        return None
    first, second = (
        one_batch((as_planned(batch, schema) for batch in one.batches(one.columns)), schema)
        for one, schema in zip((left, right), bound.condition.schemas, strict=True)
    )
    return first, second


def _joined(asked: FrameJoin, how: JoinType, batches: Batches) -> DataFrame:
    """The results, a batch for each task."""
    bound, fields = asked.bound, result_fields(asked.inputs, asked.output)
    work = Joining(bound.condition, how, asked.output, bound.extra)
    with allow_threads(default_threads()):
        table = pa.Table.from_batches(join_at_rest(work, batches, limit=asked.request.limit), asked.output)
    spark = asked.inputs[0].sparkSession
    per_task = max(ROWS_PER_TASK, -(-table.num_rows // parallelism(spark)))
    parts = pa.Table.from_batches(table.combine_chunks().to_batches(per_task), asked.output)
    return after_join(frame_of_table(spark, parts, carried_schema(fields)), bound, fields)
