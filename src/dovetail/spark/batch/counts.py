"""Counts the results of a join of tables at rest. Pairs are enumerated only if a check needs it.

small files   read and counted by the driver, which takes less time than a Spark job
other tables  one task for some cells each --> a number for each chunk of a cell
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.columns.batches import one_batch
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.processors import default_threads
from dovetail.core.rows import Side
from dovetail.core.threads import allow_threads
from dovetail.execution.at_rest import Counting, count_results, rows_alone
from dovetail.matching import build_matcher
from dovetail.options import Where
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.planning.statistics import read_columns
from dovetail.request import Request
from dovetail.spark.batch.cell import cells_at_rest
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
from dovetail.spark.exchange.packing import as_planned
from dovetail.spark.frames.binding import Bound
from dovetail.spark.frames.columnless import with_columns
from dovetail.spark.frames.file_rows import plain_files
from dovetail.spark.frames.planned import FrameJoin, joined_schema

ROWS = "rows"
HERE_BYTES = 1 << 26  # of columns that the driver reads
HERE_CANDIDATES = 10_000_000  # that the driver checks


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


def count_here(asked: FrameJoin, how: JoinType) -> int | None:
    """The number of results, counted by the driver. None if that may take longer than a Spark job."""
    if asked.bound.after or _is_for_cells(asked.request):
        return None
    bound = _only_read(asked.bound)
    files = [plain_files(frame) for frame in bound.frames]
    sizes = [one.bytes_of(one.columns) for one in files if one is not None]
    if len(sizes) < len(files) or sum(sizes) > HERE_BYTES:
        return None
    left, right = (
        one_batch((as_planned(batch, schema) for batch in one.batches(one.columns)), schema)
        for one, schema in zip(files, bound.condition.schemas, strict=True)
        if one is not None
    )
    partnered = (np.zeros(left.num_rows, np.bool_), np.zeros(right.num_rows, np.bool_))
    with allow_threads(default_threads()):
        matcher = build_matcher(bound.condition, left, right)
        if not matcher.exact and matcher.candidates() > HERE_CANDIDATES:
            return None
        pairs = count_results(matcher, how, partnered)
    return pairs + sum(len(rows_alone(how, side, partnered[side])) for side in how.tracked)


def count_in_tasks(asked: FrameJoin, plan: JoinPlan) -> DataFrame:
    """Numbers in the column `rows` that add up to the number of results."""
    if asked.bound.after or not plan.at_rest:
        return rows_of(plan_cells(asked, plan).frame())
    bound = _only_read(asked.bound)
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


def _only_read(bound: Bound) -> Bound:
    """The same with the columns that the condition reads."""
    return bound.with_columns((read_columns(bound.condition, Side.LEFT), read_columns(bound.condition, Side.RIGHT)))


def _is_for_cells(request: Request) -> bool:
    """Whether the request says how tasks are to run the join."""
    return request.algorithm != "auto" or request.memory is not None or request.cells is not None or not request.sample
