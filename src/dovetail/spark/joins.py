"""Joins of DataFrames: tables at rest through one shuffle, streams through a stateful operator or past a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

from dovetail.condition import Column, spark_sql, text_of
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import InputError, PlanError
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import output_schema
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import SPARK, InputFacts, plan_join
from dovetail.planning.statistics import Sample
from dovetail.routing import one_bucket, window_cells, window_router
from dovetail.routing.routers import HashRouter, Router
from dovetail.spark.batch.tables import is_both_unique, joined_tables, look_at, route, unique_side
from dovetail.spark.diag.join import FrameDiagonals
from dovetail.spark.frames.binding import Bound, after_join, bind_frames, by_position, position_name
from dovetail.spark.frames.columnless import with_columns, without_marks
from dovetail.spark.frames.sampling import sample_side
from dovetail.spark.frames.schemas import carried_schema, result_fields
from dovetail.spark.frames.sink import remember_join
from dovetail.spark.session.options import AVAILABLE, SOURCE, Options, check_told, end_sql
from dovetail.spark.session.settings import parallelism, shuffle_partitions
from dovetail.spark.sources.columns import END
from dovetail.spark.streaming.late_rows import warn_of_late_rows
from dovetail.spark.streaming.state_dir import state_directory, table_directory, use_rocksdb
from dovetail.spark.streaming.static_join import StaticJoin, join_with_table, prepare_table
from dovetail.spark.streaming.stream_join import Setting, StreamJoin
from dovetail.spark.streaming.streams import join_streams
from dovetail.spark.streaming.watermarks import bounded_window, event_time_fields, other_watermarks, with_delays
from dovetail.spark.streaming.window_join import WindowJoin, window_inputs
from dovetail.spark.worker_python import prepare_workers
from dovetail.window import Window

MARK = "__dovetail_end"

Inputs = tuple[DataFrame, DataFrame]


@dataclass(frozen=True, slots=True)
class Planned:
    """A join before it runs: what `explain` shows is what `frame` does."""

    plan: JoinPlan
    frame: Callable[[], DataFrame]

    def with_limit(self, limit: int | None) -> Planned:
        """The same join, of which any so many rows are wanted. Of streams, Spark's state has how many came before."""
        return self if limit is None else Planned(self.plan, lambda: self.frame().limit(limit))


def join_dataframes(left: DataFrame, right: DataFrame, on: Any, how: str, **setting: Any) -> DataFrame:
    """The join as a DataFrame; a streaming one if the inputs stream. Arguments as of `plan_dataframes`."""
    return without_marks(plan_dataframes(left, right, on, how, **setting).frame())


def explain_dataframes(left: DataFrame, right: DataFrame, on: Any, how: str, **setting: Any) -> JoinPlan:
    """The plan of a join; samples the inputs as the join itself would. Arguments as of `plan_dataframes`."""
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
    inputs, bound = (left, right), bind_frames(on, left, right, options.trusted)
    output = _output(bound, suffix, JoinType.read(how), left)
    if not left.isStreaming and not right.isStreaming:
        return _plan_tables(inputs, bound, how, algorithm, memory_bytes, parameters, options, output, limit)
    if limit == 0:
        raise PlanError("limit=0 of streams would be a query without rows. Give a limit of 1 or more.")
    if left.isStreaming != right.isStreaming:
        return _plan_with_table(inputs, bound, how, algorithm, memory_bytes, options, output).with_limit(limit)
    if limit is not None and bound.after:
        raise PlanError(
            f"limit= on streams does not support {_text_after(bound)}: only Spark can evaluate it, after the join. "
            f"Leave limit= out, and limit the result: dovetail.join(…).limit({limit})."
        )
    if window is None and options.end is None and algorithm in ("auto", "spo"):
        window = bounded_window(bound.condition, inputs, bound.window_ends)
    facts = InputFacts("stream", on_spark=True, ends=options.end is not None, window=window)
    plan = _plan_cell(bound, how, facts, algorithm, memory_bytes, parameters)
    if window is not None:
        return _plan_windowed(inputs, bound, plan, window, options, output, limit).with_limit(limit)
    return _plan_streams(inputs, bound, plan, options, output, suffix, limit).with_limit(limit)


