"""Ordered results: Spark sorts them after the join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import spark_sql
from dovetail.condition.select import OrderBy, OrderKey, parse_order
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Phase
from dovetail.errors import InputError
from dovetail.execution.output import MOST_ROWS
from dovetail.execution.steps import Step
from dovetail.spark.frames.renaming import by_position, joined_names, renamed
from dovetail.spark.frames.schemas import arrow_schema, session_zone


def order_keys(
    left: DataFrame, right: DataFrame, order_by: OrderBy, how: JoinType, trusted: bool
) -> Sequence[OrderKey]:
    """The sort keys, checked to be over columns that the join type returns."""
    schemas = (arrow_schema(left), arrow_schema(right))
    keys = parse_order(order_by, *schemas, session_zone(left), in_process=False, trusted=trusted)
    if how.only is not None and any(key.side is not how.only for key in keys):
        raise InputError(f"how={str(how)!r} has rows of {how.only.alias} only: order by columns of that side.")
    return keys


def ordered_steps(
    joined: DataFrame, keys: Sequence[OrderKey], names: tuple[list[str], list[str]], limit: int | None
) -> Iterator[Step]:
    """Steps with the joined rows in order. `names` are the columns of both inputs."""
    ordered = renamed(by_position(joined).orderBy(*(_order_column(key, names) for key in keys)), joined.columns)
    return _steps(ordered if limit is None else ordered.limit(limit))


def _order_column(key: OrderKey, names: tuple[list[str], list[str]]) -> SparkColumn:
    column = F.expr(spark_sql(key.value, joined_names(*names)))
    if key.descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


def _steps(ordered: DataFrame) -> Iterator[Step]:
    results = 0
    for batch in ordered.toArrow().to_batches(max_chunksize=MOST_ROWS):
        results += batch.num_rows
        yield Step(batch, Phase.CLEANUP, results, None)
