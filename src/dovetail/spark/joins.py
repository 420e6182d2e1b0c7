"""Dispatches joins, aggregates and ordered joins of two DataFrames: tables at rest, streams, or one of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame

from dovetail.condition import columns_of
from dovetail.condition.best import Best
from dovetail.core.join_types import JoinType
from dovetail.errors import PlanError, WorkerError
from dovetail.execution.steps import Step
from dovetail.inputs import asked_best
from dovetail.options import Where
from dovetail.planning.kernel_plans import SPARK
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.request import Request
from dovetail.spark.batch.aggregates import aggregate_tables
from dovetail.spark.batch.counts import ROWS, count_in_tasks, rows_of
from dovetail.spark.batch.ordering import order_keys, ordered_steps
from dovetail.spark.batch.small_files import count_here
from dovetail.spark.batch.spark_join import by_spark
from dovetail.spark.batch.tables import plan_cells, plan_without_workers
from dovetail.spark.best.choice import plan_best_frames
from dovetail.spark.diag.join import FrameDiagonals
from dovetail.spark.frames.binding import bind_frames
from dovetail.spark.frames.columnless import with_columns, without_marks
from dovetail.spark.frames.planned import FrameJoin, Planned, joined_schema
from dovetail.spark.frames.pruning import Pruning, prune
from dovetail.spark.frames.result_frames import check_unique, columns_of_result, frame_of_result, joined_request
from dovetail.spark.frames.schemas import arrow_schema, session_zone
from dovetail.spark.frames.sink import remember_join
from dovetail.spark.native.join import check_native
from dovetail.spark.streaming.best_plans import plan_best_of_streams
from dovetail.spark.streaming.static_join import plan_with_table
from dovetail.spark.streaming.stream_plans import checked_window, plan_streams
from dovetail.spark.streaming.window_aggregates import aggregate_streams
from dovetail.spark.worker_python import prepare_workers


def join_dataframes(request: Request) -> DataFrame:
    """The join as a DataFrame. It is a streaming one if an input is a stream."""
    _check_places(request)
    columns = columns_of_result(request)
    planned = _plan_dataframes(joined_request(request, columns))
    if request.validate is not None:
        check_unique(request)
    return frame_of_result(without_marks(planned.frame()), columns)


def best_dataframes(request: Request) -> DataFrame:
    """Each left row with its best partners: `top=`, as-of and nearest joins."""
    _check_places(request)
    columns = columns_of_result(request)
    planned = _plan_best(joined_request(request, columns))
    if request.validate is not None:
        check_unique(request)
    return frame_of_result(without_marks(planned.frame()), columns)


def explain_dataframes(request: Request) -> JoinPlan:
    """The plan of a join. Samples the inputs as the join itself would."""
    if request.top is not None or request.call in ("asof", "nearest"):
        _check_places(request)
        return _plan_best(joined_request(request, columns_of_result(request))).plan
    if request.order_by is not None and request.call == "progressive":
        return _plan_dataframes(_before_sorting(request)).plan
    _check_places(request)
    return _plan_dataframes(joined_request(request, columns_of_result(request))).plan


def plan_unseen(request: Request) -> tuple[FrameJoin, JoinPlan]:
    """A join of tables at rest, and its plan as far as it is known without reading data."""
    left, right = with_columns(*request.input_list)
    bound = bind_frames(request.on, left, right, request.trusted)
    suffix = columns_of_result(request.but(columns=None)).suffix
    asked = FrameJoin(request, (left, right), bound, joined_schema(bound, JoinType.read(request.how), suffix))
    plan = asked.plan(_facts(request))
    check_native(asked, plan.how)
    return asked, by_spark(asked, plan) if asked.needs_spark(plan) else plan


def count_rows(request: Request) -> DataFrame:
    """Numbers in the column `rows` that add up to the number of rows of a join of tables at rest."""
    _check_places(request)
    left, right = request.input_list
    try:
        prepare_workers(left.sparkSession)
    except WorkerError:
        return rows_of(join_dataframes(request.but(columns=())))
    left, right = with_columns(left, right)
    bound = bind_frames(request.on, left, right, request.trusted)
    how = JoinType.read(request.how)
    asked = FrameJoin(request, (left, right), bound, joined_schema(bound, how))
    here = count_here(asked, how)
    if here is not None:
        return left.sparkSession.sql(f"SELECT {here}L AS {ROWS}")
    diagonals = FrameDiagonals(asked.inputs, bound, asked.output, request)
    plan = asked.plan(_facts(request, diagonals))
    return count_in_tasks(asked, plan) if diagonals.join is None else rows_of(diagonals.join.frame())


def _check_places(request: Request) -> None:
    """Refuse options that do not apply to these DataFrames."""
    streaming = sum(frame.isStreaming for frame in request.input_list)
    at = (Where.FRAMES, Where.WITH_TABLE, Where.STREAMS if request.window is None else Where.WINDOWED)
    request.refuse_outside(at[streaming])


def _plan_dataframes(request: Request) -> Planned:
    """Plan the join of two DataFrames. Tables at rest are sampled."""
    left, right = request.input_list
    lacking = None
    try:
        prepare_workers(left.sparkSession)
    except WorkerError as error:
        if left.isStreaming or right.isStreaming:
            raise
        lacking = error
    window = None if request.window is None else checked_window(request.window, left, right)
    left, right = with_columns(left, right)
    bound = bind_frames(request.on, left, right, request.trusted)
    output = joined_schema(bound, JoinType.read(request.how), columns_of_result(request.but(columns=None)).suffix)
    pruning, limit = prune(FrameJoin(request, (left, right), bound, output), window), request.limit
    asked = pruning.asked
    if not left.isStreaming and not right.isStreaming:
        planned = _plan_tables(pruning) if lacking is None else _plan_without_workers(pruning, lacking)
        return pruning.select(planned.with_limit(limit))
    _check_limit(request)
    if left.isStreaming != right.isStreaming:
        return pruning.select(plan_with_table(asked).with_limit(limit))
    return pruning.select(plan_streams(asked, window).with_limit(limit))


def _check_limit(request: Request) -> None:
    if request.limit == 0:
        raise PlanError("limit=0 of streams would be a query without rows. Give a limit of 1 or more.")


def check_best(request: Request) -> None:
    """Refuse invalid requests for best partners, before anything is read."""
    _check_places(request)
    _asked_best(request)


def _asked_best(request: Request) -> tuple[FrameJoin, Best]:
    left, right = with_columns(*request.input_list)
    found = asked_best(request, (arrow_schema(left), arrow_schema(right)), session_zone(left), in_process=False)
    assert found is not None
    on, best = found
    bound = bind_frames(on, left, right, request.trusted)
    output = joined_schema(bound, JoinType.read(request.how), columns_of_result(request.but(columns=None)).suffix)
    return FrameJoin(request, (left, right), bound, output), best


def _plan_best(request: Request) -> Planned:
    """Plan how to find the best partners of each left row."""
    prepare_workers(request.input_list[0].sparkSession)
    asked, best = _asked_best(request)
    left, right = asked.inputs
    ordered = {column for key in best.order for column in columns_of(key.value)}
    pruning = prune(asked, also=ordered)
    if not left.isStreaming and not right.isStreaming:
        return pruning.select(plan_best_frames(pruning, best).with_limit(request.limit))
    _check_limit(request)
    return pruning.select(plan_best_of_streams(pruning.asked, best).with_limit(request.limit))


def _plan_tables(pruning: Pruning) -> Planned:
    """Plan a Diag-Join of two sets of files, or a join in cells."""
    asked, request = pruning.asked, pruning.asked.request
    diagonals = FrameDiagonals(asked.inputs, asked.bound, asked.output, request)
    plan, join = asked.plan(_facts(request, diagonals)), diagonals.join
    if join is not None:
        return Planned(plan, lambda: remember_join(join.frame(), join))
    return plan_cells(asked if plan.operator.name == SPARK else pruning.hiding, plan, asked)


def _plan_without_workers(pruning: Pruning, lacking: WorkerError) -> Planned:
    """Plan with Spark's own operators, if workers cannot run our tasks."""
    asked = pruning.asked
    return plan_without_workers(asked, asked.plan(_facts(asked.request)), lacking)