def join_bound(inputs: Inputs, bound: Bound, options: Options) -> DataFrame:
    """The inner join of tables at rest on a condition that was read before."""
    plan = _plan_cell(bound, "inner", InputFacts(on_spark=True, native=True), "auto", None)
    return _plan_cells(inputs, bound, plan, options, _output(bound, "_right", JoinType.INNER, inputs[0])).frame()


def _plan_cell(
    bound: Bound,
    how: str,
    facts: InputFacts,
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any] | None = None,
) -> JoinPlan:
    """The plan of one cell."""
    plan = plan_join(bound.condition, how, facts, algorithm=algorithm, memory_bytes=memory_bytes, parameters=parameters)
    checked = tuple(f"{text_of(part)} can be checked by Spark only, on every joined row" for part in bound.after)
    return replace(plan, advice=(*plan.advice, *checked))


def _output(bound: Bound, suffix: str, how: JoinType, frame: DataFrame) -> pa.Schema:
    """The schema of the result. Where Spark ignores case, a name that differs in case only clashes, too."""
    left, right = bound.visible(Side.LEFT), bound.visible(Side.RIGHT)
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        taken = {name.lower() for name in left.names}
        clashing = [f.name not in left.names and f.name.lower() in taken for f in right]
        right = pa.schema([f.with_name(f.name + suffix) if c else f for f, c in zip(right, clashing, strict=True)])
    return output_schema(left, right, suffix, how)


# Tables at rest.

TWO_PASSES = "a full join is a left join, and the right rows without a partner by a second pass over both sides"


def _plan_tables(
    inputs: Inputs,
    bound: Bound,
    how: str,
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any],
    options: Options,
    output: pa.Schema,
    limit: int | None,
) -> Planned:
    options.check_window(algorithm)
    diagonals = FrameDiagonals(inputs, bound, output, options)
    facts = InputFacts(on_spark=True, diagonal=diagonals, native=options.cells is None and options.sample)
    plan = _plan_cell(bound, how, facts, algorithm, memory_bytes, parameters)
    join = diagonals.join
    if join is not None:
        return Planned(plan, lambda: remember_join(join.frame(), join)).with_limit(limit)
    return _plan_cells(inputs, bound, plan, options, output, limit).with_limit(limit)


def _plan_cells(
    inputs: Inputs, bound: Bound, plan: JoinPlan, options: Options, output: pa.Schema, limit: int | None = None
) -> Planned:
    if _needs_spark(bound, plan):
        plan = _by_spark_plan(bound, plan)
    if plan.operator.name == SPARK:
        return Planned(plan, lambda: _join_by_spark(bound, plan, inputs, output))
    plan, look = look_at(bound, plan, options)
    routed = route(plan, look)
    if plan.how is not JoinType.FULL or is_both_unique(routed):
        return Planned(routed.plan, lambda: joined_tables(inputs, bound, routed, output, limit))
    # Rows of both sides are copied, so that no cell alone can tell which have no partner at all.
    passes = [route(replace(plan, how=how), look) for how in (JoinType.LEFT, JoinType.RIGHT_ANTI)]
    first = passes[0].plan
    return Planned(
        replace(first, how=JoinType.FULL, advice=(*first.advice, TWO_PASSES)),
        lambda: reduce(DataFrame.unionAll, (joined_tables(inputs, bound, one, output, limit) for one in passes)),
    )


def _needs_spark(bound: Bound, plan: JoinPlan) -> bool:
    """Whether rows have a partner is for Spark alone to say."""
    return bool(bound.after) and plan.how is not JoinType.INNER


def _by_spark_plan(bound: Bound, plan: JoinPlan) -> JoinPlan:
    choice = Choice(SPARK, f"Spark's own join, because only Spark can evaluate {_text_after(bound)}")
    return replace(plan, operator=choice, at_rest=False)


