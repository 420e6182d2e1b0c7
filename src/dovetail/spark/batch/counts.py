"""Counts the results of a join of tables at rest. Pairs are enumerated only if a check needs it.

small files   read and counted by the driver, which takes less time than a Spark job
other tables  one task for some cells each --> a number for each chunk of a cell
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.execution.at_rest import Counting
from dovetail.options import Where
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.request import Request
from dovetail.spark.batch.cell import cells_at_rest
from dovetail.spark.batch.small_files import count_here
from dovetail.spark.batch.tables import (
    Look,
    bind_tables,
    in_cells,
    is_both_unique,
    look_at,
    native_if_cheaper,
    plan_cells,
    route,
)
from dovetail.spark.frames.binding import Bound
from dovetail.spark.frames.columnless import with_columns
from dovetail.spark.frames.planned import FrameJoin, joined_schema

ROWS = "rows"


def count_dataframes(request: Request) -> int:
    """Count the pairs of an inner join."""
    request.refuse_outside(Where.FRAMES)
    inputs = with_columns(*request.input_list)
    bound = bind_tables(request, inputs)
    asked = FrameJoin(request, inputs, bound, joined_schema(bound))
    here = count_here(asked, JoinType.INNER)
    if here is not None:
        return here
    counts = count_in_tasks(asked, asked.plan(InputFacts(on_spark=True, native=True)))
    return int(counts.agg(F.sum(ROWS)).collect()[0][0] or 0)


def rows_of(joined: DataFrame) -> DataFrame:
    """The number of rows of a DataFrame, as the column `rows`."""
    return joined.agg(F.count(F.lit(1)).alias(ROWS))


def count_in_tasks(asked: FrameJoin, plan: JoinPlan) -> DataFrame:
    """Numbers in the column `rows` that add up to the number of results."""
    if asked.bound.after or not plan.at_rest:
        return rows_of(plan_cells(asked, plan).frame())
    bound = asked.bound.only_read()
    plan, look = look_at(bound, replace(plan, graph=Graph.of(bound.condition)), asked.request, listed=False)
    plan, native = native_if_cheaper(asked, plan, look)
    return _in_cells(bound, plan, look) if native is None else rows_of(native.frame())


def _in_cells(bound: Bound, plan: JoinPlan, look: Look) -> DataFrame:
    routed = route(plan, look)
    if plan.how is JoinType.FULL and not is_both_unique(routed):
        first, second = (_in_cells(bound, replace(plan, how=how), look) for how in (JoinType.LEFT, JoinType.RIGHT_ANTI))
        return first.unionAll(second)
    work = Counting(bound.condition, plan.how)
    return in_cells(
        bound, routed, cells_at_rest(routed.work_in(work), routed.first, plan.memory_bytes), f"{ROWS} bigint"
    )
