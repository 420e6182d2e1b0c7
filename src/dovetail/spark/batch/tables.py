"""Joins of DataFrames at rest, through one shuffle of packed batches.

left  --route, pack--+                                                    +--> DataFrame
                     +--> one task for some cells each, join, unpack -----+
right --route, pack--+                                                    +--> Spark's own filters, where needed
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructField, StructType, VariantType

from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import PlanError, WorkerError
from dovetail.execution.at_rest import Joining, Work, limit_work
from dovetail.planning.kernel_plans import SPARK
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import NATIVE, with_estimate
from dovetail.planning.statistics import Samples
from dovetail.request import Request
from dovetail.routing import Task, choose_router, in_tasks, one_bucket
from dovetail.routing.routers import HashRouter, Router, UnionRouter
from dovetail.spark.batch.cell import cells_at_rest, limit_task, operator_cells
from dovetail.spark.batch.small_files import plan_here
from dovetail.spark.batch.spark_join import by_spark, join_by_spark
from dovetail.spark.exchange.arrow_tasks import map_in_arrow
from dovetail.spark.exchange.labels import repartition_by_id
from dovetail.spark.exchange.packing import PACKED, Rewrite, packer
from dovetail.spark.frames.binding import Bound, after_join, bind_frames
from dovetail.spark.frames.file_rows import Files, for_tasks, plain_files
from dovetail.spark.frames.planned import FrameJoin, Inputs, Planned
from dovetail.spark.frames.sampling import measured_row_bytes, sample_by_spark, sample_sides
from dovetail.spark.frames.schemas import carried_schema, parts_of, result_fields
from dovetail.spark.native.axes import axes_of
from dovetail.spark.native.join import NativeJoin, native_axes, native_join, refusal, seconds_in_workers
from dovetail.spark.session.settings import shuffle_partitions
from dovetail.spark.versions import types_named
from dovetail.spark.worker_python import prepare_workers

ROWS_PER_TASK = 250_000  # of both sides together, if we choose the number of tasks
PAIRS_PER_TASK = 10_000_000
FEWEST_TASKS = 4
MOST_TASKS = 1024
TABLE_BYTES = 48  # upper bound of a hash table's size per row, besides the row itself
EMPTY_TABLE_BYTES = 20 * 1024
TWO_PASSES = "a full join is a left join, and the right rows without a partner by a second pass over both sides"
LARGE = 10_000_000  # rows of a result
WRITE = "to store a result of this size, dovetail.write(joined, path) needs less CPU than joined.write.parquet(path)"
UNEVEN = 1.5  # allowed size of a cell, relative to the average

GEO = types_named("GeographyType", "GeometryType")


class Look(NamedTuple):
    """What is known about both sides. Without samples, only the number of tasks."""

    samples: Samples | None
    tasks: int
    listed: bool = True  # whether listing pairs is part of the work
    files: Files = (None, None)  # files that tasks read themselves


def unique_side(how: JoinType) -> Side | None:
    """The side whose rows must be in one cell, because the join tracks their partners. A full join has two."""
    return how.tracked[0] if len(how.tracked) == 1 else None


@dataclass(frozen=True, slots=True)
class Routed:
    """A plan with its router, and the assignment of cells to tasks."""

    plan: JoinPlan
    router: Router
    task_of: list[int]
    first: Side  # the smaller side: it comes first and is kept in memory
    files: Files = (None, None)

    @property
    def labels(self) -> list[int]:
        """A number for each cell that determines its task in Spark, and that is distinct for cells of one task."""
        return [task + self.plan.tasks * cell for cell, task in enumerate(self.task_of)]

    def work_in(self, work: Work) -> Callable[[int], Work]:
        """The work in the cell of a label. For a union, it joins one of the alternatives."""
        router, tasks = self.router, self.plan.tasks
        if isinstance(router, UnionRouter):
            return lambda label: work.with_condition(router.branch(label // tasks))
        return lambda label: work


def bind_tables(request: Request, inputs: Inputs) -> Bound:
    """The condition of a count or an aggregation, on two tables."""
    if any(frame.isStreaming for frame in inputs):
        raise PlanError("a stream has no final result. Join it, then count or aggregate in the query.")
    prepare_workers(inputs[0].sparkSession)
    return bind_frames(request.on, *inputs, request.trusted)


def look_at(
    bound: Bound, plan: JoinPlan, request: Request, listed: bool = True, files: Files | None = None
) -> tuple[JoinPlan, Look]:
    """Sample both sides, and decide on the number of tasks. `listed`: pairs are listed, not only counted.

    `files`: of both sides, if they are known.
    """
    partitions = shuffle_partitions(bound.frames[0])
    files = for_tasks(plain_files(bound.frames) if files is None else files)
    plan = replace(plan, read=_reading(files))
    if not request.sample:
        return plan, Look(None, request.cells or min(partitions, FEWEST_TASKS), listed, files)
    samples = sample_sides(bound.frames, plan.condition, files=files)
    plan = with_estimate(plan, samples)
    return plan, Look(samples, request.cells or tasks_for(bound, plan, partitions, listed), listed, files)


def _reading(files: Files) -> str:
    read = [side.alias for side in Side if files[side] is not None]
    return f"tasks read the Parquet files of {' and '.join(read)}" if read else ""


def tasks_for(bound: Bound, plan: JoinPlan, partitions: int, listed: bool = True) -> int:
    """Enough tasks to use all cores, to keep tasks small, and to fit the build side of a cell in its budget."""
    assert plan.rows is not None
    assert plan.pairs is not None
    wanted = max(math.ceil(sum(plan.rows) / ROWS_PER_TASK), math.ceil(plan.pairs / PAIRS_PER_TASK) if listed else 0)
    tasks = min(max(FEWEST_TASKS, wanted), max(partitions, FEWEST_TASKS))
    kept = Side.LEFT if plan.rows[0] <= plan.rows[1] else Side.RIGHT
    if plan.memory_bytes is None or plan.at_rest or plan.spec.spills or not plan.rows[kept]:
        return tasks
    row_bytes = max(bound.row_bytes(kept), measured_row_bytes(bound.frames[kept]))
    size = plan.rows[kept] * (row_bytes + TABLE_BYTES) * UNEVEN
    return max(tasks, min(MOST_TASKS, math.ceil(size / (plan.memory_bytes - EMPTY_TABLE_BYTES))))


def route(plan: JoinPlan, look: Look) -> Routed:
    """Choose the router for the plan's join type."""
    any_pair = not plan.at_rest and not plan.driven  # the operator compares every pair of rows
    if look.samples is None or any_pair:
        return _unseen(plan, look, any_pair)
    # An operator joins on the whole condition: in a cell of one alternative it would also find pairs of others.
    unique, by_branch = unique_side(plan.how), plan.how is JoinType.INNER and plan.at_rest
    task = Task(plan.condition, look.samples, look.tasks, unique, look.listed, by_branch)
    routing = choose_router(task)
    task_of = in_tasks(routing.loads, look.tasks)
    plan = replace(plan, router=routing.choice, cells=routing.router.cells, tasks=len(set(task_of)))
    return Routed(plan, routing.router, task_of, _smaller(plan), look.files)