def _text_after(bound: Bound) -> str:
    """The part of the condition that only Spark can evaluate."""
    return " AND ".join(text_of(part) for part in bound.after)


def _join_by_spark(bound: Bound, plan: JoinPlan, inputs: Inputs, output: pa.Schema) -> DataFrame:
    """Spark's own join, on the same condition."""
    left, right = by_position(inputs[0]), by_position(inputs[1])
    width = len(left.columns)
    right = right.toDF(*(position_name(width + i) for i in range(len(right.columns))))
    names = (inputs[0].columns, inputs[1].columns)

    def position_of(column: Column) -> str:
        position = names[column.side].index(column.name)
        return position_name(position + (width if column.side is Side.RIGHT else 0))

    conjuncts = [F.expr(spark_sql(conjunct, position_of)) for conjunct in bound.written]
    return left.join(right, conjuncts, plan.how).toDF(*output.names)


# Streams.


def _plan_streams(
    inputs: Inputs,
    bound: Bound,
    plan: JoinPlan,
    options: Options,
    output: pa.Schema,
    suffix: str,
    limit: int | None,
) -> Planned:
    condition, cells = plan.condition, options.cells or shuffle_partitions(inputs[0])
    _refuse_after(bound, plan)
    router: Router
    if condition.equalities:
        router = HashRouter(condition, cells)
        choice = Choice("hash", "equal keys share a cell, one per state partition")
    else:
        # No row of a full join may be copied: whether it has a partner at all is for one cell to say.
        router, choice = one_bucket(condition, 1 if plan.how is JoinType.FULL else cells, (1, 1), unique_side(plan.how))
    plan = replace(plan, router=choice, cells=router.cells, tasks=router.cells)
    return Planned(plan, lambda: _join_streams(inputs, bound, plan, router, options, output, suffix, limit))


def _join_streams(
    inputs: Inputs,
    bound: Bound,
    plan: JoinPlan,
    router: Router,
    options: Options,
    output: pa.Schema,
    suffix: str,
    limit: int | None,
) -> DataFrame:
    spark = inputs[0].sparkSession
    use_rocksdb(spark)
    directory = state_directory(options.state_dir, spark)
    partitions = shuffle_partitions(inputs[0])
    ends = options.ends is not None, options.end == AVAILABLE
    setting = Setting(partitions, directory, options.metrics, *ends, options.latency_s, parallelism(spark), limit)
    join = StreamJoin(plan, router, bound.extra, output, setting)
    fields = event_time_fields(result_fields(inputs, output), inputs, bound.window_ends, None, plan.how)
    frames = bound.frames
    if options.ends is not None:
        frames = (
            _add_end_column(bound, Side.LEFT, options.ends[0], options.trusted),
            _add_end_column(bound, Side.RIGHT, options.ends[1], options.trusted),
        )
    joined = after_join(join_streams(frames, join, carried_schema(fields)), bound, fields)
    return joined.drop(END, END + suffix) if options.end == SOURCE else joined


def _add_end_column(bound: Bound, side: Side, ends: str, trusted: bool) -> DataFrame:
    """The frame of a side, with one more column: whether the row says that there are no more."""
    frame = bound.frames[side]
    names = bound.visible(side).names
    check_told(ends, names, f"the {side.name.lower()} one")
    readable = frame.toDF(*names, *(f"{MARK}{i}" for i in range(len(frame.columns) - len(names))))
    try:
        return readable.withColumn(MARK, F.expr(end_sql(ends, trusted))).toDF(*frame.columns, MARK)
    except AnalysisException as error:
        raise InputError(
            f"end={ends!r} cannot be evaluated on {', '.join(names)}: {str(error).splitlines()[0]}"
        ) from error


def _refuse_after(bound: Bound, plan: JoinPlan) -> None:
    """Refuse conditions by which a row has a partner, if only Spark can tell."""
    if _needs_spark(bound, plan):
        raise PlanError(
            f"how={plan.how!r} on streams does not support {_text_after(bound)}: only Spark can evaluate it, after the "
            "join."
        )


