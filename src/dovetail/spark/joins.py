"""Joins of DataFrames: tables at rest through one shuffle, streams through a stateful operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

from dovetail.batch import Side
from dovetail.condition import Column, spark_sql, text_of
from dovetail.errors import InputError, PlanError
from dovetail.operators import operator_class
from dovetail.plan import Choice, JoinPlan
from dovetail.planner import plan_cells, plan_join, plan_window
from dovetail.routers.hash import HashRouter
from dovetail.routers.protocol import Router
from dovetail.routing import one_bucket, window_router
from dovetail.runtimes.output import output_schema
from dovetail.spark.binding import Bound, after_join, bind_frames, by_position, position_name
from dovetail.spark.diagonal import DiagonalPlan, DiagonalTables, chosen_diagonal, wanted_diagonal
from dovetail.spark.options import AVAILABLE, SOURCE, Options, check_told
from dovetail.spark.schemas import carried_schema, result_fields
from dovetail.spark.sink import remember_join
from dovetail.spark.sources.columns import END
from dovetail.spark.state import state_directory, use_rocksdb
from dovetail.spark.stream_cell import AT_ARRIVAL, Setting, TwoStreams
from dovetail.spark.streaming import join_streams
from dovetail.spark.tables import is_both_unique, joined_tables, look_at, route, shuffle_partitions
from dovetail.spark.watermarks import other_watermarks, with_delays
from dovetail.spark.window_plan import WindowJoin
from dovetail.spark.windowed import join_windowed
from dovetail.spark.worker_python import prepare_workers
from dovetail.window import Window

MARK = "__dovetail_end"
DIAG = "diag"

Inputs = tuple[DataFrame, DataFrame]


def join_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    how: str,
    *,
    suffix: str,
    window: Any,
    memory_bytes: int | None,
    algorithm: str,
    **given: Any,
) -> DataFrame:
    """The join as a DataFrame; a streaming one if the inputs stream."""
    options = Options.read(given)
    prepare_workers(left.sparkSession)
    streaming = _streaming(left, right)
    if window is not None:
        window = checked_window(window, left, right)
        return _join_windowed((left, right), on, how, window, suffix, memory_bytes, algorithm, options)
    inputs, bound = (left, right), bind_frames(on, left, right)
    if streaming:
        algorithm = _for_streams(bound, algorithm, memory_bytes, options)
        return _join_streams(inputs, bound, _plan(bound, how, algorithm, memory_bytes, True), options, suffix)
    along, _ = _diagonal(inputs, bound, how, algorithm, memory_bytes, options)
    if along is not None and along.slices:
        join = DiagonalTables(inputs, along, _output(bound, suffix, along.plan.how, left), options)
        if join.is_one_to_many and (algorithm == DIAG or join.pays):
            return remember_join(join.frame(), join)
    return _join_tables(inputs, bound, _plan(bound, how, _ordinary(algorithm), memory_bytes, False), options, suffix)


def join_bound(inputs: Inputs, bound: Bound, options: Options) -> DataFrame:
    """The inner join of tables at rest on a condition that was read before."""
    return _join_tables(inputs, bound, _plan(bound, "inner", "auto", None, False), options, "_right")


def explain_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    how: str,
    *,
    window: Any,
    memory_bytes: int | None,
    algorithm: str,
    **given: Any,
) -> JoinPlan:
    """The plan of a join; samples the inputs where the join itself would."""
    options = Options.read(given)
    prepare_workers(left.sparkSession)
    streaming = _streaming(left, right)
    bound = bind_frames(on, left, right)
    if window is not None:
        window = checked_window(window, left, right)
        plan = plan_window(bound.condition, how, window, algorithm=algorithm, memory_bytes=memory_bytes)
        cells = options.cells or shuffle_partitions(left)
        _, choice = window_router(bound.condition, plan.how, cells)
        return replace(plan, router=choice, cells=cells, tasks=cells, advice=other_watermarks(window, (left, right)))
    if streaming:
        algorithm = _for_streams(bound, algorithm, memory_bytes, options)
        return _stream_plan(_plan(bound, how, algorithm, memory_bytes, True), left, options)[0]
    along, why_not = _diagonal((left, right), bound, how, algorithm, memory_bytes, options)
    if along is not None and along.slices:
        return along.plan
    plan = _plan(bound, how, _ordinary(algorithm), memory_bytes, False)
    plan = replace(plan, advice=(*plan.advice, *why_not))
    if _needs_spark(bound, plan):
        return _by_spark_plan(bound, plan)
    plan, look = look_at(bound, plan, options)
    routed = route(plan, look)
    if plan.how == "full" and not is_both_unique(routed):
        first = route(replace(plan, how="left"), look).plan
        return replace(first, how="full", advice=(*first.advice, TWO_PASSES))
    return routed.plan


def _plan(bound: Bound, how: str, algorithm: str, memory_bytes: int | None, streaming: bool) -> JoinPlan:
    """The plan of one cell."""
    plan_one = plan_join if streaming else plan_cells
    plan = plan_one(bound.condition, how, algorithm=algorithm, memory_bytes=memory_bytes)
    checked = tuple(f"{text_of(part)} can be checked by Spark only, on every joined row" for part in bound.after)
    return replace(plan, advice=(*plan.advice, *checked))


def _diagonal(
    inputs: Inputs, bound: Bound, how: str, algorithm: str, memory_bytes: int | None, options: Options
) -> tuple[DiagonalPlan | None, tuple[str, ...]]:
    """The plan of a join along the diagonal, if it is wanted or pays; why not, if that was found out."""
    options.check_window(algorithm)
    if algorithm == DIAG:
        found = wanted_diagonal(bound, inputs, how, memory_bytes, options)
        return found, () if found.slices else ("not along the diagonal: a side is empty",)
    return chosen_diagonal(bound, inputs, how, memory_bytes, options) if algorithm == "auto" else (None, ())


def _ordinary(algorithm: str) -> str:
    return "auto" if algorithm == DIAG else algorithm


def _output(bound: Bound, suffix: str, how: str, frame: DataFrame) -> pa.Schema:
    """The schema of the result. Where Spark ignores case, a name that differs in case only clashes, too."""
    left, right = bound.visible(Side.LEFT), bound.visible(Side.RIGHT)
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        taken = {name.lower() for name in left.names}
        clashing = [f.name not in left.names and f.name.lower() in taken for f in right]
        right = pa.schema([f.with_name(f.name + suffix) if c else f for f, c in zip(right, clashing, strict=True)])
    return output_schema(left, right, suffix, how)


# Tables at rest.

TWO_PASSES = "a full join is a left join, and the right rows without a partner by a second pass over both sides"


def _join_tables(inputs: Inputs, bound: Bound, plan: JoinPlan, options: Options, suffix: str) -> DataFrame:
    output = _output(bound, suffix, plan.how, inputs[0])
    if _needs_spark(bound, plan):
        return _join_by_spark(bound, plan, inputs, output)
    plan, look = look_at(bound, plan, options)
    routed = route(plan, look)
    if plan.how != "full" or is_both_unique(routed):
        return joined_tables(inputs, bound, routed, output)
    # Rows of both sides are copied, so that no cell alone can tell which have no partner at all.
    left, right = (
        joined_tables(inputs, bound, route(replace(plan, how=how), look), output) for how in ("left", "right_alone")
    )
    return left.unionAll(right)


def _needs_spark(bound: Bound, plan: JoinPlan) -> bool:
    """Whether rows have a partner is for Spark alone to say."""
    return bool(bound.after) and plan.how != "inner"


def _by_spark_plan(bound: Bound, plan: JoinPlan) -> JoinPlan:
    parts = " AND ".join(text_of(part) for part in bound.after)
    return replace(plan, operator=Choice("spark", f"Spark's own join, because only Spark can evaluate {parts}"))


def _join_by_spark(bound: Bound, plan: JoinPlan, inputs: Inputs, output: pa.Schema) -> DataFrame:
    """Spark's own join, on the same condition."""
    left, right = by_position(inputs[0]), by_position(inputs[1])
    width = len(left.columns)
    right = right.toDF(*(position_name(width + i) for i in range(len(right.columns))))
    names = (inputs[0].columns, inputs[1].columns)

    def spelled(column: Column) -> str:
        position = names[column.side].index(column.name)
        return position_name(position + (width if column.side is Side.RIGHT else 0))

    conjuncts = [F.expr(spark_sql(conjunct, spelled)) for conjunct in bound.written]
    return left.join(right, conjuncts, plan.how).toDF(*output.names)


