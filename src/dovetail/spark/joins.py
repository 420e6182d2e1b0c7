"""Which way two DataFrames are joined, aggregated or put in order: tables at rest, streams, or one of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from dovetail.condition.select import OrderBy
from dovetail.core.join_types import JoinType
from dovetail.errors import PlanError
from dovetail.execution.steps import Step
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.spark.batch.aggregates import aggregate_tables
from dovetail.spark.batch.ordering import order_keys, ordered_steps
from dovetail.spark.batch.tables import plan_cells
from dovetail.spark.diag.join import FrameDiagonals
from dovetail.spark.frames.binding import bind_frames
from dovetail.spark.frames.columnless import with_columns, without_marks
from dovetail.spark.frames.planned import FrameJoin, Planned, joined_schema
from dovetail.spark.frames.sink import remember_join
from dovetail.spark.session.options import Options
from dovetail.spark.streaming.static_join import plan_with_table
from dovetail.spark.streaming.stream_plans import checked_window, plan_streams
from dovetail.spark.streaming.window_aggregates import aggregate_streams
from dovetail.spark.worker_python import prepare_workers


def join_dataframes(left: DataFrame, right: DataFrame, on: Any, how: str, **setting: Any) -> DataFrame:
    """The join as a DataFrame; a streaming one if the inputs stream. Takes the arguments of `plan_dataframes`."""
    return without_marks(plan_dataframes(left, right, on, how, **setting).frame())


def explain_dataframes(left: DataFrame, right: DataFrame, on: Any, how: str, **setting: Any) -> JoinPlan:
    """The plan of a join; samples the inputs as the join itself would. Takes the arguments of `plan_dataframes`."""
    return plan_dataframes(left, right, on, how, **setting).plan


def plan_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    how: str,
    *,
    suffix: str,
    window: Any,
    memory_bytes: int | None,
    algorithm: str,
    limit: int | None = None,
    **given: Any,
) -> Planned:
    """How two DataFrames are joined. Tables at rest are sampled for it."""
    if left.isStreaming == right.isStreaming and window is None:
        options, parameters = Options.split(given, algorithm)
    else:
        options, parameters = Options.read(given), {}
    prepare_workers(left.sparkSession)
    if window is not None:
        window = checked_window(window, left, right)
    left, right = with_columns(left, right)
    bound = bind_frames(on, left, right, options.trusted)
    output = joined_schema(bound, JoinType.read(how), suffix)
    asked = FrameJoin((left, right), bound, options, output, how, algorithm, memory_bytes, parameters, limit)
    if not left.isStreaming and not right.isStreaming:
        return _plan_tables(asked).with_limit(limit)
    if limit == 0:
        raise PlanError("limit=0 of streams would be a query without rows. Give a limit of 1 or more.")
    if left.isStreaming != right.isStreaming:
        return plan_with_table(asked).with_limit(limit)
    return plan_streams(asked, window).with_limit(limit)


def _plan_tables(asked: FrameJoin) -> Planned:
    """Along the diagonal of two sets of files, or by cells."""
    options = asked.options
    options.check_window(asked.algorithm)
    diagonals = FrameDiagonals(asked.inputs, asked.bound, asked.output, options)
    facts = InputFacts(on_spark=True, diagonal=diagonals, native=options.cells is None and options.sample)
    plan, join = asked.plan(facts), diagonals.join
    if join is not None:
        return Planned(plan, lambda: remember_join(join.frame(), join))
    return plan_cells(asked, plan)


def aggregate_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    aggregates: Mapping[str, str],
    by: str | Sequence[str] | None,
    window: Any = None,
    **given: Any,
) -> DataFrame:
    """Aggregates over the pairs of an inner join, as a DataFrame; for streams, of each left row at its arrival."""
    inputs, options = with_columns(left, right), Options.read(given)
    if window is not None or (left.isStreaming and right.isStreaming):
        return without_marks(aggregate_streams(inputs, on, aggregates, by, window, options))
    return aggregate_tables(inputs, on, aggregates, by, options)


def order_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    how: str,
    *,
    suffix: str,
    algorithm: str,
    order_by: OrderBy,
    limit: int | None,
    **options: Any,
) -> Iterator[Step]:
    """Steps with results in order. Nothing comes before everything is joined; what is wrong is said at once."""
    if left.isStreaming or right.isStreaming:
        raise PlanError(
            "order_by needs tables at rest: the first rows of a stream may come last. Join it, and sort what the "
            "query has written."
        )
    keys = order_keys(left, right, order_by, JoinType.read(how), Options.read(options).trusted)
    joined = join_dataframes(
        left, right, on, how, suffix=suffix, window=None, memory_bytes=None, algorithm=algorithm, **options
    )
    return ordered_steps(joined, keys, (left.columns, right.columns), limit)
