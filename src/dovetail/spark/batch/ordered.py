"""Results of joins of DataFrames in order: Spark sorts them after the join."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

from dovetail.condition import Column, spark_sql
from dovetail.condition.select import OrderBy, OrderKey, parse_order
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Phase, Side
from dovetail.errors import InputError, PlanError
from dovetail.execution.output import MOST_ROWS
from dovetail.execution.steps import Step
from dovetail.spark.frames.binding import by_position, position_name
from dovetail.spark.frames.schemas import arrow_schema, session_zone
from dovetail.spark.joins import join_dataframes


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
    keys = parse_order(order_by, arrow_schema(left), arrow_schema(right), session_zone(left), in_process=False)
    if only is not None and any(key.side is not only for key in keys):
        raise InputError(f"how={how!r} has rows of {only.alias} only: order by columns of that side.")
    joined = join_dataframes(
        left, right, on, how, suffix=suffix, window=None, memory_bytes=None, algorithm=algorithm, **options
    )
    names = (left.columns, right.columns)
    ordered = by_position(joined).orderBy(*(_column(key, names) for key in keys)).toDF(*joined.columns)
    return _steps(ordered if limit is None else ordered.limit(limit))


def _column(key: OrderKey, names: tuple[list[str], list[str]]) -> SparkColumn:
    def spelled(column: Column) -> str:
        position = names[column.side].index(column.name)
        return position_name(position + (len(names[0]) if column.side is Side.RIGHT else 0))

    column = F.expr(spark_sql(key.value, spelled))
    if key.descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


def _steps(ordered: DataFrame) -> Iterator[Step]:
    results = 0
    for batch in ordered.toArrow().to_batches(max_chunksize=MOST_ROWS):
        results += batch.num_rows
        yield Step(batch, Phase.CLEANUP, results, None)