# Streams.


def _for_streams(bound: Bound, algorithm: str, memory_bytes: int | None, options: Options) -> str:
    """Streams that end may have more rows than memory, and need no equality: diner, where it can."""
    condition = bound.condition
    at_once = bool(condition.equalities) and memory_bytes is None
    if algorithm != "auto" or options.end is None or at_once or operator_class("diner").refuses(condition) is not None:
        return algorithm
    return "diner"


def _join_streams(inputs: Inputs, bound: Bound, plan: JoinPlan, options: Options, suffix: str) -> DataFrame:
    output = _output(bound, suffix, plan.how, inputs[0])
    plan, router = _stream_plan(plan, inputs[0], options)
    spark = inputs[0].sparkSession
    use_rocksdb(spark)
    directory = state_directory(options.state_dir, spark)
    partitions = shuffle_partitions(inputs[0])
    ends = options.ends is not None, options.end == AVAILABLE
    setting = Setting(partitions, directory, options.metrics, *ends)
    join = TwoStreams(plan, router, bound.extra, output, setting)
    fields = result_fields(inputs, output)
    frames = bound.frames
    if options.ends is not None:
        frames = (_marked(bound, Side.LEFT, options.ends[0]), _marked(bound, Side.RIGHT, options.ends[1]))
    joined = after_join(join_streams(frames, join, carried_schema(fields)), bound, fields)
    return joined.drop(END, END + suffix) if options.end == SOURCE else joined