def _facts(request: Request, diagonals: FrameDiagonals | None = None) -> InputFacts:
    return InputFacts(on_spark=True, diagonal=diagonals, native=request.cells is None and request.sample)


def aggregate_dataframes(request: Request, aggregates: Mapping[str, str]) -> DataFrame:
    """Aggregates over the pairs of an inner join, as a DataFrame; for streams, for each left row at its arrival."""
    left, right = request.input_list
    streams = left.isStreaming and right.isStreaming
    request.refuse_outside(Where.WINDOWED if streams else Where.FRAMES)
    inputs = with_columns(left, right)
    if streams:
        return without_marks(aggregate_streams(request, inputs, aggregates))
    return aggregate_tables(request, inputs, aggregates)


def order_dataframes(request: Request) -> Iterator[Step]:
    """Steps with ordered results, emitted after everything is joined. Invalid requests are refused immediately."""
    left, right = request.input_list
    first = _before_sorting(request)
    keys = order_keys(left, right, request.order_by, JoinType.read(request.how), request.trusted)
    joined = without_marks(_plan_dataframes(first).frame())
    steps = ordered_steps(joined, keys, (left.columns, right.columns), request.limit)
    return columns_of_result(request).of_steps(steps)


def _before_sorting(request: Request) -> Request:
    """The join whose results are sorted: all results, in cells without a budget."""
    request.refuse_outside(Where.ORDERED_FRAMES)
    if any(frame.isStreaming for frame in request.input_list):
        raise PlanError(
            "order_by needs tables at rest: the first rows of a stream may come last. Join it, and sort what the "
            "query has written."
        )
    return request.but(memory=None, limit=None)
