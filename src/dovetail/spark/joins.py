"""Which way two DataFrames are joined, aggregated or put in order: tables at rest, streams, or one of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame

from dovetail.core.join_types import JoinType
from dovetail.errors import PlanError
from dovetail.execution.steps import Step
from dovetail.options import Where
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.request import Request
from dovetail.spark.batch.aggregates import aggregate_tables
from dovetail.spark.batch.ordering import order_keys, ordered_steps
from dovetail.spark.batch.tables import plan_cells
from dovetail.spark.diag.join import FrameDiagonals
from dovetail.spark.frames.binding import bind_frames
from dovetail.spark.frames.columnless import with_columns, without_marks
from dovetail.spark.frames.planned import FrameJoin, Planned, joined_schema
from dovetail.spark.frames.sink import remember_join
from dovetail.spark.streaming.static_join import plan_with_table
from dovetail.spark.streaming.stream_plans import checked_window, plan_streams
from dovetail.spark.streaming.window_aggregates import aggregate_streams
from dovetail.spark.worker_python import prepare_workers


def join_dataframes(request: Request) -> DataFrame:
    """The join as a DataFrame; a streaming one if the inputs stream."""
    return without_marks(_plan_checked(request).frame())


def explain_dataframes(request: Request) -> JoinPlan:
    """The plan of a join; samples the inputs as the join itself would."""
    if request.order_by is not None:
        return _plan_dataframes(_before_sorting(request)).plan
    return _plan_checked(request).plan


def _plan_checked(request: Request) -> Planned:
    """How two DataFrames are joined, unless options mean nothing for them."""
    streaming = sum(frame.isStreaming for frame in request.input_list)
    at = (Where.FRAMES, Where.WITH_TABLE, Where.STREAMS if request.window is None else Where.WINDOWED)
    request.refuse_outside(at[streaming])
    return _plan_dataframes(request)


def _plan_dataframes(request: Request) -> Planned:
    """How two DataFrames are joined. Tables at rest are sampled for it."""
    left, right = request.input_list
    prepare_workers(left.sparkSession)
    window = None if request.window is None else checked_window(request.window, left, right)
    left, right = with_columns(left, right)
    bound = bind_frames(request.on, left, right, request.trusted)
    output = joined_schema(bound, JoinType.read(request.how), request.suffix)
    asked, limit = FrameJoin(request, (left, right), bound, output), request.limit
    if not left.isStreaming and not right.isStreaming:
        return _plan_tables(asked).with_limit(limit)
    if limit == 0:
        raise PlanError("limit=0 of streams would be a query without rows. Give a limit of 1 or more.")
    if left.isStreaming != right.isStreaming:
        return plan_with_table(asked).with_limit(limit)
    return plan_streams(asked, window).with_limit(limit)


def _plan_tables(asked: FrameJoin) -> Planned:
    """Along the diagonal of two sets of files, or by cells."""
    request = asked.request
    diagonals = FrameDiagonals(asked.inputs, asked.bound, asked.output, request)
    facts = InputFacts(on_spark=True, diagonal=diagonals, native=request.cells is None and request.sample)
    plan, join = asked.plan(facts), diagonals.join
    if join is not None:
        return Planned(plan, lambda: remember_join(join.frame(), join))
    return plan_cells(asked, plan)


def aggregate_dataframes(request: Request, aggregates: Mapping[str, str]) -> DataFrame:
    """Aggregates over the pairs of an inner join, as a DataFrame; for streams, of each left row at its arrival."""
    left, right = request.input_list
    streams = left.isStreaming and right.isStreaming
    request.refuse_outside(Where.WINDOWED if streams else Where.FRAMES)
    inputs = with_columns(left, right)
    if streams:
        return without_marks(aggregate_streams(request, inputs, aggregates))
    return aggregate_tables(request, inputs, aggregates)


def order_dataframes(request: Request) -> Iterator[Step]:
    """Steps with results in order. Nothing comes before everything is joined; what is wrong is said at once."""
    left, right = request.input_list
    first = _before_sorting(request)
    keys = order_keys(left, right, request.order_by, JoinType.read(request.how), request.trusted)
    joined = without_marks(_plan_dataframes(first).frame())
    return ordered_steps(joined, keys, (left.columns, right.columns), request.limit)


def _before_sorting(request: Request) -> Request:
    """The join whose results are sorted: all of them, in cells without a budget."""
    request.refuse_outside(Where.ORDERED_FRAMES)
    if any(frame.isStreaming for frame in request.input_list):
        raise PlanError(
            "order_by needs tables at rest: the first rows of a stream may come last. Join it, and sort what the "
            "query has written."
        )
    return request.but(memory=None, limit=None)
