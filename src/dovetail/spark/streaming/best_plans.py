"""Plans joins that find the best partners of a stream's rows: in another stream, or in a table at rest."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from dovetail.condition import Column
from dovetail.condition.best import Best
from dovetail.core.rows import Side
from dovetail.errors import PlanError
from dovetail.execution.as_of_streams import AsOf
from dovetail.planning.best import plan_best
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.routing import one_bucket
from dovetail.routing.routers import HashRouter, Router
from dovetail.spark.best.asof import Times, read_times
from dovetail.spark.best.by_spark import only_spark_knows
from dovetail.spark.frames.binding import after_join
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.schemas import DELAY_MS, carried_schema, is_window, result_fields
from dovetail.spark.session.settings import shuffle_partitions
from dovetail.spark.streaming.as_of_join import AsOfJoin
from dovetail.spark.streaming.late_rows import warn_of_late_rows
from dovetail.spark.streaming.static_best import plan_best_of_table
from dovetail.spark.streaming.stream_plans import stream_setting
from dovetail.spark.streaming.streams import join_streams
from dovetail.spark.streaming.watermarks import without_watermark
from dovetail.storage.budget import bytes_of

WHY = "each left row waits until the watermarks say that no better partner can come"


def plan_best_of_streams(asked: FrameJoin, best: Best) -> Planned:
    """The plan if at least one of the inputs is a stream."""
    condition, request = asked.bound.condition, asked.request
    why = only_spark_knows(asked, best)
    if why:
        raise PlanError(
            f"the best partners of a stream's rows cannot depend on {why}, which only Spark can evaluate. Compute it "
            "as a column of an input first."
        )
    plan = plan_best(condition, request.how, best, bytes_of(request.memory))
    left, right = asked.inputs
    if not left.isStreaming:
        raise PlanError(
            "rows of a table at rest cannot have the best partners in a stream: a better one may always come. Exchange "
            "the inputs, or read the table as a stream with a watermark."
        )
    if not right.isStreaming:
        return plan_best_of_table(asked, plan, best)
    return _plan_two_streams(asked, plan, best)


def _plan_two_streams(asked: FrameJoin, plan: JoinPlan, best: Best) -> Planned:
    bound, request, condition = asked.bound, asked.request, plan.condition
    _refuse_options(asked)
    times = read_times(condition, best)
    if times is None:
        raise PlanError(
            "the best partners of two streams are found by event time only: dovetail.asof, dovetail.nearest on one "
            "column of time with k=1, or top=1 under equalities and one comparison of times that order_by follows. "
            "Write the joined stream to a table, and choose among its rows."
        )
    asof = AsOf(condition, best, times.order, _event_times(asked, times))
    cells = request.cells or shuffle_partitions(asked.inputs[0])
    router: Router
    if condition.equalities:
        router, choice = (
            HashRouter(condition, cells),
            Choice("hash", "equal keys share a cell, one per state partition"),
        )
    else:
        router, choice = one_bucket(condition, 1, (1, 1), None)
    plan = replace(
        plan,
        operator=Choice("as_of", WHY),
        at_rest=False,
        memory_bytes=None,
        router=choice,
        cells=router.cells,
        tasks=router.cells,
        state=tuple(_kept(asof)),
        advice=(*plan.advice, *_advice(asof)),
    )

    def frame() -> DataFrame:
        setting = stream_setting(asked.inputs[0], request, limit=request.limit)
        join = AsOfJoin(plan, bound.extra, asked.output, setting, asof=asof, router=router)
        warn_of_late_rows(asked.inputs[0].sparkSession)
        fields = _fields(asked, asof)
        return after_join(join_streams(bound.frames, join, carried_schema(fields)), bound, fields)

    return Planned(plan, frame)


def _refuse_options(asked: FrameJoin) -> None:
    if asked.request.end is not None:
        raise PlanError(
            "end= is for joins without a watermark. Left rows here are final by the watermarks: leave it out."
        )
    if asked.request.memory is not None:
        raise PlanError(
            "memory= has no meaning for an as-of join of two streams: its state is in segments on disk. Leave it out."
        )


def _event_times(asked: FrameJoin, times: Times) -> tuple[str, str]:
    """The compared columns, which must have the watermarks."""
    names = []
    for side in Side:
        value, schema = times.order.values[side], asked.inputs[side].schema
        marked = [field.name for field in schema.fields if DELAY_MS in field.metadata and not is_window(field)]
        if not isinstance(value, Column) or value.name not in marked:
            name = value.name if isinstance(value, Column) else "ts"
            which = f"its watermark is on {', '.join(marked)}" if marked else "it has none"
            raise PlanError(
                f"the {side.name.lower()} stream needs a watermark on the column of time that is compared; {which}. "
                f"Write {side.name.lower()}.withWatermark({name!r}, '10 minutes'), and compare the column as it is."
            )
        names.append(value.name)
    return names[0], names[1]


def _kept(asof: AsOf) -> list[str]:
    """The lines of explain about the state."""
    limit = "" if asof.tolerance is None else f", at most {asof.tolerance / 1e6:,g} s before it"
    keys = "of each key " if asof.condition.equalities else ""
    match asof.direction:
        case "before":
            return [
                "l until both watermarks have passed it",
                f"r until both watermarks have passed it; {keys}the last one for longer{limit}",
            ]
        case "after":
            return ["l until its partner has come, or the tolerance is over", "r until both watermarks have passed it"]
    return [
        "l until its partner has come and no nearer one can, or the tolerance is over",
        f"r until both watermarks have passed it; {keys}the last one for longer{limit}",
    ]


def _advice(asof: AsOf) -> list[str]:
    found = []
    if asof.direction != "before" and asof.tolerance is None:
        found.append("without tolerance= a left row whose partner never comes waits for ever: its state grows")
    if not asof.condition.equalities:
        found.append("without by= one task does all the work")
    return found


def _fields(asked: FrameJoin, asof: AsOf) -> list[StructField]:
    """The fields of the result. The left time stays event time if rows are emitted as soon as the watermark allows."""
    left = len(asked.inputs[Side.LEFT].schema.fields)
    fields = result_fields(asked.inputs, asked.output)
    return [
        field
        if place < left and asof.direction == "before" and field.name == asof.times[Side.LEFT]
        else without_watermark(field)
        for place, field in enumerate(fields)
    ]
