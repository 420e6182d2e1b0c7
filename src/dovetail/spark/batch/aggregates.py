"""Aggregates over the pairs of tables at rest: partial aggregates in the cells, merged by Spark.

rows, by cell --> partial aggregates, one row per cell and group --> Spark: sum, min, max by group --> finished
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.aggregates import finish, partial_columns, partial_schema, result_schema
from dovetail.condition import columns_of, spark_sql
from dovetail.condition.select import (
    Aggregate,
    GroupColumn,
    check_names,
    parse_aggregates,
    parse_by,
)
from dovetail.core.rows import Side
from dovetail.execution.at_rest import Aggregating, Work
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.planning.statistics import read_columns
from dovetail.request import Request
from dovetail.spark.batch.cell import cells_at_rest
from dovetail.spark.batch.tables import bind_tables, in_cells, look_at, plan_cells, route
from dovetail.spark.exchange.packing import Rewrite, as_planned
from dovetail.spark.frames.binding import Bound
from dovetail.spark.frames.planned import FrameJoin, Inputs, joined_schema
from dovetail.spark.frames.renaming import by_position, joined_names
from dovetail.spark.frames.schemas import session_zone
from dovetail.spark.session.workers import freeze_modules

Wanted = tuple[tuple[Aggregate, ...], tuple[GroupColumn, ...]]


def aggregate_tables(request: Request, inputs: Inputs, aggregates: Mapping[str, str]) -> DataFrame:
    """Aggregates over the pairs of an inner join, as a DataFrame."""
    bound = bind_tables(request, inputs)
    schemas, zone = (bound.visible(Side.LEFT), bound.visible(Side.RIGHT)), session_zone(inputs[0])
    wanted, groups = parse_aggregates(aggregates, *schemas, zone), parse_by(request.by, *schemas, zone)
    check_names(groups, wanted)
    if bound.after:
        return _aggregated_by_spark(_joined(request, inputs, bound), bound, (wanted, groups))
    bound = bound.with_columns(_columns(bound, (wanted, groups)))
    schema = from_arrow_schema(partial_schema(wanted, groups), prefer_timestamp_ntz=True)
    partial = _work(request, bound, Aggregating(bound.condition, wanted, groups), schema)
    keys = schema.names[: len(groups)]
    merged = partial.groupBy(*keys).agg(
        *(
            getattr(F, column.merge)(name).alias(name)
            for name, column in zip(schema.names[len(keys) :], partial_columns(wanted), strict=True)
        )
    )
    results = from_arrow_schema(result_schema(wanted, groups), prefer_timestamp_ntz=True)
    return merged.mapInArrow(_finisher(wanted, groups), results)


def _joined(request: Request, inputs: Inputs, bound: Bound) -> DataFrame:
    """The pairs themselves, if Spark has to filter them."""
    asked = FrameJoin(request, inputs, bound, joined_schema(bound))
    return plan_cells(asked, asked.plan(InputFacts(on_spark=True, native=True))).frame()


def _work(request: Request, bound: Bound, work: Work, schema: Any) -> DataFrame:
    plan, look = look_at(bound, plan_join(bound.condition), request, listed=False)
    routed = route(plan, look)
    return in_cells(bound, routed, cells_at_rest(routed.work_in(work), routed.first, None), schema)


def _columns(bound: Bound, wanted: Wanted) -> tuple[set[str], set[str]]:
    """All columns that are needed."""
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
        freeze_modules()

    return finished


def _aggregated_by_spark(joined: DataFrame, bound: Bound, wanted: Wanted) -> DataFrame:
    """Aggregation by Spark, for pairs that Spark has to filter."""
    names = joined_names(bound.visible(Side.LEFT).names, bound.visible(Side.RIGHT).names)

    def expression(aggregate: Aggregate) -> SparkColumn:
        inside = "*" if aggregate.value is None else spark_sql(aggregate.value, names)
        return F.expr(f"{aggregate.function}({inside})").alias(aggregate.name)

    keys = [F.expr(spark_sql(group.value, names)).alias(group.name) for group in wanted[1]]
    return by_position(joined).groupBy(*keys).agg(*(expression(aggregate) for aggregate in wanted[0]))
