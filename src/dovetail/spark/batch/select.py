"""Counts, aggregates and ordered results of joins of DataFrames.

Aggregates are partial in the cells, and merged by Spark:

rows, by cell --> partial aggregates, one row per cell and group --> Spark: sum, min, max by group --> finished

Results in order are sorted by Spark after the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.aggregates import finish, partial_columns, partial_schema, result_schema
from dovetail.condition import Column, columns_of, spark_sql, text_of
from dovetail.condition.select import (
    Aggregate,
    GroupColumn,
    OrderBy,
    OrderKey,
    check_names,
    parse_aggregates,
    parse_by,
    parse_order,
)
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Phase, Side
from dovetail.errors import InputError, PlanError
from dovetail.execution.at_rest import Aggregating, Counting, Work
from dovetail.execution.output import MOST_ROWS
from dovetail.execution.steps import Step
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.planning.statistics import read_columns
from dovetail.spark.batch.cell import cells_at_rest
from dovetail.spark.batch.tables import in_cells, look_at, route
from dovetail.spark.exchange.packing import Rewrite, as_planned
from dovetail.spark.frames.binding import Bound, after_join, bind_frames, by_position, position_name
from dovetail.spark.frames.columnless import with_columns, without_marks
from dovetail.spark.frames.schemas import arrow_schema, carried_schema, session_zone
from dovetail.spark.joins import checked_window, join_bound, join_dataframes, window_join
from dovetail.spark.session.options import Options
from dovetail.spark.session.workers import settle
from dovetail.spark.streaming.streams import join_streams
from dovetail.spark.streaming.window_join import window_inputs
from dovetail.spark.worker_python import prepare_workers

Wanted = tuple[tuple[Aggregate, ...], tuple[GroupColumn, ...]]


def count_dataframes(left: DataFrame, right: DataFrame, on: Any, **given: Any) -> int:
    """How many pairs an inner join has; none of them is enumerated where no check needs it."""
    left, right = with_columns(left, right)
    bound, options = _bind_inputs(left, right, on, given)
    if bound.after:
        joined: int = join_bound((left, right), bound, options).count()
        return joined
    read = (read_columns(bound.condition, Side.LEFT), read_columns(bound.condition, Side.RIGHT))
    bound = bound.with_columns(read)
    counted = _work(bound, Counting(bound.condition), options, "pairs bigint").agg(F.sum("pairs")).collect()
    return int(counted[0][0] or 0)


def aggregate_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    aggregates: Mapping[str, str],
    by: str | Sequence[str] | None,
    window: Any = None,
    **given: Any,
) -> DataFrame:
    """Aggregates over the pairs of an inner join, as a DataFrame; of streams, for each left row at its arrival."""
    if window is not None or (left.isStreaming and right.isStreaming):
        return without_marks(_aggregate_windowed(*with_columns(left, right), on, aggregates, by, window, given))
    left, right = with_columns(left, right)
    bound, options = _bind_inputs(left, right, on, given)
    schemas, zone = (bound.visible(Side.LEFT), bound.visible(Side.RIGHT)), session_zone(left)
    wanted, groups = parse_aggregates(aggregates, *schemas, zone), parse_by(by, *schemas, zone)
    check_names(groups, wanted)
    if bound.after:
        return _aggregated_by_spark(join_bound((left, right), bound, options), bound, (wanted, groups))
    bound = bound.with_columns(_columns(bound, (wanted, groups)))
    schema = from_arrow_schema(partial_schema(wanted, groups), prefer_timestamp_ntz=True)
    partial = _work(bound, Aggregating(bound.condition, wanted, groups), options, schema)
    keys = schema.names[: len(groups)]
    merged = partial.groupBy(*keys).agg(
        *(
            getattr(F, column.merge)(name).alias(name)
            for name, column in zip(schema.names[len(keys) :], partial_columns(wanted), strict=True)
        )
    )
    results = from_arrow_schema(result_schema(wanted, groups), prefer_timestamp_ntz=True)
    return merged.mapInArrow(_finisher(wanted, groups), results)


def _aggregate_windowed(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    aggregates: Mapping[str, str],
    by: str | Sequence[str] | None,
    window: Any,
    given: dict[str, Any],
) -> DataFrame:
    """Each left row at its arrival, with aggregates over its partners in the window of the right stream."""
    options = Options.read(given)
    prepare_workers(left.sparkSession)
    window = checked_window(window, left, right)
    if by is not None:
        raise PlanError("aggregates of streams are per left row: remove by=, and group in the query.")
    bound = bind_frames(on, left, right, options.trusted)
    if bound.after:
        raise PlanError(
            f"only Spark can evaluate {text_of(bound.after[0])}, which needs pairs; join the streams instead."
        )
    schemas = (bound.visible(Side.LEFT), bound.visible(Side.RIGHT))
    wanted = parse_aggregates(aggregates, *schemas, session_zone(left))
    clash = [a.name for a in wanted if a.name in schemas[0].names]
    if clash:
        raise InputError(f"the left side has columns called {', '.join(clash)}: give the aggregates other names.")
    output = pa.schema([*schemas[0], *(pa.field(a.name, a.type) for a in wanted)])
    answers = from_arrow_schema(pa.schema([pa.field(a.name, a.type) for a in wanted]), prefer_timestamp_ntz=True)
    fields = [*left.schema.fields, *answers.fields]
    plan = plan_join(bound.condition, facts=InputFacts("stream", on_spark=True, window=window))
    join = window_join((left, right), bound, plan, window, options, output)
    joined = join_streams(window_inputs(bound.frames, join), replace(join, aggregates=wanted), carried_schema(fields))
    return after_join(joined, bound, fields)


def _bind_inputs(left: DataFrame, right: DataFrame, on: Any, given: dict[str, Any]) -> tuple[Bound, Options]:
    options = Options.read(given)
    if left.isStreaming or right.isStreaming:
        raise PlanError("a stream has no final result; join it, then count or aggregate in the query.")
    prepare_workers(left.sparkSession)
    return bind_frames(on, left, right, options.trusted), options


def _work(bound: Bound, work: Work, options: Options, schema: Any) -> DataFrame:
    plan, look = look_at(bound, plan_join(bound.condition), options, listed=False)
    routed = route(plan, look)
    return in_cells(bound, routed, cells_at_rest(routed.work_in(work), routed.first, None), schema)


def _columns(bound: Bound, wanted: Wanted) -> tuple[set[str], set[str]]:
    """All columns that are read."""
    values = [a.value for a in wanted[0] if a.value is not None] + [group.value for group in wanted[1]]
    read = [column for value in values for column in columns_of(value)]
    left, right = (
        {column.name for column in read if column.side is side} | set(read_columns(bound.condition, side))
        for side in Side
    )
    return left, right


def _finisher(aggregates: tuple[Aggregate, ...], by: tuple[GroupColumn, ...]) -> Rewrite:
    schema = partial_schema(aggregates, by)

    def finished(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield finish(aggregates, by, as_planned(batch, schema))
        settle()

    return finished


def _aggregated_by_spark(joined: DataFrame, bound: Bound, wanted: Wanted) -> DataFrame:
    """Where Spark has to filter the pairs, it has to aggregate them, too."""
    names = (bound.visible(Side.LEFT).names, bound.visible(Side.RIGHT).names)

    def spelled(column: Column) -> str:
        position = names[column.side].index(column.name)
        return position_name(position + (len(names[0]) if column.side is Side.RIGHT else 0))

    def expression(aggregate: Aggregate) -> SparkColumn:
        inside = "*" if aggregate.value is None else spark_sql(aggregate.value, spelled)
        return F.expr(f"{aggregate.function}({inside})").alias(aggregate.name)

    keys = [F.expr(spark_sql(group.value, spelled)).alias(group.name) for group in wanted[1]]
    return by_position(joined).groupBy(*keys).agg(*(expression(aggregate) for aggregate in wanted[0]))


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
            "order_by needs tables at rest: of a stream, the first rows may come last. Join it, and sort what the "
            "query has written."
        )
    only = JoinType.read(how).only
    trusted = Options.read(options).trusted
    schemas = (arrow_schema(left), arrow_schema(right))
    keys = parse_order(order_by, *schemas, session_zone(left), in_process=False, trusted=trusted)
    if only is not None and any(key.side is not only for key in keys):
        raise InputError(f"how={how!r} has rows of {only.alias} only: order by columns of that side.")
    joined = join_dataframes(
        left, right, on, how, suffix=suffix, window=None, memory_bytes=None, algorithm=algorithm, **options
    )
    names = (left.columns, right.columns)
    ordered = by_position(joined).orderBy(*(_order_column(key, names) for key in keys)).toDF(*joined.columns)
    return _ordered_steps(ordered if limit is None else ordered.limit(limit))


def _order_column(key: OrderKey, names: tuple[list[str], list[str]]) -> SparkColumn:
    def spelled(column: Column) -> str:
        position = names[column.side].index(column.name)
        return position_name(position + (len(names[0]) if column.side is Side.RIGHT else 0))

    column = F.expr(spark_sql(key.value, spelled))
    if key.descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


def _ordered_steps(ordered: DataFrame) -> Iterator[Step]:
    results = 0
    for batch in ordered.toArrow().to_batches(max_chunksize=MOST_ROWS):
        results += batch.num_rows
        yield Step(batch, Phase.CLEANUP, results, None)
