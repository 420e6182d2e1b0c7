"""Plans joins of two streams: within a window, which may follow from watermarks, or without one."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import InputError, PlanError
from dovetail.planning.operator_choice import operators_within_windows
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.request import Request
from dovetail.routing import one_bucket, window_cells, window_router
from dovetail.routing.routers import HashRouter, Router
from dovetail.spark.batch.tables import unique_side
from dovetail.spark.frames.binding import after_join
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.schemas import carried_schema, result_fields
from dovetail.spark.session.options import AVAILABLE, SOURCE, ends_of, latency_s
from dovetail.spark.session.settings import parallelism, shuffle_partitions
from dovetail.spark.streaming.end_of_stream import add_end_column, without_ends
from dovetail.spark.streaming.late_rows import warn_of_late_rows
from dovetail.spark.streaming.state_dir import state_directory, use_rocksdb
from dovetail.spark.streaming.stream_join import Setting, StreamJoin
from dovetail.spark.streaming.streams import join_streams
from dovetail.spark.streaming.watermarks import bounded_window, event_time_fields, other_watermarks, with_delays
from dovetail.spark.streaming.window_join import WindowJoin, window_inputs
from dovetail.window import Window


def plan_streams(asked: FrameJoin, window: Window | None) -> Planned:
    """The plan of a join of two streams."""
    inputs, bound, request = asked.inputs, asked.bound, asked.request
    if request.limit is not None and bound.after:
        raise PlanError(
            f"limit= on streams does not support {asked.text_after}: only Spark can evaluate it, after the join. "
            f"Leave limit= out, and limit the result: dovetail.join(…).limit({request.limit})."
        )
    if window is None and request.end is None and request.algorithm in ("auto", *operators_within_windows()):
        window = bounded_window(bound.condition, inputs, bound.window_ends)
    facts = InputFacts("stream", on_spark=True, ends=request.end is not None, window=window)
    plan = asked.plan(facts)
    if asked.needs_spark(plan):
        raise PlanError(
            f"how={plan.how!r} on streams does not support {asked.text_after}: only Spark can evaluate it, after the "
            "join."
        )
    return _plan_unbounded(asked, plan) if window is None else _plan_windowed(asked, plan, window)


def checked_window(window: Window | None, left: DataFrame, right: DataFrame) -> Window:
    """The window of two streams. It takes its delay from their watermarks."""
    if window is None:
        raise InputError("streams need a window here: dovetail.window(rows=…) or dovetail.window(time=…, on=…).")
    return with_delays(window, (left, right))


def stream_setting(
    frame: DataFrame, request: Request, has_ends: bool = False, ends_when_idle: bool = False, limit: int | None = None
) -> Setting:
    """Where and how a streaming join runs. Also prepares the session for the state."""
    spark = frame.sparkSession
    use_rocksdb(spark)
    where = (shuffle_partitions(frame), state_directory(request.state_dir, spark), request.metrics)
    return Setting(*where, has_ends, ends_when_idle, latency_s(request), parallelism(spark), limit)


# Without a window.


def _plan_unbounded(asked: FrameJoin, plan: JoinPlan) -> Planned:
    condition, cells = plan.condition, asked.request.cells or shuffle_partitions(asked.inputs[0])
    router: Router
    if condition.equalities:
        router = HashRouter(condition, cells)
        choice = Choice("hash", "equal keys share a cell, one per state partition")
    else:
        # No row of a full join may be copied, since one cell must tell whether it has a partner at all.
        router, choice = one_bucket(condition, 1 if plan.how is JoinType.FULL else cells, (1, 1), unique_side(plan.how))
    plan = replace(plan, router=choice, cells=router.cells, tasks=router.cells)
    return Planned(plan, lambda: _join_unbounded(asked, plan, router))


def _join_unbounded(asked: FrameJoin, plan: JoinPlan, router: Router) -> DataFrame:
    inputs, bound, request, output = asked.inputs, asked.bound, asked.request, asked.output
    ends = ends_of(request)
    setting = stream_setting(inputs[0], request, ends is not None, request.end == AVAILABLE, request.limit)
    join = StreamJoin(plan, bound.extra, output, setting, router)
    fields = event_time_fields(result_fields(inputs, output), inputs, bound.window_ends, None, plan.how)
    names = [bound.visible(side).names for side in Side]
    frames = list(bound.frames)
    if ends is not None:
        frames = [
            add_end_column(frame, names[side], end, f"the {side.name.lower()} stream", trusted=request.trusted)
            for side, frame, end in zip(Side, frames, ends, strict=True)
        ]
    joined = after_join(join_streams(frames, join, carried_schema(fields)), bound, fields)
    return without_ends(joined, names[0] + names[1]) if request.end == SOURCE else joined


# Within a window.


def _plan_windowed(asked: FrameJoin, plan: JoinPlan, window: Window) -> Planned:
    inputs, bound = asked.inputs, asked.bound

    def joined() -> DataFrame:
        join = window_join(asked, plan, window)
        fields = event_time_fields(result_fields(inputs, asked.output), inputs, bound.window_ends, window, plan.how)
        return after_join(join_streams(window_inputs(bound.frames, join), join, carried_schema(fields)), bound, fields)

    cells = window_cells(bound.condition, plan.how, asked.request.cells or shuffle_partitions(inputs[0]))
    _, choice = window_router(bound.condition, plan.how, cells)
    advice = (*plan.advice, *other_watermarks(window, inputs))
    return Planned(replace(plan, router=choice, cells=cells, tasks=cells, advice=advice), joined)


def window_join(asked: FrameJoin, plan: JoinPlan, window: Window) -> WindowJoin:
    """The description of a windowed join for the workers. A stream that is joined with itself is read once."""
    inputs, bound, request = asked.inputs, asked.bound, asked.request
    setting = stream_setting(inputs[0], request, limit=request.limit)
    cells = window_cells(bound.condition, plan.how, request.cells or setting.partitions)
    self_join = inputs[0] is inputs[1] and window.limits is None
    router, _ = window_router(bound.condition, plan.how, cells)
    if window.by_time:
        warn_of_late_rows(inputs[0].sparkSession)
    common = (plan, bound.extra, asked.output, setting)
    return WindowJoin(*common, window=window, cells=cells, self_join=self_join, router=router)