def _unseen(plan: JoinPlan, look: Look, any_pair: bool) -> Routed:
    """A router without samples: by hash, or 1-bucket."""
    router: Router
    if plan.condition.equalities and not any_pair:
        router = HashRouter(plan.condition, look.tasks)
        choice = Choice("hash", "equal keys share a cell")
    else:
        router, choice = one_bucket(plan.condition, look.tasks, plan.rows or (1, 1), unique_side(plan.how))
    cells = list(range(router.cells))
    return Routed(
        replace(plan, router=choice, cells=len(cells), tasks=len(cells)), router, cells, _smaller(plan), look.files
    )


def _smaller(plan: JoinPlan) -> Side:
    rows = plan.rows or (0, 0)
    return Side.LEFT if rows[0] <= rows[1] else Side.RIGHT


def is_both_unique(routed: Routed) -> bool:
    """Whether every row of both sides visits only one cell."""
    return isinstance(routed.router, HashRouter) and not routed.router.heavy


def in_cells(bound: Bound, routed: Routed, work: Rewrite, schema: StructType | str) -> DataFrame:
    """The rows of both sides, grouped by cell and processed."""
    tasks, kept = routed.plan.tasks, routed.plan.how.preserved
    packed = []
    for side in Side:
        pack = packer(side, routed.router, bound.condition.schema(side), routed.labels, side in kept)
        files = routed.files[side]
        if files is not None:  # rows from files have a fixed order
            packed.append(files.rewrite(pack, PACKED))
            continue
        frame = bound.frames[side] if side in kept else bound.passing(side)
        if routed.router.needs_spread:
            frame = in_fixed_order(frame)
        packed.append(frame.mapInArrow(pack, PACKED))
    side_order = F.col("side") if routed.first is Side.LEFT else F.col("side").desc()
    gathered = repartition_by_id(packed[0].unionAll(packed[1]), tasks, F.col("cell") % tasks)
    return map_in_arrow(gathered.sortWithinPartitions("cell", side_order, "seq"), work, schema)


def plan_cells(asked: FrameJoin, plan: JoinPlan, whole: FrameJoin | None = None) -> Planned:
    """Plan the join in cells, run by Python workers or by Spark's own operators.

    `whole` is the same join with the columns that only the condition reads, which Spark prunes itself.
    """
    only_spark = asked.needs_spark(plan)
    if only_spark and not axes_of(plan.condition.strategy, plan.how, Side.LEFT):
        plan = by_spark(asked, plan)
    if plan.operator.name == SPARK:
        return Planned(plan, lambda: join_by_spark(asked, plan))
    files = plain_files(asked.bound.frames)
    here = plan_here(asked, plan, files)
    if here is not None:
        return here
    plan, look = look_at(asked.bound, plan, asked.request, files=files)
    plan, native = native_if_cheaper(whole or asked, plan, look, only_spark)
    if native is not None:
        return Planned(plan, native.frame)
    if only_spark:
        return Planned(by_spark(asked, plan), lambda: join_by_spark(asked, plan))
    if plan.how.emits_pairs and (plan.pairs or 0.0) >= LARGE and not asked.bound.after:
        plan = replace(plan, advice=(*plan.advice, WRITE))
    routed = route(plan, look)

    def joined(one: Routed) -> DataFrame:
        return joined_tables(asked.inputs, asked.bound, one, asked.output, asked.request.limit)

    if plan.how is not JoinType.FULL or is_both_unique(routed):
        return Planned(routed.plan, lambda: joined(routed))
    # Rows of both sides are copied, so no single cell can tell which of them have no partner.
    passes = [route(replace(plan, how=how), look) for how in (JoinType.LEFT, JoinType.RIGHT_ANTI)]
    first = passes[0].plan
    return Planned(
        replace(first, how=JoinType.FULL, advice=(*first.advice, TWO_PASSES)),
        lambda: reduce(DataFrame.unionAll, map(joined, passes)),
    )