def _plan_windowed(
    inputs: Inputs,
    bound: Bound,
    plan: JoinPlan,
    window: Window,
    options: Options,
    output: pa.Schema,
    limit: int | None,
) -> Planned:
    _refuse_after(bound, plan)

    def joined() -> DataFrame:
        join = window_join(inputs, bound, plan, window, options, output, limit)
        fields = event_time_fields(result_fields(inputs, output), inputs, bound.window_ends, window, plan.how)
        return after_join(join_streams(window_inputs(bound.frames, join), join, carried_schema(fields)), bound, fields)

    cells = window_cells(bound.condition, plan.how, options.cells or shuffle_partitions(inputs[0]))
    _, choice = window_router(bound.condition, plan.how, cells)
    advice = (*plan.advice, *other_watermarks(window, inputs))
    return Planned(replace(plan, router=choice, cells=cells, tasks=cells, advice=advice), joined)


def window_join(
    inputs: Inputs,
    bound: Bound,
    plan: JoinPlan,
    window: Window,
    options: Options,
    output: pa.Schema,
    limit: int | None = None,
) -> WindowJoin:
    """What the workers of a windowed join need to know. A stream that is joined with itself is read once."""
    frame = inputs[0]
    spark = frame.sparkSession
    use_rocksdb(spark)
    partitions = shuffle_partitions(frame)
    cells = window_cells(bound.condition, plan.how, options.cells or partitions)
    directory = state_directory(options.state_dir, spark)
    self_join = inputs[0] is inputs[1] and window.limits is None
    router, _ = window_router(bound.condition, plan.how, cells)
    if window.by_time:
        warn_of_late_rows(spark)
    setting = Setting(partitions, directory, options.metrics, limit=limit)
    return WindowJoin(plan, window, cells, bound.extra, output, setting, self_join, router)


def checked_window(window: Any, left: DataFrame, right: DataFrame) -> Window:
    """The window, if it is one and there are streams to use it on; it takes its delay from their watermarks."""
    if window is None:
        raise InputError("streams need a window here: dovetail.window(rows=…) or dovetail.window(time=…, on=…).")
    if not isinstance(window, Window):
        raise InputError(f"a window is made by dovetail.window(rows=…) or (time=…, on=…); got {window!r}.")
    if not (left.isStreaming and right.isStreaming):
        raise PlanError("windows are for streams; tables at rest are joined as a whole. Put time into the condition.")
    return with_delays(window, (left, right))


# A stream and a table at rest.


def _plan_with_table(
    inputs: Inputs,
    bound: Bound,
    how: str,
    algorithm: str,
    memory_bytes: int | None,
    options: Options,
    output: pa.Schema,
) -> Planned:
    options.check_table()
    table = Side.RIGHT if inputs[0].isStreaming else Side.LEFT
    plan = _plan_cell(bound, how, InputFacts("stream", on_spark=True, table=table), algorithm, memory_bytes)
    if _needs_spark(bound, plan) or (bound.after and not bound.condition.finds_candidates):
        plan = _by_spark_plan(bound, plan)
    if plan.operator.name == SPARK:
        return Planned(plan, lambda: _join_by_spark(bound, plan, inputs, output))
    sample = sample_side(bound.frames[table], bound.condition, table)
    kept = f"{table.alias}, {sample.rows:,} rows: read and sorted once, when the join is made; micro-batches probe it"
    return Planned(replace(plan, table=kept), lambda: _join_with_table(inputs, bound, plan, sample, options, output))


def _join_with_table(
    inputs: Inputs, bound: Bound, plan: JoinPlan, sample: Sample, options: Options, output: pa.Schema
) -> DataFrame:
    stream = Side.LEFT if inputs[0].isStreaming else Side.RIGHT
    directory = table_directory(options.state_dir, inputs[0].sparkSession)
    join = StaticJoin(Joining(bound.condition, plan.how, output, bound.extra), stream, directory, plan.memory_bytes)
    join = replace(join, parts=prepare_table(bound, join, sample))
    fields = result_fields(inputs, output)
    return after_join(join_with_table(bound.frames[stream], join, carried_schema(fields)), bound, fields)