def _marked(bound: Bound, side: Side, ends: str) -> DataFrame:
    """The frame of a side, with one more column: whether the row says that there are no more."""
    frame = bound.frames[side]
    names = bound.visible(side).names
    check_told(ends, names, f"the {side.name.lower()} one")
    readable = frame.toDF(*names, *(f"{MARK}{i}" for i in range(len(frame.columns) - len(names))))
    try:
        return readable.withColumn(MARK, F.expr(ends)).toDF(*frame.columns, MARK)
    except AnalysisException as error:
        raise InputError(f"end={ends!r} cannot be told of {', '.join(names)}: {error}") from error


def _join_windowed(
    inputs: Inputs,
    on: Any,
    how: str,
    window: Window,
    suffix: str,
    memory_bytes: int | None,
    algorithm: str,
    options: Options,
) -> DataFrame:
    bound = bind_frames(on, *inputs)
    plan = plan_window(bound.condition, how, window, algorithm=algorithm, memory_bytes=memory_bytes)
    if bound.after and plan.how != "inner":
        parts = " AND ".join(text_of(part) for part in bound.after)
        raise PlanError(
            f"how={plan.how!r} on streams cannot be checked by Spark afterwards, as {parts} would have to be."
        )
    output = _output(bound, suffix, plan.how, inputs[0])
    join = window_join(inputs, bound, plan, window, options, output)
    fields = result_fields(inputs, output)
    return after_join(join_windowed(bound.frames, join, carried_schema(fields)), bound, fields)


def window_join(
    inputs: Inputs, bound: Bound, plan: JoinPlan, window: Window, options: Options, output: pa.Schema
) -> WindowJoin:
    """What the workers of a windowed join need to know. A stream that is joined with itself is read once."""
    frame = inputs[0]
    spark = frame.sparkSession
    use_rocksdb(spark)
    partitions = shuffle_partitions(frame)
    cells, directory = options.cells or partitions, state_directory(options.state_dir, spark)
    self_join = inputs[0] is inputs[1]
    router, _ = window_router(bound.condition, plan.how, cells)
    return WindowJoin(
        plan, window, cells, partitions, directory, bound.extra, output, options.metrics, self_join, router
    )


def checked_window(window: Any, left: DataFrame, right: DataFrame) -> Window:
    """The window, if it is one and there are streams to use it on; it takes its delay from their watermarks."""
    if not isinstance(window, Window):
        raise InputError(f"a window is made by dovetail.window(rows=…) or (time=…, on=…); got {window!r}.")
    if not (left.isStreaming and right.isStreaming):
        raise PlanError("windows are for streams; tables at rest are joined as a whole. Put time into the condition.")
    return with_delays(window, (left, right))


def _stream_plan(plan: JoinPlan, frame: DataFrame, options: Options) -> tuple[JoinPlan, Router]:
    condition, cells = plan.condition, options.cells or shuffle_partitions(frame)
    if not condition.equalities and options.end is None:
        raise PlanError(
            f"{condition.text} has no equality between the two streams: without a window every row would have to be "
            "compared with every other for ever. Say how long rows can match, as in window=dovetail.window(rows=…) or "
            "dovetail.window(time=…, on=…), or add an equality; or, if the streams end, say so by end=… and "
            "algorithm='diner'."
        )
    if plan.operator.name not in AT_ARRIVAL and options.end is None:
        raise PlanError(
            f"algorithm={plan.operator.name!r} leaves pairs for later, which a stream without end never comes to. "
            "If the streams end, say how one can tell: end=\"kind = 'end'\", or end='available' if what is available "
            f"now is all. Else give one of {', '.join(AT_ARRIVAL)}, or leave it to us."
        )
    if condition.equalities:
        choice = Choice("hash", "equal keys share a cell, one per state partition")
        return replace(plan, router=choice, cells=cells, tasks=cells), HashRouter(condition, cells)
    router, choice = one_bucket(condition, cells, (1, 1), None)
    return replace(plan, router=choice, cells=router.cells, tasks=router.cells), router


def _streaming(left: DataFrame, right: DataFrame) -> bool:
    if left.isStreaming != right.isStreaming:
        raise PlanError("one input is a stream and the other a table at rest; give two streams, or two tables.")
    return left.isStreaming