def plan_without_workers(asked: FrameJoin, plan: JoinPlan, lacking: WorkerError) -> Planned:
    """The join by Spark's own operators, or by the driver. If neither can, raise what the workers lack."""
    if plan.operator.name == SPARK:
        return Planned(plan, lambda: join_by_spark(asked, plan))
    here = plan_here(asked, plan, plain_files(asked.bound.frames))
    if here is not None:
        return here
    if _is_for_workers(asked.request, plan) or isinstance(native_axes(asked, plan.how), str):
        raise lacking
    samples = sample_by_spark(asked.bound.frames, plan.condition)
    plan = with_estimate(plan, samples)
    found = native_join(asked, plan, samples)
    if isinstance(found, str):
        raise lacking
    warnings.warn(f"Spark's own operators run this join, since {lacking}", RuntimeWarning, stacklevel=2)
    return Planned(found.describe(plan), found.frame)


def _is_for_workers(request: Request, plan: JoinPlan) -> bool:
    """Whether the request has options for cells, or for operators in Python workers."""
    if request.algorithm == NATIVE:
        return False
    return request.memory is not None or request.cells is not None or not plan.at_rest or not request.sample


def native_if_cheaper(
    asked: FrameJoin, plan: JoinPlan, look: Look, only_spark: bool = False
) -> tuple[JoinPlan, NativeJoin | None]:
    """The join by Spark's own operators, if they need less CPU than Python workers, or if requested."""
    request, required = asked.request, asked.request.algorithm == NATIVE
    ours = request.memory is not None or request.cells is not None or not plan.at_rest
    if ours and not required and not only_spark:
        return plan, None
    found = native_join(asked, plan, look.samples, look.listed)
    if isinstance(found, str):
        if required:
            raise refusal(found)
        return plan, None
    read_by_tasks = (look.files[0] is not None, look.files[1] is not None)
    in_workers = seconds_in_workers(asked, plan, read_by_tasks, look.listed)
    cost = f"about {found.seconds:.1f} s of CPU by Spark's own operators, {in_workers:.1f} s in Python workers"
    if required or only_spark or found.seconds < in_workers:
        return replace(found.describe(plan), cost=cost), found
    return replace(plan, cost=cost), None


def joined_tables(
    inputs: Inputs, bound: Bound, routed: Routed, output: pa.Schema, limit: int | None = None
) -> DataFrame:
    """The result of a join with the chosen router. A limit applies to each task."""
    fields = result_fields(inputs, output)
    per_task = None if bound.after else limit  # Spark filters the joined rows, so it may need more
    work = limit_work(Joining(bound.condition, routed.plan.how, output, bound.extra), per_task)
    cells = limit_task(_join_cells(bound, routed, work, output), per_task)
    return after_join(in_cells(bound, routed, cells, carried_schema(fields)), bound, fields)


def _join_cells(bound: Bound, routed: Routed, work: Work, output: pa.Schema) -> Rewrite:
    """The results of the join, before Spark's own filters."""
    plan = routed.plan
    if plan.at_rest:
        return cells_at_rest(routed.work_in(work), routed.first, plan.memory_bytes)
    return operator_cells(plan, routed.first, bound.extra, output)


def in_fixed_order(frame: DataFrame) -> DataFrame:
    """Rows in an order that a retried task sees again, so that distributing them by position is repeatable.

    Equal rows may change places, which changes nothing.
    """
    columns = contents(frame)
    return frame.sortWithinPartitions(F.xxhash64(*columns)) if columns else frame


def contents(frame: DataFrame) -> list[Column]:
    """The columns that a hash uses to distinguish rows."""
    return [content for field in frame.schema.fields if (content := _content(field)) is not None]


def _content(field: StructField) -> Column | None:
    """The column in a form that Spark can hash. None for geometry inside other types, which Spark cannot even print."""
    if isinstance(field.dataType, GEO):
        return F.expr(f"st_asbinary({field.name})")
    parts = list(parts_of(field.dataType))
    if any(isinstance(part, GEO) for part in parts):
        return None
    if any(isinstance(part, MapType | VariantType) for part in parts):
        return F.to_json(F.struct(field.name), {"ignoreNullFields": "false"})
    return F.col(field.name)
